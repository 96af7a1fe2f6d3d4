"""Prepare the next item on other CPUs, if available, while this CPU works on the current item."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Made = TypeVar("Made")


def prepared(items: Iterable[Item], prepare: Callable[[Item], Made], cpus: set[int]) -> Iterator[tuple[Item, Made]]:
    """Yield (item, prepared item) in order. A thread that runs only on `cpus` prepares the next item ahead.

    Processes that the thread starts stay on these CPUs too. Without `cpus` nothing is prepared ahead.
    """
    if not cpus:
        yield from ((item, prepare(item)) for item in items)
        return
    with ThreadPoolExecutor(1, initializer=lambda: os.sched_setaffinity(0, cpus)) as thread:
        waiting: list[tuple[Item, Future[Made]]] = []
        for item in items:
            waiting.append((item, thread.submit(prepare, item)))
            if len(waiting) > 1:
                first, made = waiting.pop(0)
                yield first, made.result()
        for item, made in waiting:
            yield item, made.result()


def alone_on(cpu: int) -> set[int]:
    """Restrict this process to one CPU, so that the host counts as a machine of one core.

    Return the CPUs left for other work. ValueError if this process may not use the CPU.
    """
    usable = os.sched_getaffinity(0)
    if cpu not in usable:
        raise ValueError(f"cpu is {cpu}; expected one of {', '.join(map(str, sorted(usable)))}")
    os.sched_setaffinity(0, {cpu})
    return (usable - {cpu}) or usable
