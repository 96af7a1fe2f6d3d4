"""Conformance: models and KernelBench's modules at sizes that work, in processes that may die."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from experiments.conformance import kernelbench, models
from experiments.conformance.cases import Outcome, apart

MODULE = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear, self.scale = nn.Linear(features, 300), 1000

    def forward(self, x):
        return self.linear(x).relu() * self.scale

batch_size, features = 0, 4096
batch_size = 128

def get_inputs():
    return [torch.rand(batch_size, features)]

def get_init_inputs():
    return [features]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for level, number in (("level1", 10), ("level1", 9), ("level3", 1)):
        (tmp_path / level).mkdir(exist_ok=True)
        (tmp_path / level / f"{number}_Module.py").write_text(MODULE)
    return tmp_path


def test_numbers_outside_of_classes_are_halved(folder: Path) -> None:
    case = kernelbench.case_of(next(kernelbench.files(folder)), 64)
    assert [tuple(one.shape) for one in case.inputs] == [(2, 64)]
    assert case.module.linear.weight.shape == (300, 64) and case.module.scale == 1000


def test_modules_come_by_level_and_number(folder: Path) -> None:
    found = [kernelbench.name_of(file) for file in kernelbench.files(folder)]
    assert found == ["level1/9_Module", "level1/10_Module", "level3/1_Module"]


@pytest.mark.thorough
def test_a_limit_at_which_a_module_does_not_run_is_passed_over(folder: Path) -> None:
    file = folder / "level1" / "9_Module.py"
    file.write_text(MODULE.replace("return [features]", "return [100]"))
    assert kernelbench.outcome(file).said.startswith("by torch too: RuntimeError")
    file.write_text(MODULE.replace("4096", "100").replace("return [features]", "return [max(features, 100)]"))
    assert kernelbench.outcome(file) == Outcome("level1/9_Module", "right")


@pytest.mark.thorough
def test_what_ends_a_process_is_an_error_and_a_folder_without_modules_is_refused(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = folder / "level1" / "9_Module.py"
    file.write_text("import os; os._exit(3)")
    assert apart(kernelbench.MODULE, "9", str(file)) == Outcome("9", "error", "ended")
    (tmp_path / "empty").mkdir()
    with pytest.raises(SystemExit):
        kernelbench.main([str(tmp_path / "empty")])
    assert "expected the folder KernelBench of a clone" in capsys.readouterr().err


class Net(nn.Module):
    def __init__(self, least: int) -> None:
        super().__init__()
        self.layers, self.least = nn.Sequential(nn.Conv2d(3, 4, 5, 16), nn.BatchNorm2d(4)), least

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[-1] < self.least:
            raise ValueError("too small")
        made: Tensor = self.layers(x)
        return made


@pytest.fixture
def vision(monkeypatch: pytest.MonkeyPatch) -> None:
    """Families of networks for images of so many pixels, the number in their names, or larger."""

    def build(name: str, **how: Any) -> nn.Module:
        if "img_size" in how:
            raise TypeError("img_size")
        return Net(int(name[1:]))

    families = {"nets": ["n8", "n70", "n500"], "large": ["n600"]}
    monkeypatch.setattr(models, "_families", lambda library: families)
    monkeypatch.setattr(
        models, "importlib", SimpleNamespace(import_module=lambda name: SimpleNamespace(create_model=build))
    )


@pytest.mark.thorough
@pytest.mark.usefixtures("vision")
def test_variants_run_at_the_smallest_size_that_works(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [models._vision_case("timm", "nets", number) for number in range(2)]
    assert {case.name: case.inputs[0].shape[-1] for case in cases} == {"timm/nets: n8": 64, "timm/nets: n70": 96}
    made = cases[0].module.layers(torch.randn(4, 3, 64, 64))
    assert (
        not cases[0].module.training
        and 0.3 < made.std() < 3
        and not torch.equal(cases[0].module.layers[1].running_mean, torch.zeros(4))
    )
    found = models.outcome("timm/nets/0")
    assert found.status == "right" and found.name.startswith("timm/nets: n")
    assert models.outcome("timm/large/0").said.startswith("not tried: IndexError: no variant 0 of 1")
    monkeypatch.setattr(models, "MOST_WEIGHTS", 10)
    assert models.is_left_out(models.outcome("timm/nets/0"))


class Config:
    """As configurations of transformers are."""

    def __init__(
        self, vocab_size: int = 9999, hidden_size: int = 4096, pad_token_id: int = 5000, eos_token_id: int | None = None
    ) -> None:
        self.vocab_size, self.hidden_size = vocab_size, hidden_size
        self.pad_token_id, self.eos_token_id = pad_token_id, eos_token_id


class Words(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.rows = nn.Embedding(config.vocab_size, config.hidden_size, config.pad_token_id)

    def forward(self, input_ids: Tensor, attention_mask: Tensor, decoder_input_ids: Tensor) -> Tensor:
        made: Tensor = (self.rows(input_ids) * attention_mask[..., None]).mean(1) + self.rows(decoder_input_ids).sum(1)
        return made


@pytest.mark.thorough
def test_configurations_are_made_small(monkeypatch: pytest.MonkeyPatch) -> None:
    library = SimpleNamespace(CONFIG_MAPPING={"words": Config}, Words=Words)
    monkeypatch.setattr(models, "importlib", SimpleNamespace(import_module=lambda name: library))
    monkeypatch.setattr(models, "_architectures", lambda task: {"words": "Words"})
    case = models._text_case("transformers/x/words", "x", "words")
    assert case.module.rows.weight.shape == (256, 64) and case.module.rows.padding_idx == 255
    assert [one.shape for one in case.inputs] == [(1, 16)] * 3
    assert models.outcome("transformers/x/words") == Outcome("transformers/x/words", "right")
    assert models.outcome("transformers/x/others").said.startswith("not tried: KeyError")


def test_the_page_tells_who_was_not_tried() -> None:
    found = [
        Outcome("timm/a: b", "right"), Outcome("timm/c", "refused", "not tried: ValueError"),
        Outcome("timm/d", "refused", "d: no kernels"), Outcome("transformers/x/y", "wrong", "1 of 2"),
    ]  # fmt: skip
    made = models.page(found)
    assert "| timm | 1 | 1 | 0 | 0 | 1 |" in made and "| transformers | 0 | 0 | 1 | 0 | 0 |" in made
    assert "| timm/d | refused | d: no kernels |" in made and "timm/a" not in made
