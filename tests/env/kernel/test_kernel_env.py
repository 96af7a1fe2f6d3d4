"""`gensor_gym/Kernel-v0`: text in and out, rewards of the one decision process, and no text that ends it by an error."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from gymnasium.utils.env_checker import check_env

from gensor_gym import operators
from gensor_gym.env.construct import ConstructEnv
from gensor_gym.env.kernel.env import KernelEnv
from gensor_gym.env.kernel.grammar import Command, names_of, parse
from gensor_gym.env.kernel.task import reference_text, task_text
from gensor_gym.env.reward import final_reward
from gensor_gym.measure.native import make_kernel
from gensor_gym.measure.written.clocked import PROTOCOL
from gensor_gym.measure.written.text import Options
from gensor_gym.measure.written.trials import WrittenTrials

GEMM = operators.gemm(m=64, n=48, k=80).with_epilogue("bias", "relu")
EXAMPLE = Path(__file__).resolve().parents[3] / "docs" / "examples" / "kernel_agent.py"
RIGHT = """
void gg_kernel(const void *const *inputs, void *output, void *workspace, const struct gg_runtime *runtime)
{
    const float *A = inputs[0], *B = inputs[1], *bias = inputs[2];
    float *C = output;
    for (int m = 0; m < 64; m++)
        for (int n = 0; n < 48; n++) {
            float sum = bias[n];
            for (int k = 0; k < 80; k++) sum += A[m * 80 + k] * B[k * 48 + n];
            C[m * 48 + n] = sum > 0 ? sum : 0;
        }
}
"""


@pytest.fixture
def env() -> Iterator[KernelEnv]:
    made = KernelEnv(GEMM, turns=12)
    yield made
    made.close()


def test_gymnasiums_checker_is_content(env: KernelEnv) -> None:
    made = gymnasium.make("gensor_gym/Kernel-v0", operator=str(GEMM), backend="analytic", turns=3, render_mode="ansi")
    check_env(made.unwrapped)
    assert gymnasium.make(made.spec).unwrapped.turns == 3 and made.unwrapped.render().startswith("# State")
    observation, _ = env.reset(seed=0)
    assert observation in env.observation_space and env.task_text() in observation and env.state_text() in observation


def test_primitives_are_rewarded_as_in_construct(env: KernelEnv) -> None:
    """Each primitive, the measurement and the end pay what `Construct-v0` pays for the same actions."""
    twin = ConstructEnv(GEMM, space="extended", reward="best_so_far")
    twin.reset(seed=0), env.reset(seed=0)
    names = names_of(GEMM)
    taken = ["tile[m]", "tile[n]", "raise[unroll]", "tile[k]"]
    expected = sum(twin.step(names[name])[1] for name in taken)
    assert env.step(f"apply {' '.join(taken)}")[1] == pytest.approx(expected)
    assert env.step("measure")[1] == pytest.approx(twin.step(0)[1])
    assert env.step("apply tile[m]")[1] == pytest.approx(twin.step(names["tile[m]"])[1])
    assert env.episode.schedule == twin.schedule


def test_the_return_is_that_of_the_best_program_less_its_steps(env: KernelEnv) -> None:
    env.reset(seed=0)
    slow, total = env.episode.schedule, 0.0
    for action in ("apply tile[m] tile[n] tile[n]", "measure", f"schedule {slow}", "schedule none", "apply tile[k]", "stop"):
        _, reward, ended, truncated, info = env.step(action)
        total += reward
    assert ended and not truncated and info["status"] == "OK" and info["paid"] == 2
    assert total == pytest.approx(final_reward(env.episode.graph.floor, info["runtime_s"]) - 0.001 * info["steps"])
    assert info["best"].startswith("schedule tile[") and info["runtime_s"] == env.best.seconds
    assert env.episode.graph.latency(env.episode.graph.parse(info["best"].partition(" ")[2])) == pytest.approx(env.best.seconds)
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step("stop")


def test_turns_end_the_episode(env: KernelEnv) -> None:
    env.reset(seed=0)
    ends = [env.step("measure")[2] for _ in range(12)]
    assert ends == [False] * 11 + [True]


MALFORMED = [
    ("", "no verb ''"),
    (None, "is a text, not NoneType"),
    ("aply tile[m]", "did you mean apply?"),
    ("apply", "1 to 64 are accepted"),
    ("apply tile[z]", "no primitive 'tile[z]'"),
    ("apply stop", "an action of its own"),
    ("apply tile[m]\nmeasure", "one action is taken per turn"),
    ("schedule tile[1]", "not a schedule"),
    (f"schedule tile[1x1x1x9999x1x1x1x1{' 1x1x1x1x1x1x1x1' * 3}] vthread[1x1x1x1x1x1x1x1] level=0", "not legal"),
    ("schedule " + "9" * 60_000, "not a schedule"),
    ("measure twice", "stands alone"),
    ("source grid=1\nint x;", "times no sources"),
    ("source speed=9", "option 'speed=9'"),
    ("source grid=" + "9" * 20, "is not understood"),
    ("stop\x00 \ud800 \u2028", "no verb"),
    ("apply raise[cluster]", "is illegal there"),
]


@pytest.mark.parametrize(("action", "answer"), MALFORMED, ids=range(len(MALFORMED)))
def test_malformed_actions_are_answered(env: KernelEnv, action: Any, answer: str) -> None:
    """The answer says what is accepted, the state stays, and the step costs."""
    env.reset(seed=0)
    before = env.episode.schedule
    observation, reward, ended, _, _ = env.step(action)
    assert answer in env.said and observation in env.observation_space
    assert reward == pytest.approx(-0.001) and not ended and env.episode.schedule == before


def test_grammar() -> None:
    assert parse("apply tile[3], tile[n]", GEMM).primitives == (names_of(GEMM)["tile[m]"], names_of(GEMM)["tile[n]"])
    assert parse("source workspace=8 grid=2,3 block=32\n```c\nint x;\n```", GEMM) == Command(
        "source", source="int x;\n", words="workspace=8 grid=2,3 block=32", options=Options(8, (2, 3, 1), (32, 1, 1))
    )
    with pytest.raises(ValueError, match="turns 0"):
        KernelEnv(GEMM, turns=0)


def test_references_in_words() -> None:
    assert "value = sum(A[m, k] * B[k, n] for k)\n  value = value + bias[n]\n  value = max(value, 0)" in reference_text(GEMM)
    conv = operators.conv2d(1, 8, 9, 9, 16, 3, 3, padding=1)
    assert "x[n, c, p + r - 1, q + s - 1] * w[k, c, r, s]" in reference_text(conv)
    assert "outside a tensor are 0" in reference_text(conv)
    others = {"avg_pool2d(1, 8, 8, 8, 2, 2)": ") / 4", "max_pool2d(1, 8, 8, 8, 2, 2)": "maximum(x"}
    assert all(words in reference_text(operators.parse(text)) for text, words in others.items())


def test_every_stage_has_words() -> None:
    from gensor_gym.env.kernel.task import STAGE_WORDS
    from gensor_gym.operators.epilogue import DEQUANTIZED_STAGES, INTEGER_STAGES

    assert STAGE_WORDS.keys() == {*INTEGER_STAGES, *DEQUANTIZED_STAGES}


def test_a_gpus_task_states_the_signature_in_cuda() -> None:
    graph = KernelEnv("gemm(m=64, n=64, k=64, dtype='float16')", hardware="h200").episode.graph
    text = task_text(graph, "cuda", 4, sources=True)
    assert "; tensor cores 9.894e+05 Gop/s float16" in text
    assert "NAME(const unsigned short *A, const unsigned short *B, unsigned short *C, float *workspace)" in text


def example() -> Any:
    spec: Any = importlib.util.spec_from_file_location("kernel_agent", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_scripted_agent_plays_by_the_model() -> None:
    first, again = (example().play(str(GEMM), seed=3) for _ in range(2))
    assert first[0] == again[0] > 1.0 and first[1]["status"] == "OK"


@pytest.mark.as_shipped
def test_the_scripted_agent_plays_on_this_processor() -> None:
    """Schedules and the generated source are timed; the return is R of the best of both, less the steps."""
    total, info = example().play(str(GEMM), "cpu", seed=3)
    floor = KernelEnv(GEMM).episode.graph.floor
    assert info["status"] == "OK" and info["paid"] == 3 and math.isfinite(info["runtime_s"])
    assert total == pytest.approx(final_reward(floor, info["runtime_s"]) - 0.001 * info["steps"])


def test_a_source_is_verified_timed_and_known_again() -> None:
    env = KernelEnv(GEMM, backend="cpu", turns=6)
    env.reset(seed=0)
    _, reward, _, _, info = env.step(f"source\n{RIGHT}")
    assert info["paid_status"] == "OK" and reward > 0 and env.best.kind == "source", env.said
    assert env.step(env.best.text)[4]["paid_s"] == info["paid_s"]
    _, reward, _, _, info = env.step(f"source\n{RIGHT.replace('> 0', '> 1')}")
    assert (info["paid_status"], reward) == ("WRONG_ANSWER", pytest.approx(-0.001)) and "elements wrong" in env.said
    assert env.step(f"source\n{RIGHT.replace('float sum', 'float')}")[4]["paid_status"] == "COMPILE_ERROR"
    assert "kernel.c:" in env.said and env.step("source\n#include <stdio.h>")[1] == pytest.approx(-0.001)
    assert "headers that a source may include" in env.said
    assert env.step("stop")[4]["best"] == env.best.text
    env.close()


def test_schedules_and_sources_have_one_clock() -> None:
    """A schedule is timed as its kernel is when sent as a source; else kernels limited by memory would not compare."""
    env = KernelEnv(operators.elementwise("relu", 6144), backend="cpu", turns=6)
    env.reset(seed=0)
    info = env.step("measure")[4]
    assert info["paid_status"] == "OK" and "OK: the schedule takes" in env.said
    graph = env.episode.graph
    (found,) = env.episode.final.backend.measure(graph.operator, [env.episode.schedule], graph.hardware)
    kernel = make_kernel(graph.operator, env.episode.schedule, graph.hardware)
    given = WrittenTrials(graph.hardware).measure(kernel, seed=1)
    assert found.conditions["protocol"] == given.conditions["protocol"] == PROTOCOL and found.digest == given.digest
    env.close()
