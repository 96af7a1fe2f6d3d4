"""wgmma kernels: right under sanitizers in the emulator at awkward extents, and as NVRTC and the hardware want them."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gensor_gym import hardware, operators
from gensor_gym.codegen import generate
from gensor_gym.codegen.cuda import nvrtc, sass
from gensor_gym.measure.workers.builders import build_cubin
from gensor_gym.measure.workers.requests import Built
from gensor_gym.operators.types import Operator
from tests.support.cuda_schedules import make_schedule
from tests.support.thorough import thorough_but
from tests.support.wgmma_kernels import (
    TINY,
    assert_compiles_well,
    compile_well,
    faults,
    gemm,
    legal_kernels,
    needs_nvrtc,
    planted_show,
    right,
    wgmma_kernel,
)

CASES = {
    "one consumer": [
        wgmma_kernel(gemm(70, 72, 200), [64, 64], [64, 64], stages=1),
        wgmma_kernel(gemm(64, 40, 64, "float16"), [64, 8], [64, 8], stages=2),
        wgmma_kernel(gemm(150, 200, 136, "float16", "bias", "relu"), [64, 128], [64, 128], stages=3, raster=2),
        wgmma_kernel(gemm(100, 136, 72, "bfloat16", "scale"), [128, 136], [128, 136], stages=4),
    ],
    "two consumers": [
        wgmma_kernel(gemm(150, 200, 328, "bfloat16", "bias", "gelu", "residual"), [64, 256], [128, 256], stages=4),
        wgmma_kernel(gemm(130, 160, 64, "float16", "residual"), [64, 72], [64, 144], stages=2),
        wgmma_kernel(gemm(257, 72, 136), [128, 64], [256, 64], stages=5),
        wgmma_kernel(gemm(65, 264, 392, "float16"), [64, 96], [64, 192], stages=3),
    ],
    "three consumers": [
        wgmma_kernel(gemm(200, 80, 520, "bfloat16", "bias"), [64, 80], [192, 80], stages=2),
        wgmma_kernel(gemm(64, 200, 72), [64, 32], [64, 96], stages=2),
        wgmma_kernel(gemm(320, 64, 72), [64, 64], [320, 64], stages=2),  # five, and two boxes of rows of A
    ],
    "persistent": [
        wgmma_kernel(gemm(150, 200, 136), [64, 64], [64, 64], TINY, stages=3, persistent=1, raster=2),
        wgmma_kernel(gemm(260, 136, 200, "float16", "bias", "relu"), [64, 64], [128, 64], TINY, stages=2, persistent=1),
        wgmma_kernel(gemm(130, 264, 64), [64, 64], [64, 128], TINY, stages=5, persistent=1, raster=4),
        wgmma_kernel(operators.batched_gemm(3, 70, 72, 136, dtype="bfloat16"), [64, 64], [64, 64], TINY, stages=1, persistent=1),
    ],
    "batched": [
        wgmma_kernel(operators.batched_gemm(3, 70, 136, 88, dtype="bfloat16"), [64, 64], [64, 64], stages=2),
        wgmma_kernel(
            operators.batched_gemm(2, 64, 72, 200, dtype="float16").with_epilogue("bias", "gelu", "residual"),
            [64, 72],
            [128, 72],
            stages=4,
            raster=2,
        ),
    ],
    "split": [
        wgmma_kernel(gemm(70, 72, 328, "bfloat16", "bias", "relu"), [64, 64], [64, 64], stages=2, split_k=4),
        wgmma_kernel(gemm(70, 136, 200, "float16"), [64, 64], [64, 64], TINY, stages=3, split_k=2, persistent=1, raster=2),
        wgmma_kernel(operators.batched_gemm(2, 70, 72, 136, dtype="float16"), [64, 72], [64, 72], stages=2, split_k=2),
    ],
}

test_products_are_right = right(CASES, "two consumers")


def test_persistent_blocks_take_several_tiles() -> None:
    """As many blocks as live at a time; where all tiles fit at once there is no loop."""
    (stays,) = CASES["persistent"][:1]
    assert "work += gridDim.x" in stays.source
    assert stays.launches[0].grid == (TINY.units * 3, 1, 1)
    few = wgmma_kernel(gemm(150, 200, 136), [64, 64], [64, 64], stages=3, persistent=1)
    assert few == wgmma_kernel(gemm(150, 200, 136), [64, 64], [64, 64], stages=3)


DAMAGED = wgmma_kernel(gemm(130, 64, 520), [64, 64], [128, 64], stages=2)
"""Nine steps through two stages, two consumers."""

FAULTS = {
    "no wait for data": ("barrier_wait(full + stage * 8, parity);", "", "wrong|more arrivals|block ends while"),
    "no wait for room": ("barrier_wait(empty + stage * 8, parity);", "", "wrong|more arrivals"),
    "consumer's phase": ("unsigned parity = 0;", "unsigned parity = 1;", "deadlock|wrong"),
    "producer's phase": ("unsigned parity = 1;", "unsigned parity = 0;", "deadlock"),
    "no round's end": ("parity ^= 1;", "", "wrong|deadlock|more arrivals"),
    "stage never given back": ("if (lane == 0 && step > 0) barrier_arrive(empty + before * 8);", "", "deadlock"),
    "given back by every thread": ("if (lane == 0 && step > 0) barrier", "if (step > 0) barrier", "more arrivals|deadlock|wrong"),
    "given back too early": ("wgmma_wait<1>();", "", "wrong"),
    "no wait before the store": ("wgmma_wait<0>();", "", "wrong"),
    "no commit": ("wgmma_commit();", "", "wrong"),
    "no fence": ("wgmma_fence();", "", "wgmma without wgmma_fence"),
    "barriers not fenced": ("fence_barrier_init();", "", "before a fence made its initialisation visible"),
    "no barrier after them": ("__syncthreads();", "", "not initialised|before a fence"),
    "too few bytes announced": ("barrier_expect_bytes(ready, STAGE_BYTES)", "barrier_expect_bytes(ready, A_BYTES)", "."),
    "a copy left out": ("load_box_2d(b_tile, B_map", "if (step != 3) load_box_2d(b_tile, B_map", "deadlock"),
    "a copy too many": ("load_box_2d(b_tile, B_map", "load_box_2d(a_tile, A_map, ready, 0, 0); load_box_2d(b_tile, B_map", "."),
    "stages not aligned": (" & ~1023u", "", "multiple of|do not begin at"),
    "distance of atoms": ("64ull << 32", "128ull << 32", "wrong|outside the shared memory"),
    "half atoms": ("64ull << 32", "32ull << 32", "whose stride is not whole atoms"),
    "an address of 15 bits": ("a >> 4 & 0x3fff", "(a >> 4 & 0x3fff | 0x4000)", "with reserved bits"),
    "leading offset of rows": ("| 1ull << 16", "| 2ull << 16", "leading offset is none of its layout"),
    "leading offset of panels": ("512ull << 16", "528ull << 16", "leading offset is none of its layout"),
    "no swizzle": ("1ull << 62", "0ull << 62", "layout is not the 128-byte swizzle"),
    "rows of the other consumer": ("a_first = tiles + consumer_m * 8192", "a_first = tiles", "wrong"),
    "lanes apart": ("+ point * 32;", "+ (point + lane % 2) * 32;", "different wgmma"),
}

QUICK = (
    "no wait for data", "consumer's phase", "no commit", "no fence", "barriers not fenced", "too few bytes announced",
    "stages not aligned", "distance of atoms", "leading offset of rows", "no swizzle", "lanes apart",
)  # fmt: skip
test_planted_faults_are_caught = planted_show(FAULTS, *QUICK)


def test_panels_of_b_are_found_by_their_distance() -> None:
    """A leading offset that is wrong shows in the second panel."""
    kernel = wgmma_kernel(gemm(64, 128, 64), [64, 128], [64, 128])
    assert "512ull << 16" in kernel.source
    assert "wrong" in faults([replace(kernel, source=kernel.source.replace("512ull << 16", "64ull << 16"))])[0]


def test_too_little_shared_memory_is_caught() -> None:
    """The launch's bytes count."""
    (launch,) = DAMAGED.launches
    short = replace(DAMAGED, launches=(replace(launch, shared_bytes=launch.shared_bytes - 1024),))
    assert "outside the shared memory" in faults([short])[0]


@pytest.mark.thorough
@pytest.mark.as_shipped
def test_maps_that_do_not_fit_the_tensor_are_caught() -> None:
    """A box beyond the end of the array, or rows that are not swizzled."""
    a, b = DAMAGED.maps
    longer = replace(DAMAGED, maps=(replace(a, shape=(192, 520)), b))
    assert "heap-buffer-overflow" in faults([longer])[0]
    plain = replace(DAMAGED, maps=(replace(a, swizzle=0), b))
    assert "wrong" in faults([plain])[0]


@pytest.mark.parametrize(
    ("op", "hw", "words"),
    [
        (operators.gemm(64, 64, 64), "h200", r"tensor_core=2: .* takes \(0,\)"),
        (gemm(64, 64, 64), "a100", r"on a100 takes \(0, 1\)"),
        (gemm(64, 64, 68), "h200", r"takes \(0, 1\)"),
        (operators.gemm(128, 128, 120, dtype="int8"), "h200", r"takes \(0, 1\)"),
        (operators.gemm(128, 8, 128, dtype="int8"), "h200", r"takes \(0, 1\)"),
        (operators.gemm(128, 128, 126, dtype="tf32"), "h200", r"takes \(0, 1\)"),
    ],
)
def test_operators_that_wgmma_cannot_take_are_refused(op: Operator, hw: str, words: str) -> None:
    """Data types whose B[k, n] it cannot read, rows of broken 16 bytes, other hardware."""
    with pytest.raises(ValueError, match=words):
        wgmma_kernel(op, [64, 64], [64, 64], hardware.get(hw))


@pytest.mark.parametrize(
    ("tile", "block", "knobs", "words"),
    [
        ([32, 64], [64, 64], {}, "32 rows of a consumer: multiples of 64"),
        ([64, 12], [64, 12], {}, "12 columns"),
        ([64, 264], [64, 264], {}, "264 columns"),
        ([64, 64], [96, 64], {}, "axis m: .*register tile 64, block tile 96"),
        ([64, 64], [512, 64], {}, "1152 threads: at most 1024"),
        ([64, 256], [128, 256], {"stages": 5}, "shared memory: at most 232448"),
        ([64, 64], [64, 64], {"cluster": 4}, "knob cluster=4"),
        ([64, 64], [64, 64], {"reduce_threads": 2}, "knob reduce_threads=2: tensor cores take 1"),
    ],
)
def test_tiles_that_are_no_instructions_are_refused(tile: list[int], block: list[int], knobs: dict, words: str) -> None:
    """The message says what fits."""
    with pytest.raises(ValueError, match=words):
        wgmma_kernel(gemm(512, 512, 512), tile, block, **knobs)


@pytest.mark.thorough
@pytest.mark.as_shipped
def test_legal_schedules_are_right() -> None:
    """What the rules let pass can be generated, takes what they count, and is right."""
    rng = np.random.default_rng(3)
    small = operators.batched_gemm(2, 192, 136, 200, dtype="float16").with_epilogue("bias", "relu")
    assert faults(legal_kernels(small, 2, rng)) == []
    assert len(legal_kernels(gemm(2048, 2048, 2048), 10, rng)) == 10


def test_parts_of_a_sum_are_stored_as_they_lie() -> None:
    """Four lanes with two numbers of 4 bytes fill a sector; numbers of 2 bytes are swapped between lanes first."""
    split, whole = (wgmma_kernel(gemm(64, 64, 192), [64, 64], [64, 64], stages=2, split_k=parts) for parts in (2, 1))
    assert "__shfl" not in split.source and "float2{run[0], run[1]}" in split.source
    assert "__shfl" in whole.source and "uint2{pack_bfloat16" in whole.source


LARGE = gemm(8192, 8192, 8192)
MENU = {
    "128x256": wgmma_kernel(LARGE, [64, 256], [128, 256], stages=4, persistent=1, raster=16),
    "256x128": wgmma_kernel(LARGE, [128, 128], [256, 128], stages=4, persistent=1, raster=8),
    "128x128": wgmma_kernel(LARGE, [64, 128], [128, 128], stages=4),
    "64x128": wgmma_kernel(gemm(8192, 8192, 8192, "float16"), [64, 128], [64, 128], stages=4),
    "192x192": wgmma_kernel(LARGE, [64, 192], [192, 192], stages=4),
    "bias, gelu, residual": wgmma_kernel(
        gemm(4000, 4040, 4000, "float16", "bias", "gelu", "residual"), [64, 256], [128, 256], stages=4, persistent=1
    ),
}


@needs_nvrtc
@pytest.mark.parametrize("name", thorough_but(MENU, "128x256"))
def test_nvrtc_neither_spills_nor_serialises(name: str) -> None:
    """Tiles as in the libraries' menus; a block gets the registers that its warpgroups hand on to each other."""
    kernel = MENU[name]
    compiled = nvrtc.compile_cubin(kernel)
    assert kernel.arch == "sm_90a"
    assert compiled.spill_bytes == 0
    assert compiled.warnings == () and "arning" not in compiled.log
    assert compiled.loss == ""
    asked = re.search(r"request_registers<(\d+)>\(\)", kernel.source)
    threads = kernel.launches[0].block[0]
    assert asked
    assert 128 * 40 + (threads - 128) * int(asked[1]) <= threads * compiled.registers <= 65536


@needs_nvrtc
@pytest.mark.skipif(not sass.is_available(), reason=f"no disassembler: pip install {sass.PACKAGE}")
@pytest.mark.parametrize("name", thorough_but(["128x256", "128x128"], "128x256"))
def test_machine_code_has_wgmma_and_bulk_copies(name: str) -> None:
    """As many HGMMA in a step as there are 16s in it, tensor loads, and nothing in local memory."""
    cubin = nvrtc.compile_cubin(MENU[name]).cubin
    (lines,) = sass.instructions(sass.disassemble(cubin)).values()
    names = Counter(line.partition(" ")[0].partition(".")[0] for line in lines)
    assert names["HGMMA"] >= 4 and names["UTMALDG"] >= 5 and names["USETMAXREG"] == 2
    assert names["LDL"] == names["STL"] == 0
    assert sass.main_loop(cubin).counts["HGMMA"] % 4 == 0


@pytest.mark.thorough
@needs_nvrtc
@pytest.mark.parametrize(
    ("old", "new", "code", "words"),
    [
        ("wgmma_fence();\n", "wgmma_fence(); acc[0][5] += 1.0f;\n", "C7511", "wgmma.mma_async instructions are serialized"),
        ("__launch_bounds__(384, 1)", "", "C7508", "'setmaxnreg' ignored"),
    ],
)
def test_kernels_that_lose_time_are_pruned(
    old: str, new: str, code: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The assembler's warning is parsed, and the kernel's builder answers with it instead of a file."""
    monkeypatch.setenv("GENSOR_GYM_CACHE", str(tmp_path))
    kernel = MENU["128x256"]
    assert old in kernel.source
    slow = replace(kernel, source=kernel.source.replace(old, new))
    assert code in nvrtc.compile_cubin(slow).warnings
    answer = build_cubin(slow)
    assert isinstance(answer, str)
    assert "pruned before timing" in answer and f"({code})" in answer and words in answer
    assert isinstance(build_cubin(kernel), Built)


def test_spills_are_a_reason_to_prune() -> None:
    """In words, with their bytes."""
    log = "ptxas . 8 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads\nptxas info : Used 255 registers"
    compiled = nvrtc.CompiledKernel(b"", *nvrtc.parse_log(log), log)
    assert compiled.loss == "20 bytes of register spills"
    assert compiled.warnings == ()


@pytest.mark.thorough
@needs_nvrtc
def test_nvrtc_takes_legal_schedules() -> None:
    """A cubin without spills or warnings: the registers that the rules count are enough."""
    kernels = [*legal_kernels(gemm(2048, 2048, 2048), 12, np.random.default_rng(4)), *CASES["split"], *CASES["batched"]]
    for kernel in kernels:
        assert_compiles_well(kernel)


ODD = gemm(1024, 512, 448, "float16", "bias", "relu")
"""Seven steps, of which two, four and .. parts have different numbers, which only the device knows."""
PARTS = {
    "one consumer": wgmma_kernel(ODD, [64, 80], [64, 80], stages=1, split_k=2, raster=4),
    "two stages": wgmma_kernel(ODD, [64, 128], [128, 128], stages=2, split_k=4),
    "256 columns": wgmma_kernel(ODD, [64, 256], [128, 256], stages=4, split_k=2, cluster=2, raster=2),
    "three blocks of rows": wgmma_kernel(ODD, [192, 128], [192, 128], stages=1, split_k=4, cluster=2),
    "persistent": wgmma_kernel(ODD, [64, 64], [64, 128], TINY, stages=4, split_k=4, persistent=1, raster=4),
    "persistent cluster": wgmma_kernel(ODD, [64, 128], [128, 128], TINY, stages=5, split_k=2, persistent=1, cluster=2),
}

test_no_split_of_a_reduction_is_serialised = compile_well(PARTS)


@needs_nvrtc
def test_an_unrolled_loop_over_a_part_would_be_serialised() -> None:
    """Where lanes select sums to swap before they store them, as they do for outputs of 2 bytes."""
    kernel, rolled = PARTS["one consumer"], "#pragma unroll 1\n"
    swapped = "{lane % 2 ? sums[0] : sums[1], __shfl_xor_sync(0xffffffffu, lane % 2 ? sums[1] : sums[0], 1)}"
    source = kernel.source.replace("{sums[0], sums[1]}", swapped)
    assert source != kernel.source and source.count(rolled) == 2
    assert nvrtc.compile_cubin(replace(kernel, source=source), cache=False).loss == ""
    unrolled = replace(kernel, source=source.replace(rolled, "\n"))
    assert set(nvrtc.compile_cubin(unrolled, cache=False).warnings) & {"C7514", "C7520"}


def test_generate_takes_the_schedule_of_a_search() -> None:
    """From the public entry, with the architecture that the instructions need."""
    schedule = make_schedule(LARGE, [64, 256, 16], [128, 256, 64], tensor_core=2, stages=4)
    assert generate(LARGE, schedule, "h200").arch == "sm_90a"
    assert np.prod(generate(LARGE, schedule, "h200").launches[0].grid) == 64 * 32
