"""Files that others may have written: limits on size, unfolding and nesting, and no second way to read one."""

from __future__ import annotations

import gzip
import json
import os
import re
from pathlib import Path

import pytest

from gensor_gym import foreign
from gensor_gym.files import write_whole
from tests.support.malformed import BRACKETS, bomb

ROOT = Path(__file__).resolve().parents[1]
READERS = re.compile(
    r"json\.loads?\(|gzip\.(open|decompress)\(|\bpickle\b|torch\.load\(|joblib\.load\(|allow_pickle|np\.load\(|yaml\.\w*load|"
    r"OmegaConf\.load\(|\.load_model\(|zipfile\.ZipFile\(|tarfile\."
)
"""Ways to read what may be anybody's."""
OTHERS = {
    "gensor_gym/foreign": "the one place",
    "gensor_gym/operators/shapes/tables.py": "ships with the package",
    "gensor_gym/suites/suite.py": "ships with the package",
    "gensor_gym/cost/calibration.py": "ships with the package",
    "gensor_gym/cost/constants.py": "ships with the package",
    "gensor_gym/codegen/cuda/nvrtc.py": "written by this process's own cache",
    "gensor_gym/frontends/cached": "written by this user's own cache",
    "gensor_gym/measure/workers/wire.py": "a pipe to a process of our own",
    "gensor_gym/measure/isolation/launch.py": "rules that a process of our own wrote",
    "gensor_gym/measure/workers/worker.py": "arguments of a process of our own",
    "gensor_gym/measure/written/caller.py": "settings of a process of our own",
    "gensor_gym/graph/compiling/apart": "a pipe to a process of our own",
    "experiments/benches/environment/start.py": "a pipe to a process of our own",
    "experiments/benches/environment/start_process.py": "arguments of a process of our own",
    "experiments/networks/again.py": "arguments and words of a process of our own",
    "experiments/conformance/cases.py": "words of a process of our own",
    "experiments/peers": "runs where TVM is, without these packages",
    "experiments/device/runner.py": "a file of a process of our own",
    "experiments/device/child.py": "words of a process of our own",
    "experiments/device/table.py": "ships with the package",
    "experiments/device/lease.py": "what an earlier call of this checkout packed",
    "experiments/device/archive": "an archive that this checkout made, and files that ship",
    "experiments/studies/headline/chosen.py": "ships with the package",
    "agents/columns/demonstrations.py": "written by this user's own cache",
    "agents/training/train.py": "ships with the package",
    "agents/cli/command.py": "configurations of the checkout",
    "agents/cli/arguments.py": "configurations of the checkout",
    "experiments/device/wheels.py": "archives of the package index, looked at by name",
    "agents/training/state/archive.py": "members of states, none compressed, each up to a size",
    "agents/columns/policy.py": "weights alone, where it is trusted",
    "agents/hybrids/correction.py": "a booster as JSON, read by foreign before",
}  # fmt: skip
"""Where they stand all the same -> why."""


def test_files_are_read_in_one_place() -> None:
    found = {}
    for package in ("gensor_gym", "agents", "experiments"):
        for path in sorted((ROOT / package).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            code = re.sub(r'"""(?:.|\n)*?"""', "", path.read_text(encoding="utf-8"))
            if READERS.search(code):
                found[name] = next((where for where in OTHERS if name.startswith(where)), None)
    assert not [name for name, where in found.items() if where is None]
    assert set(found.values()) == set(OTHERS), "each exception is needed"


def test_sizes_are_limited_folded_and_unfolded(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"x" * 100)
    assert foreign.read_bytes(path, 100) == b"x" * 100
    with pytest.raises(ValueError, match="larger than 99 bytes"):
        foreign.read_bytes(path, 99)
    path.write_bytes(bomb(3 << 20))
    assert len(foreign.read_text(path, 3 << 20)) == 3 << 20
    with pytest.raises(ValueError, match=f"{path}: gzip data that unfold to more than"):
        foreign.read_text(path, (3 << 20) - 1)
    with pytest.raises(ValueError, match="is a device"):
        foreign.read_bytes("/dev/zero")
    with pytest.raises(OSError, match="directory"):
        foreign.read_bytes(tmp_path)


def test_gzip_is_read_as_gzip_reads_it() -> None:
    data = os.urandom(2 << 20)
    folded_once, twice = gzip.compress(data), gzip.compress(data[:99]) + gzip.compress(data[99:])
    for folded in (folded_once, twice, folded_once + b"\0" * 9):
        assert foreign.unfolded(folded) == gzip.decompress(folded) == data
    assert foreign.unfolded(b"plain") == b"plain" and foreign.unfolded(gzip.compress(b"")) == b""
    for broken in (folded_once[:-1], folded_once[:20], b"\x1f\x8b", folded_once[:-8] + b"\0" * 8):
        with pytest.raises(ValueError, match="gzip data"):
            foreign.unfolded(broken)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (BRACKETS.decode(), "nested deeper than 64"), ('{"a": [{' * 30, "deeper"), ('{"a": 1, "a": 2}', "'a' stands twice"),
        ("[NaN]", "the number NaN"), ("[-Infinity]", "the number -Infinity"), ("[1e999]", "the number 1e999"),
        ("1" * 5000, "digits"), ("[1,", "Expecting value"), ("", "Expecting value"),
    ],
)  # fmt: skip
def test_json_that_is_refused(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        foreign.parse_json(text)


def test_json_that_is_taken_is_what_it_was() -> None:
    value = {"[[[" * 40: '"]\\"[' * 40, "b": [[[1.5, -2, None, True]]] * 50, "c": 10**40}
    assert foreign.parse_json(json.dumps(value)) == value
    assert foreign.parse_json("[Infinity]", finite=False) == [float("inf")]
    deep = "[" * foreign.MOST_NESTING + "]" * foreign.MOST_NESTING
    assert foreign.parse_json(deep)
    with pytest.raises(ValueError, match="a JSON list; expected an object"):
        foreign.parse_object("[]")


def test_a_fault_of_meaning_names_the_file() -> None:
    for fault in (KeyError("seconds"), TypeError("no number"), OverflowError(), AttributeError("x")):
        with pytest.raises(ValueError, match="^f.json is no table: "), foreign.meant("f.json", "table"):
            raise fault
    with pytest.raises(RuntimeError), foreign.meant("f.json", "table"):
        raise RuntimeError("of ours")


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.json"
    write_whole(path, b"first")
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="No space"):
        write_whole(path, b"second")
    assert path.read_bytes() == b"first" and list(tmp_path.iterdir()) == [path]


def test_machines_of_others_are_of_the_right_types() -> None:
    from gensor_gym import hardware
    from gensor_gym.hardware.described import from_json, to_json

    text = to_json(hardware.get("h200"))
    assert from_json(text) == hardware.get("h200")
    for name, value in {"units": -1, "clock": "fast", "lanes": 1.5, "name": 7, "compilable": 1, "peak": 3, "memory": [1]}.items():
        with pytest.raises(ValueError, match="no machine"):
            from_json(json.dumps({**json.loads(text), name: value}))
