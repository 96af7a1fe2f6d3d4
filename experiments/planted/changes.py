"""The changes: in rules and model, and such that change nothing of a task. Each replaces text that stands once in a file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

_DIRECT, _GPU, _SIMT = (f"cost/gpu/{name}.py" for name in ("direct", "gpu", "simt"))
_RESOURCES, _LIMITS, _STRUCTURE = "graph/resources.py", "graph/limits.py", "graph/structure.py"
_NVIDIA, _LINEAR, _TEXT = "hardware/nvidia.py", "operators/kinds/linear.py", "operators/text.py"


@dataclass(frozen=True)
class Change:
    """What a change is, and (file, text, what is put in its place) of every edit."""

    name: str
    edits: tuple[tuple[str, str, str], ...]

    def plant(self, package: Path) -> None:
        """Change a copy of the package; ValueError where a text does not stand in its file exactly once."""
        for file, old, new in self.edits:
            text = (package / file).read_text(encoding="utf-8")
            if (count := text.count(old)) != 1:
                raise ValueError(f"change {self.name!r}: {old!r} stands {count} times in {file}, expected once")
            (package / file).write_text(text.replace(old, new), encoding="utf-8")


def _change(name: str, file: str, old: str, new: str) -> Change:
    return Change(name, ((file, old, new),))


BEHAVIOUR: tuple[Change, ...] = (
    _change("unrolled body of 2048", _RESOURCES, "CODE_LIMIT_GPU = 4096", "CODE_LIMIT_GPU = 2048"),
    _change("eight registers more", _RESOURCES, "total = 32 + tile if", "total = 40 + tile if"),
    _change("fragments three times", _RESOURCES, "total += 2 * part", "total += 3 * part"),
    _change("registers of a window", _RESOURCES, "WINDOW_REGISTERS = 16, 16", "WINDOW_REGISTERS = 16, 32"),
    _change("rows padded by eight", _RESOURCES, "else 4 * ints[ITEM + t]", "else 8 * ints[ITEM + t]"),
    _change("half the shared memory", _LIMITS, "> ints[SHARED_BLOCK]:", "> ints[SHARED_BLOCK] // 2:"),
    _change("four registers less", _LIMITS, "registers > ints[REGS_THREAD]:", "registers > ints[REGS_THREAD] - 4:"),
    _change("fewer threads than the limit", _LIMITS, "threads > ints[THREADS_BLOCK] or", "threads >= ints[THREADS_BLOCK] or"),
    _change("ladder without divisors", "graph/ladder.py", "found = set(divisors(extent))", "found = {1, extent}"),
    _change("multiples of 8 up to 128", "graph/ladder.py", "min(256, padded) + 1", "min(128, padded) + 1"),
    _change(
        "virtual threads of powers of two",
        "graph/coordinates.py",
        "divisors(size) if virtual",
        "[v for v in divisors(size) if v & (v - 1) == 0] if virtual",
    ),
    _change(
        "default vector of 2",
        "graph/defaults.py",
        '{"vector": 4, "shared_layout": 1, "unroll": 4}',
        '{"vector": 2, "shared_layout": 1, "unroll": 4}',
    ),
    _change("default unroll of 8", "graph/defaults.py", '"shared_layout": 1, "unroll": 4}', '"shared_layout": 1, "unroll": 8}'),
    _change("windows are not staged", _STRUCTURE, "return broadcast or window", "return broadcast"),
    _change("vectors of two at most", _STRUCTURE, "for w in (1, 2, 4) if w == 1 or", "for w in (1, 2) if w == 1 or"),
    _change("registers in units of 512", "hardware/occupancy.py", "REGISTER_UNIT = 256", "REGISTER_UNIT = 512"),
    _change("overlap", _GPU, "OVERLAP = 0.25", "OVERLAP = 0.26"),
    _change("end of a block", _GPU, "40.0 + 8.0 * held", "40.0 + 9.0 * held"),
    _change("data held in L2", _GPU, "unique > 0.5 * ints[L2_BYTES]", "unique > 0.4 * ints[L2_BYTES]"),
    _change("stalls", _SIMT, "STALL = 0.39", "STALL = 0.391"),
    _change("a loop's instructions", _SIMT, "LOOP = 30.0", "LOOP = 30.1"),
    _change("latency of an FFMA", _SIMT, "FMA_LATENCY = 4.0", "FMA_LATENCY = 4.5"),
    _change("sectors of 64 bytes", _DIRECT, "SECTOR = 32", "SECTOR = 64"),
    _change(
        "clock of an H200", _NVIDIA, '"h200",\n    "sm_90",\n    132,\n    1.98e9', '"h200",\n    "sm_90",\n    132,\n    1.97e9'
    ),
)
"""In rules (registers, limits, ladders, default knobs, staging) and model; all in space `gensor` or `extended` on an H200."""

_SUM = "@register_operator(lambda op, x: x.sum(axis=1))\n"
_OPERATOR = f'''@register_operator()
def reduce_pairs(m: int, k: int) -> Operator:
    """A new operator."""
    return reduce_sum(m, 2 * k)


{_SUM}'''

NOTHING: tuple[Change, ...] = (
    _change("a comment on a machine", _NVIDIA, "KIB = 1024\n", "KIB = 1024  # a comment\n"),
    _change("a docstring of the rules", "graph/rules.py", '"""Write the successor into', '"""Write down the successor into'),
    _change("an annotation", _STRUCTURE, "LEVELS = {", "LEVELS: dict[str, int] = {"),
    Change(
        "a renamed variable of the model",
        (
            (_SIMT, "    each = max(1.0, warps", "    share = max(1.0, warps"),
            (
                _SIMT,
                "return (each + STALL * (1.0 if register_buffer > 0 else 1.5)) / each",
                "return (share + STALL * (1.0 if register_buffer > 0 else 1.5)) / share",
            ),
        ),
    ),
    Change(
        "a renamed constant of the model",
        (
            (_SIMT, "STALL = 0.39", "LOST = 0.39"),
            (_SIMT, "each + STALL *", "each + LOST *"),
        ),
    ),
    _change("a sum the other way round", _RESOURCES, "total = 32 + tile if", "total = tile + 32 if"),
    _change(
        "a new GPU",
        _NVIDIA,
        "GPUS = (H200,",
        'import dataclasses\n\nH20 = dataclasses.replace(H200, name="h20", units=78)\nGPUS = (H20, H200,',
    ),
    _change("another machine's figures", _NVIDIA, '"t4",\n    "sm_75",\n    40,', '"t4",\n    "sm_75",\n    41,'),
    _change("a new operator", _LINEAR, _SUM, _OPERATOR),
    _change("words of an error", _TEXT, "does not parse:", "cannot be read:"),
    _change(
        "a new space",
        "graph/actions.py",
        '    "medium": frozenset(',
        '    "small": frozenset(_GROWING),\n    "medium": frozenset(',
    ),
    _change(
        "one integer more in the tables",
        "graph/tables/filling.py",
        "NUM_INTS = ALLOWED + NUM_ACTIONS",
        "NUM_INTS = ALLOWED + NUM_ACTIONS + 1",
    ),
    _change("a constant of the CPU model", "cost/cpu_constants.json", '"call_cycles": 0.4446', '"call_cycles": 0.5'),
    _change(
        "a bound on what is held of a cache",
        "graph/ladder.py",
        "@lru_cache(maxsize=4096)\ndef sizes(",
        "@lru_cache(maxsize=2048)\ndef sizes(",
    ),
)
"""Comments, annotations, names, machines, operators and spaces beside those of the tasks that are looked at."""
