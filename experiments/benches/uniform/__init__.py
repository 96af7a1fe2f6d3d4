"""What uniform play comes to."""

from experiments.benches.uniform.play import run

__all__ = ["run"]
