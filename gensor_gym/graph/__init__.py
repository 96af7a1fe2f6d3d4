"""Rules of the construction graph: schedules, sizes, knobs, limits, primitives, legality."""
