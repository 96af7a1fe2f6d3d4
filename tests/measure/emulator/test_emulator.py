"""The CUDA emulator catches what it is there to catch, and gives warp operations their documented meaning."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gensor_gym import operators
from gensor_gym.codegen.kernel import Kernel, Launch
from gensor_gym.measure.emulator.emulator import EmulatedKernels, EmulatorError, emulate, find_cxx
from tests.support import kept_compiler
from tests.support.cuda_schedules import make_kernel, make_schedule, random_inputs

GEMM = operators.gemm(16, 16, 12)
KERNEL = make_kernel(GEMM, make_schedule(GEMM, [2, 2, 1], [8, 8, 4]))
INPUTS = random_inputs(GEMM, np.random.default_rng(0))

OVERRUN = "global-buffer-overflow|insufficient space"
"""A report on shared memory comes from whichever sanitizer sees it first."""

LANES = 64
COPY = operators.elementwise("copy", LANES)
DATA = np.arange(LANES, dtype=np.float32)


def by_hand(body: str, threads: int = LANES, shared: int = 0) -> Kernel:
    """A kernel of one block written here: `in` and `out` of 64 floats, `t` the thread, `tile` in shared memory."""
    text = (
        "extern __shared__ __align__(16) unsigned char shared_memory[];\n"
        'extern "C" __global__ void by_hand(const float *in, float *out, float *workspace) {\n'
        "  float *tile = reinterpret_cast<float *>(shared_memory); (void)tile;\n"
        f"  const int t = threadIdx.x;\n  {body}\n}}\n"
    )
    return Kernel(
        COPY, "cuda", "sm_90", text, (Launch("by_hand", block=(threads, 1, 1), shared_bytes=max(shared, 4)),), 0
    )


def faults(kernel: Kernel, inputs: list[np.ndarray], expected: np.ndarray, seeds: int = 3) -> list[str]:
    """What three orders of threads bring to light: reports, or 'wrong'."""
    found = []
    with EmulatedKernels([kernel]) as program:
        for seed in range(seeds):
            try:
                if not np.allclose(program.run(0, inputs, seed), expected, rtol=1e-5, atol=1e-5):
                    found.append("wrong")
            except EmulatorError as error:
                found.append(str(error))
    return found


def test_a_sound_kernel_has_no_faults() -> None:
    """The kernel that the next tests damage."""
    assert KERNEL.source.count("__syncthreads();") == 2
    assert faults(KERNEL, INPUTS, GEMM.reference(*INPUTS)) == []


@pytest.mark.parametrize("which", [0, 1])
def test_a_deleted_barrier_is_caught(which: int) -> None:
    """Without the barrier before or after the computation some threads read what is not there yet, or not any more."""
    parts = KERNEL.source.split("__syncthreads();")
    damaged = parts[0] + (";" if which == 0 else "__syncthreads();") + parts[1]
    damaged += ("__syncthreads();" if which == 0 else ";") + parts[2]
    found = faults(replace(KERNEL, source=damaged), INPUTS, GEMM.reference(*INPUTS))
    assert len(found) == 3


def test_a_missing_barrier_of_the_wide_reduction_is_caught() -> None:
    """Warps that meet in shared memory must wait for one another."""
    op = operators.reduce_sum(2, 300)
    kernel = make_kernel(op, make_schedule(op, [1, 1], [2, 128], reduce_threads=128))
    inputs = random_inputs(op, np.random.default_rng(1))
    assert faults(kernel, inputs, op.reference(*inputs)) == []
    assert faults(replace(kernel, source=kernel.source.replace("__syncthreads();", "")), inputs, op.reference(*inputs))


@pytest.mark.as_shipped
@pytest.mark.parametrize(
    ("old", "new", "report"),
    [
        ("C[out_m * 16 + out_n] =", "C[out_m * 16 + out_n + 1] =", "heap-buffer-overflow"),
        pytest.param("= A_at[", "= A_at[-1 + ", "heap-buffer-overflow", marks=pytest.mark.thorough),
        ("A_into[", "A_into[160 + ", OVERRUN),
        ("+= A_reg[reg_m]", "+= A_reg[reg_m + 1]", "out of bounds"),
    ],
)
def test_accesses_out_of_bounds_are_caught(old: str, new: str, report: str) -> None:
    """Of the output, an input, shared memory and registers; the sanitizer's report comes along."""
    assert old in KERNEL.source
    with pytest.raises(EmulatorError, match=report):
        emulate(replace(KERNEL, source=KERNEL.source.replace(old, new)), INPUTS)


@pytest.mark.as_shipped
def test_too_little_shared_memory_is_caught() -> None:
    """The buffer is as long as the launch says."""
    (launch,) = KERNEL.launches
    short = replace(KERNEL, launches=(replace(launch, shared_bytes=launch.shared_bytes - 4),))
    with pytest.raises(EmulatorError, match=OVERRUN):
        emulate(short, INPUTS)


@pytest.mark.as_shipped
def test_misaligned_vectors_are_caught() -> None:
    """A float4 at an odd float."""
    body = "if (t == 0) *reinterpret_cast<float4 *>(&out[1]) = float4{1, 2, 3, 4};"
    with pytest.raises(EmulatorError, match="misaligned address"):
        emulate(by_hand(body), [DATA])


def test_shared_memory_and_output_start_as_nan() -> None:
    """What was never written does not look like a result."""
    assert np.isnan(emulate(by_hand("if (t < 32) out[t] = tile[t];", shared=128), [DATA])).all()


@pytest.mark.parametrize(
    ("body", "report"),
    [
        ("if (t < 32) __syncthreads(); out[t] = 0;", "barrier divergence: some threads of the block have returned"),
        ("if (t < 32)\n __syncthreads();\n else\n __syncthreads();\n out[t] = 0;", "wait at different barriers"),
        ("if (t % 2) out[t] = __shfl_down_sync(0xffffffffu, in[t], 1);", "deadlock: a lane named in the mask"),
        ("out[t] = __shfl_down_sync(t % 2 ? 1u : 0xffffffffu, in[t], 1);", "whose mask does not name it"),
        ("if (t < 16) out[t] = __shfl_down_sync(0xffffu, in[t], 8);", "reads a lane that the mask does not name"),
    ],
)
def test_broken_rules_of_barriers_and_warps_are_caught(body: str, report: str) -> None:
    """Each with words of its own."""
    with pytest.raises(EmulatorError, match=report):
        emulate(by_hand(body), [DATA])


def test_masks_name_only_lanes_that_exist() -> None:
    """A block of 40 threads has 8 lanes in its second warp."""
    with pytest.raises(EmulatorError, match="names lanes that the block does not have"):
        emulate(by_hand("out[t] = __shfl_down_sync(0xffffffffu, in[t], 1);", threads=40), [DATA])


@pytest.mark.parametrize(
    ("value", "source"),
    [
        ("__shfl_down_sync(0xffffffffu, in[t], 3, 8)", lambda t: t + 3 if t % 8 + 3 < 8 else t),
        ("__shfl_up_sync(0xffffffffu, in[t], 5)", lambda t: t - 5 if t % 32 >= 5 else t),
        ("__shfl_xor_sync(0xffffffffu, in[t], 6)", lambda t: t ^ 6),
        ("__shfl_sync(0xffffffffu, in[t], 5, 16)", lambda t: t // 16 * 16 + 5),
    ],
)
def test_shuffles_move_what_the_documentation_says(value: str, source: object) -> None:
    """The lane that each lane reads, for four kinds."""
    out = emulate(by_hand(f"out[t] = {value};"), [DATA])
    np.testing.assert_array_equal(out, [source(t) for t in range(LANES)])


def test_votes_count_the_lanes_of_the_mask() -> None:
    """ballot, any and all over the even lanes."""
    votes = [
        f"__{kind}_sync(0x55555555u, {test})"
        for kind, test in (("ballot", "t < 6"), ("any", "t == 40"), ("all", "t < 31"))
    ]
    text = "{} + 1000 * {} + 5000 * {}".format(*votes)
    out = emulate(by_hand(f"out[t] = 0; if (t % 2 == 0) out[t] = {text};"), [DATA])
    np.testing.assert_array_equal(out[::2], [0b010101 + 5000] * 16 + [1000] * 16)


def test_the_order_of_threads_depends_on_the_seed() -> None:
    """A race has different winners; a seed repeats its order."""
    body = "tile[0] = in[t]; __syncthreads(); out[t] = tile[0];"
    with EmulatedKernels([by_hand(body, shared=4)]) as program:
        winners = [program.run(0, [DATA], seed)[0] for seed in range(8)]
        assert len(set(winners)) > 3
        assert program.run(0, [DATA], 5)[0] == winners[5]


@pytest.mark.thorough
def test_a_kernel_that_hangs_is_ended() -> None:
    """After the time that was given."""
    with pytest.raises(EmulatorError, match="not done after 1"):
        emulate(by_hand("while (in[t] >= 0) out[t] += 1;"), [DATA], timeout=1.0)


def test_what_does_not_compile_is_reported() -> None:
    """With the compiler's words."""
    with pytest.raises(EmulatorError, match="no_such_function"):
        emulate(by_hand("no_such_function(t);"), [DATA])


def test_wrong_arguments_are_refused() -> None:
    """Language, number and shape of inputs."""
    with pytest.raises(ValueError, match="language 'c'"):
        emulate(replace(KERNEL, language="c"), INPUTS)
    with EmulatedKernels([KERNEL], sanitize=False) as program:
        with pytest.raises(ValueError, match="1 arrays given, expected"):
            program.run(0, INPUTS[:1])
        with pytest.raises(ValueError, match=r"input A has shape \(12, 16\)"):
            program.run(0, [INPUTS[0].T, INPUTS[1]])
        np.testing.assert_allclose(program.run(0, INPUTS), GEMM.reference(*INPUTS), rtol=1e-5, atol=1e-5)
        folder = program._path
    assert not folder.exists()


def test_a_compiler_is_found_or_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """$CXX first; without any the message says what to install."""
    monkeypatch.delenv("CXX", raising=False)
    assert Path(find_cxx()[0]).exists()
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}" if name == "clang++-18" else None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(EmulatorError, match="ziglang"):
        find_cxx()
    monkeypatch.setenv("CXX", "clang++-18 -v")
    assert find_cxx() == ("clang++-18", "-v")


def test_what_was_kept_is_compiled_anew_when_a_character_changes(tmp_path: Path) -> None:
    """Of the source, of a header beside it or in a folder of -I, or of an option; not where the folder alone is another."""
    kept = tmp_path / "kept"
    kept.mkdir()

    def answer(name: str, source: str, header: str, *options: str) -> tuple[int, int]:
        """(exit status of the program, programs kept)."""
        folder = tmp_path / name
        (folder / "include").mkdir(parents=True)
        (folder / "main.cpp").write_text(source)
        (folder / "include" / "one.h").write_text(header)
        command = [*find_cxx(), *options, f"-I{folder}/include", str(folder / "main.cpp"), "-o", str(folder / "main")]
        assert kept_compiler.compiled(command, folder / "main", kept) == 0
        return subprocess.run([folder / "main"], check=False).returncode, len(list(kept.iterdir()))

    source, header = '#include "one.h"\nint main() { return ONE + 2; }', "#define ONE 1"
    assert answer("a", source, header) == answer("b", source, header) == (3, 1)
    assert answer("c", source.replace("2", "4"), header) == (5, 2)
    assert answer("d", source, header.replace("1", "7")) == (9, 3)
    assert answer("e", source, header, "-O1") == (3, 4)
