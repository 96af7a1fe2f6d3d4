"""What the tools of the server do: one environment `Kernel-v0` at a time, whose texts they return."""

from __future__ import annotations

from threading import Lock

from gensor_gym import operators
from gensor_gym.env.kernel.env import KernelEnv
from gensor_gym.env.pictures.facts import in_bytes, in_seconds

MOST_BYTES = 1 << 30
"""Largest size of an operator's tensors in bytes. Random inputs and float64 references take several times as much."""
MOST_LISTED = 100
"""Largest number of tasks in one list."""


class Desk:
    """Holds the environment that the tools act on. Tools may be called from several threads; they wait for one another."""

    def __init__(self, machine: str, backend: str, space: str, turns: int) -> None:
        """Keep the arguments with which every task's environment is made."""
        self._arguments = {"hardware": machine, "backend": backend, "space": space, "turns": turns}
        self._env: KernelEnv | None = None
        self._lock = Lock()

    def list_tasks(self, table: str = "split/v2/train", containing: str = "", most: int = 20) -> str:
        """List the operators of a table (such as split/v2/train or roller) whose text contains `containing`.

        Other operators of the same kinds are tasks, too.
        """
        found = [str(op) for op in operators.resolve(table) if containing in str(op)]
        shown = found[: max(0, min(most, MOST_LISTED))]
        last = f"Kinds of operators: {', '.join(operators.names())}. Stages may follow, such as +bias+relu."
        return "\n".join([f"{len(found)} operators, {len(shown)} shown", *shown, last])

    def start_task(self, operator: str = "gemm(m=512, n=512, k=512)") -> str:
        """Start an episode on an operator, and return the task with its first state. A running episode is given up."""
        op = operators.resolve_one(operator)
        size = sum(tensor.nbytes for tensor in (*op.inputs, op.output))
        if size > MOST_BYTES:
            raise ValueError(f"{op} has tensors of {in_bytes(size)}: at most {in_bytes(MOST_BYTES)} are accepted")
        with self._lock:
            if self._env is None:
                self._env = KernelEnv(op, **self._arguments)  # type: ignore[arg-type]
            return str(self._env.reset(options={"operator": op})[0])

    def state(self) -> str:
        """Return the state of the episode, with the answer to the last action."""
        with self._lock:
            return self._running().state_text()

    def act(self, action: str) -> str:
        """Take one action, such as `apply tile[m] cache`. Return its answer, its reward, and the new state."""
        with self._lock:
            env = self._running()
            _, reward, ended, _, _ = env.step(action)
            if not ended:
                return f"reward {reward:+.4f}\n{env.said}\n\n{env.state_text()}"
            return f"reward {reward:+.4f}\n{env.said}\nThe episode has ended: start_task begins another.\n{_best(env)}"

    def best(self) -> str:
        """Return the fastest evaluated program of the episode: its time, and the text that gives it."""
        with self._lock:
            if self._env is None:
                raise ValueError("no episode has begun: call start_task first")
            return _best(self._env)

    def close(self) -> None:
        """End the environment's workers."""
        with self._lock:
            if self._env is not None:
                self._env.close()

    def _running(self) -> KernelEnv:
        if self._env is None or not self._env.episode.running:
            raise ValueError("no episode is running: call start_task first")
        return self._env


def _best(env: KernelEnv) -> str:
    if env.best is None:
        return "no program has been evaluated with status OK"
    share = env.episode.graph.floor / env.best.seconds
    return f"best: {env.best.kind}, {in_seconds(env.best.seconds)}, {share:.2%} of the roofline\n{env.best.text}"
