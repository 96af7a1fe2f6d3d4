"""What a worker may read is a short list, however many kernels a process has loaded."""

from __future__ import annotations

from pathlib import Path

import pytest

from gensor_gym.measure.isolation import readable as module


def test_kernels_of_the_cache_are_not_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiled network loads a library for each of its kernels; others that lie elsewhere are still readable."""
    monkeypatch.setenv("GENSOR_GYM_CACHE", str(tmp_path / "cache"))
    (tmp_path / "cache" / "kernels").mkdir(parents=True)
    own = [tmp_path / "cache" / "kernels" / f"{number}.so" for number in range(2000)]
    other = tmp_path / "other.so"
    for file in (*own, other):
        file.touch()
    monkeypatch.setattr(module, "loaded", lambda: [*map(str, own), str(tmp_path / "cache" / "kernels"), str(other)])
    found = module.readable()
    assert str(other) in found and not {*map(str, own), str(tmp_path / "cache" / "kernels")} & {*found}
    assert sum(map(len, found)) < 100_000
