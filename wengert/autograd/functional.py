"""``wengert.autograd.functional``: derivatives of functions of tensors, with PyTorch's signatures.

``func`` takes tensors and returns a tensor or a tuple of tensors. :mod:`wengert.func` has the same and more for functions
of any trees.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from wengert.core.registry import ops
from wengert.core.tensor import Tensor, from_array
from wengert.tape.api import grad
from wengert.transforms.control_check import check_callable
from wengert.transforms.jacobians import jacfwd
from wengert.transforms.reverse import entry, recording
from wengert.transforms.vmap import vmap

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]

Tensors = tuple[Any, ...]
STRICT = "; this is not allowed in strict mode"


# ---- what is given and what is returned


def _tensors(value: Any, what: str, name: str) -> tuple[bool, Tensors]:
    """Return whether a value is a tuple, and its tensors.

    Raises:
        TypeError: if it is neither a tensor nor a tuple of tensors.
    """
    several = isinstance(value, tuple)
    listed = value if several else (value,)
    for i, v in enumerate(listed):
        if not isinstance(v, Tensor):
            where = f"value {i} is" if several else "got"
            raise TypeError(f"{name}(): {what} must be a tensor or a tuple of tensors, {where} {type(v).__name__}")
    return several, listed


def _fresh(inputs: Tensors, create_graph: bool, name: str) -> Tensors:
    """Return tensors that the function sees in place of its inputs: they differ from those that it refers to by name."""
    return tuple(entry(v if create_graph else v.detach(), create_graph, f"{name}(): an input") for v in inputs)


def _call(func: Callable[..., Any], inputs: Tensors, name: str, strict: bool) -> tuple[bool, Tensors]:
    """Return whether the function returned a tuple, and its outputs."""
    several, outputs = _tensors(func(*inputs), "the output of func", name)
    for i, output in enumerate(outputs):
        if strict and not output.requires_grad:
            raise RuntimeError(f"{name}(): output {i} of func does not require grad{STRICT}: compute it from the inputs, "
                               f"by differentiable operators")  # fmt: skip
    return several, outputs


def _one_number(several: bool, outputs: Tensors, name: str) -> None:
    if several:
        raise RuntimeError(f"{name}(): func must return a single tensor, got a tuple of {len(outputs)}")
    if outputs[0].numel() != 1:
        raise RuntimeError(f"{name}(): func must return a tensor with one element, got shape {tuple(outputs[0].shape)}")


def _vector(v: Any, like: Tensors, several: bool, name: str, whose: str, create_graph: bool) -> Tensors:
    """Return the vector of a product, checked against what it is multiplied with; ones for a single element."""
    if v is None:
        if len(like) != 1 or like[0].numel() != 1:
            raise RuntimeError(f"{name}(): v can be left out only if {whose} a single tensor with one element")
        return (ops.ones_like(like[0].detach()),)
    found = _tensors(v, "v", name)[1]
    if len(found) != len(like):
        wanted = f"a tuple of {len(like)} tensors" if several else "a single tensor"
        raise RuntimeError(f"{name}(): v must be {wanted}, got {len(found)}")
    for i, (given, other) in enumerate(zip(found, like, strict=True)):
        if given.shape != other.shape:
            where = f"v[{i}]" if several else "v"
            raise RuntimeError(f"{name}(): {where} must have shape {tuple(other.shape)}, got {tuple(given.shape)}")
    return found if create_graph else tuple(given.detach() for given in found)


def _given(values: Tensors, several: bool, create_graph: bool) -> Any:
    """Return tensors as they were given: one or a tuple, without history unless that is wanted."""
    found = values if create_graph else tuple(v.detach() for v in values)
    return found if several else found[0]


# ---- gradients


def _gradients(outputs: Sequence[Any], inputs: Tensors, cotangents: Tensors, **options: Any) -> Tensors:
    """Return the gradients of those outputs that have any; None for inputs that they do not depend on."""
    used = [i for i, output in enumerate(outputs) if output is not None and output.requires_grad]
    if not used:
        return (None,) * len(inputs)
    chosen = [outputs[i] for i in used], inputs, [cotangents[i] for i in used]
    return tuple(grad(*chosen, allow_unused=True, **options))


def _filled(
    found: Tensors, like: Tensors, name: str, strict: bool, create_graph: bool, lost: str, flat: str
) -> Tensors:
    """Return gradients with zeros for those that are missing.

    Args:
        lost: what strict mode says of a missing one. flat: of one that cannot be differentiated though that is wanted.
    """
    for i, g in enumerate(found):
        if strict and g is None:
            raise RuntimeError(f"{name}(): {lost.format(i)}{STRICT}")
        if strict and create_graph and not g.requires_grad:
            raise RuntimeError(f"{name}(): {flat.format(i)}{STRICT} with create_graph=True")
    return tuple(ops.zeros_like(other) if g is None else g for g, other in zip(found, like, strict=True))


def _depend(found: Tensors, name: str, strict: bool, constant: str) -> None:
    """Refuse, in strict mode, gradients that are missing or that do not depend on the inputs."""
    for i, g in enumerate(found):
        if strict and (g is None or not g.requires_grad):
            text = f"the output of func is independent of input {i}" if g is None else constant.format(i)
            raise RuntimeError(f"{name}(): {text}{STRICT}")


def _zero_vectors(like: Tensors) -> Tensors:
    """Return cotangents to differentiate by: a gradient is linear in them, so that their value does not matter."""
    return tuple(ops.zeros_like(v.detach()).requires_grad_() for v in like)


JACOBIAN_FLAT = "the Jacobian of func is independent of input {}"
HESSIAN_FLAT = "the Hessian of func is independent of input {}"
GRADIENT_FLAT = (
    "the gradient of func with respect to input {} is independent of the inputs (func may be linear in it, "
    "or not twice differentiable)"
)


# ---- products


def vjp(func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False) -> Any:
    """Return ``func(*inputs)`` and the product of a vector with the Jacobian of ``func`` there.

    Args:
        func: takes tensors, returns a tensor or a tuple of tensors. inputs: a tensor or a tuple of tensors.
        v: a tensor or tuple of tensors of the outputs' shapes; may be left out if the output is a single number.
        create_graph: record output and product, so that they can be differentiated.
        strict: raise where an output does not depend on an input, instead of returning zeros.

    Raises:
        TypeError: for what is no tensor. RuntimeError: if ``v`` does not fit, in strict mode, or inside inference mode.

    Example:
        >>> import wengert as wg
        >>> wg.autograd.functional.vjp(lambda x: x**2, wg.tensor([1.0, 2.0]), wg.tensor([1.0, 10.0]))
        (tensor([1., 4.]), tensor([ 2., 40.]))
    """
    with recording():
        check_callable("vjp", func=func)
        several, given = _tensors(inputs, "inputs", "vjp")
        given = _fresh(given, create_graph, "vjp")
        several_out, outputs = _call(func, given, "vjp", strict)
        vector = _vector(v, outputs, several_out, "vjp", "func returns", create_graph)
        found = _gradients(outputs, given, vector, create_graph=create_graph)
        lost = "the output of func is independent of input {}"
        found = _filled(found, given, "vjp", strict, create_graph, lost, JACOBIAN_FLAT)
    return _given(outputs, several_out, create_graph), _given(found, several, create_graph)


def jvp(func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False) -> Any:
    """Return ``func(*inputs)`` and the product of the Jacobian of ``func`` there with a vector.

    It is the derivative of a vjp by its vector; :func:`wengert.func.jvp` needs one forward pass only.

    Args:
        func, create_graph, strict: as in :func:`vjp`. inputs: a tensor or a tuple of tensors.
        v: a tensor or tuple of tensors of the inputs' shapes; may be left out if the input is a single number.

    Raises:
        TypeError: for what is no tensor. RuntimeError: if ``v`` does not fit, or in strict mode.

    Example:
        >>> import wengert as wg
        >>> wg.autograd.functional.jvp(lambda x: x.prod(), wg.tensor([2.0, 3.0]), wg.tensor([1.0, 10.0]))
        (tensor(6.), tensor(23.))
    """
    with recording():
        check_callable("jvp", func=func)
        several, given = _tensors(inputs, "inputs", "jvp")
        given = _fresh(given, create_graph, "jvp")
        vector = _vector(v, given, several, "jvp", "the input is", create_graph)
        several_out, outputs = _call(func, given, "jvp", strict)
        cotangents = _zero_vectors(outputs)
        pulled = _gradients(outputs, given, cotangents, create_graph=True)
        _depend(pulled, "jvp", strict, "the gradient with respect to input {} is independent of the inputs")
        found = _gradients(pulled, cotangents, vector, create_graph=create_graph)
        lost = "the gradient is independent of entry {} of its vector, by which it is differentiated"
        found = _filled(found, outputs, "jvp", strict, create_graph, lost, JACOBIAN_FLAT)
    return _given(outputs, several_out, create_graph), _given(found, several_out, create_graph)


def vhp(func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False) -> Any:
    """Return ``func(*inputs)``, a single number, and the product of a vector with the Hessian of ``func`` there.

    Args:
        func, create_graph, strict: as in :func:`vjp`. inputs: a tensor or a tuple of tensors.
        v: a tensor or tuple of tensors of the inputs' shapes; may be left out if the input is a single number.

    Raises:
        TypeError: for what is no tensor. RuntimeError: if ``func`` returns no single number, ``v`` does not fit, or in
            strict mode.

    Example:
        >>> import wengert as wg
        >>> wg.autograd.functional.vhp(lambda x: x.prod(), wg.tensor([2.0, 3.0]), wg.tensor([1.0, 10.0]))
        (tensor(6.), tensor([10.,  1.]))
    """
    with recording():
        several, given, vector, outputs, gradient = _gradient("vhp", func, inputs, v, create_graph, strict)
        found = _gradients(gradient, given, vector, create_graph=create_graph)
        lost = "the Jacobian of func is independent of input {}"
        found = _filled(found, given, "vhp", strict, create_graph, lost, HESSIAN_FLAT)
    return _given(outputs, False, create_graph), _given(found, several, create_graph)


def hvp(func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False) -> Any:
    """Return ``func(*inputs)``, a single number, and the product of the Hessian of ``func`` there with a vector.

    Where the Hessian is symmetric, :func:`vhp` is the same with one backward pass less.

    Args:
        func, create_graph, strict: as in :func:`vjp`. inputs: a tensor or a tuple of tensors.
        v: a tensor or tuple of tensors of the inputs' shapes; may be left out if the input is a single number.

    Raises:
        TypeError: for what is no tensor. RuntimeError: if ``func`` returns no single number, ``v`` does not fit, or in
            strict mode.

    Example:
        >>> import wengert as wg
        >>> wg.autograd.functional.hvp(lambda x: x.prod(), wg.tensor([2.0, 3.0]), wg.tensor([1.0, 10.0]))
        (tensor(6.), tensor([10.,  1.]))
    """
    with recording():
        several, given, vector, outputs, gradient = _gradient("hvp", func, inputs, v, create_graph, strict)
        cotangents = _zero_vectors(given)
        pulled = _gradients(gradient, given, cotangents, create_graph=True)
        found = _gradients(pulled, cotangents, vector, create_graph=create_graph)
        lost = "the Hessian of func is independent of entry {} of its vector, by which it is differentiated"
        found = _filled(found, given, "hvp", strict, create_graph, lost, HESSIAN_FLAT)
    return _given(outputs, False, create_graph), _given(found, several, create_graph)


def _gradient(
    name: str, func: Callable[..., Any], inputs: Any, v: Any, create_graph: bool, strict: bool
) -> tuple[bool, Tensors, Tensors, Tensors, Tensors]:
    """Return whether inputs are a tuple, the inputs, the vector, the output and its recorded gradient."""
    check_callable(name, func=func)
    several, given = _tensors(inputs, "inputs", name)
    given = _fresh(given, create_graph, name)
    vector = _vector(v, given, several, name, "the input is", create_graph)
    several_out, outputs = _call(func, given, name, strict)
    _one_number(several_out, outputs, name)
    gradient = _gradients(outputs, given, (ops.ones_like(outputs[0].detach()),), create_graph=True)
    _depend(gradient, name, strict, GRADIENT_FLAT)
    return several, given, vector, outputs, gradient


# ---- matrices


def jacobian(
    func: Callable[..., Any],
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    strategy: str = "reverse-mode",
) -> Any:
    """Return the Jacobian of ``func``: of shape (output, input), nested for tuples as ``result[output][input]``.

    Args:
        func, create_graph, strict: as in :func:`vjp`. inputs: a tensor or a tuple of tensors.
        vectorize: one backward (or forward) pass with all the rows (or columns) at once, by ``vmap``, instead of one each.
        strategy: "reverse-mode" goes by rows, "forward-mode" by columns.

    Raises:
        TypeError: for what is no tensor. ValueError: for another strategy. RuntimeError: for complex outputs in reverse
            mode, in strict mode, or if it is asked for together with ``vectorize`` or "forward-mode".

    Example:
        >>> import wengert as wg
        >>> wg.autograd.functional.jacobian(lambda x: x**2, wg.tensor([1.0, 2.0]))
        tensor([[2., 0.],
                [0., 4.]])
    """
    return _jacobian("jacobian", func, inputs, create_graph, strict, vectorize, strategy)


def _jacobian(
    name: str, func: Callable[..., Any], inputs: Any, create_graph: bool, strict: bool, vectorize: bool, strategy: str
) -> Any:
    """Return the Jacobian; ``name`` is that of the public function, for messages."""
    check_callable(name, func=func)
    _check_strategy(name, strategy, strict, vectorize)
    with recording():
        several, given = _tensors(inputs, "inputs", name)
        if strategy == "forward-mode":
            several_out, rows = _columns(name, func, given, create_graph, vectorize)
        else:
            given = _fresh(given, create_graph, name)
            several_out, outputs = _call(func, given, name, strict)
            pulls = [_pullback(name, i, outputs, given, create_graph, strict) for i in range(len(outputs))]
            rows = tuple(_rows(pull, out, given, vectorize) for pull, out in zip(pulls, outputs, strict=True))
    found = tuple(_given(row, several, create_graph) for row in rows)
    return found if several_out else found[0]


def _check_strategy(name: str, strategy: str, strict: bool, vectorize: bool) -> None:
    if strategy not in ("reverse-mode", "forward-mode"):
        raise ValueError(f"{name}(): the strategy must be 'reverse-mode' or 'forward-mode', got {strategy!r}")
    if strict and (vectorize or strategy == "forward-mode"):
        other = "vectorize=True" if vectorize else "forward mode"
        raise RuntimeError(f"{name}(): strict=True and {other} do not go together: nothing tells zero from independent; "
                           f"leave out one of them")  # fmt: skip


def _columns(
    name: str, func: Callable[..., Any], inputs: Tensors, create_graph: bool, vectorize: bool
) -> tuple[bool, tuple[Tensors, ...]]:
    """Return whether the function returned a tuple, and its Jacobian by forward mode: result[output][input]."""
    given = inputs if create_graph else tuple(v.detach() for v in inputs)
    several: list[bool] = []

    def listed(*values: Any) -> Tensors:
        found, outputs = _call(func, values, name, strict=False)
        several.append(found)
        return outputs

    rows = jacfwd(listed, tuple(range(len(given))), chunk_size=None if vectorize else 1)(*given)
    return several[0], rows


def _pullback(
    name: str, number: int, outputs: Tensors, inputs: Tensors, create_graph: bool, strict: bool
) -> Callable[[Any], Any]:
    """Return the function from a cotangent of one output to those of the inputs."""
    if outputs[number].is_complex():
        raise RuntimeError(f"{name}(): output {number} is complex, and a row of its Jacobian is no gradient; "
                           f"use vjp() with a v of your own, or take the real and imaginary parts apart")  # fmt: skip
    lost = f"output {number} of func is independent of input {{}}"

    def pull(cotangent: Any) -> Tensors:
        found = _gradients((outputs[number],), inputs, (cotangent,), create_graph=create_graph, retain_graph=True)
        return _filled(found, inputs, name, strict, create_graph, lost, JACOBIAN_FLAT)

    return pull


def _rows(pull: Callable[[Any], Any], output: Any, inputs: Tensors, vectorize: bool) -> Tensors:
    """Return the Jacobian of one output by each input: a backward pass for every element, or one for all of them."""
    count, shape = output.numel(), tuple(output.shape)
    if not count:
        return tuple(ops.zeros((*shape, *v.shape), dtype=v.dtype) for v in inputs)
    if vectorize:
        stacked = vmap(pull)(ops.reshape(ops.eye(count, dtype=output.dtype), (count, *shape)))
    else:
        stacked = [ops.stack(column) for column in zip(*map(pull, _basis(output)), strict=True)]
    return tuple(ops.reshape(rows, (*shape, *v.shape)) for rows, v in zip(stacked, inputs, strict=True))


def _basis(output: Any) -> Iterator[Any]:
    """Yield the cotangents that pick out one element of an output each."""
    payload = output._payload
    for i in range(payload.size):
        one = np.zeros(payload.shape, payload.dtype)
        one.reshape(-1)[i] = 1
        yield from_array(one)


def hessian(
    func: Callable[..., Any],
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    outer_jacobian_strategy: str = "reverse-mode",
) -> Any:
    """Return the Hessian of a function with one number as its value: the Jacobian of its gradient.

    Args:
        func, create_graph, strict: as in :func:`vjp`. inputs: a tensor or a tuple of tensors; for a tuple the result is
            nested, ``result[i][j]`` of shape (input i, input j). vectorize: as in :func:`jacobian`.
        outer_jacobian_strategy: "reverse-mode" or "forward-mode", by which the gradient is differentiated.

    Raises:
        As :func:`jacobian`; RuntimeError: if ``func`` does not return a single number.

    Example:
        >>> import wengert as wg
        >>> wg.autograd.functional.hessian(lambda x: (x**3).sum(), wg.tensor([1.0, 2.0]))
        tensor([[ 6.,  0.],
                [ 0., 12.]])
    """
    check_callable("hessian", func=func)
    several, given = _tensors(inputs, "inputs", "hessian")

    def gradient(*values: Any) -> Tensors:
        fresh = _fresh(values, True, "hessian")
        several_out, outputs = _call(func, fresh, "hessian", strict)
        _one_number(several_out, outputs, "hessian")
        found = _gradients(outputs, fresh, (ops.ones_like(outputs[0].detach()),), create_graph=True)
        _depend(found, "hessian", strict, GRADIENT_FLAT)
        return _filled(found, fresh, "hessian", strict, False, "", "")

    found = _jacobian("hessian", gradient, given, create_graph, strict, vectorize, outer_jacobian_strategy)
    return found if several else found[0][0]
