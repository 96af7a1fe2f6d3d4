"""Example of a plugin that registers an operator, a machine, a backend, a strategy and a table."""

from dataclasses import replace

from agents.strategy import register_strategy
from experiments.tables.table import Stamp, Table, register_table
from gensor_gym import hardware, operators
from gensor_gym.measure.backend import register_model


@operators.register_operator()
def my_gemm(m: int, n: int, k: int, dtype: str = "float32") -> operators.Operator:
    """Matrix product with B transposed: C[m, n] = sum over k of A[m, k] * B[n, k]."""
    return operators.plain("my_gemm", {"m": m, "n": n, "k": k}, dtype, {"A": "mk", "B": "nk"}, ("C", "mn"))


@hardware.register_machine
def h20() -> hardware.Hardware:
    """A machine like an H200 with 78 of its multiprocessors."""
    return replace(hardware.get("h200"), name="h20", units=78)


@register_model("doubled")
def doubled(graph, schedule):
    """Return twice the seconds that the analytic model predicts."""
    return 2 * graph.latency(schedule)


@register_strategy("best_of_many")
def best_of_many(session, rng, draws: int = 32):
    """Measure, again and again, the one of `draws` random schedules that the model predicts to be fastest."""
    while True:
        found = [session.graph.random_schedule(rng) for _ in range(draws)]
        session.measure([found[session.predict(found).argmin()]])


@register_table("units")
def units(config, folder):
    """Make a table with the number of multiprocessors of two machines."""
    rows = tuple((name, hardware.get(name).units) for name in ("h20", "h200"))
    return [Table("Units", Stamp.PREDICTED, ("machine", "units"), rows)]
