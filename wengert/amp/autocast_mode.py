"""``autocast``: products in lower precision, the rest in float32, by lists of operators. The rules are PyTorch's.

A region changes what :attr:`wengert.core.state.State.casting` of its thread is; :mod:`wengert.core.casting` does the rest.
Backward passes run without it: each gradient has the dtype of what it is the gradient of.
"""

import functools
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from wengert.amp.lists import RULES
from wengert.array.dtype import DType, bfloat16, float16, to_dtype
from wengert.core.casting import Casting
from wengert.core.place import stacklevel
from wengert.core.state import thread
from wengert.core.tensor import Tensor
from wengert.tape.modes import Mode

__all__ = [
    "autocast", "clear_autocast_cache", "custom_bwd", "custom_fwd", "get_autocast_dtype", "is_autocast_available",
    "is_autocast_cache_enabled", "is_autocast_enabled", "set_autocast_cache_enabled", "set_autocast_dtype",
    "set_autocast_enabled",
]  # fmt: skip

_HALVES = (bfloat16, float16)
_OFF: Mapping[str, Any] = {}  # the rules of a region that is switched off
_OUTSIDE = Casting(_OFF, bfloat16, True, {})


def _current() -> Casting:
    """Return the casting of this thread."""
    return thread.state.casting or _OUTSIDE


class autocast(Mode):  # noqa: N801 - PyTorch's name
    """Run the operators of a block, or of a decorated function, in the dtypes in which they do well.

    Products and convolutions run in ``dtype``; powers, logarithms, normalisations, sums and losses in float32; operators of
    several tensors in the widest dtype among them; all others in the dtypes they are given. Parameters stay in float32, and
    so do their gradients. Wrap the forward pass and the loss; ``backward()`` runs outside, or as if it did.

    Args:
        device_type: "cpu". For "cuda" it warns and does nothing, as PyTorch does where there is no such device.
        dtype: bfloat16 (for "cpu" the default) or float16; for another one it warns and does nothing.
        enabled: False makes a region inside another one in which nothing is cast.
        cache_enabled: keep the casts of parameters until the outermost region ends, so that a parameter that is used twice
            is cast once. By default as outside, where it is True.

    Raises:
        ValueError: if ``device_type`` is not a string. RuntimeError: if there is no such type of device.

    Example:
        >>> import wengert as wg
        >>> w = wg.ones(2, 2, requires_grad=True)
        >>> with wg.autocast("cpu", dtype=wg.bfloat16):
        ...     y = w @ w
        ...     loss = y.sum()
        >>> y.dtype, loss.dtype
        (wengert.bfloat16, wengert.float32)
        >>> loss.backward(); w.grad.dtype
        wengert.float32
    """

    changes = ("casting",)

    def __init__(
        self, device_type: str = "cpu", dtype: DType | None = None, enabled: bool = True, cache_enabled: bool | None = None
    ) -> None:  # fmt: skip
        super().__init__()
        available = is_autocast_available(device_type)
        if not available and device_type != "cuda":
            raise RuntimeError(f"autocast: there is no device type {device_type!r}; there is 'cpu'")
        current = _current()
        self.device, self.fast_dtype = device_type, current.dtype if dtype is None else to_dtype(dtype)
        self.cache_enabled = current.cached if cache_enabled is None else bool(cache_enabled)
        self.enabled = bool(enabled)
        if self.enabled and not available:
            self._disable("the device type 'cuda' is asked for, which is not available")
        elif self.enabled and self.fast_dtype not in _HALVES:
            self._disable(f"on the CPU it casts to bfloat16 or float16, not to {self.fast_dtype}")

    def _disable(self, why: str) -> None:
        warnings.warn(f"autocast does nothing: {why}", UserWarning, stacklevel=stacklevel())
        self.enabled = False

    def change(self) -> None:
        """Cast as this region does; a region inside another one shares what that keeps."""
        if self.device == "cpu":
            outer = thread.state.casting
            rules = RULES if self.enabled else _OFF
            cache = {} if outer is None else outer.cache
            thread.state.casting = Casting(rules, self.fast_dtype, self.cache_enabled, cache)

    def fresh(self) -> Mode:
        """Return a region that does the same."""
        return type(self)(self.device, self.fast_dtype, self.enabled, self.cache_enabled)


def is_autocast_available(device_type: str) -> bool:
    """Return whether tensors of a type of device can be cast: those of "cpu".

    Raises:
        ValueError: if ``device_type`` is not a string.

    Example:
        >>> import wengert as wg
        >>> wg.amp.is_autocast_available("cpu"), wg.amp.is_autocast_available("cuda")
        (True, False)
    """
    if not isinstance(device_type, str):
        raise ValueError(f"expected `device_type` of type `str`, got: {type(device_type)}")
    return device_type == "cpu"


def is_autocast_enabled(device_type: str = "cpu") -> bool:
    """Return whether this thread casts the arguments of operators."""
    return is_autocast_available(device_type) and bool(_current().rules)


def get_autocast_dtype(device_type: str = "cpu") -> DType:
    """Return the lower precision of the region, bfloat16 outside of any; float16 for "cuda", which is never used."""
    return _current().dtype if is_autocast_available(device_type) else float16


def is_autocast_cache_enabled() -> bool:
    """Return whether casts of parameters are kept."""
    return _current().cached


def _set(**changes: Any) -> None:
    now = _current()
    cache = {} if now is _OUTSIDE else now.cache
    fields = {"rules": now.rules, "dtype": now.dtype, "cached": now.cached, "cache": cache, **changes}
    thread.state.casting = Casting(**fields)
    thread.state.update()


def set_autocast_enabled(device_type: str | bool, enabled: bool | None = None) -> None:
    """Switch casting on or off from now on; ``autocast`` does so for a block."""
    if enabled is None:
        device_type, enabled = "cpu", bool(device_type)
    if is_autocast_available(device_type):  # type: ignore[arg-type]
        _set(rules=RULES if enabled else _OFF)


def set_autocast_dtype(device_type: str, dtype: DType) -> None:
    """Set the lower precision from now on.

    Raises:
        ValueError: for a dtype other than bfloat16 and float16.
    """
    if is_autocast_available(device_type):
        if to_dtype(dtype) not in _HALVES:
            raise ValueError(f"autocast on the CPU casts to bfloat16 or float16, not to {dtype}")
        _set(dtype=to_dtype(dtype))


def set_autocast_cache_enabled(enabled: bool) -> None:
    """Set from now on whether casts of parameters are kept."""
    _set(cached=bool(enabled))


def clear_autocast_cache() -> None:
    """Drop the casts of parameters that are kept."""
    _current().cache.clear()


def _cast(value: Any, device_type: str, dtype: DType) -> Any:
    """Return a value with the floating-point tensors in it, but for float64, in another dtype."""
    if isinstance(value, Tensor):
        is_cast = value.is_floating_point() and value.dtype.itemsize <= 4 and value.device.type == device_type
        return value.to(dtype) if is_cast else value
    if isinstance(value, Mapping):
        return {_cast(k, device_type, dtype): _cast(v, device_type, dtype) for k, v in value.items()}
    if isinstance(value, list | tuple):
        cast = [_cast(v, device_type, dtype) for v in value]
        return type(value)(*cast) if hasattr(value, "_fields") else type(value)(cast)
    return value


def custom_fwd(
    fwd: Callable[..., Any] | None = None, *, device_type: str = "cpu", cast_inputs: DType | None = None
) -> Any:
    """Decorate the ``forward(ctx, ...)`` of an :class:`autograd.Function <wengert.autograd.Function>` that autocast may meet.

    Args:
        cast_inputs: inside a region, the dtype that floating-point arguments are cast to (float64 is not); the function then
            runs without autocast. None: it runs with the autocast of the caller.

    Example:
        >>> import wengert as wg
        >>> class Product(wg.autograd.Function):
        ...     @staticmethod
        ...     @wg.amp.custom_fwd(device_type="cpu")
        ...     def forward(ctx, a, b):
        ...         ctx.save_for_backward(a, b)
        ...         return a @ b
        ...     @staticmethod
        ...     @wg.amp.custom_bwd(device_type="cpu")
        ...     def backward(ctx, g):
        ...         a, b = ctx.saved_tensors
        ...         return g @ b.T, a.T @ g
        >>> a = wg.ones(2, 2, requires_grad=True)
        >>> with wg.autocast("cpu"):
        ...     y = Product.apply(a, a)
        >>> y.sum().backward(); y.dtype, a.grad.dtype
        (wengert.bfloat16, wengert.float32)
    """
    is_autocast_available(device_type)
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)

    @functools.wraps(fwd)
    def decorated(*args: Any, **kwargs: Any) -> Any:
        ctx, active = args[0], is_autocast_enabled(device_type)
        ctx._dtype = get_autocast_dtype(device_type)
        ctx._fwd_used_autocast = active and cast_inputs is None
        if not active or cast_inputs is None:
            return fwd(*args, **kwargs)
        with autocast(device_type=device_type, enabled=False):
            cast = _cast(args[1:], device_type, cast_inputs), _cast(kwargs, device_type, cast_inputs)
            return fwd(ctx, *cast[0], **cast[1])

    return decorated


def custom_bwd(bwd: Callable[..., Any] | None = None, *, device_type: str = "cpu") -> Any:
    """Decorate the ``backward(ctx, ...)`` that belongs to a forward under :func:`custom_fwd`: both see the same autocast.

    Example:
        >>> import wengert as wg
        >>> class Doubled(wg.autograd.Function):
        ...     @staticmethod
        ...     @wg.amp.custom_fwd(device_type="cpu", cast_inputs=wg.float32)
        ...     def forward(ctx, x):
        ...         return 2 * x
        ...     @staticmethod
        ...     @wg.amp.custom_bwd(device_type="cpu")
        ...     def backward(ctx, grad):
        ...         return 2 * grad
        >>> with wg.autocast("cpu"):
        ...     Doubled.apply(wg.ones(1, dtype=wg.bfloat16)).dtype
        wengert.float32
    """
    is_autocast_available(device_type)
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)

    @functools.wraps(bwd)
    def decorated(*args: Any, **kwargs: Any) -> Any:
        ctx = args[0]
        with autocast(device_type=device_type, enabled=ctx._fwd_used_autocast, dtype=ctx._dtype):
            return bwd(*args, **kwargs)

    return decorated
