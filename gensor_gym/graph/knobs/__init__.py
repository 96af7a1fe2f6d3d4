"""The complete table of knobs: every discrete choice of the extended space besides tiles and virtual threads.

A knob has one owner: a module of this folder, whose `KNOBS` may be several that are one idea. It says what the values are,
which mean something for an operator, which limits moving it may break, and what the documentation says of it. Compiled
functions of one knob stand beside it: its condition on a program (`graph/limits.py` lists the conditions) and what is its
own in a resource. They call each other directly, never through Python.

To add one: write its module and give it a place at the end of a row (`graph/tables/layout.py`); the table is assembled from the
modules by their places, and actions, tables, masks, texts and observations follow from it. A generator reads its value.
The line of `docs/design.md` and the golden files are renewed. Where it limits a program, takes something of the hardware
or changes what the model says, `graph/limits.py`, `graph/resources.py` and the model (`cost/`) call its functions.
A knob more is a longer row, more actions and a longer observation: raise `LAYOUT_VERSION`, by which policies and files of
before are refused, and train the shipped policies anew. The oracle of the tests (`tests/support/oracle.py`) says for itself
which values an operator can use.

Not a knob's own are what several knobs meet in: formulas of registers, shared memory and code (`graph/resources.py`); the
terms of the model, whose layer is above this one; the default rule (`graph/defaults.py`), which chooses values together.

The table is complete from the start, because layouts, checkpoints and recorded tables depend on its order. A value
whose code generation is not written yet stays in the table and is masked. A row of a schedule stores the index of a value.
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
