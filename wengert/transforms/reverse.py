"""Reverse mode as functions of functions: ``grad``, ``value_and_grad``, ``vjp``.

A transform differentiates by tensors of its own: each argument enters as a new point of the tape, and the walk goes from
the results to these points alone. Hence nested transforms cannot be confused, and what the function closes over stays
connected to its own history.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any

from wengert import tree
from wengert.array.dtype import FLOAT
from wengert.core.interpret import has_history_below, lifted, top
from wengert.core.node import Leaf, Node
from wengert.core.place import here
from wengert.core.registry import ops
from wengert.core.state import thread
from wengert.core.tensor import Tensor, alias, node_of, refresh
from wengert.errors import DTypeError, ShapeError
from wengert.tape.walk import Walk, leading_to

__all__ = ["grad", "grad_and_value", "selected", "value_and_grad", "vjp"]


# ---- points of its own


class Point(Leaf):
    """A leaf that a transform made for itself, with nothing of the outside behind it.

    Attributes:
        ended: whether the transform is over, so that no other one has to keep what leads here.
    """

    __slots__ = ("ended",)

    def __init__(self, tensor: Any) -> None:
        super().__init__(tensor)
        self.ended = False


def entry(value: Any, outer: bool, what: str) -> Any:
    """Return a tensor as a new point of the tape at the innermost level.

    Args:
        value: the tensor. outer: whether recording was on outside; then the new point leads to the tensor's own history.
        what: how messages call it.
    """
    if not isinstance(value, Tensor):
        raise TypeError(f"{what} must be a tensor to be differentiated by, got {type(value).__name__}: {value!r}")
    if value.dtype.category < FLOAT:
        raise DTypeError(
            f"{what} must be a floating-point or complex tensor to be differentiated by, got {value.dtype}"
        )
    level = top()
    if level is not None:
        value = lifted(level, value)
    node = node_of(value)
    if outer and node is not None:
        return ops.expand(value, tuple(value.shape))
    out = alias(value)
    out._node = Point(out)
    return out


@contextmanager
def recording() -> Iterator[bool]:
    """Record inside the block whatever was the mode outside; give the mode outside."""
    state = thread.state
    if state.inference:
        raise RuntimeError("derivatives cannot be taken inside inference_mode(), which records nothing; use no_grad()")
    before, state.grad = state.grad, True
    try:
        yield before
    finally:
        state.grad = before


class Closing:
    """Decides what of results stays connected once a transform has ended.

    Args:
        points: the transform's own points. outer: whether recording was on outside.
    """

    def __init__(self, points: list[Any], outer: bool) -> None:
        self.own = {p._node for p in points}
        self.outer = outer
        self.known: dict[Node | None, bool] = {None: False, **{node: bool(node.inputs) for node in self.own}}

    def foreign(self, node: Node | None) -> bool:
        """True if a node leads to history from outside the transform."""
        known = self.known
        path: list[tuple[Node | None, Iterator[Node | None]]] = [(None, iter((node,)))]
        while path:
            for at in path[-1][1]:
                if at is not None and at not in known and not isinstance(at, Leaf):
                    path.append((at, iter(at.inputs)))
                    break
                if known.get(at, not (isinstance(at, Point) and at.ended)):  # any other leaf is from outside
                    known.update((above, True) for above, _ in path[1:])
                    return True
            else:
                known[path.pop()[0]] = False
        return False

    def closed(self, value: Any) -> Any:
        """Return a result without the history that ends at the transform's own points, which is then over."""
        for point in self.own:
            if isinstance(point, Point):
                point.ended = True
        if not isinstance(value, Tensor):
            return value
        node = node_of(value)
        if node is None or (self.outer and self.foreign(node)):
            return value
        return alias(value)

    def records(self, outputs: list[Any], cotangents: Sequence[Any] = ()) -> bool:
        """True if the walk must be recorded: somebody outside may differentiate what it gives."""
        if not self.outer:
            return False
        return any(self.foreign(o._node) or has_history_below(o) for o in outputs) or any(
            g._node is not None or has_history_below(g) for g in cotangents
        )


def walk(points: list[Any], outputs: list[Any], cotangents: list[Any], keep: bool, create: bool) -> list[Any]:
    """Return the gradient of each point (None: the outputs do not depend on it)."""
    roots = [(o._node, g) for o, g in zip(outputs, cotangents, strict=True) if o._node is not None]
    nodes = [p._node for p in points]
    run = Walk(keep=keep, create=create, place=here(1), targets=set(nodes), into_leaves=False)
    found = run.run(roots)
    return [found.get(node) for node in nodes]


def reaching(tensors: list[Any], nodes: set[Node]) -> list[int]:
    """Return the numbers of those tensors (None among them) whose history leads to one of the nodes."""
    found = leading_to([t._node for t in tensors if t is not None and t._node is not None], nodes)
    return [k for k, t in enumerate(tensors) if t is not None and t._node in found]


# ---- arguments


def selected(argnums: Any, args: tuple[Any, ...], what: str) -> tuple[int, ...]:
    """Return ``argnums`` as a tuple of positions counted from the front.

    Raises:
        TypeError: if it is no int or sequence of ints. ValueError: if there is no such argument, or one twice.
    """
    listed = (argnums,) if isinstance(argnums, int) and not isinstance(argnums, bool) else argnums
    if not isinstance(listed, tuple | list) or not listed or not all(type(i) is int for i in listed):
        raise TypeError(f"{what}: argnums must be an int or a non-empty sequence of ints, got {argnums!r}")
    for i in listed:
        if not -len(args) <= i < len(args):
            raise ValueError(
                f"{what}: argnums={argnums} names argument {i}, but {len(args)} positional arguments were given"
            )
    found = tuple(i % len(args) for i in listed)
    if len(set(found)) < len(found):
        raise ValueError(f"{what}: argnums={argnums} names an argument twice")
    return found


def entered_arguments(
    args: tuple[Any, ...], positions: tuple[int, ...], outer: bool, what: str
) -> tuple[Any, Any, Any]:
    """Return (arguments with own points in the selected ones, the points, the structure of each selected one)."""
    given, points, specs = list(args), [], []
    for i in positions:
        leaves, spec = tree.flatten(args[i])
        if not leaves:
            raise ValueError(f"{what}: argument {i} holds no tensors to differentiate by")
        where = tree.paths(args[i])
        entries = [entry(v, outer, f"{what}: argument {i}{at}") for v, at in zip(leaves, where, strict=True)]
        given[i] = tree.unflatten(entries, spec)
        points.extend(entries)
        specs.append(spec)
    return tuple(given), points, specs


def regrouped(leaves: list[Any], specs: list[Any]) -> list[Any]:
    """Return one tree per structure from all their leaves in a row."""
    found, at = [], 0
    for spec in specs:
        found.append(tree.unflatten(leaves[at : at + spec.count], spec))
        at += spec.count
    return found


def split_aux(found: Any, has_aux: bool, what: str) -> tuple[Any, Any]:
    """Return (output, aux or None) of a function's result.

    Raises:
        TypeError: if ``has_aux`` and the result is no pair.
    """
    if not has_aux:
        return found, None
    if not isinstance(found, tuple) or len(found) != 2:
        raise TypeError(f"{what}: with has_aux=True the function must return a pair (output, aux), got {_kind(found)}")
    return found


def _kind(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    return f"a {type(value).__name__} of {len(value)}" if isinstance(value, tuple | list) else type(value).__name__


def flat_outputs(output: Any, what: str) -> tuple[list[Any], Any]:
    """Return (the tensors of a function's result, its structure).

    Raises:
        TypeError: for a leaf that is no tensor.
    """
    outputs, spec = tree.flatten(output)
    for o, at in zip(outputs, tree.paths(output), strict=True):
        if not isinstance(o, Tensor):
            raise TypeError(f"{what}: the function must return tensors, got {type(o).__name__} at output{at}")
    return outputs, spec


def _scalar_output(output: Any, what: str) -> Any:
    if not isinstance(output, Tensor):
        raise TypeError(f"{what}: the function must return a tensor, got {_kind(output)}")
    if output.ndim:
        raise ShapeError(
            f"{what}: the function must return a tensor of one number and no dimensions, got shape {tuple(output.shape)}; "
            "reduce it (.sum(), .mean()), or use vjp, jacrev or jacfwd"
        )
    if output.dtype.is_complex:
        raise DTypeError(f"{what}: the function must return a real number, got {output.dtype}; take abs() or .real")
    return output


# ---- transforms


def value_and_grad(func: Callable[..., Any], argnums: Any = 0, has_aux: bool = False) -> Callable[..., Any]:
    """Return the function that gives the value of a scalar function and its gradient.

    Args:
        func: returns a real 0-d tensor; with ``has_aux`` a pair of it and anything.
        argnums: which positional arguments (trees of tensors) to differentiate by: an int, or a sequence of them.
        has_aux: the function's second result is handed on: the value is then (output, aux).

    Returns:
        A function of the same arguments that returns ``(value, gradients)``; the gradients are a tree like the argument,
        or a tuple of trees for several.

    Raises:
        ShapeError: if the output is no scalar. DTypeError: if an argument holds integers.

    Example:
        >>> import wengert as wg
        >>> wg.func.value_and_grad(lambda x: x ** 3)(wg.tensor(2.0))
        (tensor(8.), tensor(12.))
    """
    what = "value_and_grad()"

    @wraps(func)
    def both(*args: Any, **kwargs: Any) -> Any:
        return value_with_gradient(what, func, argnums, has_aux, args, kwargs)

    return both


def value_with_gradient(
    what: str, func: Callable[..., Any], argnums: Any, has_aux: bool, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Return (value, gradients) of a scalar function, as :func:`value_and_grad` says; ``what`` is who asks, for messages."""
    positions = selected(argnums, args, what)
    with recording() as outer:
        given, points, specs = entered_arguments(args, positions, outer, what)
        output, aux = split_aux(func(*given, **kwargs), has_aux, what)
        _scalar_output(output, what)
        closing = Closing(points, outer)
        found = gradients(closing, points, [output], [ops.ones_like(output)], keep=False)
        trees = regrouped(found, specs)
        result = trees[0] if isinstance(argnums, int) else tuple(trees)
        value = closing.closed(output)
        return ((value, tree.map(closing.closed, aux)) if has_aux else value), result


def gradients(closing: Closing, points: list[Any], outputs: list[Any], cotangents: list[Any], keep: bool) -> list[Any]:
    """Return the gradients of outputs by the transform's own points, zeros where there is none."""
    for output in outputs:
        if output._view is not None:
            refresh(output)
    create = closing.records(outputs, cotangents)
    found = walk(points, outputs, cotangents, keep or create, create)
    filled = [ops.zeros_like(p.detach()) if g is None else g for p, g in zip(points, found, strict=True)]
    if create and any(g._node is not None for g in cotangents):
        return filled
    return [closing.closed(g) for g in filled]


def grad(func: Callable[..., Any], argnums: Any = 0, has_aux: bool = False) -> Callable[..., Any]:
    """Return the function that gives the gradient of a scalar function.

    Args:
        func: returns a real 0-d tensor; with ``has_aux`` a pair of it and anything.
        argnums: which positional arguments (trees of tensors) to differentiate by: an int, or a sequence of them.
        has_aux: return (gradient, aux).

    Raises:
        ShapeError: if the output is no scalar. DTypeError: if an argument holds integers.

    Example:
        >>> import wengert as wg
        >>> wg.func.grad(wg.func.grad(lambda x: x ** 3))(wg.tensor(2.0))
        tensor(12.)
    """

    @wraps(func)
    def gradient(*args: Any, **kwargs: Any) -> Any:
        value, found = value_with_gradient("grad()", func, argnums, has_aux, args, kwargs)
        return (found, value[1]) if has_aux else found

    return gradient


def grad_and_value(func: Callable[..., Any], argnums: Any = 0, has_aux: bool = False) -> Callable[..., Any]:
    """Return :func:`value_and_grad` with its results in PyTorch's order: ``(gradient, value)``.

    Example:
        >>> import wengert as wg
        >>> wg.func.grad_and_value(lambda x: x**3)(wg.tensor(2.0))
        (tensor(12.), tensor(8.))
    """

    @wraps(func)
    def both(*args: Any, **kwargs: Any) -> Any:
        return value_with_gradient("grad_and_value()", func, argnums, has_aux, args, kwargs)[::-1]

    return both


def vjp(func: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """Return (output, function from a cotangent of the output to the cotangents of the primals).

    Args:
        func: takes the primals (trees of tensors), returns a tree of tensors; with ``has_aux`` a pair of it and anything.
        primals: where to differentiate. has_aux: return (output, function, aux).

    Returns:
        The second result may be called any number of times; it takes a tree like the output and returns one tree per
        primal (a single one alone). It may itself be differentiated, batched and pushed forward.

    Raises:
        ValueError: if a cotangent has another structure than the output. ShapeError: or another shape.

    Example:
        >>> import wengert as wg
        >>> y, pull = wg.func.vjp(lambda x: x.sin(), wg.tensor([0.0, 1.0]))
        >>> pull(wg.ones(2))
        (tensor([1.0000, 0.5403]),)
    """
    run = Recorded(func, primals, has_aux, "vjp()")
    result = tree.unflatten([run.closing.closed(o) for o in run.outputs], run.spec)
    return (result, run.pull, tree.map(run.closing.closed, run.aux)) if has_aux else (result, run.pull)


class Recorded:
    """One recorded run of a function, ready to be pulled back through.

    Attributes:
        points: the transform's own points, the leaves of the primals; specs: the structure of each primal.
        outputs: the leaves of the output; spec: its structure. aux: what else the function returned.
        closing: what of the results stays connected.
    """

    def __init__(self, func: Callable[..., Any], primals: tuple[Any, ...], has_aux: bool, what: str) -> None:
        if not primals:
            raise ValueError(f"{what}: give at least one primal")
        self.what = what
        with recording() as outer:
            given, self.points, self.specs = entered_arguments(primals, tuple(range(len(primals))), outer, what)
            output, self.aux = split_aux(func(*given), has_aux, what)
            self.outputs, self.spec = flat_outputs(output, what)
            for o in self.outputs:
                node_of(o)  # that of a view whose base was written is made while recording is on
            self.closing = Closing(self.points, outer)

    def pull(self, cotangents: Any) -> Any:
        """Return the cotangents of the primals, a tree for each."""
        with recording() as now:
            self.closing.outer = now
            listed = checked_cotangents(cotangents, self.spec, self.outputs, self.what)
            return tuple(regrouped(gradients(self.closing, self.points, self.outputs, listed, keep=True), self.specs))


def checked_cotangents(cotangents: Any, spec: Any, outputs: list[Any], what: str) -> list[Any]:
    """Return the leaves of a tree of cotangents, checked against the outputs."""
    listed = tree.flatten_up_to(spec, cotangents, f"{what}: the cotangents")
    found = []
    for g, output in zip(listed, outputs, strict=True):
        if not isinstance(g, Tensor):
            raise TypeError(f"{what}: a cotangent must be a tensor like its output, got {type(g).__name__}")
        if tuple(g.shape) != tuple(output.shape):
            raise ShapeError(
                f"{what}: a cotangent has shape {tuple(g.shape)}, its output has shape {tuple(output.shape)}"
            )
        if g.dtype.is_complex != output.dtype.is_complex:
            raise DTypeError(f"{what}: a cotangent has dtype {g.dtype}, its output is {output.dtype}")
        found.append(g if g.dtype is output.dtype else ops.cast(g, output.dtype))
    return found
