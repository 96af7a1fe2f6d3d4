"""Addresses are read back as they were written, and what is not one is refused by name."""

from __future__ import annotations

import numpy as np
import pytest

from agents.explore.address import LONGEST, MOST_ACTIONS, Address, read
from agents.explore.session import position_of
from gensor_gym.construction import ConstructionGraph
from gensor_gym.graph.actions import ACTIONS


def test_an_address_is_read_back() -> None:
    graph = ConstructionGraph("gemm(m=64, n=64, k=64)", "h200", "extended")
    text = str(graph.random_schedule(np.random.default_rng(3)))
    actions = ("tile[4]", "raise[split_k]", "stop")
    address = Address("gemm(m=64, n=64, k=64)+bias+relu", "h200", "extended", 2**63 - 1, text, actions)
    assert read(address.query()) == (address, {})
    assert read(address.query() + "&player=markov", ("player",)) == (address, {"player": "markov"})
    assert read("") == (Address(), {})


def test_the_longest_episode_has_an_address() -> None:
    """Of every action the name fits, and all of an episode within one query."""
    longest = max(map(str, ACTIONS), key=len)
    address = Address(actions=(longest,) * MOST_ACTIONS)
    assert read(address.query())[0] == address


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("operator=" + "x" * (LONGEST["operator"] + 1), "operator of 301 characters: expected at most 300"),
        ("x" * 50_000, "an address of 50000 characters"),
        ("oprator=gemv", "'oprator'; expected operator"),
        ("seed=1&seed=2", "expected each once"),
        ("seed=-1", "seed '-1': expected a whole number"),
        ("seed=" + "9" * 19, "below 2^63"),
        ("actions=tile[9]", "no action 'tile[9]': expected one such as stop, tile[0]"),
        ("actions=" + "stop " * (MOST_ACTIONS + 1), "actions: expected at most 512"),
        ("schedule=__import__('os')", "not a schedule"),
    ],
)
def test_what_is_no_address_is_refused(query: str, said: str) -> None:
    with pytest.raises(ValueError) as refused:
        read(query)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("address", "said"),
    [
        (Address("__import__('os').system('true')", "h200"), "expected a call such as"),
        (Address("gemm(m=__import__('os'), n=1, k=1)", "h200"), "expected literals as arguments"),
        (Address("gemm(m=64, n=64, k=64)", "h2000"), "unknown hardware 'h2000'"),
        (Address("gemm(m=64, n=64, k=64)", "h200", "all"), "no space 'all'"),
        (Address("gemm(m=64, n=64, k=64)", "h200", actions=("tile[0]",)), "step 1, tile[0], is illegal"),
        (Address("gemm(m=64, n=64, k=64)", "h200", actions=("stop", "stop", "tile[4]")), "step 3, tile[4], is illegal"),
        (Address("gemm(m=64, n=64, k=64)", "h200", actions=("stop",) * 300), "300 actions: an episode on this task has"),
    ],
)
def test_what_there_is_not_is_refused(address: Address, said: str) -> None:
    with pytest.raises(ValueError) as refused:
        position_of(address)
    assert said in str(refused.value)
