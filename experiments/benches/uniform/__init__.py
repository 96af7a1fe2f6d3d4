"""Results of uniform play."""

from experiments.benches.uniform.play import run

__all__ = ["run"]
