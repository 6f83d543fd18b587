"""200 element-wise operators on an 8 × 8 array: 50 times x = tanh(x * a + b) - c, forward or forward and backward."""

from types import SimpleNamespace
from typing import Any

import wengert as wg

MODULES = ["wengert"]
PEER_NAMES = ["wengert"]
REPEATS = 50


def chain(x: Any, a: Any, b: Any, c: Any) -> Any:
    """The operators, one by one."""
    for _ in range(REPEATS):
        x = wg.tanh(x * a + b) - c
    return x


def build(case: Any, data: Any, ctx: Any) -> SimpleNamespace:
    """``case.mode`` is ``"fwd"`` or ``"fb"``; x requires a gradient in both."""
    x, a, b, c = (wg.tensor(data[name]) for name in "xabc")
    x.requires_grad_(True)
    last: list[Any] = [None]

    def forward() -> None:
        last[0] = chain(x, a, b, c)

    def forward_and_backward() -> None:
        x.grad = None
        total = chain(x, a, b, c).sum()
        total.backward()
        last[0] = total

    def state() -> dict[str, Any]:
        arrays = {"y": last[0].detach().numpy().copy()}
        return arrays if case.mode == "fwd" else {**arrays, "dx": x.grad.numpy().copy()}

    step = forward if case.mode == "fwd" else forward_and_backward
    return SimpleNamespace(step=step, state=state, loss=None, info={})
