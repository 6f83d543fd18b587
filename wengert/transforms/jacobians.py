"""Whole derivatives: Jacobians by either mode, Hessians, Hessian-vector products."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from wengert import tree
from wengert.core.registry import ops
from wengert.core.tensor import Tensor
from wengert.errors import DTypeError
from wengert.transforms.pushforward import jvp, pushed_forward
from wengert.transforms.reverse import selected, split_aux, value_with_gradient, vjp
from wengert.transforms.vmap import vmap

__all__ = ["hessian", "hvp", "jacfwd", "jacobian", "jacrev"]


def jacrev(
    func: Callable[..., Any], argnums: Any = 0, *, has_aux: bool = False, chunk_size: int | None = None
) -> Callable[..., Any]:
    """Return the function that gives the Jacobian, row by row in reverse mode: best for few outputs and many inputs.

    Args:
        func: tree of tensors in, tree of tensors out; with ``has_aux`` a pair of it and anything.
        argnums: which positional arguments to differentiate by: an int, or a sequence of them.
        has_aux: return (Jacobian, aux). chunk_size: how many rows at a time; None: all.

    Returns:
        A function of the same arguments. Its result is a tree like the output whose leaves are trees like the argument
        (for several ``argnums`` tuples of them) of tensors of shape (*output shape, *input shape).

    Example:
        >>> import wengert as wg
        >>> wg.func.jacrev(lambda x: x ** 2)(wg.tensor([1.0, 2.0]))
        tensor([[2., 0.],
                [0., 4.]])
    """

    @wraps(func)
    def jacobian(*args: Any, **kwargs: Any) -> Any:
        run, chosen, single = _partial(func, args, kwargs, argnums, "jacrev()")
        _check_arguments(chosen, "jacrev()")
        found = vjp(run, *chosen, has_aux=has_aux)
        output, pull = found[0], found[1]
        if any(o.dtype.is_complex for o in tree.leaves(output)):
            raise DTypeError(
                "jacrev(): an output is complex, and a pullback has one real direction alone; use jacfwd, or view_as_real() "
                "the output"
            )
        rows = _rows(output, pull, chunk_size)
        result = tree.map(lambda row: row[0] if single else tuple(row), rows)
        return (result, found[2]) if has_aux else result

    return jacobian


class Row(list[Any]):
    """The Jacobian of one output: a leaf of the tree of all, holding one tree per argument."""


def _partial(func: Callable[..., Any], args: Any, kwargs: Any, argnums: Any, what: str) -> tuple[Any, Any, bool]:
    """Return (the function of the selected arguments alone, these arguments, whether argnums is one int)."""
    positions = selected(argnums, args, what)

    def run(*chosen: Any) -> Any:
        given = list(args)
        for i, value in zip(positions, chosen, strict=True):
            given[i] = value
        return func(*given, **kwargs)

    return run, tuple(args[i] for i in positions), isinstance(argnums, int)


def _check_arguments(chosen: Any, what: str) -> None:
    """Refuse arguments that have no Jacobian.

    Raises:
        TypeError: for what is no tensor. DTypeError: for integers, and for complex numbers, by which a function need not
            have a derivative.
    """
    for value in tree.leaves(chosen):
        if not isinstance(value, Tensor):
            raise TypeError(f"{what}: an argument must hold tensors to differentiate by, got {type(value).__name__}")
        if not value.dtype.is_floating_point:
            raise DTypeError(f"{what}: an argument must be a floating-point tensor to differentiate by, got {value.dtype}"
                             + ("; use vjp or jvp, or view_as_real()" if value.dtype.is_complex else ""))  # fmt: skip


def _basis(tensors: list[Any]) -> list[Any]:
    """Return, for each tensor, its part of the standard basis of all of them together: (total, *shape)."""
    sizes = [t.numel() for t in tensors]
    total, at, found = sum(sizes), 0, []
    for t, n in zip(tensors, sizes, strict=True):
        eye = ops.eye(n, dtype=t.dtype)
        padded = eye if n == total else ops.constant_pad_nd(eye, (0, 0, at, total - at - n), 0)
        found.append(ops.reshape(padded, (total, *t.shape)))
        at += n
    return found


def _rows(output: Any, pull: Callable[..., Any], chunk_size: int | None) -> Any:
    outputs, spec = tree.flatten(output)
    seeds = tree.unflatten(_basis(outputs), spec)
    stacked = vmap(pull, chunk_size=chunk_size)(seeds) if sum(o.numel() for o in outputs) else None
    return tree.unflatten(_split(outputs, stacked, pull, spec), spec)


def _split(outputs: list[Any], stacked: Any, pull: Callable[..., Any], spec: Any) -> list[Any]:
    """Return for each output the trees of its rows, (*output shape, *input shape) at each leaf."""
    if stacked is None:
        like = pull(tree.unflatten(outputs, spec))
        return [Row(tree.map(lambda t, o=o: ops.zeros((*o.shape, *t.shape), dtype=t.dtype), part) for part in like)
                for o in outputs]  # fmt: skip
    found, at = [], 0
    for o in outputs:
        n = o.numel()
        cut = lambda t, at=at, n=n, o=o: ops.reshape(ops.narrow(t, 0, at, n), (*o.shape, *t.shape[1:]))  # noqa: E731
        found.append(Row(tree.map(cut, part) for part in stacked))
        at += n
    return found


def jacfwd(
    func: Callable[..., Any], argnums: Any = 0, has_aux: bool = False, *, randomness: str = "error",
    chunk_size: int | None = None,
) -> Callable[..., Any]:  # fmt: skip
    """Return the function that gives the Jacobian, column by column in forward mode: best for few inputs.

    Args:
        func: tree of tensors in, tree of tensors out; with ``has_aux`` a pair of it and anything.
        argnums: which positional arguments to differentiate by. has_aux: return (Jacobian, aux).
        randomness: what random operators do, see :func:`vmap`. chunk_size: how many columns at a time.

    Returns:
        As :func:`jacrev`.

    Example:
        >>> import wengert as wg
        >>> wg.func.jacfwd(lambda x: x ** 2)(wg.tensor([1.0, 2.0]))
        tensor([[2., 0.],
                [0., 4.]])
    """

    @wraps(func)
    def jacobian(*args: Any, **kwargs: Any) -> Any:
        run, chosen, single = _partial(func, args, kwargs, argnums, "jacfwd()")
        _check_arguments(chosen, "jacfwd()")
        inputs, spec = tree.flatten(chosen)
        structure: Any = None
        kept: list[Any] = []  # of each leaf of aux, a tuple of it if it is no tensor, else None

        def push(*basis: Any) -> Any:
            nonlocal structure
            found = jvp(run, chosen, tree.unflatten(list(basis), spec), has_aux=has_aux)
            if not has_aux:
                return found[1], ()
            extra, structure = tree.flatten(found[2])
            kept[:] = [None if isinstance(v, Tensor) else (v,) for v in extra]
            return found[1], tuple(v for v in extra if isinstance(v, Tensor))

        columns, tensors = vmap(push, out_dims=(-1, None), randomness=randomness, chunk_size=chunk_size)(
            *_basis(inputs)
        )
        result = tree.map(lambda column: _columns(column, inputs, spec, single), columns)
        if not has_aux:
            return result
        rest = iter(tensors)
        return result, tree.unflatten([next(rest) if k is None else k[0] for k in kept], structure)

    return jacobian


def _columns(column: Any, inputs: list[Any], spec: Any, single: bool) -> Any:
    """Return the tree of Jacobians of one output from all its columns side by side."""
    found, at, shape = [], 0, column.shape[:-1]
    for value in inputs:
        n = value.numel()
        found.append(ops.reshape(ops.narrow(column, -1, at, n), (*shape, *value.shape)))
        at += n
    trees = tree.unflatten(found, spec)
    return trees[0] if single else trees


def jacobian(
    func: Callable[..., Any], argnums: Any = 0, *, mode: str = "auto", has_aux: bool = False, chunk_size: int | None = None
) -> Callable[..., Any]:  # fmt: skip
    """Return the function that gives the Jacobian by the mode that is cheaper.

    Args:
        func, argnums, has_aux, chunk_size: as in :func:`jacrev`.
        mode: "forward", "reverse" or "auto": forward where there are fewer inputs than outputs. Forward mode is counted
            as twice as good, because it keeps nothing and needs no second sweep.

    Returns:
        A function whose attribute ``mode`` says what the last call chose.

    Example:
        >>> import wengert as wg
        >>> J = wg.func.jacobian(lambda x: (x ** 2).sum())
        >>> J(wg.ones(3)), J.mode
        (tensor([2., 2., 2.]), 'reverse')
    """
    if mode not in ("auto", "forward", "reverse"):
        raise ValueError(f"jacobian(): mode must be 'auto', 'forward' or 'reverse', got {mode!r}")

    @wraps(func)
    def both(*args: Any, **kwargs: Any) -> Any:
        chosen = mode
        if mode == "auto":
            chosen = _cheaper(func, args, kwargs, argnums, has_aux)
        both.mode = chosen  # type: ignore[attr-defined]
        if chosen == "forward":
            return jacfwd(func, argnums, has_aux, chunk_size=chunk_size)(*args, **kwargs)
        return jacrev(func, argnums, has_aux=has_aux, chunk_size=chunk_size)(*args, **kwargs)

    return both


def _cheaper(func: Callable[..., Any], args: Any, kwargs: Any, argnums: Any, has_aux: bool) -> str:
    run, chosen, _ = _partial(func, args, kwargs, argnums, "jacobian()")
    inputs = sum(t.numel() for t in tree.leaves(chosen) if isinstance(t, Tensor))
    output, _ = split_aux(run(*tree.map(_detached, chosen)), has_aux, "jacobian()")
    tensors = [t for t in tree.leaves(output) if isinstance(t, Tensor)]
    cheaper = inputs <= 2 * sum(t.numel() for t in tensors)
    return "forward" if cheaper or any(t.dtype.is_complex for t in tensors) else "reverse"


def _detached(value: Any) -> Any:
    return value.detach() if isinstance(value, Tensor) else value


def hessian(func: Callable[..., Any], argnums: Any = 0) -> Callable[..., Any]:
    """Return the function that gives the Hessian: forward mode over reverse mode.

    Args:
        func: returns a tensor (of a scalar the result is the Hessian proper). argnums: as in :func:`jacrev`.

    Returns:
        As ``jacfwd(jacrev(func))``: (*output shape, *input shape, *input shape).

    Example:
        >>> import wengert as wg
        >>> wg.func.hessian(lambda x: x.prod())(wg.tensor([2.0, 3.0]))
        tensor([[0., 1.],
                [1., 0.]])
    """
    return jacfwd(jacrev(func, argnums), argnums)


def hvp(func: Callable[..., Any], primals: Any, tangents: Any) -> Any:
    """Return (value, Hessian times ``tangents``) of a scalar function, forward over reverse, without the Hessian.

    Args:
        func: returns a real 0-d tensor. primals, tangents: tuples of arguments (trees of tensors) and of directions.

    Returns:
        The value, and a tuple of trees like the primals (a single one alone).

    Raises:
        TypeError: if the primals or tangents are no tuples. ShapeError, DTypeError: if ``func`` returns no real scalar, or a
            tangent does not fit its primal.

    Example:
        >>> import wengert as wg
        >>> wg.func.hvp(lambda x: (x ** 3).sum(), (wg.tensor([1.0, 2.0]),), (wg.tensor([1.0, 0.0]),))
        (tensor(9.), tensor([6., 0.]))
    """

    def both(*args: Any) -> Any:
        return value_with_gradient("hvp()", func, tuple(range(len(args))), False, args, {})

    (value, _), (_, product) = pushed_forward("hvp()", both, primals, tangents)
    return value, product[0] if len(primals) == 1 else product
