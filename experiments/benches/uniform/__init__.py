"""Results of playing uniformly random legal actions."""

from experiments.benches.uniform.play import run

__all__ = ["run"]
