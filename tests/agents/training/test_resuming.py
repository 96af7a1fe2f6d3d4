"""States of trainings: what is written is what is read, numbers to the last bit, and nothing else is read."""

from __future__ import annotations

import json
import math
import random
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from agents.training.state.archive import read_state, write_state  # noqa: E402
from agents.training.state.tree import from_tree, to_tree  # noqa: E402


def same(one: Any, other: Any) -> bool:
    """Equal values of equal types, arrays and tensors by their bits."""
    if isinstance(one, np.ndarray | torch.Tensor):
        return type(one) is type(other) and one.dtype == other.dtype and one.shape == other.shape and bool((one == other).all())
    if isinstance(one, dict):
        return isinstance(other, dict) and list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return type(one) is type(other) and len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and (one == other or one != one and other != other)


def test_states_are_read_as_they_were(tmp_path: Path) -> None:
    network = torch.nn.Linear(3, 2)
    optimizer = torch.optim.Adam(network.parameters())
    network(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    state = {
        "optimizer": optimizer.state_dict(), "network": dict(network.state_dict()), "python": random.getstate(),
        "numpy": np.random.get_state(), "streams": np.random.default_rng(1).bit_generator.state,
        3: [math.inf, -math.inf, math.nan],
        "scalars": [np.float32(0.1), np.int64(-7), np.bool_(True), np.float64(math.inf)],
        "none": (None, True, "text", 1 << 127),
        "empty": [np.zeros((0, 4), np.int8), np.array(2.5), np.zeros((2, 3), np.bool_), {}, (), ""],
    }  # fmt: skip
    write_state(tmp_path / "last.zip", {"seed": 1}, state)
    again = read_state(tmp_path / "last.zip", lambda begun: None)
    assert same(state, again)
    again["empty"][2][0, 0] = True  # arrays may be written to
    assert [path.name for path in tmp_path.iterdir()] == ["last.zip"]


def test_a_queue_becomes_a_list_and_what_is_no_data_is_refused() -> None:
    assert to_tree(deque([1, 2]), {}) == [1, 2]
    with pytest.raises(TypeError, match="a state holds function; expected numbers"):
        to_tree({"f": same}, {})


@pytest.mark.parametrize(
    ("tree", "said"),
    [
        ({"code": "print()"}, "'code'; expected one of"), ({"map": [], "tuple": []}, "'map', 'tuple'"), ({}, "keys"),
        ({"array": "9"}, "array does not read"), ({"tensor": None}, "tensor does not read"), ({"number": "1"}, "number does"),
        ({"map": [1]}, "map does not read"), ({"map": [[[], 1]]}, "map does not read"), ({"tuple": 3}, "tuple does not read"),
        ({"scalar": ["O", 1]}, "scalar does not read"), ({"scalar": [[], 1]}, "scalar does not read"),
    ],
)  # fmt: skip
def test_trees_of_others_are_refused(tree: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        from_tree(json.loads(json.dumps(tree)), {})


def test_arrays_of_another_shape_or_type_are_refused() -> None:
    pytest.importorskip("sb3_contrib")
    from agents.learners.blank import Blank
    from agents.learners.registry import get_learner
    from agents.training.state.model import restore_model, state_of_model

    settings = {"net_arch": [4], "learning_rate": 1e-3, "buffer_size": 8, "n_steps": 2, "batch_size": 2}
    model = get_learner("a2c").make({**settings, "net_arch": [4]}, Blank(5, 3, "gensor"), 0)
    wider = get_learner("a2c").make({**settings, "net_arch": [6]}, Blank(5, 3, "gensor"), 0)
    with pytest.raises(ValueError, match="not one of such a model: .*size mismatch"):
        restore_model(model, state_of_model(wider))
    state = state_of_model(model)
    restore_model(model, state)
    with pytest.raises(ValueError, match="counter 'policy'"):
        restore_model(model, {**state, "counters": {"policy": 1}})
    with pytest.raises(ValueError, match="not one of such a model"):
        restore_model(model, {"network": state["network"]})
