"""What stock learners came to, as a page."""

from __future__ import annotations

from typing import Any

from experiments.common.texts import interval_text, page, table
from experiments.sheets.cells import percent_interval
from experiments.sheets.sheet import Sheet
from gensor_gym.measure.stats.intervals import LEVEL

HEAD = ("agent", "environment", "learned", "steps", "episodes", "steps of an episode", "illegal", "most probable", "best of {}",
        "within 5 %")  # fmt: skip


def markdown(summary: dict[str, Any], figures: list[str]) -> str:
    """The summary as a page."""
    trained, tested, left = summary["trained"], summary["tested"], summary["left_out"]
    lines = [
        "# Stock learners in the environments", "",
        f"Model of {summary['hardware']}, space {summary['space']}: nothing was timed. Learned on {len(trained)} operators of "
        f"the train part of split v1 (with at most {summary['most_values']:,} values of a column), tried on {len(tested)} of the "
        f"test part, {len(summary['seeds'])} seed. Regret is log(T / T*), T* the certified optimum; interquartile means over "
        f"operators, in brackets {LEVEL} intervals of a bootstrap over operators (and seeds). "
        f"Processor seconds of one thread of {summary['processor']}, beside other work. Learning under a limit of time takes "
        f"other steps on another processor. Fingerprint {summary['fingerprint']}. {summary['date']}.", "",
        f"Classes of stable-baselines3 and sb3-contrib over {summary['num_envs']} environments, `MlpPolicy`, their defaults but "
        "for the settings below. Steps of an episode: of those drawn on the test part. Illegal: actions at the beginning and at "
        "the end of learning; they cost a step and change nothing.", "",
        *_agents(summary), "",
    ]  # fmt: skip
    lines += ["## Settings", "", *(_settings(name, one) for name, one in summary["agents"].items() if one["seconds"]), ""]
    lines += ["Left out of the test part: " + ", ".join(f"`{text}`" for text in left) + ".", ""] if left else []
    return page(lines, figures)


def _settings(name: str, agent: dict[str, Any]) -> str:
    """A line."""
    return f"- `{name}`: {agent['learner']}, " + ", ".join(f"{key} {value}" for key, value in agent["settings"].items())


def _agents(summary: dict[str, Any]) -> list[str]:
    """A line for each agent."""
    rows = []
    for name, agent in summary["agents"].items():
        length, illegal = agent["length"], agent["illegal"]
        rows.append((
            name, agent["environment"], f"{agent['seconds']:.0f} s" if agent["seconds"] else "nothing", f"{agent['steps']:,.0f}",
            f"{agent['episodes']:,.0f}", "" if length is None else f"{length:.1f}",
            "" if illegal is None else f"{illegal[0]:.0%}, {illegal[1]:.0%}", interval_text(agent["first"], 1),
            interval_text(agent["best"], 1), f"{agent['near']:.0%}",
        ))  # fmt: skip
    return table((*HEAD[:8], HEAD[8].format(summary["programs"]), HEAD[9]), rows)


def sheet(summary: dict[str, Any]) -> Sheet:
    """Regrets by agent."""
    rows = [[name, percent_interval(one["first"]), percent_interval(one["best"])] for name, one in summary["agents"].items()]
    return Sheet.of("IQM regret on the test part", ("agent", "most probable", f"best of {summary['programs']}"), rows)
