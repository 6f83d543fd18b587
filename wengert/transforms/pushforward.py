"""Forward mode as functions of functions: ``jvp``, ``linearize``, ``linear_transpose``."""

from collections.abc import Callable
from typing import Any

from wengert import tree
from wengert.array.dtype import FLOAT
from wengert.core.interpret import entered, memory_of
from wengert.core.registry import ops
from wengert.core.tensor import Tensor
from wengert.errors import DTypeError, ShapeError
from wengert.transforms.dual import DualLevel, unwrapped
from wengert.transforms.reverse import (
    Closing,
    Recorded,
    checked_cotangents,
    entered_arguments,
    entry,
    flat_outputs,
    gradients,
    reaching,
    recording,
    regrouped,
    split_aux,
    walk,
)  # fmt: skip

__all__ = ["jvp", "linear_transpose", "linearize"]


def checked_tangents(primals: list[Any], tangents: Any, spec: Any, what: str) -> list[Any]:
    """Return the leaves of a tree of tangents, checked against the primals."""
    listed = tree.flatten_up_to(spec, tangents, f"{what}: the tangents")
    found = []
    for p, t in zip(primals, listed, strict=True):
        if not isinstance(p, Tensor) or not isinstance(t, Tensor):
            wrong, which = (p, "primal") if not isinstance(p, Tensor) else (t, "tangent")
            raise TypeError(f"{what}: a {which} must be a tensor, got {type(wrong).__name__}")
        if p.dtype.category < FLOAT:
            raise DTypeError(f"{what}: a primal must be a floating-point or complex tensor, got {p.dtype}")
        if tuple(p.shape) != tuple(t.shape):
            raise ShapeError(f"{what}: a tangent has shape {tuple(t.shape)}, its primal has shape {tuple(p.shape)}")
        if p.dtype is not t.dtype:
            raise DTypeError(f"{what}: a tangent has dtype {t.dtype}, its primal is {p.dtype}")
        found.append(t)
    return found


def jvp(func: Callable[..., Any], primals: Any, tangents: Any, *, strict: bool = False, has_aux: bool = False) -> Any:
    """Return (output, its tangent): the derivative of ``func`` at ``primals`` in the direction ``tangents``.

    Args:
        func: takes the primals, returns a tree of tensors; with ``has_aux`` a pair of it and anything.
        primals: a tuple of arguments (trees of tensors). tangents: a tuple like it.
        strict: refuse an output that does not depend on the primals, instead of a tangent of zeros.
        has_aux: return (output, tangent, aux).

    Raises:
        TypeError: if the primals are no tuple. ShapeError, DTypeError: if a tangent does not fit its primal.

    Example:
        >>> import wengert as wg
        >>> wg.func.jvp(lambda x: x ** 2, (wg.tensor(3.0),), (wg.tensor(1.0),))
        (tensor(9.), tensor(6.))
    """
    return pushed_forward("jvp()", func, primals, tangents, strict, has_aux)


def pushed_forward(
    what: str, func: Callable[..., Any], primals: Any, tangents: Any, strict: bool = False, has_aux: bool = False
) -> Any:
    """Return what :func:`jvp` returns; errors begin with ``what``, the transform that the user called."""
    for name, value in (("primals", primals), ("tangents", tangents)):
        if not isinstance(value, tuple | list):
            raise TypeError(f"{what}: {name} must be a tuple of arguments, got {type(value).__name__}; write ({name},)")
    if not primals:
        raise ValueError(f"{what}: give at least one primal")
    leaves, spec = tree.flatten(tuple(primals))
    directions = checked_tangents(leaves, tuple(tangents), spec, what)
    level = DualLevel()
    with entered(level):
        duals = [level.wrap(p, t) for p, t in zip(leaves, directions, strict=True)]
        output, aux = split_aux(func(*tree.unflatten(duals, spec)), has_aux, what)
        outputs, out_spec = flat_outputs(output, what)
        pairs = [unwrapped(level, o) for o in outputs]
        aux = tree.map(lambda v: unwrapped(level, v)[0] if isinstance(v, Tensor) else v, aux)
    if strict and any(t is None for _, t in pairs):
        raise RuntimeError(f"{what}: strict=True, and an output does not depend on the primals")
    value = tree.unflatten([p for p, _ in pairs], out_spec)
    tangent = tree.unflatten([ops.zeros_like(p) if t is None else t for p, t in pairs], out_spec)
    return (value, tangent, aux) if has_aux else (value, tangent)


def linearize(func: Callable[..., Any], *primals: Any) -> Any:
    """Return (output, function from tangents of the primals to the tangent of the output), evaluating ``func`` once.

    The linear function is the transpose of the recorded vjp, which is linear in its cotangent: calling it again costs
    no new evaluation of ``func``.

    Example:
        >>> import wengert as wg
        >>> y, push = wg.func.linearize(lambda x: x.sin(), wg.tensor(0.0))
        >>> push(wg.tensor(2.0))
        tensor(2.)
    """
    run = Recorded(func, primals, False, "linearize()")
    leaves, spec = tree.flatten(primals)
    with recording():
        moving = [o for o in run.outputs if o.dtype.category >= FLOAT]
        seeds = [entry(ops.zeros_like(o), False, "linearize()") for o in moving]
        pulled = walk(run.points, moving, seeds, keep=True, create=True)
        linear = reaching(pulled, {s._node for s in seeds})
        closing = Closing([*seeds, *run.points], True)

    def push(*tangents: Any) -> Any:
        directions = checked_tangents(leaves, tangents, spec, "linearize()")
        with recording() as now:
            closing.outer = now
            rows, weights = [pulled[k] for k in linear], [directions[k] for k in linear]
            found = iter(gradients(closing, seeds, rows, weights, keep=True))
        return tree.unflatten(
            [next(found) if o.dtype.category >= FLOAT else ops.zeros_like(o.detach()) for o in run.outputs], run.spec
        )

    output = tree.unflatten([run.closing.closed(o) for o in run.outputs], run.spec)
    return output, push


def linear_transpose(func: Callable[..., Any], *primals: Any) -> Callable[..., Any]:
    """Return the transpose of a linear function: from a cotangent of its output to cotangents of its arguments.

    Args:
        func: linear in all its arguments (trees of tensors). primals: examples that give shapes and dtypes; their values
            do not matter.

    For complex numbers it is the adjoint (the conjugate transpose), as every pullback is in PyTorch's convention.

    Raises:
        ValueError: if the function is not linear: f(0) is not 0, or its derivative depends on where it is taken.

    Example:
        >>> import wengert as wg
        >>> transposed = wg.func.linear_transpose(lambda x: 3 * x.sum(), wg.zeros(2))
        >>> transposed(wg.tensor(1.0))
        (tensor([3., 3.]),)
    """
    with recording():
        zeros = tree.map(lambda t: ops.zeros_like(t).detach(), primals)
        given, points, specs = entered_arguments(zeros, tuple(range(len(primals))), True, "linear_transpose()")
        outputs, spec = flat_outputs(func(*given), "linear_transpose()")
        ones = [ops.ones_like(o) for o in outputs]
        closing = Closing(points, True)
        if any(memory_of(o).any() for o in outputs):
            raise ValueError("linear_transpose(): the function is not linear: its value at zero is not zero")
        found = walk(points, outputs, ones, keep=True, create=True)
        if reaching(found, closing.own):
            raise ValueError("linear_transpose(): the function is not linear: its derivative depends on its argument")

    def transposed(cotangents: Any) -> Any:
        with recording() as now:
            closing.outer = now
            listed = checked_cotangents(cotangents, spec, outputs, "linear_transpose()")
            found = gradients(closing, points, outputs, listed, keep=True)
            return tuple(regrouped(found, specs))

    return transposed
