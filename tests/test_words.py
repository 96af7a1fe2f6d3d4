"""Plain words: turns of phrase that readers stumbled over stay out of README, the pages, and docstrings and comments."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BESIDE = r"(?<![/\w])beside\b(?!\.png|_dark)"
RULES = {
    BESIDE: "'compared with', 'against', 'next to'",
    r"\bso many\b": "a number, or 'that many'",
    r"\bof which\b": "a second sentence",
    r"(?:^|[.:;|] )What (?:is|was|are|does|can|came|they|comes)\b(?!.*\?)": "the noun itself as the subject",
    r"\b[Ww]hat came\b": "'results'",
    r"\b(?:is|are) not there\b|\b(?:is|are) there(?:[,.:]| until| yet)": "'exists', 'is missing', 'is supported'",
    r"\b(?:goes|go|went) on where\b": "'resumes'",
    r"\bno number\b": "'NaN', 'not a number'",
    r"\bin the mean\b": "'on average'",
    r"\bby turns\b": "'alternately'",
    r"\bin the dress of\b": "'wrapped as'",
    r"\b(?:mood|dear)\b": "'transient', 'expensive'",
    r"\bhardly\b": "'barely', 'almost no'",
    r"(?:^|[.;] )Nor\b": "'also not', after the subject",
    r"\ban own\b|\btold apart\b": "'of its own', 'distinguished'",
    r"\bin turns\b": "'alternately'",
    r"\bshut in\b": "'isolated'",
    r"\b(?:goes|go|gone) on\b": "'resumes', 'continues'",
    r"\banew\b": "'again', a new one",
    r"\bby way of\b": "'through', 'by'",
    r"\bwhatever\b": "'any', 'for every'",
    r"\bwhere there is (?:none|one)\b|\bthere is none\b|\b(?:are|is) none\b": "'if it is missing', 'no' and the noun",
    r"\bgone through\b": "'enumerated', 'traversed'",
    r"\bone after the other\b": "'one after another', 'in order'",
    r"\bas it (?:lies|comes)\b": "'in place', 'unchanged'",
    r"\basked of\b": "'requested from'",
    r"\bmeans? something\b": "'is usable', 'matters'",
    r"\bthe other way round\b": "'the reverse'",
    r"\bseldom\b": "'rarely'",
    r"\bbut for\b": "'except'",
    r"\bbe it\b": "'for one or several', a second sentence",
    r"\bcannot tell\b|\btells? \w+ apart\b": "'distinguish'",
    r"\b(?:by|than|is|are) what\b(?!.*\?)": "the noun itself",
    r"\bstands? (?:in|below|above) (?!for\b)": "'is in', 'is below'",
    r"\bfor want of\b|\bnothing but\b|\bsuch a one\b": "'without', 'only', 'it'",
}
"""Turn of phrase -> the better wording."""
LEFT = {("README.md", BESIDE): 2}
"""Occurrences that a page still has; the others have none."""
LOOSE = (r"\bwhere there is (?:none|one)\b|\bthere is none\b|\b(?:are|is) none\b", r"\bno number\b")
"""Allowed in docstrings, as in `None if there is none`."""
SOURCES = [path for package in ("gensor_gym", "agents") for path in sorted((ROOT / package).rglob("*.py"))]
SETTINGS = sorted({*(ROOT / "conf").rglob("*.yaml")} - {ROOT / "conf" / "operator" / "gpu_study.yaml"})
"""Settings whose comments readers meet; a command writes the one that is left out."""


def found(page: Path, rule: str) -> list[str]:
    """`line: words` of every occurrence outside code and targets of links."""
    apart = re.compile(r"^```.*?^```|`[^`\n]*`|\]\([^)]*\)", re.MULTILINE | re.DOTALL)
    text = apart.sub(lambda code: "\n" * code[0].count("\n"), page.read_text(encoding="utf-8"))
    lines = enumerate(text.splitlines(), start=1)
    return [f"{number}: {match[0].strip()!r}" for number, line in lines for match in re.finditer(rule, line)]


def prose(source: str) -> Iterator[tuple[int, str]]:
    """(number, line) of comments and docstrings, without quoted code."""
    alone = True
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT or (token.type == tokenize.STRING and alone):
            words = re.sub(r"`[^`\n]*`", "", token.string)
            yield from enumerate(words.splitlines(), start=token.start[0])
        if token.type not in (tokenize.COMMENT, tokenize.NL):
            alone = token.type in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)


def comments(settings: str) -> Iterator[tuple[int, str]]:
    """(number, comment) of the lines of a YAML file, without quoted code."""
    for number, line in enumerate(settings.splitlines(), start=1):
        if said := re.search(r"(?:^|\s)#.*", line):
            yield number, re.sub(r"`[^`]*`", "", said[0])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_words_are_plain(page: Path) -> None:
    name = page.relative_to(ROOT).as_posix()
    hits = {rule: found(page, rule) for rule in RULES}
    many = [rule for rule in RULES if len(hits[rule]) > LEFT.get((name, rule), 0)]
    told = [f"{name}:{hit}, better: {RULES[rule]}" for rule in many for hit in hits[rule]]
    assert not told, "\n".join(told)


def test_words_of_docstrings_and_comments_are_plain() -> None:
    every = re.compile("|".join(f"(?:{rule})" for rule in RULES if rule not in LOOSE))
    told = [
        f"{path.relative_to(ROOT)}:{number}: {match[0].strip()!r}"
        for path in (*SOURCES, *SETTINGS)
        for number, line in (prose if path.suffix == ".py" else comments)(path.read_text(encoding="utf-8"))
        for match in every.finditer(line)
    ]
    assert not told, "\n".join(told)


def test_prose_of_a_module_is_its_docstrings_and_comments() -> None:
    function = 'def f():\n    """Doc\n    `of which` two."""\n    return f(\n        "so many"  # why\n    )\n'
    source = f'"""Module."""\nname = "of which"\n\n\n{function}'
    assert [number for number, _ in prose(source)] == [1, 6, 7, 9] and all("many" not in line for _, line in prose(source))


def test_a_turn_of_phrase_is_found_outside_code(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("So many, `so many`.\n\n```\nso many\n```\n\nAt most so many; ours is beside it.\n")
    assert found(page, r"\bso many\b") == ["7: 'so many'"] and found(page, BESIDE) == ["7: 'beside'"]
