"""Plain words: turns of phrase that readers stumbled over stay out of README and the pages."""

from __future__ import annotations

import re
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
}
"""Turn of phrase -> the better wording."""
LEFT = {("README.md", BESIDE): 2}
"""Occurrences that a page still has; the others have none."""


def found(page: Path, rule: str) -> list[str]:
    """`line: words` of every occurrence outside code and targets of links."""
    apart = re.compile(r"^```.*?^```|`[^`\n]*`|\]\([^)]*\)", re.MULTILINE | re.DOTALL)
    text = apart.sub(lambda code: "\n" * code[0].count("\n"), page.read_text(encoding="utf-8"))
    lines = enumerate(text.splitlines(), start=1)
    return [f"{number}: {match[0].strip()!r}" for number, line in lines for match in re.finditer(rule, line)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_words_are_plain(page: Path) -> None:
    name = page.relative_to(ROOT).as_posix()
    hits = {rule: found(page, rule) for rule in RULES}
    many = [rule for rule in RULES if len(hits[rule]) > LEFT.get((name, rule), 0)]
    told = [f"{name}:{hit}, better: {RULES[rule]}" for rule in many for hit in hits[rule]]
    assert not told, "\n".join(told)


def test_a_turn_of_phrase_is_found_outside_code(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("So many, `so many`.\n\n```\nso many\n```\n\nAt most so many; ours is beside it.\n")
    assert found(page, r"\bso many\b") == ["7: 'so many'"] and found(page, BESIDE) == ["7: 'beside'"]
