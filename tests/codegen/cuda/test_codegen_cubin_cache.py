"""The cache of cubins: what another user could have written is never loaded, and made anew."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gensor_gym import operators
from gensor_gym.cache.owned import is_own
from gensor_gym.codegen.cuda import nvrtc
from gensor_gym.measure.workers.builders import build_cubin
from gensor_gym.measure.workers.requests import Built
from tests.support.cuda_schedules import make_kernel, make_schedule

pytestmark = pytest.mark.skipif(not nvrtc.is_available(), reason=f"NVRTC is not installed: {nvrtc.PACKAGES}")
OP = operators.gemm(m=16, n=16, k=8)
KERNEL = make_kernel(OP, make_schedule(OP, [1, 1, 1], [4, 4, 4]))


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GENSOR_GYM_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_a_note_that_others_could_have_written_is_not_believed(cache: Path) -> None:
    first = nvrtc.compile_cubin(KERNEL)
    (path,) = nvrtc.cache_folder().glob("*.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | {"registers": 1}))
    assert nvrtc.compile_cubin(KERNEL).registers == 1  # it is this user's own
    path.chmod(0o666)
    with pytest.warns(RuntimeWarning, match=f"{path.name} belongs to another user or can be written by others: .* compiled anew"):
        assert nvrtc.compile_cubin(KERNEL) == first
    assert is_own(path) and nvrtc.compile_cubin(KERNEL) == first


@pytest.mark.parametrize("kind", ["of everybody", "a link", "another's bytes"])
def test_a_file_for_the_device_holds_what_was_compiled(cache: Path, kind: str) -> None:
    built = build_cubin(KERNEL)
    assert isinstance(built, Built)
    path, right = Path(built.path), Path(built.path).read_bytes()
    path.unlink()
    if kind == "a link":
        path.symlink_to(cache.parent / "forged")
        (cache.parent / "forged").write_bytes(b"forged")
    else:
        path.write_bytes(b"forged")
        path.chmod(0o666 if kind == "of everybody" else 0o600)
    again = build_cubin(KERNEL)
    assert isinstance(again, Built) and again.path == str(path)
    assert path.read_bytes() == right and is_own(path)
