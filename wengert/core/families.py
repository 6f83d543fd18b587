"""Families of operators: what a declaration need not say because the family implies it.

Each family is a decorator for the NumPy kernel of an operator. The kernel's signature is the operator's public
signature, its docstring the operator's; the decorator's arguments are the facts from which the rest follows.

* :func:`elementwise` — partial derivatives. Both modes, broadcasting, shape rule and batching follow.
* :func:`linear` — the transpose. The tangent goes through the operator itself.
* :func:`bilinear` — the transpose in each argument. Each tangent goes through the operator in its argument's place.
* :func:`operator` — everything is said: vjp, jvp, spec.
* :func:`nondifferentiable` — results that carry no gradient: comparisons, indices, integer functions.
* :func:`composite` — a plain function of other operators; derivative, batching and dtypes follow from its body.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from wengert.array.device import devices
from wengert.core.apply import broadcast_spec, execute, write_out
from wengert.core.devices import settle_beside
from wengert.core.explain import FAILURES, explained_composite
from wengert.core.inplace import inplace_lane
from wengert.core.lanes import binary_lane, general_lane, product_lane, unary_lane
from wengert.core.methods import attach
from wengert.core.operator import Op
from wengert.core.registry import ops, register
from wengert.core.signature import ALIASES, Signature
from wengert.core.state import local, thread
from wengert.errors import DeclarationError

__all__ = ["bilinear", "composite", "elementwise", "linear", "nondifferentiable", "operator"]

Kernel = Callable[..., Any]


def publish(op: Op, function: Callable[..., Any], *, method: bool, inplace: bool, aliases: tuple[str, ...]) -> Any:
    """Enter an operator in the registry and attach its methods; return its public function."""
    function.__name__ = function.__qualname__ = op.name
    function.__doc__ = op.doc
    function.__module__ = op.kernel.__module__
    if function is not op.kernel:
        function.__wrapped__ = op.kernel  # type: ignore[attr-defined]
        function.op = op  # type: ignore[attr-defined]
        function.execute = partial(execute, op)  # type: ignore[attr-defined]
    op.function = function
    register(op.name, op, function)
    names = (op.name, *aliases)
    for name in aliases:
        setattr(ops, name, function)
    writer = inplace_lane(op) if inplace else None
    for name in names:
        if method:
            attach(name, function)
        if writer is not None:
            setattr(ops, name + "_", writer)
            attach(name + "_", writer)
    return function


def _declare(kernel: Kernel, family: str, options: dict[str, Any]) -> Any:
    method = options.pop("method", None)
    inplace = options.pop("inplace", False)
    aliases = options.pop("aliases", ())
    op = Op(kernel, family, **options)
    return publish(op, _lane(op), method="" in op.home if method is None else method, inplace=inplace, aliases=aliases)


def _lane(op: Op) -> Callable[..., Any]:
    """Return the fastest public function an operator can have."""
    fast = op.ufunc is not None and not op.signature.many and (op.rules is not None or op.family == "nondifferentiable")
    if fast and len(op.signature.inputs) == op.ufunc.nin == 1 and op.result in ("same", "real"):
        return unary_lane(op)
    if fast and len(op.signature.inputs) == op.ufunc.nin == 2:
        return binary_lane(op)
    two = len(op.signature.inputs) == len(op.signature.slots) == 2
    if two and op.family == "bilinear" and op.promote is None and op.widen:
        return product_lane(op)
    return general_lane(op)


def elementwise(
    ufunc: Any = None, *, derivative: dict[str, Kernel] | None = None, promote: str | None = "same", result: str = "same",
    holomorphic: bool = True, vjp: dict[str, Kernel] | None = None, flops: int = 1, inplace: bool = True, **options: Any,
) -> Callable[[Kernel], Any]:  # fmt: skip
    """Declare an element-wise operator.

    Args:
        ufunc: the NumPy ufunc for the fast lanes; the kernel's body is then only a docstring, or the general form.
        derivative: per tensor argument, the rule ``(g, ...) -> g times the partial derivative``, which serves both modes.
            It must be linear in ``g``; ``where(condition, g, 0)`` keeps 0 · inf out of masked elements.
        promote: ``"same"``, or ``"float"`` if integers become floats.
        result: ``"same"``, ``"bool"`` or ``"real"``.
        holomorphic: whether ``derivative`` is the complex derivative, so that the vjp of complex values is
            conj(rule(conj(g))), PyTorch's convention.
        vjp: reverse rules where they differ from ``derivative``: functions of a complex number that are not holomorphic.
        flops: floating-point operations per element.
    """

    def declare(kernel: Kernel) -> Any:
        if derivative is None:
            raise DeclarationError(f"element-wise operator '{kernel.__name__}' does not say: derivative")
        options.setdefault("jvp", derivative)
        op_options = dict(options, ufunc=ufunc, promote=promote, result=result, vjp=vjp or derivative, inplace=inplace,
                          holomorphic=holomorphic and vjp is None, batch="broadcast",
                          cost=lambda spec: flops * math.prod(spec.shape))  # fmt: skip
        body = kernel if not _only_documented(kernel) else _ufunc_kernel(kernel, ufunc)
        return _declare_broadcasting(body, "elementwise", op_options)

    return declare


def _only_documented(kernel: Kernel) -> bool:
    """True if a function's body is nothing but its docstring."""
    code = kernel.__code__
    return not code.co_names and len(code.co_consts) <= 2 and code.co_code == _empty.__code__.co_code


def _empty() -> None:
    """A body of nothing but a docstring, to compare with."""


def _ufunc_kernel(kernel: Kernel, ufunc: Any) -> Kernel:
    """Return a kernel with the signature of ``kernel`` that calls ``ufunc``."""
    if ufunc is None:
        raise DeclarationError(f"operator '{kernel.__name__}' has neither a ufunc nor a body")
    kernel.ufunc_only = True  # type: ignore[attr-defined]
    return kernel


def _declare_broadcasting(kernel: Kernel, family: str, options: dict[str, Any]) -> Any:
    holder: list[Op] = []
    options.setdefault("spec", lambda *args, **kwargs: broadcast_spec(holder[0], [*args, *kwargs.values()]))
    function = _declare(kernel, family, options)
    op = function.op
    holder.append(op)
    if getattr(kernel, "ufunc_only", False):
        op.kernel = op.ufunc
    return function


def linear(*, transpose: Kernel | dict[str, Kernel], **options: Any) -> Callable[[Kernel], Any]:
    """Declare an operator that is linear in its tensor argument (or jointly in several).

    Args:
        transpose: the rule ``(g, ...) -> cotangent of the argument``; a dictionary if there are several arguments.
    """

    def declare(kernel: Kernel) -> Any:
        names = _tensor_names(kernel)
        rules = transpose if isinstance(transpose, dict) else {names[0]: transpose}
        return _declare(kernel, "linear", dict(options, vjp=rules, jvp="linear"))

    return declare


def bilinear(*, transpose: dict[str, Kernel], **options: Any) -> Callable[[Kernel], Any]:
    """Declare an operator that is linear in each tensor argument named in ``transpose`` while the others are fixed.

    The transposes are written for real arguments; those of complex ones are derived (``holomorphic``).
    """

    def declare(kernel: Kernel) -> Any:
        return _declare(kernel, "bilinear", dict({"holomorphic": True}, **options, vjp=transpose, jvp="bilinear"))

    return declare


def _tensor_names(kernel: Kernel) -> list[str]:
    signature = Signature(kernel, kernel.__name__)
    return [signature.names[i] for i in signature.inputs]


def operator(**options: Any) -> Callable[[Kernel], Any]:
    """Declare an operator of no family: vjp, jvp and spec are given."""
    return lambda kernel: _declare(kernel, "operator", options)


def nondifferentiable(
    ufunc: Any = None, *, promote: str | None = None, result: str = "kernel", spec: Any = None, **options: Any
) -> Callable[[Kernel], Any]:
    """Declare an operator whose results carry no gradient. Without ``spec`` it is element-wise."""

    def declare(kernel: Kernel) -> Any:
        chosen = dict(options, ufunc=ufunc, promote=promote, result=result)
        if spec is not None:
            return _declare(kernel, "nondifferentiable", dict(chosen, spec=spec))
        body = kernel if not _only_documented(kernel) else _ufunc_kernel(kernel, ufunc)
        return _declare_broadcasting(
            body, "nondifferentiable", dict(chosen, promote=promote or "same", batch="broadcast")
        )

    return declare


def _guarded(op: Op) -> Kernel:
    """Return the public function of a composite: NumPy's names are renamed, ``out=`` served, failures explained."""
    function, flags, dims = op.kernel, op.signature.flags, "dim" in op.signature.index
    own_out = "out" in op.signature.index

    def public(*args: Any, **kwargs: Any) -> Any:
        try:
            casting = local.state.casting
        except AttributeError:
            casting = thread.state.casting
        if casting is not None and op.name in casting.rules:
            return casting.call(op, args, kwargs)
        if dims and kwargs:
            for name in ("axis", "keepdims"):
                if name in kwargs:
                    kwargs[ALIASES[name]] = kwargs.pop(name)
        for i, name in flags:
            value = args[i] if i < len(args) else kwargs.get(name, True)
            if value is not True and value is not False:
                op.signature.flag(name, value)
        out = None if own_out or not kwargs else kwargs.pop("out", None)
        try:
            result = function(*args, **kwargs)
            if devices.several:
                settle_beside(result, [*args, *kwargs.values()])
            return result if out is None else write_out(op, out, result)
        except FAILURES as error:
            better = explained_composite(op, args, kwargs, error)
            if better is error:
                raise
            raise better from error

    return public


def composite(
    *, samples: Any, method: bool = False, inplace: bool = False, aliases: tuple[str, ...] = (), **options: Any
) -> Callable[[Kernel], Any]:
    """Declare a function of other operators; it is public as it is written."""

    def declare(function: Kernel) -> Any:
        op = Op(function, "composite", composite=True, samples=samples, **options)
        return publish(op, _guarded(op), method=method, inplace=inplace, aliases=aliases)

    return declare
