"""Networks of policies that treat a loop nest as a set of axes, or score actions by the programs that they lead to.

The flat network of `ppo`, `a2c` and `dqn` is that of their library, with the layers `net_arch` of a file in `conf/agent/`. Set
networks are those of Zaheer et al. (2017, Deep Sets): one perceptron for all axes, pooled by mean and maximum. An axis's features
do not depend on its slot, so that exchanging two slots exchanges their scores.
"""

from __future__ import annotations

import torch
from torch import nn

from gensor_gym.env.observation import GROUPS, NUM_FEATURES, OFFSETS
from gensor_gym.graph.actions import ACTIONS, NUM_ACTIONS
from gensor_gym.graph.tables.layout import MAX_AXES, MAX_LEVELS, SPATIAL_SLOTS

_MOVES = 6
"""Number of features of an axis in the group `operator` besides its extent.

For each of 3 tensors they say whether a step along the axis leads to another element, and whether to the next in memory.
"""
_OF_AXES = ("tile", "inverse_tile", "set_vthread", "inverse_vthread")
PRIMITIVES = tuple(dict.fromkeys(action.primitive for action in ACTIONS))
HIDEABLE: dict[str, slice] = {
    "kind": slice(OFFSETS["operator"] + MAX_AXES, OFFSETS["operator"] + GROUPS["operator"]),
    "hardware": slice(OFFSETS["hardware"], OFFSETS["hardware"] + GROUPS["hardware"]),
}
"""Groups of features in the flat observation that can be hidden from a network, by name.

`kind` is the group `operator` without the extents, which identifies the operator class. `hardware` are the machine's constants.
Both are constant in an episode, and out of distribution for new operator classes and machines.
"""


def axis_places() -> list[list[int]]:
    """Return the indices in the flat observation of every axis slot's features, [slots][features of an axis]."""
    tiles, operator = OFFSETS["tiles"], OFFSETS["operator"]
    return [
        [
            *(tiles + level * MAX_AXES + axis for level in range(MAX_LEVELS + 1)),  # the last row is virtual threads
            operator + axis,
            *(operator + MAX_AXES + move * MAX_AXES + axis for move in range(_MOVES)),
        ]
        for axis in range(MAX_AXES)
    ]


def all_but(hidden: tuple[str, ...]) -> torch.Tensor:
    """Return a mask [F] over the flat observation: 0 for the groups `hidden`, 1 elsewhere.

    ValueError for groups that cannot be hidden (`HIDEABLE`).
    """
    if unknown := [name for name in hidden if name not in HIDEABLE]:
        raise ValueError(f"agent.hidden {unknown}: expected some of {sorted(HIDEABLE)}")
    shown = torch.ones(NUM_FEATURES)
    for name in hidden:
        shown[HIDEABLE[name]] = 0.0
    return shown


def perceptron(sizes: list[int]) -> nn.Sequential:
    """Build linear layers, each followed by a hyperbolic tangent; `sizes` are the input, hidden and output widths."""
    layers: list[nn.Module] = []
    for before, after in zip(sizes, sizes[1:], strict=False):
        layers += [nn.Linear(before, after), nn.Tanh()]
    return nn.Sequential(*layers)


class Flat(nn.Module):
    """Perceptron from the flat observation to the context of a state (a vector that describes it), without embeddings of axes."""

    def __init__(self, width: int) -> None:
        """Make two layers of `width`, which is also the width of the context."""
        super().__init__()
        self.width = width
        self.body = perceptron([NUM_FEATURES, width, width])

    def forward(self, flat: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return (context [B, W] of observations [B, F], None in place of embeddings of axes)."""
        return self.body(flat), None


class AxisSet(nn.Module):
    """Network for the context of a state and one embedding per axis.

    It is equivariant to permuting spatial slots and to permuting reduce slots.
    """

    places: torch.Tensor
    rest: torch.Tensor
    spatial: torch.Tensor

    def __init__(self, width: int) -> None:
        """Make the layers. `width` is the size of the context and of the embeddings."""
        super().__init__()
        self.width = width
        places = axis_places()
        rest = sorted(set(range(NUM_FEATURES)) - {place for axis in places for place in axis})
        self.register_buffer("places", torch.tensor(places), persistent=False)
        self.register_buffer("rest", torch.tensor(rest), persistent=False)
        spatial = torch.tensor([float(axis < SPATIAL_SLOTS) for axis in range(MAX_AXES)])
        self.register_buffer("spatial", spatial[:, None], persistent=False)
        self.extent = MAX_LEVELS + 1
        self.axis = perceptron([len(places[0]) + 1, width, width])
        self.whole = perceptron([len(rest) + 2 * width, width, width])
        self.mixed = perceptron([2 * width, width])

    def forward(self, flat: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return (context [B, W], embeddings of axes [B, axes, W]) of observations [B, F]."""
        count = len(flat)
        of_axes, rest = flat[:, self.places], flat[:, self.rest]
        present = of_axes[:, :, self.extent : self.extent + 1] > 0  # an extent above 1
        embedded = self.axis(torch.cat([of_axes, self.spatial.expand(count, -1, -1)], 2)) * present
        mean = embedded.sum(1) / present.sum(1).clamp(min=1)
        most = embedded.masked_fill(~present, -1.0).amax(1)
        context = self.whole(torch.cat([rest, mean, most], 1))
        return context, self.mixed(torch.cat([embedded, context[:, None].expand(-1, MAX_AXES, -1)], 2))


class ByAction(nn.Module):
    """Head that computes the logits [B, N] of all actions from the context.

    The logits of primitives along an axis come from the axis's embedding instead, if axes have embeddings.
    """

    actions: torch.Tensor

    def __init__(self, width: int, axes: bool) -> None:
        """Make the layers. `axes` says whether axes have embeddings."""
        super().__init__()
        self.others = nn.Linear(width, NUM_ACTIONS)
        self.along = nn.Linear(width, len(_OF_AXES)) if axes else None
        along = [n for primitive in _OF_AXES for n, action in enumerate(ACTIONS) if action.primitive == primitive]
        self.register_buffer("actions", torch.tensor(along), persistent=False)

    def forward(self, context: torch.Tensor, embedded: torch.Tensor | None) -> torch.Tensor:
        """Return the logits [B, N] of all actions from contexts [B, W] and embeddings of axes, [B, axes, W] or None."""
        logits = self.others(context)
        if self.along is None or embedded is None:
            return logits
        return logits.index_copy(1, self.actions, self.along(embedded).transpose(1, 2).flatten(1))


class BySuccessor(nn.Module):
    """Head that scores every legal action by one small perceptron, applied to the features of the program that it leads to.

    Its further inputs are the state's context, a learned vector per primitive, and the embedding of the action's axis. Without
    embeddings of axes, every action has a learned vector of its own. Illegal actions have the logit 0.
    """

    actions: torch.Tensor
    slots: torch.Tensor
    kinds: torch.Tensor

    def __init__(self, width: int, axes: bool, actions: list[int], features: int) -> None:
        """Make the layers. `actions` are the actions that are scored, each by `features` features of its successor program.

        `axes` says whether axes have embeddings.
        """
        super().__init__()
        self.features = features
        slots = [MAX_AXES if (axis := ACTIONS[n].axis) is None else axis for n in actions]
        self.register_buffer("actions", torch.tensor(actions), persistent=False)
        self.register_buffer("slots", torch.tensor(slots), persistent=False)
        kinds = [PRIMITIVES.index(ACTIONS[n].primitive) for n in actions] if axes else list(range(len(actions)))
        self.register_buffer("kinds", torch.tensor(kinds), persistent=False)
        self.kind = nn.Embedding(len(PRIMITIVES) if axes else len(actions), width)
        self.context = nn.Linear(width, width)
        self.along = nn.Linear(width, width, bias=False) if axes else None
        self.program = nn.Linear(features, width)
        self.last = nn.Sequential(nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))
        nn.init.normal_(self.kind.weight, std=0.1)

    def forward(self, ahead: torch.Tensor, context: torch.Tensor, embedded: torch.Tensor | None) -> torch.Tensor:
        """Return the logits [B, N] from successors' features [B, actions, F], whose first feature is 1 if the action is legal."""
        state, at = torch.nonzero(ahead[:, :, 0] > 0.5, as_tuple=True)
        # index_select, because the gradient of plain indexing is far slower on a CPU
        hidden = self.program(ahead[state, at]) + self.kind(self.kinds[at]) + self.context(context).index_select(0, state)
        if self.along is not None and embedded is not None:
            axes = torch.cat([self.along(embedded), torch.zeros_like(embedded[:, :1])], 1)
            hidden = hidden + axes.flatten(0, 1).index_select(0, state * (MAX_AXES + 1) + self.slots[at])
        logits = context.new_zeros(len(ahead), NUM_ACTIONS)
        return logits.index_put((state, self.actions[at]), self.last(hidden)[:, 0])


class ActorCritic(nn.Module):
    """Actor and critic in one network, as the `mlp_extractor` of MaskablePPO: it outputs action logits and the critic's features.

    The critic is flat and thus cheap. Only training and the leaves of a tree search use it.
    """

    shown: torch.Tensor

    def __init__(self, width: int, axes: bool, actions: list[int], features: int, hidden: tuple[str, ...] = ()) -> None:
        """Make the networks. The observation has `features` values per successor of `actions`.

        `hidden` names groups of features (keys of `HIDEABLE`) that the networks do not see.
        """
        super().__init__()
        self.register_buffer("shown", all_but(hidden), persistent=False)
        self.count, self.features = len(actions), features
        body = AxisSet if axes else Flat
        self.state = body(width)
        self.scores = BySuccessor(width, axes, actions, features) if actions else None
        self.logits = None if actions else ByAction(width, axes)
        self.critic = Flat(width)
        self.ahead = perceptron([width + 2 * self.count, width]) if actions else None
        self.latent_dim_pi, self.latent_dim_vf = NUM_ACTIONS, width

    def forward(self, observation: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return (logits [B, N] of all actions, the critic's features [B, W])."""
        return self.forward_actor(observation), self.forward_critic(observation)

    def forward_actor(self, observation: torch.Tensor) -> torch.Tensor:
        """Return the logits [B, N] of all actions."""
        context, embedded = self.state(self._flat(observation))
        if self.scores is None:
            assert self.logits is not None
            return self.logits(context, embedded)
        return self.scores(self._successors(observation), context, embedded)

    def forward_critic(self, observation: torch.Tensor) -> torch.Tensor:
        """Return the critic's features [B, W], from the state and from the legality and gain of every successor."""
        context = self.critic(self._flat(observation))[0]
        if self.ahead is None:
            return context
        return self.ahead(torch.cat([context, self._successors(observation)[:, :, :2].flatten(1)], 1))

    def last_layers(self) -> list[nn.Linear]:
        """Return the linear layers whose outputs are logits."""
        layers = [self.scores.last[-1]] if self.scores is not None else [self.logits.others, self.logits.along]  # type: ignore[union-attr]
        return [layer for layer in layers if isinstance(layer, nn.Linear)]

    def _flat(self, observation: torch.Tensor) -> torch.Tensor:
        return observation[:, :NUM_FEATURES] * self.shown

    def _successors(self, observation: torch.Tensor) -> torch.Tensor:
        return observation[:, NUM_FEATURES:].view(-1, self.count, self.features)
