"""What small programs become, as text."""

import pytest

import wengert as wg
from tests.passes.captured import captured
from wengert.graph.text import show
from wengert.passes.pipeline import optimise

X = wg.ones(4, 3)

CASES = {
    "one kernel for a chain": (
        lambda x: x.relu().sigmoid().sigmoid(),
        [X],
        """
graph {
  in %in1: float32[4, 3]
  %4: float32[4, 3] = fused pointwise(%in1) {
    in %in1: float32[4, 3]
    %2: float32[4, 3] = relu(%in1)
    %3: float32[4, 3] = sigmoid(%2)
    %4: float32[4, 3] = sigmoid(%3)
    return %4
  }
  return %4
}""",
    ),
    "bias and activation of a product": (
        lambda x, w, b: (x @ w + b).relu(),
        [X, wg.ones(3, 2), wg.ones(2)],
        """
graph {
  in %in1: float32[4, 3]
  in %in2: float32[3, 2]
  in %in4: float32[2]
  %6: float32[4, 2] = fused product(%in1, %in2, %in4) {
    in %in1: float32[4, 3], %in2: float32[3, 2], %in4: float32[2]
    %3: float32[4, 2] = matmul(%in1, %in2)
    %5: float32[4, 2] = add(%3, %in4)
    %6: float32[4, 2] = relu(%5)
    return %6
  }
  return %6
}""",
    ),
    "a reduction of an expression": (
        lambda x, y: ((x - y) ** 2).mean(),
        [X, X + 1],
        """
graph {
  in %in1: float32[4, 3]
  in %in2: float32[4, 3]
  %5: float32[] = fused reduction(%in1, %in2) {
    in %in1: float32[4, 3], %in2: float32[4, 3]
    %3: float32[4, 3] = sub(%in1, %in2)
    %4: float32[4, 3] = pow(%3, 2)
    %5: float32[] = mean(%4, dim=(0, 1))
    return %5
  }
  return %5
}""",
    ),
    "softmax stays itself": (
        lambda x: x.softmax(-1),
        [X],
        """
graph {
  in %in1: float32[4, 3]
  %2: float32[4, 3] = softmax(%in1, dim=1)
  return %2
}""",
    ),
    "nothing is left of moves and back": (
        lambda x: (x.t().t() * 1 - 0.0).neg().neg().reshape(12).reshape(4, 3).clone() + wg.zeros(3) * 1,
        [X],
        """
graph {
  in %in1: float32[4, 3]
  %const11: float32[3] = constant 0.0
  %13: float32[4, 3] = add(%in1, %const11)
  return %13
}""",
    ),
    "a promotion is written down": (
        lambda x, n: (x * n).exp(),
        [X, wg.tensor([1, 2, 3])],
        """
graph {
  in %in1: float32[4, 3]
  in %in2: int64[3]
  %4: float32[4, 3] = fused pointwise(%in1, %in2) {
    in %in1: float32[4, 3], %in2: int64[3]
    %in2.float32: float32[3] = cast(%in2, dtype=float32)
    %3: float32[4, 3] = mul(%in1, %in2.float32)
    %4: float32[4, 3] = exp(%3)
    return %4
  }
  return %4
}""",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_golden(name):
    function, args, text = CASES[name]
    graph, _ = captured(function, *args)
    assert show(optimise(graph), places=False) == text.strip()
