"""Generated CUDA code: right under sanitizers in the emulator, accepted by NVRTC, and shaped as promised."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from gensor_gym import hardware, operators
from gensor_gym.codegen.cuda import nvrtc
from gensor_gym.codegen.cuda.codegen import generate_cuda
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.codegen.program import lower
from gensor_gym.graph.knobs import KNOBS
from gensor_gym.graph.knobs.knob import Knob
from gensor_gym.measure.emulator.emulator import EmulatedKernels
from gensor_gym.operators.types import Access, Axis, Operator, Tensor
from tests.operators.test_operators_accesses import brute_force
from tests.support.cuda_schedules import OPERATORS, make_kernel, make_schedule, random_inputs, random_schedule
from tests.support.thorough import thorough_but
from tests.support.wgmma_kernels import needs_nvrtc

BATCHES = 7
MACHINES = {"sm_75": "t4", "sm_80": "a100", "sm_90": "h200"}
ARCHES = tuple(MACHINES)

SGEMM = operators.gemm(1024, 1024, 1024)
SGEMM_SCHEDULE = make_schedule(
    SGEMM, [8, 8, 1], [128, 128, 8], [2, 2, 1], vector=4, unroll=8, shared_layout=1
)  # two float4 groups of rows and of columns a thread


def check(kernels: list[Kernel], rng: np.random.Generator) -> None:
    """All kernels, compiled together, give the reference's output."""
    with EmulatedKernels(kernels) as program:
        for number, kernel in enumerate(kernels):
            inputs = random_inputs(kernel.operator, rng)
            out = program.run(number, inputs, seed=number)
            expected = kernel.operator.reference(*inputs)
            np.testing.assert_allclose(out, expected, rtol=2e-5, atol=2e-5, err_msg=kernel.source, verbose=False)


@pytest.mark.parametrize("batch", thorough_but(range(BATCHES), 1, 3))
def test_random_schedules_are_right(batch: int) -> None:
    """Every operator with four random schedules over all batches: 112 kernels; with one or two over the default ones."""
    rng = np.random.default_rng([2, batch])
    ops = [op for op in OPERATORS for _ in range(4)][batch::BATCHES]
    check([make_kernel(op, random_schedule(op, rng)) for op in ops], rng)


def of_knob(knob: Knob) -> list[Kernel]:
    """Kernels of each value of a GPU knob alone, with tiles on which it does something."""
    gemm, gemv = operators.gemm(20, 24, 40), operators.gemv(6, 300)
    values = knob.available
    if knob.name == "reduce_threads":
        return [make_kernel(gemv, make_schedule(gemv, [2, 1], [2, 256], reduce_threads=value)) for value in values]
    tiles = [4, 4, 2], [8, 8, 8], [2, 1, 1]
    return [make_kernel(gemm, make_schedule(gemm, *tiles, **{knob.name: value})) for value in values]


OF_OTHERS = ("convolution", "tensor_core", "persistent", "cluster")
"""Knobs of other operators and families."""
OWN = {knob.name: knob for knob in KNOBS if knob.kind in ("gpu", "both") and knob.name not in OF_OTHERS}


def test_every_knob_value_is_right() -> None:
    kernels = [kernel for knob in OWN.values() for kernel in of_knob(knob)]
    assert len({kernel.digest for kernel in kernels}) >= 22  # the defaults of most knobs are one program
    check(kernels, np.random.default_rng(5))


@pytest.mark.as_shipped
@pytest.mark.parametrize("name", thorough_but(OWN, "split_k"))
def test_no_knob_value_leaves_its_memory(name: str) -> None:
    """Under sanitizers; by default those of the knob with a second kernel."""
    check(of_knob(OWN[name]), np.random.default_rng(5))


def _by_hand(body: str, pad: float, divisor: int = 1) -> Operator:
    """A one-dimensional window of 3 with stride 2 and padding 1 over rows of 9, padded with any value."""
    axes = (Axis("m", 2, "spatial"), Axis("p", 5, "spatial"), Axis("r", 3, "reduce"))
    read = Access(Tensor("x", (2, 9), "float32"), (2, 9), ((1, 0, 0), (0, 2, 1)), (0, -1))
    write = Access(Tensor("y", (2, 5), "float32"), (2, 5), ((1, 0, 0), (0, 1, 0)), (0, 0))
    return Operator("window", (), axes, body, (read,), write, divisor=divisor, pad_value=pad)


def _without_reduction_in_one_read() -> Operator:
    """y[m] = sum over k of x[m, k] * s[m]: the second read cannot tell that k is out of range."""
    axes = (Axis("m", 5, "spatial"), Axis("k", 7, "reduce"))
    x = Access(Tensor("x", (5, 7), "float32"), (5, 7), ((1, 0), (0, 1)), (0, 0))
    s = Access(Tensor("s", (5,), "float32"), (5,), ((1, 0),), (0,))
    write = Access(Tensor("y", (5,), "float32"), (5,), ((1, 0),), (0,))
    return Operator("scaled", (), axes, "multiply_add", (x, s), write)


def _part_of_a_tensor() -> Operator:
    """y[m] = max over k < 3 of x[m, 2 k + 1] of rows of 10: offset, stride, and elements that are never read."""
    axes = (Axis("m", 6, "spatial"), Axis("k", 3, "reduce"))
    x = Access(Tensor("x", (6, 10), "float32"), (6, 10), ((1, 0), (0, 2)), (0, 1))
    write = Access(Tensor("y", (6,), "float32"), (6,), ((1, 0),), (0,))
    return Operator("part", (), axes, "max", (x,), write)


@pytest.mark.thorough
def test_operators_made_by_hand_are_right() -> None:
    """Structures that the named operators do not have, against brute force over their accesses."""
    rng = np.random.default_rng(9)
    ops = [
        _by_hand("max", 0.25),
        _by_hand("sum", 2.0, divisor=3),
        _by_hand("max", float("-inf")),
        _without_reduction_in_one_read(),
        _part_of_a_tensor(),
    ]
    kernels = [make_kernel(op, random_schedule(op, rng)) for op in ops for _ in range(4)]
    with EmulatedKernels(kernels) as program:
        for number, kernel in enumerate(kernels):
            inputs = random_inputs(kernel.operator, rng)
            expected = brute_force(kernel.operator, tuple(inputs))
            np.testing.assert_allclose(program.run(number, inputs), expected, rtol=1e-5, atol=1e-5)


def test_infinite_inputs_stay_where_they_belong() -> None:
    """Tiles that overhang multiply nothing by an infinite element that the output does not depend on."""
    op = operators.conv2d(1, 3, 6, 6, 2, 3, 3, padding=1)
    kernel = make_kernel(op, make_schedule(op, [1, 1, 2, 2, 1, 2, 2], [1, 2, 4, 4, 2, 4, 4], vector=4))
    x, w = random_inputs(op, np.random.default_rng(1))
    x[0, 1, 5, 5] = np.inf
    with EmulatedKernels([kernel]) as program:
        out = program.run(0, [x, w])
    np.testing.assert_array_equal(np.isfinite(out), np.isfinite(op.reference(x, w)))
    assert np.isfinite(out).sum() == out.size - 2 * 4


def test_split_reduction_is_deterministic() -> None:
    """The order of threads changes no bit."""
    op = operators.gemm(9, 10, 70)
    kernel = make_kernel(op, make_schedule(op, [1, 2, 1], [4, 4, 4], split_k=8, reduce_threads=2))
    inputs = random_inputs(op, np.random.default_rng(3))
    with EmulatedKernels([kernel]) as program:
        assert len({program.run(0, inputs, seed=seed).tobytes() for seed in range(3)}) == 1
    assert kernel.workspace_bytes == 8 * 9 * 10 * 4
    assert [launch.entry for launch in kernel.launches] == ["gg_gemm", "gg_gemm_finish"]


@pytest.mark.parametrize("extents", [(40, 56), (35, 24), (8, 100)])
@pytest.mark.parametrize("group", [1, 2, 4, 8, 16])
def test_raster_visits_every_tile_once(extents: tuple[int, int], group: int) -> None:
    """The lines that place a block, evaluated for the whole grid."""
    op = operators.gemm(*extents, 4)
    kernel = make_kernel(op, make_schedule(op, [1, 1, 1], [8, 8, 1], raster=group))
    lines = re.findall(r"  const int (tile|place|row_group|group_rows|block_m|block_n) = (.*?);", kernel.source)
    seen = set()
    for block in range(kernel.launches[0].grid[0]):
        values = {"BLOCK_M": 8, "BLOCK_N": 8, "blockIdx": type("Index", (), {"x": block})}
        for name, text in lines:
            choice = re.fullmatch(r"(.*) < (.*) \? (.*) : (.*)", text)
            text = "({2} if {0} < {1} else {3})".format(*choice.groups()) if choice else text
            values[name] = eval(text.replace(" / ", " // "), {}, values)  # noqa: S307 - our own arithmetic
        seen.add((values.get("block_m", 0), values["block_n"]))
    rows, columns = (-(-n // 8) for n in extents)
    assert seen == {(8 * i, 8 * j) for i in range(rows) for j in range(columns)}


def test_no_guards_where_tiles_divide() -> None:
    """Interior tiles carry no conditions, and wide loads are wide."""
    source = make_kernel(SGEMM, SGEMM_SCHEDULE).source
    assert "?" not in source
    assert "if (" not in source
    assert len(re.findall(r"reinterpret_cast<const float4 \*>\(&[AB]_at\[0\]", source)) == 2
    assert "reinterpret_cast<float4 *>(&C[" in source
    assert source.count("__syncthreads") == 2


def test_reads_that_nobody_shares_take_no_shared_memory() -> None:
    """Elementwise operators and row sums go straight to registers, without barriers."""
    for op, register, block in (
        (operators.elementwise("add", 64, 64), [4], [256]),
        (operators.reduce_sum(8, 256), [1, 4], [2, 256]),
    ):
        kernel = make_kernel(op, make_schedule(op, register, block, vector=4))
        assert kernel.launches[0].shared_bytes == 0
        assert "__syncthreads" not in kernel.source
        assert "reinterpret_cast<const float4 *>" in kernel.source


def test_launch_tells_grid_block_and_shared_memory() -> None:
    """Grid over tiles and slices, threads times reduce threads, padded rows of both tiles."""
    op = operators.gemm(100, 70, 33)
    knobs = {"split_k": 4, "reduce_threads": 2, "shared_layout": 1}
    launch = make_kernel(op, make_schedule(op, [4, 4, 1], [32, 16, 8], **knobs)).launches[0]
    assert launch.grid == (4 * 5 * 4, 1, 1)
    assert launch.block == (8 * 4 * 2, 1, 1)
    assert launch.shared_bytes == 4 * (8 * (32 + 4) + 8 * (16 + 4))


def test_padding_never_exceeds_the_limit_of_a_block() -> None:
    """Tiles that fill shared memory are left unpadded."""
    op, limit = operators.gemm(512, 512, 512), hardware.get("h200").shared_per_block
    for step, padded in ((416, True), (448, False)):
        schedule = make_schedule(op, [8, 8, 1], [64, 64, step], shared_layout=1)
        nbytes = make_kernel(op, schedule).launches[0].shared_bytes
        assert nbytes == 4 * 2 * step * (68 if padded else 64)
        assert nbytes <= limit


def test_schedules_of_one_program_have_one_digest() -> None:
    """Knobs that do nothing for a program do not change its text."""
    op = operators.gemm(8, 8, 8)
    plain = make_kernel(op, make_schedule(op, [2, 2, 1], [8, 8, 4]))
    assert plain.digest == make_kernel(op, make_schedule(op, [2, 2, 1], [8, 8, 4], raster=8)).digest
    assert plain.digest != make_kernel(op, make_schedule(op, [2, 2, 1], [8, 8, 4], unroll=4)).digest


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"cluster": 2}, "knob cluster=2"),
        ({"convolution": 1}, "knob convolution=1"),
    ],
)
def test_knobs_that_cannot_be_generated_are_refused(change: dict[str, int], words: str) -> None:
    """The message names the knob and what it takes."""
    op = operators.gemm(8, 8, 8)
    with pytest.raises(ValueError, match=words):
        make_kernel(op, make_schedule(op, [1, 1, 1], [8, 8, 8], **change))


def test_other_refusals_name_what_is_wrong() -> None:
    """Data types, hardware that is no GPU, tiles that are no multiples."""
    double = operators.gemm(8, 8, 8).renamed(dtype="float64")
    with pytest.raises(ValueError, match="float64.*float32"):
        make_kernel(double, make_schedule(double, [1, 1, 1], [8, 8, 8]))
    op = operators.gemm(8, 8, 8)
    with pytest.raises(ValueError, match="axis n.*3.*8"):
        make_kernel(op, make_schedule(op, [1, 3, 1], [8, 8, 8]))
    with pytest.raises(ValueError, match="axis m.*3 vthreads"):
        make_kernel(op, make_schedule(op, [4, 1, 1], [8, 8, 8], [3, 1, 1]))
    cpu = next(hw for hw in map(hardware.get, hardware.names()) if hw.kind == "cpu")
    with pytest.raises(ValueError, match="kind 'gpu'"):
        generate_cuda(lower(op, make_schedule(op, [1, 1, 1], [8, 8, 8]), cpu))


@needs_nvrtc
@pytest.mark.parametrize("arch", thorough_but(ARCHES, "sm_90"))
def test_nvrtc_takes_random_schedules(arch: str) -> None:
    """28 kernels an architecture: a cubin, no warning, a report of registers."""
    rng = np.random.default_rng([4, ARCHES.index(arch)])
    for op in OPERATORS:
        kernel = make_kernel(op, random_schedule(op, rng, MACHINES[arch]), MACHINES[arch])
        compiled = nvrtc.compile_cubin(kernel, arch)
        assert compiled.cubin[:4] == b"\x7fELF"
        assert "warning" not in compiled.log, f"{compiled.log}\n{kernel.source}"
        assert compiled.log.count("Used ") == len(kernel.launches)
        assert 0 < compiled.registers <= 255
        assert compiled.shared_bytes == 0


@needs_nvrtc
@pytest.mark.parametrize("arch", ARCHES)
def test_sgemm_tile_does_not_spill(arch: str) -> None:
    """128 x 128 tile, 8 x 8 a thread: two blocks of 256 threads fit a multiprocessor."""
    compiled = nvrtc.compile_cubin(make_kernel(SGEMM, SGEMM_SCHEDULE), arch, cache=False)
    assert compiled.spill_bytes == 0
    assert compiled.registers <= 128


@needs_nvrtc
def test_cubins_are_cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second compilation reads the first; a damaged file is compiled again."""
    monkeypatch.setenv("GENSOR_GYM_CACHE", str(tmp_path))
    kernel = make_kernel(OPERATORS[0], make_schedule(OPERATORS[0], [1, 1, 1], [4, 4, 4]))
    first = nvrtc.compile_cubin(kernel)
    with monkeypatch.context() as patch:
        patch.setattr(nvrtc, "_compile", lambda *_: pytest.fail("compiled again"))
        assert nvrtc.compile_cubin(kernel) == first
    (path,) = nvrtc.cache_folder().glob("*.cubin")
    path.write_bytes(first.cubin[:-1])
    assert nvrtc.compile_cubin(kernel) == first


@needs_nvrtc
def test_nvrtc_errors_carry_the_log() -> None:
    """A kernel that does not compile."""
    kernel = make_kernel(OPERATORS[0], make_schedule(OPERATORS[0], [1, 1, 1], [4, 4, 4]))
    broken = Kernel(kernel.operator, "cuda", "sm_90", "this is no CUDA", kernel.launches, 0)
    with pytest.raises(nvrtc.NvrtcError, match="(?s)kernel.cu.*error"):
        nvrtc.compile_cubin(broken)
