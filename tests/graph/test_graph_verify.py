"""Every rule of graphs can be broken, and is then named with the node and its line."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert.array.dtype import float32, float64
from wengert.compiling.trace import trace
from wengert.core.operator import Spec
from wengert.core.registry import operators
from wengert.errors import GraphError
from wengert.graph.ir import Graph, Node, Value
from wengert.graph.operations import Draw, Fused
from wengert.graph.parser import parse

TEXT = """graph {
  in %x: float32[2]
  in %y: float32[2]
  %const1: float32[] = constant 2.0
  %1: float32[2] = add(%x, %y)  # model.py:1 in f
  %2: float32[2] = fused pointwise(%1) {
    in %a: float32[2]
    %1: float32[2] = exp(%a)
    return %1
  }
  %3: float32[4] = cat((%1, %2))
  return %3
  write %x = %2
}"""
F2 = Spec((2,), float32)


def body(graph: Graph) -> Graph:
    fused = graph.nodes[1].op
    assert isinstance(fused, Fused)
    return fused.body


def argument(node: int, at: int, value: Any) -> Callable[[Graph], None]:
    def change(graph: Graph) -> None:
        arguments = list(graph.nodes[node].arguments)
        arguments[at] = value(graph) if callable(value) else value
        graph.nodes[node].arguments = tuple(arguments)

    return change


def result(number: int, /, **fields: Any) -> Callable[[Graph], None]:
    def change(graph: Graph) -> None:
        for name, value in fields.items():
            setattr(graph.nodes[number].results[0], name, value)

    return change


def draw(graph: Graph) -> None:
    graph.call(Draw("rand", None, lambda *_: None, (3,)), (), [(F2, (4,))])


RULES: dict[str, tuple[Callable[[Graph], Any], str]] = {
    "order": (lambda g: g.nodes.reverse(), r"%3.*: %1 is read before it is made"),
    "foreign": (argument(0, 1, lambda g: Value(F2, (4,), "z")), r"add\(%x, %z\): %z is unknown here\n  from model.py:1 in f"),
    "foreign inside": (lambda g: argument(0, 0, g.inputs[0])(body(g)), r"in its body: .*exp\(%x\): %x is unknown here"),
    "input twice": (lambda g: g.inputs.append(g.inputs[0]), r"the input %x.* is made twice"),
    "node twice": (lambda g: g.nodes.append(g.nodes[0]), r"the result %1 is made twice"),
    "names": (result(0, name="x"), r"the result %x has the name of another value"),
    "input of a node": (lambda g: g.inputs.append(g.nodes[0].results[0]), r"is an input or a constant, and also a result"),
    "maker": (result(0, node=None), r"does not say that it is result 0"),
    "index": (result(0, index=1), r"does not say that it is result 0"),
    "shape": (result(0, spec=Spec((3,), float32)), r"%1 is float32\[3\], but add gives float32\[2\]\n  from model.py:1"),
    "dtype": (result(0, spec=Spec((2,), float64)), r"%1 is float64\[2\], but add gives float32\[2\]"),
    "strides": (result(0, strides=()), r"0 strides for 1 dimensions"),
    "count": (lambda g: setattr(g.nodes[0], "results", ()), r"it has 0 results, but add gives 1"),
    "arguments": (lambda g: setattr(g.nodes[0], "arguments", ()), r"it has 0 arguments; the signature is add"),
    "no tensor": (argument(0, 0, None), r"the argument 'input' is a tensor, not None"),
    "tensor as option": (argument(0, 2, lambda g: g.inputs[0]), r"the argument 'alpha' is no tensor"),
    "hidden tensor": (argument(0, 2, lambda g: [g.inputs[0]]), r"the argument 'alpha' is no tensor"),
    "sequence": (argument(2, 0, lambda g: g.inputs[0]), r"the argument 'tensors' is a tuple of tensors"),
    "misfit": (argument(2, 1, 5), r"its arguments do not fit"),
    "composite": (lambda g: setattr(g.nodes[0], "op", operators()["linalg_solve"]), r"is made of other operators"),
    "constant": (lambda g: g.constants.update({next(iter(g.constants)): np.zeros(3)}), r"holds float64\[3\]"),
    "output": (lambda g: g.outputs.append(Value(F2, (4,), "z")), r"%z.*nothing in the graph makes it"),
    "written": (lambda g: g.writes.append((g.nodes[0].results[0], g.inputs[0])), r"is written, but is no input"),
    "written twice": (lambda g: g.writes.append(g.writes[0]), r"is written twice"),
    "write": (lambda g: g.writes.append((g.inputs[1], g.outputs[0])), r"the input %y.* cannot hold %3"),
    "body writes": (lambda g: body(g).writes.append((body(g).inputs[0],) * 2), r"its body writes"),
    "body input": (argument(1, 0, lambda g: next(iter(g.constants))), r"%const1: float32\[\] is given for its input %a"),
    "body count": (lambda g: setattr(g.nodes[1], "arguments", ()), r"it takes 1 tensors"),
    "body output": (lambda g: body(g).outputs.clear(), r"it has 1 results, but pointwise.* gives 0"),
    "draw": (draw, r"it draws one tensor of shape \[3\]"),
    "operation": (lambda g: setattr(g.nodes[0], "op", Node), r"type is no operation"),
}  # fmt: skip


@pytest.mark.parametrize("name", RULES)
def test_broken(name: str) -> None:
    graph = parse(TEXT)
    graph.verify()
    change, match = RULES[name]
    change(graph)
    if name == "operation":
        match = "Bad is no operation"
        graph.nodes[0].op = type("Bad", (), {"name": "bad"})()
    with pytest.raises(GraphError, match=match):
        graph.verify()
    assert str(graph), "a broken graph can still be printed"


def test_a_training_step_keeps_the_rules() -> None:
    model = wg.nn.Sequential(wg.nn.Linear(3, 4), wg.nn.BatchNorm1d(4), wg.nn.Dropout(0.5), wg.nn.Linear(4, 2))
    optimiser = wg.optim.AdamW(model.parameters())

    def step(x: Any) -> Any:
        optimiser.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimiser.step()
        return loss

    x = wg.ones(5, 3)
    step(x)
    traced = trace(step)(x)
    traced.verify()
    assert "!AdamW.step(" in str(traced)
