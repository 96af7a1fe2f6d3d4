"""Named shapes and splits v1 and v2."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from agents.training.operators.variants import with_variants
from gensor_gym import operators
from gensor_gym.operators import Operator
from gensor_gym.operators.shapes import splits, tables

ROOT = Path(__file__).parents[2]
CLASSES = {operators.parse(text).name for text in operators.named_shapes().values()}
ROLLER = json.loads((ROOT / "tests" / "data" / "roller_arguments.json").read_text())


def test_roller_has_its_119_operators() -> None:
    """44 convolutions, 23 depthwise, 28 elementwise, 7 products, 13 pools, 4 sums."""
    table = tables.table("roller")
    assert Counter(key[0] for key in table) == {"C": 44, "D": 23, "E": 28, "M": 7, "P": 13, "R": 4}
    assert set(table) == set(ROLLER)


@pytest.mark.parametrize("key", ROLLER)
def test_roller_shapes_give_the_published_extents(key: str) -> None:
    """The loops equal the --shape argument of the artifact's script, which was not used to write the inputs down."""
    (op,) = operators.resolve(f"roller/{key}")
    want = ROLLER[key]
    size = {axis.name: axis.extent for axis in op.axes}
    if key[0] == "C":
        assert [size[a] for a in "nkpqcrs"] == want
    elif key[0] == "D":
        assert [size[a] for a in "ncpqrs"] == want
    elif key[0] == "P":
        assert [size["n"] * size["c"], *(size[a] for a in "pqrs")] == want
    else:
        assert list(op.extents) == want


def test_roller_inputs_and_padding() -> None:
    """Some written out by hand, where log name and expression have to be read together."""
    table = tables.table("roller")
    assert table["C35"] == "conv2d(n=128, c=3, h=230, w=230, k=64, r=7, s=7, stride=2)"
    assert table["C0"] == "conv2d(n=128, c=128, h=28, w=28, k=128, r=3, s=3, padding=1)"
    assert table["C38"] == "conv2d(n=128, c=256, h=14, w=14, k=256, r=3, s=3, padding=1)"  # the published P0 cannot be
    assert table["D4"] == "depthwise_conv2d(n=128, c=84, h=83, w=83, r=7, s=7, stride=2, padding=3)"
    assert table["P9"] == "avg_pool2d(n=128, c=42, h=165, w=165, r=3, s=3, stride=2, padding=1)"
    assert table["M6"] == "gemm(m=65536, n=1024, k=30522)"
    assert table["R2"] == "reduce_sum(m=516096, k=121)"


def test_autotvm_flops_are_the_published_ones() -> None:
    """The counts that the experiments' own query gives."""
    small, half, tiny = 231_211_008, 115_605_504, 12_845_056
    convolutions = [236_027_904, small, 25_690_112, half, tiny, small, half, tiny, small, half, tiny, small]
    depthwise = [7_225_344, 3_612_672, 7_225_344, 1_806_336, 3_612_672, 903_168, 1_806_336, 451_584, 903_168]
    table = tables.table("autotvm")
    assert [operators.parse(table[f"C{i}"]).flops for i in range(1, 13)] == convolutions
    assert [operators.parse(table[f"D{i}"]).flops for i in range(1, 10)] == depthwise


def test_ansor_has_four_shapes_a_case_and_batch() -> None:
    """Six kinds of operator, batch 1 and 16; flops grow with the batch."""
    table = tables.table("ansor")
    assert Counter(key[:3] for key in table) == dict.fromkeys(["C2D", "GMM", "GRP", "DIL", "DEP", "NRM"], 8)
    for key in table:
        if key.endswith("_b1"):
            assert 16 * operators.parse(table[key]).flops == operators.parse(table[key + "6"]).flops


def test_smoke_has_one_of_each() -> None:
    """Quick to run, and complete: of every operator that a publication's table names."""
    ops = operators.resolve("smoke")
    assert {op.name for op in ops} == CLASSES and len(ops) == len(CLASSES)
    assert all(op.flops < 2_000_000 for op in ops)


def test_every_named_shape_is_canonical_and_sourced() -> None:
    """Texts are what `str` writes, and each table says where it is from."""
    for text in operators.named_shapes().values():
        assert str(operators.parse(text)) == text
    assert all(len(tables.source(name)) > 60 for name in tables.TABLES)


def test_table_files_are_all_listed() -> None:
    """A file that no list names would never be read."""
    files = {path.stem for path in (ROOT / "gensor_gym" / "operators" / "shapes").glob("*.json")}
    assert files == {*tables.TABLES, "splits"}


def test_resolve_one() -> None:
    op = operators.gemm(72, 56, 40)
    assert operators.resolve_one(op) == operators.resolve_one("gemm(72, 56, 40)") == operators.resolve_one("smoke/gemm") == op
    for many, count in (("smoke", 9), ("roller/C*", 44), ("split/v1/train", len(operators.split("train")))):
        with pytest.raises(ValueError, match=rf"'{re.escape(many)}' stands for {count} operators: expected one"):
            operators.resolve_one(many)
    for wrong in ("smoke/nothing", 7, [op], None):
        with pytest.raises(ValueError, match=rf"operator {re.escape(repr(wrong))}: expected"):
            operators.resolve_one(wrong)


def test_resolve() -> None:
    """An operator, text, ids, wildcards, tables, splits and lists of those, in order."""
    op = operators.gemm(4, 5, 6)
    assert operators.resolve(op) == [op]
    assert operators.resolve("gemm(4, 5, 6)") == [op]
    assert len(operators.resolve("roller")) == 119
    assert len(operators.resolve("roller/C*")) == 44
    assert operators.resolve(["roller/C1", op, ("smoke/gemm",)])[1] == op
    assert [o.name for o in operators.resolve(("roller/M0", "roller/R0"))] == ["gemm", "reduce_sum"]
    assert [str(o) for o in operators.resolve("split/v1/test")] == [
        operators.named_shapes()[key] for key in operators.split("test")
    ]


NAMELESS = ["rollers", "roller/C44", "roller/Z*", "split/v1", "split/v3/test", "split/v1/dev", "", [], None, 4]


@pytest.mark.parametrize("spec", NAMELESS)
def test_resolve_refuses_what_names_nothing(spec: object) -> None:
    """ValueError that lists what there is."""
    with pytest.raises(ValueError, match="expected"):
        operators.resolve(spec)


def test_frozen_split_equals_the_rule() -> None:
    """Neither the rule nor the tables may move under v1."""
    assert splits.build("v1") == {part: list(operators.split(part)) for part in splits.PARTS}


def test_no_group_straddles_and_the_held_out_class_stays_out() -> None:
    """Over all named shapes, duplicates included."""
    parts: dict[str, set[str]] = {}
    for text in operators.named_shapes().values():
        op = operators.parse(text)
        parts.setdefault(splits.group(op), set()).add(operators.part_of(op))
    assert all(len(found) == 1 for found in parts.values())
    ops = {part: operators.resolve(f"split/v1/{part}") for part in splits.PARTS}
    groups = {part: {splits.group(op) for op in found} for part, found in ops.items()}
    assert not groups["train"] & groups["test"] and not groups["train"] & groups["validation"]
    assert not groups["validation"] & groups["test"]
    assert all(op.name != splits.HELD_OUT for part in ("train", "validation") for op in ops[part])
    assert sum(op.name == splits.HELD_OUT for op in ops["test"]) >= 30


def test_how_near_test_operators_are_to_train_is_told() -> None:
    """Groups have borders: docs/design.md says how many test operators have a train operator of about their size."""
    train, test = (operators.resolve(f"split/v1/{part}") for part in ("train", "test"))
    others = [op for op in test if op.name != splits.HELD_OUT]

    def near(a: operators.Operator, b: operators.Operator) -> bool:
        pairs = zip(a.extents, b.extents, strict=True)
        return a.name == b.name and all(max(pair) <= 2 * min(pair) for pair in pairs)

    within = sum(any(near(op, seen) for seen in train) for op in others)
    turned = sum(any((op.name, sorted(op.extents)) == (seen.name, sorted(seen.extents)) for seen in train) for op in others)
    page = " ".join((ROOT / "docs" / "design.md").read_text(encoding="utf-8").split())
    assert f"{within} of the {len(others)} test operators of other classes have a train operator" in page
    assert f"{turned} have the extents of a train operator in another order" in page
    assert f"{len(test) - len(others)} of {len(test)}" in page


def test_split_shares_and_classes() -> None:
    """About 60, 20 and 20 % of what is not held out, and every other class in every part."""
    ops = {part: [op.name for op in operators.resolve(f"split/v1/{part}")] for part in splits.PARTS}
    counts = {part: sum(name != splits.HELD_OUT for name in found) for part, found in ops.items()}
    total = sum(counts.values())
    for part, share in zip(splits.PARTS, (0.6, 0.2, 0.2), strict=True):
        assert math.isclose(counts[part] / total, share, abs_tol=0.05)
        assert set(ops[part]) - {splits.HELD_OUT} == CLASSES - {splits.HELD_OUT}


def test_duplicates_are_merged() -> None:
    """R1 is R0; E8 and E7 have as many elements; the strided first layer of Ansor and AutoTVM is listed once."""
    listed = {key for part in splits.PARTS for key in operators.split(part)}
    assert sum(len(operators.split(part)) for part in splits.PARTS) == len(listed)
    for kept, dropped in [("roller/R0", "roller/R1"), ("roller/E7", "roller/E8"), ("ansor/C2D0_b1", "autotvm/C1")]:
        assert kept in listed and dropped not in listed


def test_part_ignores_dtype_and_epilogue_and_close_sizes() -> None:
    """So that a variant of a test shape cannot slip into training."""
    op = operators.parse("elementwise(name='relu', shape=(100, 200))")
    assert splits.group(op) == splits.group(op.with_epilogue("bias"))
    assert splits.group(operators.gemm(512, 512, 512)) == splits.group(operators.gemm(500, 520, 512, dtype="float16"))
    assert splits.group(operators.gemm(512, 512, 512)) != splits.group(operators.gemm(512, 512, 256))


PARTS = {part: [operators.parse(operators.named_shapes()[name]) for name in operators.split(part, "v2")] for part in splits.PARTS}
VGG16 = dict.fromkeys(["conv1_1", "conv1_2", "conv2_1", "conv2_2", "conv3_1", "conv4_1"], 1)
VGG16 |= {"conv3_2": 2, "conv4_2": 2, "conv5_1": 3}
MOBILENETV2 = {
    **dict.fromkeys(["conv1", "fc", *(f"point{i}" for i in range(1, 20)), *(f"depth{i}" for i in range(1, 11))], 1),
    "point4": 2, "point7": 3, "point8": 2, "depth5": 2, "point10": 4, "point11": 3, "depth7": 4, "point13": 3, "point14": 2,
    "depth8": 2, "point16": 3, "point17": 2, "depth10": 3,
}  # fmt: skip


def _long(op: Operator) -> tuple[int, ...]:
    """Extents above one."""
    return tuple(extent for extent in op.extents if extent > 1)


def _within(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    return len(one) == len(other) and all(a <= 2 * b and b <= 2 * a for a, b in zip(one, other, strict=True))


def test_no_train_operator_is_within_a_factor_of_two_of_a_test_operator_in_any_order_of_its_axes() -> None:
    """By going through permutations where that is possible, not by sorting; v1 fails the same count."""

    def close(a: Operator, b: Operator) -> bool:
        if a.name != b.name:
            return False
        mine, theirs = _long(a), _long(b)
        if len(mine) != len(theirs) or a.extents == b.extents:
            return _within(a.extents, b.extents)
        orders = itertools.permutations(mine) if len(mine) <= 4 else [tuple(sorted(mine))]
        return any(_within(order, theirs if len(mine) <= 4 else tuple(sorted(theirs))) for order in orders)

    seen = PARTS["train"] + PARTS["validation"]
    assert not [(str(op), str(other)) for op in PARTS["test"] for other in seen if close(op, other)]
    first = {part: operators.resolve(f"split/v1/{part}") for part in splits.PARTS}
    assert sum(any(close(op, other) for other in first["train"]) for op in first["test"]) >= 20


def test_what_the_test_part_is_made_of() -> None:
    classes = Counter(op.name for op in PARTS["test"])
    assert len(PARTS["test"]) >= 100 and max(classes.values()) / len(PARTS["test"]) <= 0.25
    assert sum(name.startswith("networks/") for name in operators.split("test", "v2")) >= 64
    assert classes[splits.HELD_OUT] >= 30
    assert all(op.name != splits.HELD_OUT for part in ("train", "validation") for op in PARTS[part])
    everywhere = set(classes) - {splits.HELD_OUT}
    assert len(everywhere) == 8 and {op.name for op in PARTS["train"]} == {op.name for op in PARTS["validation"]} == everywhere


def test_it_is_the_rule_s_and_v1_has_not_seen_its_test_part() -> None:
    assert splits.build("v2") == {part: list(operators.split(part, "v2")) for part in splits.PARTS}
    assert {operators.part_of(op) for op in PARTS["test"]} == {"test"}
    for part, found in PARTS.items():
        assert {operators.part_of(op, "v2") for op in found} == {part}
        assert operators.resolve(f"split/v2/{part}") == found


def test_an_operator_of_no_table_near_a_test_operator_is_not_train() -> None:
    """Turned round, or a little larger, where v1's hash says train."""
    turned = [operators.gemm(n, m, k) for op in PARTS["test"] if op.name == "gemm" for m, n, k in [op.extents]]
    moved = [op for op in turned if operators.part_of(op) == "train"]
    assert moved and {operators.part_of(op, "v2") for op in turned} == {"test"}


def test_variants_of_train_operators_keep_the_distance() -> None:
    given = PARTS["train"]
    found = with_variants(given, 60, np.random.default_rng(0))[len(given) :]
    assert len(found) == 60 and {operators.part_of(op, "v2") for op in found} == {"train"}
    first = with_variants(operators.resolve("split/v1/train"), 60, np.random.default_rng(0))
    assert "test" in {operators.part_of(op, "v2") for op in first}


@pytest.mark.parametrize(("net", "layers", "published"), [("vgg16", VGG16, 15.35e9), ("mobilenetv2", MOBILENETV2, 300.8e6)])
def test_layers_add_up_to_the_published_operations(net: str, layers: dict[str, int], published: float) -> None:
    """Multiply-adds of one image: VGG-16's convolutions; MobileNetV2 whole, which its paper rounds to 300 million."""
    table = tables.table("networks")
    total = sum(count * operators.parse(table[f"{net}_{layer}"]).flops / 2 for layer, count in layers.items())
    assert total == pytest.approx(published, rel=0.002)


def test_a_block_of_an_encoder_has_twelve_squares_of_its_width() -> None:
    """Weights of the four products: 12 d^2; scores and context are the heads' alone."""
    for net, width in (("bert_base", 768), ("gpt2_xl", 1600), ("vit_h14", 1280)):
        products = [operators.parse(tables.table("networks")[f"{net}_{layer}"]) for layer in ("project", "qkv", "up", "down")]
        assert sum(op.extents[1] * op.extents[2] for op in products) == 12 * width**2
