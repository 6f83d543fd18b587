"""L-BFGS: a quasi-Newton method that knows curvature from its last steps (Liu & Nocedal 1989)."""

from collections.abc import Callable
from typing import Any

from wengert.core.registry import ops
from wengert.core.state import thread
from wengert.core.tensor import Tensor
from wengert.optim.elementwise import check_range, number
from wengert.optim.line_search import Point, strong_wolfe
from wengert.optim.optimizer import Optimizer
from wengert.tape.modes import enable_grad, no_grad

__all__ = ["LBFGS"]


class LBFGS(Optimizer):
    """L-BFGS (Nocedal & Wright, Numerical Optimization, algorithm 7.5). One step evaluates the loss several times.

    Args:
        params: all in one group. lr: the size of a step, or of the first one that a line search tries. max_iter: iterations of
            one :meth:`step`. max_eval: evaluations of the loss in it (None: 5/4 of the iterations). tolerance_grad: it ends
            where no entry of the gradient is larger; tolerance_change: or where parameters or loss change by less.
            history_size: how many steps are remembered. line_search_fn: "strong_wolfe", or None: every step is ``lr`` long.

    Raises:
        ValueError: for several groups, or an option out of its range.

    Example:
        >>> import wengert as wg
        >>> x = wg.nn.Parameter(wg.tensor([-1.2, 1.0], dtype=wg.float64))
        >>> optimizer = wg.optim.LBFGS([x], max_iter=50, line_search_fn="strong_wolfe")
        >>> def rosenbrock():
        ...     optimizer.zero_grad()
        ...     loss = 100 * (x[1] - x[0] ** 2) ** 2 + (1 - x[0]) ** 2
        ...     loss.backward()
        ...     return loss
        >>> loss = optimizer.step(rosenbrock)
        >>> [round(v, 4) for v in x.tolist()]
        [1.0, 1.0]
    """

    def __init__(
        self, params: Any, lr: Any = 1, max_iter: int = 20, max_eval: int | None = None, tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9, history_size: int = 100, line_search_fn: str | None = None,
    ) -> None:  # fmt: skip
        max_eval = max_iter * 5 // 4 if max_eval is None else max_eval
        check_range(
            "LBFGS", lr=(lr, 0, None), max_iter=(max_iter, 0, None), max_eval=(max_eval, 0, None),
            history_size=(history_size, 1, None),
        )  # fmt: skip
        if line_search_fn not in (None, "strong_wolfe"):
            raise ValueError(f"LBFGS: line_search_fn must be 'strong_wolfe' or None, got {line_search_fn!r}")
        super().__init__(params, {
            "lr": lr, "max_iter": max_iter, "max_eval": max_eval, "tolerance_grad": tolerance_grad,
            "tolerance_change": tolerance_change, "history_size": history_size, "line_search_fn": line_search_fn,
        })  # fmt: skip

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add the only group."""
        if self.param_groups:
            raise ValueError(
                "LBFGS moves all parameters together: it takes one parameter group, without options of its own"
            )
        super().add_param_group(param_group)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Go on for up to ``max_iter`` iterations.

        Args:
            closure: clears the gradients, computes the loss, calls ``backward()`` and returns the loss.

        Returns:
            The loss that the closure returned first.
        """
        if not callable(closure):
            raise TypeError(f"LBFGS.step() takes a function that computes the loss and its gradients, got {closure!r}")
        if (captures := thread.state.captures) is not None:
            captures.refuse("LBFGS, which decides by values how often the loss is evaluated,")
        with no_grad():
            return _Step(self, enable_grad()(closure)).run()


class _Step:
    """One call of :meth:`LBFGS.step`."""

    def __init__(self, owner: LBFGS, closure: Callable[[], Any]) -> None:
        self.closure, self.group = closure, owner.param_groups[0]
        self.params: list[Tensor] = self.group["params"]
        self.state = owner.state[self.params[0]]
        self.evaluations = 0

    def run(self) -> Any:
        """Iterate; return the first loss."""
        group, state = self.group, self.state
        state.setdefault("func_evals", 0)
        state.setdefault("n_iter", 0)
        first, loss, gradient = self.evaluated()
        if gradient.abs().max().item() <= group["tolerance_grad"]:
            return first
        for iteration in range(1, group["max_iter"] + 1):
            state["n_iter"] += 1
            direction = self.direction(gradient)
            slope = gradient.dot(direction).item()
            size = number(group["lr"])
            if state["n_iter"] == 1:
                size *= min(1.0, 1.0 / gradient.abs().sum().item())
            before = loss
            state.update(d=direction, t=size, prev_flat_grad=gradient, prev_loss=loss)
            if not slope <= -group["tolerance_change"]:
                break
            last = iteration == group["max_iter"]
            state["t"], loss, gradient = self.moved(Point(0.0, loss, gradient, slope), direction, size, last)
            if last or self.evaluations >= group["max_eval"] or self.is_over(before - loss, gradient):
                break
        return first

    def is_over(self, gain: float, gradient: Tensor) -> bool:
        """Whether the gradient, or what the last iteration changed, is below its tolerance."""
        group, state = self.group, self.state
        change = state["d"].abs().max().item() * abs(state["t"])
        return bool(
            gradient.abs().max().item() <= group["tolerance_grad"]
            or change <= group["tolerance_change"] or abs(gain) < group["tolerance_change"]
        )  # fmt: skip

    def moved(self, start: Point, direction: Tensor, size: float, last: bool) -> tuple[float, float, Tensor]:
        """Move the parameters; return how far, and the loss and the gradient there."""
        if self.group["line_search_fn"] is None:
            self.shift(direction, size)
            if last:
                return size, start.loss, start.gradient
            _, loss, gradient = self.evaluated()
            return size, loss, gradient
        origin = [param.clone() for param in self.params]

        def evaluate(size: float) -> Point:
            self.shift(direction, size)
            _, loss, gradient = self.evaluated()
            for param, value in zip(self.params, origin, strict=True):
                param.copy_(value)
            return Point(size, loss, gradient, gradient.dot(direction).item())

        longest, most = direction.abs().max().item(), self.group["max_eval"] - self.evaluations
        found, _ = strong_wolfe(evaluate, start, size, longest, self.group["tolerance_change"], most)
        self.shift(direction, found.size)
        return found.size, found.loss, found.gradient

    def evaluated(self) -> tuple[Any, float, Tensor]:
        """Call the closure; return what it returned, the loss as a number, and the gradient as one vector."""
        loss = self.closure()
        self.evaluations += 1
        self.state["func_evals"] += 1
        parts = [ops.zeros_like(p) if p.grad is None else p.grad.to_dense() for p in self.params]
        return loss, float(loss), ops.cat([_flat(part) for part in parts])

    def shift(self, direction: Tensor, size: float) -> None:
        """Move the parameters along a direction."""
        first = 0
        for param in self.params:
            real = ops.view_as_real(param) if param.dtype.is_complex else param
            real.add_(direction[first : first + real.numel()].view(real.shape), alpha=size)
            first += real.numel()

    def direction(self, gradient: Tensor) -> Tensor:
        """Return the quasi-Newton direction, after taking the last step into the memory of curvature."""
        state = self.state
        if state["n_iter"] == 1:
            state.update(old_dirs=[], old_stps=[], ro=[], H_diag=1.0)
            return -gradient
        change, step = gradient - state["prev_flat_grad"], state["d"] * state["t"]
        curvature = change.dot(step).item()
        if curvature > 1e-10:
            for kept, new in (("old_dirs", change), ("old_stps", step), ("ro", 1.0 / curvature)):
                del state[kept][: max(0, len(state[kept]) + 1 - self.group["history_size"])]
                state[kept].append(new)
            state["H_diag"] = curvature / change.dot(change).item()
        return _two_loops(-gradient, state)


def _two_loops(q: Tensor, state: dict[str, Any]) -> Tensor:
    """Multiply a vector by the inverse Hessian that is remembered (Nocedal & Wright, algorithm 7.4)."""
    memory = list(zip(state["old_dirs"], state["old_stps"], state["ro"], strict=True))
    shares = []
    for change, step, inverse in reversed(memory):
        shares.append(step.dot(q).item() * inverse)
        q.sub_(change, alpha=shares[-1])
    q.mul_(state["H_diag"])
    for (change, step, inverse), share in zip(memory, reversed(shares), strict=True):
        q.add_(step, alpha=share - change.dot(q).item() * inverse)
    return q


def _flat(tensor: Tensor) -> Tensor:
    return (ops.view_as_real(tensor) if tensor.dtype.is_complex else tensor).reshape(-1)
