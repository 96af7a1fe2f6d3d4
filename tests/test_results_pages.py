"""Pages of results say what their files say: they are what the code writes of what ships beside them."""

from __future__ import annotations

import json
import math
import re
import statistics
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from statistics import NormalDist, mean, stdev
from typing import Any

import numpy as np
import pytest

from agents.cli.arguments import compose
from agents.runs.journal import read_rows
from docs.pictures import result, walk
from experiments.benches.graphnet import scores as graphnet
from experiments.common.statistics import geometric_mean
from experiments.studies.generalise.plan import plan_of, searches, train_missing
from experiments.studies.generalise.scores import Regrets, Task, summarise
from experiments.studies.generalise.study import Generalisation
from experiments.studies.headline import page as headline_page
from experiments.studies.headline import scores
from experiments.studies.machines import Machines
from experiments.studies.scores import iqm, iqm_difference
from experiments.studies.stock.study import Stock
from experiments.studies.study import LINES
from experiments.studies.transfer_recorded.study import RecordedTransfer
from gensor_gym.construction import ConstructionGraph
from gensor_gym.exact.shipped import certificate_of
from tests.support.network_pages import HELD_OUT, SEEN, ZEN4, held_out, over_fastest, swin_page, table_of_held_out

ROOT = Path(__file__).resolve().parents[1]
CORRECTNESS = ROOT / "results/h100/raw/2026-11-23/correctness.jsonl.gz"
H200 = ROOT / "results/h200/raw/2026-11-27"
ZEN3 = ROOT / "results/host/networks_zen3_one_thread.jsonl"
XEON_AVX2 = ROOT / "results/host/networks_intel_avx2_one_thread.jsonl"
PEERS = "eager", "inductor"
UNITS = {"s": 1.0, "ms": 1e-3, "µs": 1e-6}


def _summary(folder: str) -> tuple[dict, str, list[str]]:
    """(values, page, names of figures) of a folder of results."""
    page = (ROOT / "results" / folder / "summary.md").read_text(encoding="utf-8")
    values = json.loads((ROOT / "results" / folder / "summary.json").read_text(encoding="utf-8"))
    return values, page, re.findall(r"^!\[(.*?)\]", page, re.MULTILINE)


def test_page_of_generalisation_is_made_from_its_values() -> None:
    values, page, figures = _summary("generalise")
    assert Generalisation.markdown(values, figures) == page


LEARNED = [("machines", Machines, "generalisation", "search"), ("stock", Stock, "results/hard", "agent")]
"""Folder of results, its report, the page that says it, and the head of the table there."""


@pytest.mark.parametrize(("folder", "report", "page", "head"), LEARNED)
def test_pages_of_learning_are_made_from_their_values(folder: str, report: Any, page: str, head: str) -> None:
    values, made, figures = _summary(folder)
    assert report.markdown(values, figures) == made
    cells = set(re.findall(r"\d+\.\d % \[\d+\.\d, \d+\.\d\]", made))
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    table = text[text.index(f"\n| {head} |", text.index(f"{folder}/summary.md")) :].split("\n\n")[0]
    said = re.findall(r"\d+\.\d % \[\d+\.\d, \d+\.\d\]", table)
    assert len(said) > 9 and set(said) <= cells


@pytest.fixture(scope="module")
def regrets() -> Regrets:
    """The study from the lines that ship; none is made."""
    plan = plan_of(compose(["output=results/generalise"], "generalise"))
    rows = {row["key"]: row for row in read_rows(plan.output / LINES)}
    where = plan.hardware, plan.space
    policies = {p.name: train_missing(p.folder, plan.seeds, *where, p.train, 1, plan.split) for p in plan.policies}
    known = {str(op): certificate_of(ConstructionGraph(op, plan.hardware, plan.space)) for op in plan.operators}
    certain = [text for text, certificate in known.items() if certificate is not None]
    lines = [rows[search.key] for search in searches(plan, certain, policies)]
    tasks = [Task(op, found) for op in plan.operators if (found := known[str(op)]) is not None]
    return Regrets(plan, tasks, lines, policies)


@pytest.mark.thorough
def test_values_of_generalisation_follow_from_lines_that_ship(regrets: Regrets) -> None:
    values, plan = _summary("generalise")[0], regrets.plan
    for name, found in values["strategies"].items():
        made = {"regret": regrets.regret(name, plan.checkpoints), "within": regrets.regret_within(name, plan.seconds)}
        for key, again in made.items():
            assert [one["mean"] for one in found[key]] == pytest.approx(iqm(again).tolist(), rel=1e-12), (name, key)
    assert values["tasks"][0]["operator"] == regrets.tasks[0].text and len(values["tasks"]) == len(regrets.tasks)


@pytest.mark.thorough
def test_the_whole_summary_of_generalisation_follows_from_lines_that_ship(regrets: Regrets) -> None:
    """To ten decimals: NumPy's exponentials and logarithms have other last places on other processors."""
    values, again = (_rounded(found) for found in (_summary("generalise")[0], summarise(regrets)))
    assert {**again, "unknown": values["unknown"]} == {name: values[name] for name in again}


def _rounded(found: Any) -> Any:
    return json.loads(json.dumps(found), parse_float=lambda digits: round(float(digits), 10))


def test_what_is_said_of_stock_learners_follows_from_their_lines() -> None:
    rows = {row["agent"]: row["regrets"] for row in read_rows(ROOT / "results/stock" / LINES)}
    best = {name: np.array([[[100 * min(found[1:])]] for found in regrets.values()]) for name, regrets in rows.items()}
    apart = iqm_difference(best["ppo"], best["masked"], 2000)
    said = " ".join((ROOT / "docs/results/hard.md").read_text(encoding="utf-8").split())
    assert f"is {apart['mean']:.0f} points [{apart['low']:.0f}, {apart['high']:.0f}] better than PPO (without)" in said
    assert f"better on average ({best['greedy'].mean():.0f} against {best['masked_10'].mean():.0f} %)" in said


def test_speed_after_a_short_compilation_is_told_as_it_was_timed() -> None:
    page = (ROOT / "docs/guides/networks.md").read_text(encoding="utf-8")
    rows = [row for row in read_rows(ROOT / "results/host/networks_qualities_zen4.jsonl") if row["kind"] == "qualities"]
    over = [tuple(f"{row['over_peer'][quality]['median']:.2f}" for quality in ("fast", "balanced")) for row in rows]
    assert len(over) == 4 and re.findall(r" s \| (\d\.\d\d) \| (\d\.\d\d) \|$", page, re.MULTILINE) == over


def test_three_qualities_are_told_as_they_were_timed() -> None:
    page = (ROOT / "docs/guides/networks.md").read_text(encoding="utf-8")
    rows = [row for row in read_rows(ROOT / "results/host/networks_qualities_intel.jsonl") if row["kind"] == "qualities"]
    assert len(rows) == 10 and not any(row["out_of_bounds"] or row["missing"] for row in rows)
    for row in rows:
        seconds = (row["compiled_s"][name] for name in ("fast", "balanced", "best", "inductor"))
        over = (row["over_peer"][quality]["median"] for quality in ("fast", "balanced", "best"))
        told = [*(f"{one:.1f} s" if one < 9.95 else f"{one:.0f} s" for one in seconds), *(f"{one:.2f}" for one in over)]
        assert f" | {' | '.join(told)} |\n" in page, row["network"]


def test_what_is_said_of_generalisation_follows_from_its_values() -> None:
    """The tables of docs/generalisation.md and docs/results/policies.md: rows as the page of results has them."""
    values, page, _ = _summary("generalise")
    for name in ("docs/generalisation.md", "docs/results/policies.md"):
        text = (ROOT / name).read_text(encoding="utf-8")
        said = [line for line in text.splitlines() if line.startswith(tuple(f"| {key} |" for key in values["strategies"]))]
        assert len(said) >= 4 and all(line in page for line in said), name


def test_page_of_recorded_transfer_is_made_from_its_values() -> None:
    values, page, figures = _summary("transfer_recorded")
    assert RecordedTransfer.markdown(values, figures) == page


def of_figure() -> Iterator[str]:
    """What README says of its figure."""
    xeon, h100 = result.on_xeon(), result.on_h100()
    verdicts = [row["called"]["verdict"] for row in read_rows(result.XEON) if row["kind"] == "shape"]
    plain = [[ratio for name, ratio in ratios.items() if not name.startswith(("depthwise", "avg_pool", "max_pool"))]
             for ratios in (xeon, h100)]  # fmt: skip
    yield from (
        f"{verdicts.count('FASTER')} of {len(xeon)} operators faster than torch, {verdicts.count('SLOWER')} slower",
        f"{geometric_mean(xeon.values()):.2f} times in the geometric mean but {geometric_mean(plain[0]):.2f} without",
        f"{len(h100)} operators against the faster of torch's layouts: {geometric_mean(h100.values()):.2f}, and "
        f"{geometric_mean(plain[1]):.2f} without",
        f"{sum(ratio < 1 for ratio in h100.values())} are below 1, down to {min(h100.values()):.2f} (a float16 3x3 convolution)",
    )  # fmt: skip


def of_moving_picture() -> Iterator[str]:
    """What README says of its moving picture."""
    seconds = [step.seconds for step in walk.steps()]
    yield f"from {seconds[0] * 1e3:.0f} ms to {seconds[-1] * 1e6:.1f} us"


def of_status() -> Iterator[str]:
    """What README says of kernels on a GPU, and where networks are behind."""
    found = Counter(row["status"] for row in read_rows(CORRECTNESS))
    right = found.pop("OK") + found.pop("IMPLAUSIBLE", 0)
    assert set(found) == {"COMPILE_ERROR"}
    yield f"{right} of {right + found['COMPILE_ERROR']:,} were right, {found['COMPILE_ERROR']} pruned, none wrong"
    (behind,) = (row for row in read_rows(ZEN3) if row.get("network") == "resnet50")
    yield f"({behind['over']['onnxruntime']['median']:.2f} of ONNX Runtime on ResNet-50)"


@pytest.mark.parametrize(
    ("machine", "count", "peers"), [("zen4", 4, ("eager", "inductor")), ("intel_amx", 8, ("eager", "inductor", "openvino"))]
)
def test_networks_of_bfloat16_are_told_as_they_were_timed(machine: str, count: int, peers: tuple[str, ...]) -> None:
    page = (ROOT / "docs/results/processors.md").read_text(encoding="utf-8")
    path = ROOT / f"results/host/networks_{machine}_bfloat16_one_thread.jsonl"
    rows = [row for row in read_rows(path) if row["kind"] == "network"]
    assert len(rows) == count and not any(row["out_of_bounds"] or row["missing"] for row in rows)
    for row in rows:
        over = ", ".join(f"{row['over'][peer]['median']:.2f}" for peer in peers)
        assert f"{1e3 * row['times']['ours']['median']:.3g} ms: {over} |" in page
    means = ", ".join(f"{geometric_mean([row['over'][peer]['median'] for row in rows]):.2f}" for peer in peers)
    (told,) = (line for line in page.splitlines() if line.startswith("| geometric mean |"))
    assert f" {means} |" in told


def test_held_out_networks_are_told_as_they_were_timed() -> None:
    page = (ROOT / "docs/results/processors.md").read_text(encoding="utf-8")
    table = (ROOT / "results/host/held_out.md").read_text(encoding="utf-8")
    assert "\n".join(table_of_held_out()) in table
    means = [(f"{geometric_mean(over):.2f}", f"{min(over):.2f}") for over in map(over_fastest, HELD_OUT)]
    one, two = means
    zen4 = [row["over_best"]["median"] for row in read_rows(ZEN4) if row["kind"] == "network"]
    assert f"of {geometric_mean(zen4):.2f} over the fastest of\ntorch.compile, ONNX Runtime and OpenVINO, from Squeeze" in page
    assert len(zen4) == 15 and f"from SqueezeNet's {min(zen4):.2f} to ShuffleNet's {max(zen4):.2f}\n" in page
    assert f"{one[0]} with one thread (least {one[1]}), {two[0]} with two threads (least {two[1]})" in table
    said = " ".join(page.split())
    assert f"{len(over_fastest(1))} networks have a geometric mean of {one[0]} over the fastest of the three on one" in said
    assert min(over_fastest(1)) > 1 and "all of 24 networks are ahead" in said
    assert f"(least {one[1]}), and" in said and f"of {two[0]} on two threads (least {two[1]})" in said
    seen = {name: row["over_best"]["median"] for name, row in held_out(1).items() if name in SEEN}
    least, most = min(seen, key=seen.__getitem__), max(seen, key=seen.__getitem__)
    assert f"from {seen[least]:.2f} ({least}) to {seen[most]:.2f} ({most})" in said


def test_networks_with_avx2_alone_are_told_as_they_were_timed() -> None:
    page = (ROOT / "docs/results/processors.md").read_text(encoding="utf-8")
    machine, *rows = (row for row in read_rows(XEON_AVX2) if row["kind"] != "all")
    assert machine["avx2"] and len(rows) == 5 and not any(row["out_of_bounds"] or row["missing"] for row in rows)
    over = {row["network"]: [f"{row['over'][peer]['median']:.2f}" for peer in (*PEERS, "onnxruntime")] for row in rows}
    for row in rows:
        if row["network"] in ("mobilenet_v2", "resnet50", "bert"):
            assert f"| {1e3 * row['times']['ours']['median']:.3g} ms: {', '.join(over[row['network']])} |\n" in page
    vgg11 = over["torchvision.models.vgg11"][-1]
    assert f"(ResNet-18: {over['resnet18'][-1]} of ONNX Runtime, VGG-11: {vgg11})" in page
    status = (ROOT / "docs/results/status.md").read_text(encoding="utf-8")
    assert f"{over['resnet50'][-1]} (Xeon) of ONNX Runtime" in status


@pytest.mark.parametrize(
    ("machine", "count", "failed"), [("zen4", 5, {"resnet50"}), ("intel_amx", 6, {"resnet50", "mobilenet_v2"})]
)
def test_networks_of_int8_are_told_as_they_were_timed(machine: str, count: int, failed: set[str]) -> None:
    page = (ROOT / "docs/results/processors.md").read_text(encoding="utf-8")
    path = ROOT / f"results/host/networks_{machine}_int8_one_thread.jsonl"
    rows = [row for row in read_rows(path) if row["kind"] == "network"]
    assert len(rows) == count and {row["network"] for row in rows if row["missing"]} == failed
    for row in rows:
        over = {peer: f"{ratio['median']:.{2 if ratio['median'] < 10 else 1}f}" for peer, ratio in row["over"].items()}
        told = over.get("inductor", "torch.compile fails"), over["onnxruntime"], over["openvino"]
        assert f"s: {', '.join(told)} |" in page, row["network"]


def test_kernels_of_swin_are_told_as_they_were_timed() -> None:
    assert swin_page() in (ROOT / "results/host/swin_kernels.md").read_text(encoding="utf-8")


def graphs() -> dict[str, list[dict[str, Any]]]:
    """Rows of graphs of GraphNet by compiler."""
    rows = [row for row in read_rows(ROOT / "results/graphnet/graphs.jsonl") if row["kind"] == "graph"]
    return {side: [row for row in rows if row["side"] == side] for side in ("ours", "inductor")}


def tried_graphs() -> tuple[int, int, float, float]:
    """(graphs, how many of them are right, median speed-up over eager torch, that of torch.compile)."""
    tried = {side: [row for row in rows if row["status"] != "left out"] for side, rows in graphs().items()}
    assert {row["graph"] for row in tried["ours"]} == {row["graph"] for row in tried["inductor"]}
    ours, theirs = (statistics.median(filter(None, map(graphnet.speed_up, rows))) for rows in tried.values())
    return len(tried["ours"]), sum(row["status"] == "right" for row in tried["ours"]), ours, theirs


def test_graphs_of_graphnet_are_told_as_they_were_timed() -> None:
    """The page follows from the rows, and the guide from the page."""
    made, told = graphnet.page(graphs(), {}), (ROOT / "results/graphnet/graphnet.md").read_text(encoding="utf-8")
    assert set(made.splitlines()) <= set(told.splitlines())
    count, right, ours, theirs = tried_graphs()
    guide = (ROOT / "docs/guides/networks.md").read_text(encoding="utf-8")
    assert f"Of {count} graphs drawn\nat random, {right} are right and none is wrong" in guide
    assert f"median speed-up over eager torch is {ours:.2f} with `fast`, and {theirs:.2f} with torch.compile" in guide


def of_graphnet() -> Iterator[str]:
    """What README says of graphs of GraphNet."""
    count, right, ours, theirs = tried_graphs()
    yield f"of {count} that [GraphNet captured, {right} are right"
    yield f"with a median speed-up of {ours:.1f} over eager torch (torch.compile: {theirs:.1f})"


def of_held_out() -> Iterator[str]:
    """What README says of networks on which nothing was tuned."""
    zen4 = geometric_mean(row["over_best"]["median"] for row in read_rows(ZEN4) if row["kind"] == "network")
    xeon = geometric_mean(over_fastest(1))
    yield f"[{zen4:.2f} (Zen 4) and {xeon:.2f} times (Xeon) as fast as with other compilers"


def of_study() -> Iterator[str]:
    """README's sentences about learned policies and the traverser on an H200."""
    line, trials = headline_page.primary(scores.read(H200)), read_rows(H200 / "trials.jsonl.gz")
    assert {row["status"] for row in trials} == {"OK", "COMPILE_ERROR"}
    yield from (
        f"{line.operators} held-out operators: the best", f"takes {line.ratio:.2f} times as long",
        f"({line.low:.2f} to {line.high:.2f})", f"of {len(trials):,} on an H200 none",
    )  # fmt: skip


def of_cpu_study() -> Iterator[str]:
    """What README says of the study on a CPU with AVX2 alone."""
    timed = scores.read(ROOT / "results/cpu_study/zen4_avx2_new")
    arms = "in_turn", "in_turn_elsewhere", "policy_alone"
    ours, elsewhere, policy = (headline_page.compared("", timed, timed.whole, scores.FIRST, ours=arm) for arm in arms)
    yield f"{ours.operators} operators, after ten minutes of `gensor adapt`: `in_turn` takes {_said(elsewhere)}"
    yield f"with policies trained again {_said(ours)}, such a policy alone {_said(policy)}"


def of_policies() -> Iterator[str]:
    """What README says of policies trained on kernel times."""
    timed = scores.read(ROOT / "results/cpu_study/zen4_wide")
    whole, four = timed.whole, scores.FIRST
    compare = partial(headline_page.compared, "", timed)
    after = "of the traverser's time after four programs (95 % intervals)"
    yield f"{len(whole)} held-out operators, policies trained on recorded and predicted times"
    yield f"Its programs take {_said(compare(whole, four, ours='in_turn'))} {after}"
    yield f"the walks' alone {_said(compare(whole, four, ours='model_of_time'))}"
    yield f"Their ratio is {_said(compare(whole, four, ours='in_turn', other='model_of_time'))}"
    yield f"alone takes {_said(compare(whole, four, ours='columns_alone'))}"
    yield f"a policy ranked by that model, is undecided: {_said(compare(whole, four))}"


def of_wall_time() -> Iterator[str]:
    """What README says of a minute of search."""
    page = (ROOT / "results/cpu_study/wall_time/60.md").read_text(encoding="utf-8")
    lines = dict(re.findall(r"^\| (\w+) \| ([\d.]+ \[[\d., ]+\]) \|", page, re.MULTILINE))
    ours, descent = (re.sub(r"\[(.*), (.*)\]", r"(\1 to \2)", lines[name]) for name in ("in_turn", "model_descent_ext"))
    yield f"`in_turn` takes {ours}, a descent without learning {descent}"


def _said(line: headline_page.Line) -> str:
    return f"{line.ratio:.3f} ({line.low:.3f} to {line.high:.3f})"


NAMES = (
    "95 % intervals over", "Zen 4",
    "arXiv 2502.11407", "Python 3.11", "AVX-512", "H100", "H200", "float64", "Zen 3 to 5", "Zen 3", "Apache-2.0",
    "`gensor_gym/Gir-v0`", "`gensor_gym/Fuse-v0`",
)  # fmt: skip
"""Numbers of README that are names."""


def test_every_number_of_readme_follows_from_a_file() -> None:
    """But for its code, its links and what is a name."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    text = re.sub(r"^```.*?^```|<[^>]*>|\]\([^)]*\)", "", text, flags=re.MULTILINE | re.DOTALL)
    said = " ".join(re.sub(r'`gensor optimize "[^`]*`', "", text).split())
    tellers = of_figure, of_moving_picture, of_status, of_study, of_cpu_study, of_policies, of_wall_time, of_graphnet, of_held_out
    for fact in (fact for teller in tellers for fact in teller()):
        assert fact in said, fact
        said = said.replace(fact, "")
    for name in NAMES:
        assert name in said, name
        said = said.replace(name, "")
    assert re.findall(r"\S*\d\S*", said) == []


def test_the_moving_picture_shows_times_that_were_recorded() -> None:
    seconds = [step.seconds for step in walk.steps()]
    assert seconds[-1] == walk.table()["median"][0] and len(walk.table()) == 1040 and len(seconds) == 10
    assert all(later <= earlier for earlier, later in zip(seconds, seconds[1:], strict=False))


def _ratios(page: str, strategy: str, reference: str) -> dict[str, float]:
    """Mean log ratio of the printed medians of two strategies, by operator."""
    found: dict[str, dict[tuple[str, str], float]] = {}
    for section in page.split("\n## ")[1:]:
        lines = re.findall(r"^\| (\w+)/(\d) \| ([\d.e+]+) (s|ms|µs)", section, re.MULTILINE)
        found[section.splitlines()[0]] = {(name, seed): float(value) * UNITS[unit] for name, seed, value, unit in lines}
    return {
        op: mean(math.log(times[strategy, seed] / times[reference, seed]) for seed in "012") for op, times in found.items()
    }


def test_what_is_said_of_the_live_comparison_follows_from_its_page() -> None:
    """docs/generalisation.md: how much sixteen operators can tell, and how many tell enough."""
    page = (ROOT / "results/host/live_columns/summary.md").read_text(encoding="utf-8")
    ratios = _ratios(page, "columns_fine_tuned", "markov_ext")
    spread, effect, normal = stdev(ratios.values()), -math.log(0.95), NormalDist()
    wanted = ((normal.inv_cdf(0.975) + normal.inv_cdf(0.8)) * spread / effect) ** 2
    power = normal.cdf(effect / (spread / math.sqrt(len(ratios))) - normal.inv_cdf(0.975))
    said = " ".join((ROOT / "docs/generalisation.md").read_text(encoding="utf-8").split())
    assert len(ratios) == 16
    assert f"5 % in {100 * power:.0f} % of studies; {math.ceil(wanted)} operators would in 80 %" in said
