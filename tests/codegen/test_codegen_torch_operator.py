"""A kernel as an operator of torch: under torch.compile without a break, and in an exported program."""

from __future__ import annotations

import numpy as np
import pytest

from gensor_gym import ConstructionGraph, build, operators
from gensor_gym.codegen.build import BuiltKernel

torch = pytest.importorskip("torch")
OP = operators.resolve_one("gemm(m=24, n=32, k=16)")


@pytest.fixture(scope="module")
def kernel() -> BuiltKernel:
    return build(OP, ConstructionGraph(OP, "host", "extended").random_schedule(np.random.default_rng(5)), "host")


class Layer(torch.nn.Module):
    def __init__(self, kernel: BuiltKernel) -> None:
        super().__init__()
        self.product = kernel.as_torch()

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.product(a + 1, b)) * 2


@pytest.fixture
def tensors() -> tuple[torch.Tensor, ...]:
    return tuple(map(torch.from_numpy, operators.random_inputs(OP, np.random.default_rng(0))))


def expected(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.relu((a + 1) @ b) * 2


@pytest.mark.thorough
def test_torch_accepts_it(kernel: BuiltKernel, tensors: tuple[torch.Tensor, ...]) -> None:
    torch.library.opcheck(kernel.as_torch(), tensors)
    assert kernel.as_torch() is kernel.as_torch()


@pytest.mark.thorough
def test_it_compiles_without_a_break(kernel: BuiltKernel, tensors: tuple[torch.Tensor, ...]) -> None:
    compiled = torch.compile(Layer(kernel), fullgraph=True, backend="aot_eager")
    for turned in (tensors, (tensors[0], tensors[1].T.contiguous().T)):
        assert torch.allclose(compiled(*turned), expected(*turned), atol=1e-4)


@pytest.mark.thorough
def test_it_is_one_node_of_an_exported_program(kernel: BuiltKernel, tensors: tuple[torch.Tensor, ...]) -> None:
    program = torch.export.export(Layer(kernel), tensors)
    assert sum("gensor_gym" in str(node.target) for node in program.graph.nodes) == 1
    assert torch.allclose(program.module()(*tensors), expected(*tensors), atol=1e-4)


def test_a_gradient_is_refused(kernel: BuiltKernel, tensors: tuple[torch.Tensor, ...]) -> None:
    a = tensors[0].clone().requires_grad_()
    with pytest.raises(RuntimeError, match=r"gensor_gym|autograd|does not require grad"):
        kernel.as_torch()(a, tensors[1]).sum().backward()


def test_nothing_breaks_the_graph(kernel: BuiltKernel, tensors: tuple[torch.Tensor, ...]) -> None:
    found = torch._dynamo.explain(Layer(kernel))(*tensors)
    assert (found.graph_count, found.graph_break_count) == (1, 0)


@pytest.mark.thorough
def test_inductor_compiles_it(kernel: BuiltKernel, tensors: tuple[torch.Tensor, ...]) -> None:
    compiled = torch.compile(Layer(kernel), fullgraph=True)
    assert torch.allclose(compiled(*tensors), expected(*tensors), atol=1e-4)


class Within(torch.nn.Module):
    def __init__(self, kernel: BuiltKernel) -> None:
        super().__init__()
        self.kernel = kernel

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.kernel.as_torch()(a + 1, b)) * 2


def test_in_compiled_code_it_must_have_been_made_before(tensors: tuple[torch.Tensor, ...]) -> None:
    kernel = build(OP, ConstructionGraph(OP, "host", "extended").random_schedule(np.random.default_rng(8)), "host")
    with pytest.raises(Exception, match=r"as_torch\(\) is called for the first time in compiled code: call it before"):
        torch.compile(Within(kernel), fullgraph=True, backend="aot_eager")(*tensors)
    torch._dynamo.reset()
    kernel.as_torch()
    compiled = torch.compile(Within(kernel), fullgraph=True, backend="aot_eager")
    assert torch.allclose(compiled(*tensors), expected(*tensors), atol=1e-4)
