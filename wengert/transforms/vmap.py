"""``vmap``: a function of one example as a function of many."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from wengert import tree
from wengert.core.interpret import entered, lifted
from wengert.core.registry import ops
from wengert.core.tensor import Tensor
from wengert.errors import ShapeError
from wengert.transforms.batching import BatchLevel

__all__ = ["vmap"]


def vmap(
    func: Callable[..., Any], in_dims: Any = 0, out_dims: Any = 0, randomness: str = "error", *, chunk_size: int | None = None
) -> Callable[..., Any]:  # fmt: skip
    """Return the function that runs ``func`` on every example of a batch at once.

    Args:
        func: works on one example: trees of tensors in, trees of tensors out.
        in_dims: which dimension of each argument counts the examples; None: all share the argument. An int for all
            arguments, or a tuple with one entry per argument, which may be a tree like it (or like its beginning).
        out_dims: where the examples go in each result, an int or a tree of them; None for a result that is the same for
            all examples.
        randomness: what random operators do: "error", "different" numbers for each example, or the "same".
        chunk_size: how many examples to run at a time; None: all.

    Returns:
        A function of the same arguments. Keyword arguments are not mapped: all examples share them, as in PyTorch.

    Raises:
        ValueError: if ``in_dims`` or ``out_dims`` do not fit, nothing is mapped, or the arguments differ in the number of
            examples. TransformError: where ``func`` asks for the values of a tensor: ``if x > 0``, ``x.item()``.

    Example:
        >>> import wengert as wg
        >>> wg.func.vmap(wg.dot)(wg.ones(3, 2), wg.ones(3, 2))
        tensor([2., 2., 2.])
    """
    if randomness not in ("error", "different", "same"):
        raise RuntimeError(f"vmap(): randomness must be 'error', 'different' or 'same', got {randomness!r}")
    if chunk_size is not None and (type(chunk_size) is not int or chunk_size < 1):
        raise ValueError(f"vmap(): chunk_size must be a positive int or None, got {chunk_size!r}")

    @wraps(func)
    def mapped(*args: Any, **kwargs: Any) -> Any:
        leaves, dims, spec, size = _examples(in_dims, args)
        if chunk_size is None or chunk_size >= size:
            return _run(func, leaves, dims, spec, kwargs, size, out_dims, randomness)
        parts = []
        for start in range(0, size, chunk_size):
            count = min(chunk_size, size - start)
            chunk = [v if d is None else ops.narrow(v, d, start, count) for v, d in zip(leaves, dims, strict=True)]
            parts.append(_run(func, chunk, dims, spec, kwargs, count, out_dims, randomness))
        return _joined(parts, out_dims)

    return mapped


def _is_dim(value: Any) -> bool:
    return value is None or (isinstance(value, int) and not isinstance(value, bool))


def _examples(in_dims: Any, args: tuple[Any, ...]) -> tuple[list[Any], list[Any], Any, int]:
    """Return (leaves of the arguments, the dimension of each or None, their structure, the number of examples)."""
    if not (_is_dim(in_dims) or isinstance(in_dims, tuple | list)):
        raise ValueError(
            f"vmap(): in_dims must be an int, None or a tuple with one entry per argument, got {in_dims!r}"
        )
    if isinstance(in_dims, tuple | list) and len(in_dims) != len(args):
        raise ValueError(
            f"vmap(): in_dims {in_dims!r} has {len(in_dims)} entries, but {len(args)} arguments were given"
        )
    leaves, spec = tree.flatten(args)
    wanted = tree.spread(tuple(in_dims) if isinstance(in_dims, list) else in_dims, spec, "vmap(): in_dims")
    dims: list[Any] = []
    size, where = -1, ""
    for value, dim, at in zip(leaves, wanted, tree.paths(args), strict=True):
        if not _is_dim(dim):
            raise ValueError(f"vmap(): in_dims must hold ints and None, got {dim!r}")
        if dim is not None and not isinstance(value, Tensor):
            raise ValueError(
                f"vmap(): argument{at} is to be mapped over dimension {dim}, but is no tensor: {type(value).__name__}; "
                "give None for it in in_dims"
            )
        if dim is not None:
            if not -value.ndim <= dim < value.ndim:
                raise ValueError(f"vmap(): in_dims says {dim} for argument{at} of shape {tuple(value.shape)}")
            dim %= value.ndim
            if size >= 0 and value.shape[dim] != size:
                raise ValueError(
                    f"vmap(): the arguments differ in the number of examples: {size} in argument{where}, "
                    f"{value.shape[dim]} in argument{at} (dimension {dim} of shape {tuple(value.shape)})"
                )
            size, where = value.shape[dim], at
        dims.append(dim)
    if size < 0:
        raise ValueError("vmap(): no argument is mapped; give at least one a dimension in in_dims")
    return leaves, dims, spec, size


def _run(
    func: Callable[..., Any], leaves: list[Any], dims: list[Any], spec: Any, kwargs: dict[str, Any], size: int, out_dims: Any,
    randomness: str,
) -> Any:  # fmt: skip
    level = BatchLevel(size, randomness)
    with entered(level):
        given = [v if d is None else level.wrap(ops.movedim(v, d, 0) if d else v, True)
                 for v, d in zip(leaves, dims, strict=True)]  # fmt: skip
        output = func(*tree.unflatten(given, spec), **kwargs)
        outputs, out_spec = tree.flatten(output)
        wanted = tree.spread(out_dims, out_spec, "vmap(): out_dims")
        found = [_result(level, o, d, at)
                 for o, d, at in zip(outputs, wanted, tree.paths(output), strict=True)]  # fmt: skip
    return tree.unflatten(found, out_spec)


def _result(level: BatchLevel, output: Any, dim: Any, at: str) -> Any:
    """Return one result with the examples along ``dim``."""
    if not isinstance(output, Tensor):
        raise ValueError(f"vmap(): the function must return tensors, got {type(output).__name__} at output{at}")
    held = lifted(level, output)._payload
    if dim is None:
        if held.batched:
            raise ValueError(f"vmap(): out_dims is None for output{at}, which differs between the examples")
        return held.tensor
    ndim = len(held.shape) + 1
    if not _is_dim(dim) or not -ndim <= dim < ndim:
        raise ShapeError(f"vmap(): out_dims says {dim!r} for output{at}, whose examples have shape {tuple(held.shape)}")
    return ops.movedim(held.whole, 0, dim) if dim % ndim else held.whole


def _joined(parts: list[Any], out_dims: Any) -> Any:
    """Return the results of all chunks as one."""
    spec = tree.structure(parts[0])
    wanted = tree.spread(out_dims, spec, "vmap(): out_dims")
    columns = zip(*(tree.leaves(p) for p in parts), strict=True)
    return tree.unflatten(
        [c[0] if d is None else ops.cat(list(c), d) for c, d in zip(columns, wanted, strict=True)], spec
    )
