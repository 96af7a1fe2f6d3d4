"""The house is counted right: statements, kinds of imports, circles, what goes upward."""

from __future__ import annotations

from pathlib import Path

from experiments.house import __main__ as house
from experiments.house.counting import SOURCE, TOO_LARGE, arrows_of, statements
from experiments.house.imports import Arrow, arrows, circles, modules, upward
from experiments.house.sizes import MOST_MODULES, crowded, long_files, long_functions

ROOT = Path(__file__).resolve().parents[2]

FILES = {
    "low/__init__.py": "",
    "low/a.py": "import math\nfrom low import b\nfrom low.deep.c import name\n",
    "low/b.py": "def f():\n    from low.a import g\n    return g\n",
    "low/deep/__init__.py": "from .c import name\n",
    "low/deep/c.py": "from typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n    from high import top\nelse:\n    import low.b\n",
    "high/__init__.py": "",
    "high/top.py": "import low.a, low.deep\nfrom ..low import b\n\n\ndef f():\n    import low.a\n",
}
CONTRACTS = [{"layers": ["high", "low"]}, {"layers": ["b", "a | deep"], "containers": ["low"]}]


def found(folder: Path) -> list[Arrow]:
    """Arrows of the files above."""
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return arrows(modules(folder, ("low", "high")))


def test_imports_are_found_once_and_by_their_kind(tmp_path: Path) -> None:
    assert list(map(str, found(tmp_path))) == [
        "high.top -> low.a", "high.top -> low.b", "high.top -> low.deep", "low.a -> low.b",
        "low.a -> low.deep.c", "low.b -> low.a (lazy)",
        "low.deep -> low.deep.c", "low.deep.c -> high.top (type)", "low.deep.c -> low.b",
    ]  # fmt: skip
    assert arrows_of(found(tmp_path), "low") == {"between modules": 5, "between rooms": 4}


def test_circles_by_kind(tmp_path: Path) -> None:
    known = found(tmp_path)
    assert circles(known, ("top",)) == []
    assert circles(known, ("top", "lazy")) == [["low.a", "low.b", "low.deep.c"]]
    assert circles(known, ("top", "lazy", "type")) == [["high.top", "low.a", "low.b", "low.deep", "low.deep.c"]]


def test_upward_is_against_a_contract(tmp_path: Path) -> None:
    assert [str(arrow) for arrow in upward(found(tmp_path), CONTRACTS)] == [
        "low.a -> low.b", "low.deep.c -> high.top (type)", "low.deep.c -> low.b",
    ]  # fmt: skip
    assert upward([Arrow("low", "low.b", "top")], CONTRACTS) == [], "what is in no layer stands above all"


def test_docstrings_are_no_statements() -> None:
    text = '"""Module."""\nX = 1\n"""Of X."""\n\n\ndef f():\n    """Function."""\n    if X:\n        return 1\n    return 2\n'
    assert statements(text) == 5
    assert statements(text.replace("    return 2", "    print(2)\n    return 2")) == 6


def test_no_room_file_or_function_is_too_large() -> None:
    paths = list(modules(ROOT, SOURCE).values())
    for what, too_large in TOO_LARGE.items():
        assert too_large(paths) == [], f"{what} to split (experiments/house/sizes.py)"


def test_what_is_too_large_is_found(tmp_path: Path) -> None:
    way = "from experiments.entry import run_as_main\n\nrun_as_main(__name__, __spec__)\n"
    for number in range(MOST_MODULES + 1):
        (tmp_path / f"m{number}.py").write_text(way if number == 0 else "def f():\n" + "    f()\n" * (38 + number))
    paths = sorted(tmp_path.iterdir())
    assert crowded(paths) == []
    assert len(found := long_functions(paths)) == 14 and found[0].endswith("m10.py:1 f: 49 lines")
    (tmp_path / "m0.py").write_text("f()\n" * 401)
    assert crowded(paths) == [f"{tmp_path}: 16 modules"] and long_files(paths) == [f"{tmp_path / 'm0.py'}: 401 lines"]


def test_the_shipped_page_is_what_was_counted() -> None:
    states = house.read_states(house.OUTPUT)
    assert (house.OUTPUT / house.PAGE).read_text(encoding="utf-8") == house.page(states)
    assert states["before"]["upward"] == [] and states["before"]["circles"] == []
    assert states["before"]["tests"]["by default"] > 3000
