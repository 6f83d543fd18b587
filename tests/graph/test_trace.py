"""``trace``: of a function a program, of a matrix its trace; what a traced program refuses."""

from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert.compiling.trace import TracedProgram, trace
from wengert.errors import TransformError
from wengert.graph.edit import insert
from wengert.graph.ir import Graph

W = wg.ones(3)


def test_matrices_and_functions() -> None:
    assert trace(wg.eye(3)).item() == 3
    assert trace(np.eye(2)).item() == 2
    assert isinstance(trace(wg.sin)(W), TracedProgram)
    assert isinstance(trace(wg.nn.Linear(3, 2))(W), TracedProgram)
    with pytest.raises(TypeError, match="must be a tensor"):
        trace("text")


def test_writes_gradients_and_identity() -> None:
    held = wg.zeros(2)
    weight = wg.ones(2, requires_grad=True)

    def function(x: Any) -> Any:
        held.add_(x)
        (weight * held).sum().backward()
        return held, x

    traced = trace(function)(wg.ones(2))
    assert weight.grad is None
    assert held.tolist() == [0, 0]
    x = wg.tensor([1.0, 2.0])
    first, second = traced.evaluate(x)
    assert first is held
    assert second is x
    assert weight.grad is not None
    assert weight.grad.tolist() == held.tolist() == [1, 2]
    with pytest.raises(TransformError, match=r"\.grad of .* is no longer None"):
        traced.evaluate(x)


REFUSED: dict[str, tuple[Any, type[Exception], str]] = {
    "shape": (lambda t: t.evaluate(wg.ones(4), 2, k=[None]), ValueError, r"argument 0 was a tensor float32\[3\].*float32\[4\]"),
    "dtype": (lambda t: t.evaluate(wg.ones(3, dtype=wg.float64), 2, k=[None]), ValueError, r"now it is a tensor float64\[3\]"),
    "no tensor": (lambda t: t.evaluate(1.0, 2, k=[None]), ValueError, r"now it is 1\.0"),
    "value": (lambda t: t.evaluate(wg.ones(3), 3, k=[None]), ValueError, "argument 1 was 2 when it was traced, now it is 3"),
    "type": (lambda t: t.evaluate(wg.ones(3), 2.0, k=[None]), ValueError, r"argument 1 was 2 .* 2\.0"),
    "tensor for value": (lambda t: t.evaluate(wg.ones(3), wg.ones(()), k=[None]), ValueError, "argument 1 was 2"),
    "structure": (lambda t: t.evaluate(wg.ones(3), 2, k=[]), TypeError, "was traced with arguments"),
    "keyword": (lambda t: t.evaluate(wg.ones(3), 2), TypeError, "was traced with arguments"),
    "shared": (lambda t: t.evaluate(W, 2, k=[None]), ValueError, "whose memory another of its tensors shares"),
    "transform": (lambda t: wg.func.vmap(lambda x: t.evaluate(x, 2, k=[None]))(wg.ones(2, 3)), TransformError, "outside of"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    call, error, match = REFUSED[name]
    alias = W.detach()

    def function(x: Any, n: int, k: Any) -> Any:
        return x.add_(n) + alias

    traced = trace(function)(wg.ones(3), 2, k=[None])
    with pytest.raises(error, match=match):
        call(traced)
    assert W.tolist() == [1, 1, 1]


def test_many_values_of_a_tensor_are_refused() -> None:
    with pytest.raises(TransformError, match="needs the values"):
        trace(lambda x: x.tolist())(wg.ones(1000))


def test_another_way_is_refused() -> None:
    count = wg.zeros(())

    def function(x: Any) -> Any:
        count.add_(1)
        return x * 2 if x.sum() > 0 else x

    traced = trace(function)(W)
    assert traced.evaluate(W * 3).tolist() == [6, 6, 6]
    with pytest.raises(
        TransformError, match=r"function: return x \* 2 .* was True when it was traced, and is False now"
    ):
        traced.evaluate(-W)
    assert count.item() == 1


def test_passes_make_another_program() -> None:
    def doubled(graph: Graph) -> Graph:
        (output,) = graph.outputs
        graph.outputs = [insert(graph, "add", output, output)]
        return graph

    count = wg.zeros(())

    def function(x: Any) -> Any:
        count.add_(1)
        return [x + count]

    traced = trace(function)(W)
    other = traced.apply(doubled)
    assert traced.evaluate(W)[0].tolist() == [2, 2, 2]
    assert other.evaluate(W)[0].tolist() == [6, 6, 6]
    assert count.item() == 2
    assert repr(other).startswith("<traced test_passes_make_another_program.<locals>.function: 2 inputs, 3 operators>")


def test_report() -> None:
    head, *rows, before, after = trace(lambda x: (x @ x.t()).exp())(wg.ones(2, 3)).report().splitlines()
    assert head.split() == ["kernel", "operators", "times", "before", "bytes", "flops", "predicted", "lines"]
    assert [row.split()[0] for row in rows] == ["matmul", "exp"]
    assert rows[0].split()[2:8] == ["1", "64", "B", "64", "B", "24"]  # 2·3 floats in twice, 2·2 out; 2·2·2·3 operations
    assert rows[0].endswith(f"test_trace.py:{test_report.__code__.co_firstlineno + 1}")
    assert before.startswith("before: 2 kernels, 96 B")
    assert after.startswith("after:  2 kernels, 96 B")
    assert trace(lambda x: x)(W).report().splitlines()[1] == "before: 0 kernels, 0 B, 0 flops"
