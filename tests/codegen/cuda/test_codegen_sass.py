"""Loops of machine code: from text as the disassembler writes it, and from real kernels where there is one."""

from __future__ import annotations

import pytest

from gensor_gym import operators
from gensor_gym.codegen.cuda import nvrtc, sass
from tests.support.cuda_schedules import make_kernel, make_schedule

TEXT = """
	.section	.text.gg_two,"ax",@progbits
.text.gg_two:
        /*0000*/                   LDC R1, c[0x0][0x28] ;
.L_x_0:
        /*0010*/                   LDG.E.128.CONSTANT R88, desc[UR4][R8.64] ;
.L_x_1:
        /*0020*/                   FFMA R1, R2, R3, R1 ;
        /*0030*/              @!P0 LDS.128 R80, [R11] ;
        /*0040*/                   FFMA R1, R2.reuse, R3, R1 ;
        /*0050*/               @P0 BRA `(.L_x_1) ;
        /*0060*/              @UP0 UIADD3 UR4, UR4, 0x1, URZ ;
        /*0070*/               @P1 BRA `(.L_x_0) ;
        /*0080*/                   EXIT ;
.L_x_2:
        /*0090*/                   BRA `(.L_x_2);
        /*00a0*/                   NOP ;
"""

needs_nvdisasm = pytest.mark.skipif(
    not (sass.is_available() and nvrtc.is_available()),
    reason=f"no disassembler or no NVRTC: pip install {sass.PACKAGE} {nvrtc.PACKAGES}",
)


def test_loops_are_found_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The inner loop and the outer one around it; a branch to itself is no loop; predicates are no operations."""
    monkeypatch.setattr(sass, "disassemble", lambda _: TEXT)
    outer, inner = sass.loops(b"")
    assert outer.operations == ("LDG.E.128.CONSTANT", "FFMA", "LDS.128", "FFMA", "BRA", "UIADD3", "BRA")
    assert inner.counts == {"FFMA": 2, "LDS": 1, "BRA": 1}
    assert inner.share() == inner.share("FFMA") == 0.5
    assert sass.main_loop(b"") == inner
    assert outer.holds(inner) and not inner.holds(outer) and not inner.holds(inner)


def test_the_main_loop_is_inside_a_loop_with_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop over tiles whose first step stands before the loop over the others has more multiply-adds than that one."""
    text = TEXT.replace("LDG.E.128.CONSTANT R88, desc[UR4][R8.64]", "FFMA R1, R2, R3, R1")
    monkeypatch.setattr(sass, "disassemble", lambda _: text)
    outer, inner = sass.loops(b"")
    assert outer.multiply_adds == 3 and inner.multiply_adds == 2 and sass.main_loop(b"") == inner


def test_a_kernel_without_a_loop_has_no_main_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sass, "disassemble", lambda _: TEXT.partition(".L_x_0")[0])
    with pytest.raises(sass.SassError, match="no loop"):
        sass.main_loop(b"")


def test_a_missing_disassembler_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the package that brings it."""
    monkeypatch.setattr(sass.importlib.util, "find_spec", lambda _: None)
    monkeypatch.setattr(sass.shutil, "which", lambda _: None)
    assert not sass.is_available()
    with pytest.raises(sass.SassError, match="pip install nvidia-cuda-nvdisasm"):
        sass.disassemble(b"")


@needs_nvdisasm
def test_the_report_of_a_program() -> None:
    """Registers, and the operations of its main loop."""
    op = operators.gemm(256, 256, 256)
    schedule = make_schedule(op, [4, 4, 1], [64, 64, 8], vector=4, unroll=8)
    text = sass.report(str(op), str(schedule), "h200")
    assert "gg_gemm: " in text
    assert "0 bytes spilled" in text
    loop = sass.main_loop(nvrtc.compile_cubin(make_kernel(op, schedule)).cubin)
    assert loop.counts["FFMA"] == 4 * 4 * 8
    with pytest.raises(sass.SassError, match="nvdisasm"):
        sass.disassemble(b"no cubin")
