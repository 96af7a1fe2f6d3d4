"""Try models by name: `python -m experiments.conformance.models`, with torchvision, timm and transformers installed.

The models are variants of every family of torchvision and timm (a family is one of their modules), and small configurations of
transformers architectures for three tasks. Fixed rules and `SEED` choose them, to avoid a biased selection; weights are random,
and nothing is downloaded. Each model has its own process.
"""

from __future__ import annotations

import importlib
import inspect
import random
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from agents.cli.parser import Parser
from experiments.conformance.cases import OUTPUT, STATUSES, Case, Outcome, command, counted, paged, tried

ROWS = OUTPUT / "models.jsonl"
MODULE = "experiments.conformance.models"
SECONDS = 900.0
SEED, VARIANTS = 0, {"torchvision": 2, "timm": 1}
MOST_WEIGHTS = 150_000_000
"""Largest number of weights of a tested model."""
MARGIN = 4.0
"""A result that differs from torch's counts as right if it is at most this many times as far from float64 as torch's.

It exceeds 1 because the rounding of many layers adds up.
"""
SIZES = (64, 96)
"""Image sizes that are tried first, smallest first; DEFAULT_SIZE is tried last."""
DEFAULT_SIZE, BATCH = 224, 4
ALWAYS = {"causal_lm": ("gpt2", "llama"), "masked_lm": ("bert",), "seq_to_seq_causal_lm": ("t5",)}
TASKS = {"causal_lm": 30, "masked_lm": 14, "seq_to_seq_causal_lm": 10}
"""Task of transformers -> number of architectures that are drawn at random."""
TOKENS, VOCABULARY = 16, 256
_LAYERS, _HIDDEN, _WIDE, _HEADS = 2, 64, 128, 4
SMALL = {
    **dict.fromkeys(("num_hidden_layers", "num_layers", "num_decoder_layers", "encoder_layers", "decoder_layers"), _LAYERS),
    **dict.fromkeys(("hidden_size", "d_model", "embedding_size", "d_embed", "word_embed_proj_dim"), _HIDDEN),
    **dict.fromkeys(("intermediate_size", "encoder_ffn_dim", "decoder_ffn_dim", "d_ff", "ffn_dim", "ffn_hidden_size"), _WIDE),
    **dict.fromkeys(("num_attention_heads", "num_heads", "encoder_attention_heads", "decoder_attention_heads"), _HEADS),
    **dict.fromkeys(("num_key_value_heads", "num_experts_per_tok"), 2),
    **dict.fromkeys(("head_dim", "d_kv", "moe_intermediate_size"), _HIDDEN // _HEADS),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts"), 4),
    **dict.fromkeys(("max_position_embeddings", "n_positions"), 128),
    "vocab_size": VOCABULARY,
}  # fmt: skip
"""Field of transformers' configurations -> small value that a tested model gets."""


def keys() -> list[str]:
    """Return the keys of all models in random order.

    Keys are LIBRARY/FAMILY/NUMBER for images and transformers/TASK/ARCHITECTURE for text.
    """
    random.Random(SEED).shuffle(found := list(_keys()))
    return found


def _keys() -> Iterator[str]:
    for library, count in VARIANTS.items():
        for family, names in sorted(_families(library).items()):
            yield from (f"{library}/{family}/{number}" for number in range(min(count, len(names))))
    for task, count in TASKS.items():
        names = sorted(set(_architectures(task)) - set(ALWAYS[task]))
        yield from (f"transformers/{task}/{name}" for name in (*ALWAYS[task], *random.Random(SEED).sample(names, count)))


def outcome(key: str) -> Outcome:
    """Try a model in this process and return its outcome: refused with `not tried: ..` if torch cannot run the model."""
    library, family, which = key.split("/")
    try:
        case = _text_case(key, family, which) if library == "transformers" else _vision_case(library, family, int(which))
    except Exception as error:  # any error of a library about small models
        return Outcome(key, "refused", f"not tried: {type(error).__name__}: {error}"[:300])
    return tried(case, MARGIN)


@cache
def _families(library: str) -> dict[str, list[str]]:
    """Return the model names of a library by family, which is the module that defines them."""
    _with_operators_of_torchvision()
    if library == "timm":
        timm = importlib.import_module("timm")
        return {family: timm.list_models(module=family) for family in timm.list_modules()}
    models = importlib.import_module("torchvision.models")
    found: dict[str, list[str]] = {}
    for module in (models, models.segmentation):
        for name in models.list_models(module):
            found.setdefault(models.get_model_builder(name).__module__.rpartition(".")[2], []).append(name)
    return found


@cache
def _with_operators_of_torchvision() -> torch.library.Library:
    """Define the operators that importing torchvision needs, because wheels for some processors lack them."""
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, name):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return library


def _vision_case(library: str, family: str, number: int) -> Case:
    """Return the `number`-th variant of a family among those that torch runs, in a fixed random order, as a case.

    Raise IndexError if the family has fewer.
    """
    names = _families(library)[family]
    random.Random(SEED).shuffle(names := list(names))
    runs = (case for name in names if (case := _running(library, family, name)) is not None)
    for place, case in enumerate(runs):
        if place == number:
            return case
    raise IndexError(f"no variant {number} of {len(names)} that runs with at most {MOST_WEIGHTS} weights")


def _running(library: str, family: str, name: str) -> Case | None:
    """Return a variant with an image of the smallest size at which torch runs it; None if there is none, or too many weights."""
    build = importlib.import_module("timm").create_model if library == "timm" else _torchvision_model
    for size in (*SIZES, DEFAULT_SIZE):
        for how in ({"img_size": size}, {"image_size": size}, {"input_size": (size, size)}, {}):
            try:
                with torch.device("meta"):
                    if _weights(build(name, **how)) > MOST_WEIGHTS:
                        return None
                module = _built(lambda how=how: build(name, **how))  # type: ignore[misc]
                return Case(f"{library}/{family}: {name}", module, (_with_statistics(module, size),))
            except Exception:  # noqa: S112  (of many kinds: another size, or another way to say it)
                continue
    return None


def _weights(module: nn.Module) -> int:
    return sum(one.numel() for one in module.parameters())


def _torchvision_model(name: str, **how: Any) -> nn.Module:
    build = importlib.import_module("torchvision.models").get_model_builder(name)
    none = dict.fromkeys({"weights", "weights_backbone"} & set(inspect.signature(build).parameters))  # no downloads
    module: nn.Module = build(**none, **how)
    return module


def _built(build: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(SEED)
    return build().eval()


def _with_statistics(module: nn.Module, size: int) -> Tensor:
    """Give a module's batch normalisations the statistics of a few random images, and return the first image.

    With the default statistics, numbers vanish or explode.
    """
    images = torch.randn(BATCH, 3, size, size, generator=torch.Generator().manual_seed(SEED))
    norms = [part for part in module.modules() if isinstance(part, nn.modules.batchnorm._BatchNorm)]
    for part in norms:
        part.momentum = None  # cumulative average
        part.train()
    with torch.no_grad():
        module(images)
        module.eval()(images[:1])
    return images[:1].clone()


def _architectures(task: str) -> dict[str, str]:
    """Return, for a task of transformers, the name of the model class of each architecture."""
    auto = importlib.import_module("transformers.models.auto.modeling_auto")
    found: dict[str, str] = getattr(auto, f"MODEL_FOR_{task.upper()}_MAPPING_NAMES")
    return {name: one if isinstance(one, str) else one[0] for name, one in found.items()}


def _text_case(key: str, task: str, name: str) -> Case:
    _with_operators_of_torchvision()
    transformers = importlib.import_module("transformers")
    kind = transformers.CONFIG_MAPPING[name]
    default = kind()
    small = {field: value for field, value in SMALL.items() if hasattr(default, field)}
    tokens = [field for field, value in vars(default).items() if field.endswith("_token_id") and isinstance(value, int)]
    config = kind(**small, **{field: min(getattr(default, field), VOCABULARY - 1) for field in tokens})
    build = getattr(transformers, _architectures(task)[name])
    with torch.device("meta"):
        if (count := _weights(build(config))) > MOST_WEIGHTS:
            raise ValueError(f"{count} weights in the small configuration: expected at most {MOST_WEIGHTS}")
    module = _built(lambda: build(config))
    ids = torch.randint(3, VOCABULARY - 1, (2, TOKENS), generator=torch.Generator().manual_seed(SEED))
    inputs = (ids[:1].clone(),)
    if list(inspect.signature(module.forward).parameters)[:3] == ["input_ids", "attention_mask", "decoder_input_ids"]:
        inputs = (inputs[0], torch.ones(1, TOKENS, dtype=torch.int64), ids[1:].clone())  # type: ignore[assignment]
    with torch.no_grad():
        module(*(one.clone() for one in inputs))
    return Case(key, module, inputs)


def page(found: Sequence[Outcome]) -> str:
    """Return the results as a Markdown page: counts by library, and each model that is not right, with the reason."""
    rows = []
    for library in ("torchvision", "timm", "transformers"):
        own = [one for one in found if one.name.startswith(library)]
        rows.append((*counted(library, (one for one in own if not is_left_out(one))), str(sum(map(is_left_out, own)))))
    lines = [
        "# Models by name", "",
        "Variants of every family of torchvision and timm, and architectures of transformers made small, with random weights;",
        "one trial, compared with torch: `python -m experiments.conformance.models`. Where numbers differ, they may be as far",
        f"from float64 as {MARGIN:g} times torch's. *Not tried* are those that torch does not run so.",
    ]  # fmt: skip
    return paged(lines, ("library", *STATUSES, "not tried"), rows, found)


def is_left_out(one: Outcome) -> bool:
    """Return whether a model was not tried, because torch could not run it."""
    return one.status == "refused" and one.said.startswith("not tried: ")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return the exit status: 1 if a model is wrong or ends in an error of this project."""
    parser = Parser(prog=f"python -m {MODULE}", description="Compare models by name with torch.")
    return command(parser, arguments, MODULE, ROWS, outcome, lambda _: {key: key for key in keys()}, page, SECONDS)


if __name__ == "__main__":
    raise SystemExit(main())
