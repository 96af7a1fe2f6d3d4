"""Table of knobs: all discrete choices of the extended space besides tiles and virtual threads.

Each module of this folder owns a knob, or several that belong together, in its `KNOBS`. It defines the values, the values that an
operator can use, the limits that a change may break, and the documented text. Compiled functions of a knob are in its module: the
condition on a program (`graph/limits.py` lists the conditions) and the use of a resource. They call each other directly, never
through Python.

To add a knob, write its module and append it to the rows' layout (`graph/tables/layout.py`). Actions, tables, masks, texts and
observations follow from the table. Then let a generator read the knob's value, and update the line of `docs/design.md` and the
golden files. If the knob limits a program, uses a resource or changes the model, call its functions from `graph/limits.py`,
`graph/resources.py` and the model (`cost/`). A new knob lengthens rows, actions and observations: raise `LAYOUT_VERSION`, which
makes older policies and files invalid, and train the shipped policies again. Also add the usable values to the tests' oracle
(`tests/support/oracle.py`).

Rules that involve several knobs are elsewhere: formulas of registers, shared memory and code in `graph/resources.py`, terms of
the model in `cost/`, and the default rule, which chooses values together, in `graph/defaults.py`.

The table is complete from the start, because layouts, checkpoints and recorded tables depend on its order. A value without code
generation stays in the table and is masked. A row of a schedule stores the index of a value.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from gensor_gym.graph.knobs.knob import Knob
from gensor_gym.graph.tables.layout import KNOB, ROW

__all__ = ["KNOBS", "KNOB_INDEX", "Knob"]

_OWNERS = [import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__) if module.name != "knob"]
KNOBS: tuple[Knob, ...] = tuple(sorted((knob for owner in _OWNERS for knob in owner.KNOBS), key=lambda knob: knob.place))
if [knob.place for knob in KNOBS] != list(range(KNOB, ROW)):
    taken = {knob.name: knob.place for knob in KNOBS}
    raise ValueError(f"a row has places {KNOB} to {ROW - 1} for knobs, one each; the modules of {__name__} take {taken}")

KNOB_INDEX = {knob.name: index for index, knob in enumerate(KNOBS)}
