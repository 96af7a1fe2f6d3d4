"""Mutations: each can still be made, runs of tests are read right, and the shipped table says what its lines say."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from experiments.mutations import __main__ as mutations
from experiments.mutations.copies import Copy, Unsure
from experiments.mutations.faults import KINDS, MUTATIONS, Mutation

ROOT = mutations.ROOT
HALF = Mutation("half", "model", "half is a third", "return x / 2", "return x / 3", ("test_half",))


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_every_mutation_still_applies_once(mutation: Mutation) -> None:
    text = (ROOT / mutation.place(ROOT)).read_text(encoding="utf-8")
    assert text.count(mutation.old) == 1 and mutation.new != mutation.old
    compile(text.replace(mutation.old, mutation.new), str(mutation.place(ROOT)), "exec")
    for name in mutation.files(ROOT):
        file, _, test = name.partition("::")
        assert f"def {test}(" in (ROOT / file).read_text(encoding="utf-8") if test else (ROOT / file).is_file()


def test_there_are_some_of_each_kind_with_names_of_their_own() -> None:
    assert {mutation.kind for mutation in MUTATIONS} == set(KINDS)
    assert len({mutation.name for mutation in MUTATIONS}) == len(MUTATIONS) == 32


def tree(folder: Path, **tests: str) -> Path:
    """A small project under git: a module and its tests."""
    files = {"gensor_gym/__init__.py": "", "gensor_gym/deep/half.py": "def half(x):\n    return x / 2\n",
             "gensor_gym/deep/__init__.py": "", ".gitignore": "__pycache__/\n"}  # fmt: skip
    files |= {f"tests/{name}.py": f"from gensor_gym.deep.half import half\n\n\n{text}" for name, text in tests.items()}
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    for words in (["init", "-q"], ["add", "-A"], ["-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", "one"]):
        subprocess.run(["git", "-C", str(folder), *words], check=True)
    return folder


@pytest.mark.thorough
def test_a_mutation_is_planted_in_the_copy_and_caught_by_name(tmp_path: Path) -> None:
    """What its own files of tests miss, the whole suite may catch; the copy is as it was afterwards, and so is the tree."""
    root = tree(tmp_path / "tree", test_half="def test_zero():\n    assert half(0) == 0\n",
                test_other="def test_four():\n    assert half(4) == 2\n")  # fmt: skip
    before = (root / "gensor_gym/deep/half.py").read_text()
    with Copy(root, jobs=0) as copy:
        whole = copy.tried(HALF, "quick")
        assert (copy.root / "gensor_gym/deep/half.py").read_text() == before
    assert (whole.caught, whole.test, whole.mode) == (True, "tests/test_other.py::test_four", "whole")
    assert whole.module == "gensor_gym/deep/half.py"
    assert not copy.root.exists() and (root / "gensor_gym/deep/half.py").read_text() == before


@pytest.mark.thorough
def test_a_test_that_fails_anyway_says_nothing(tmp_path: Path) -> None:
    root = tree(tmp_path / "tree", test_half="def test_wrong():\n    assert half(4) == 5\n")
    with Copy(root, 0, tmp_path / "kept") as copy, pytest.raises(Unsure, match="test_wrong fails without it too"):
        copy.tried(HALF, "named")
    assert copy.root.is_dir()


def test_texts_that_moved_away_or_came_twice_are_named(tmp_path: Path) -> None:
    root = tree(tmp_path)
    with pytest.raises(ValueError, match=r"mutation 'half': 'return x / 9' stands 0 times \(nowhere\)"):
        replace(HALF, old="return x / 9").place(root)
    (root / "gensor_gym/other.py").write_text("def also(x):\n    return x / 2\n")
    with pytest.raises(ValueError, match=r"stands 2 times \(gensor_gym/deep/half.py, gensor_gym/other.py\)"):
        HALF.place(root)
    with pytest.raises(ValueError, match="0 files of tests are called test_half.py"):
        HALF.files(root)


def test_the_shipped_table_is_what_its_lines_say() -> None:
    assert (mutations.OUTPUT / mutations.PAGE).read_text(encoding="utf-8") == mutations.page(mutations.OUTPUT)
    before = mutations.outcomes(mutations.OUTPUT / "before.jsonl")
    assert set(before) == {mutation.name for mutation in MUTATIONS}


def test_unknown_names_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        mutations.main(["before", "--only", "no such mutation"])
    assert "no mutations ['no such mutation']" in capsys.readouterr().err
