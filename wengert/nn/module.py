"""The base class of every layer and model."""

from collections.abc import Callable, Mapping
from typing import Any, Self

import wengert
from wengert.array.dtype import DType, bfloat16, float16, float32, float64, to_dtype
from wengert.array.layout import has_order, memory_order
from wengert.core.registry import ops
from wengert.core.state import thread
from wengert.core.structure import structure
from wengert.core.tensor import Tensor
from wengert.nn import state
from wengert.nn.hooks import ForwardHook, ModuleHooks, add_hook, call_with_hooks, everywhere, hook_functions
from wengert.nn.members import Members
from wengert.tape.accumulate import reset
from wengert.tape.hooks import RemovableHandle
from wengert.tape.modes import no_grad

__all__ = ["Module"]


class Module(Members):
    """Base class of all layers and models: owns parameters, buffers and other modules.

    A subclass calls ``super().__init__()``, assigns parameters and modules as attributes, and defines ``forward``.

    Example:
        >>> import wengert as wg
        >>> class Scale(wg.nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.factor = wg.nn.Parameter(wg.tensor(3.0))
        ...     def forward(self, x):
        ...         return x * self.factor
        >>> Scale()(wg.ones(2)).tolist()
        [3.0, 3.0]
    """

    training: bool = True
    _hooks: ModuleHooks | None = None
    _compiled: Callable[..., Any] | None = None  # what runs when it is called, after compile()
    _version: int = 1
    _shown: tuple[str, ...] = ()  # the attributes that repr shows

    def __init__(self) -> None:
        super().__init__()
        self.__dict__["training"] = True

    # ---- calling ---------------------------------------------------------------------

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the output; a subclass defines it and users call the module itself, which also runs the hooks."""
        raise NotImplementedError(f"{type(self).__name__} does not define forward()")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._compiled is not None:
            return self._compiled(*args, **kwargs)
        captures = thread.state.captures
        if captures is not None:
            captures.module(self)
        try:
            if self._hooks is None and not everywhere.armed:
                return self.forward(*args, **kwargs)
            return call_with_hooks(self, args, kwargs)
        except AttributeError as error:
            _refuse_no_tensor(self, args, error)
            raise

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Compile the calls of this module in place: ``module(x)`` then runs forward and hooks as one program.

        The module stays what it is: its class, the names in ``state_dict()``, its hooks. A copy, or one that was pickled, is
        not compiled, as in PyTorch. Calling it again compiles anew; ``compile(disable=True)`` takes it back.

        Args:
            args, kwargs: those of :func:`wengert.compile`, without the model.

        Raises:
            TypeError, ValueError: as :func:`wengert.compile` does.

        Example:
            >>> import wengert as wg
            >>> layer = wg.nn.Linear(2, 1)
            >>> layer.compile(fullgraph=True)
            >>> layer(wg.ones(3, 2)).shape, list(layer.state_dict())
            (wengert.Size([3, 1]), ['weight', 'bias'])
        """
        self._compiled = wengert.compile(Calls(self), *args, **kwargs)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_compiled"}

    def hooks_on_call(self) -> list[Callable[..., Any]]:
        """Return the functions of the hooks that a call, and backward through it, runs."""
        return hook_functions(self)

    def snapshot(self) -> tuple[Any, ...]:
        """Return what decides how the module computes, for comparison: its members, and hooks on all modules."""
        return (*super().snapshot(), everywhere.told())

    # ---- modes and gradients ---------------------------------------------------------

    def train(self, mode: bool = True) -> Self:
        """Put this module and all below it in training mode (or evaluation mode) and return it.

        Raises:
            ValueError: if ``mode`` is not a bool.
        """
        if not isinstance(mode, bool):
            raise ValueError(f"train() takes a bool, got {mode!r}")
        for module in self.modules():
            module.training = mode
        return self

    def eval(self) -> Self:
        """Put this module and all below it in evaluation mode: ``train(False)``."""
        return self.train(False)

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Say for every parameter whether its gradient is wanted, and return the module."""
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the gradients of all parameters, or (``set_to_none=False``) fill them with zeros."""
        for parameter in self.parameters():
            reset(parameter, set_to_none)

    def apply(self, fn: Callable[[Any], Any]) -> Self:
        """Call ``fn`` with every module below this one, children first, then with this one; return it."""
        for child in self.children():
            child.apply(fn)
        fn(self)
        return self

    # ---- dtype and device ------------------------------------------------------------

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Replace the memory of every parameter, gradient and buffer by ``fn`` of it.

        Parameters stay the same objects, so optimisers keep their hold on them.
        """
        with no_grad():
            for parameter in self.parameters(recurse):
                grad = parameter.grad
                _set_data(parameter, fn(parameter.detach()))
                if grad is not None:
                    parameter.grad = fn(grad.detach())
            replaced: dict[int, Tensor] = {}
            for module in self.modules() if recurse else (self,):
                for name in module._buffer_names:
                    buffer = module.__dict__[name]
                    structure.changes += 1
                    if buffer is not None:
                        new = replaced.get(id(buffer))
                        module.__dict__[name] = replaced[id(buffer)] = fn(buffer) if new is None else new
        return self

    def to(self, *args: Any, **kwargs: Any) -> Self:
        """Move to a device and (floating-point and complex parameters and buffers) cast to a dtype, in place.

        Called as ``to(device)``, ``to(dtype)``, ``to(device, dtype)`` or ``to(tensor)``.

        Raises:
            TypeError: for a dtype that is neither floating-point nor complex, or arguments of another kind.

        Example:
            >>> import wengert as wg
            >>> wg.nn.Linear(2, 1).to(wg.float64).weight.dtype
            wengert.float64
        """
        device, dtype, layout = _destination(args, kwargs)

        def move(tensor: Tensor) -> Tensor:
            inexact = tensor.is_floating_point() or tensor.is_complex()
            order = layout if has_order(layout, tensor.ndim) else None
            moved: Tensor = tensor.to(device=device, dtype=dtype if inexact else None, memory_format=order)
            return moved

        return self._apply(move)

    def to_empty(self, *, device: Any, recurse: bool = True) -> Self:
        """Give every parameter and buffer new memory on a device, without values, and return the module."""
        return self._apply(lambda t: ops.empty_like(t, device=device), recurse)

    def type(self, dst_type: Any) -> Self:
        """Cast every parameter and buffer to ``dst_type``, integer ones too."""
        return self._apply(lambda t: t.to(dtype=to_dtype(dst_type)))

    def _cast(self, dtype: DType) -> Self:
        return self._apply(lambda t: t.to(dtype=dtype) if t.is_floating_point() else t)

    def float(self) -> Self:
        """Cast floating-point parameters and buffers to float32."""
        return self._cast(float32)

    def double(self) -> Self:
        """Cast floating-point parameters and buffers to float64."""
        return self._cast(float64)

    def half(self) -> Self:
        """Cast floating-point parameters and buffers to float16."""
        return self._cast(float16)

    def bfloat16(self) -> Self:
        """Cast floating-point parameters and buffers to bfloat16."""
        return self._cast(bfloat16)

    def cpu(self) -> Self:
        """Move to the CPU."""
        return self.to(device="cpu")

    def cuda(self, device: Any = None) -> Self:
        """Move to a CUDA device; an error names what is missing where there is none."""
        return self.to(device="cuda" if device is None else device)

    # ---- state -----------------------------------------------------------------------

    get_extra_state = state.get_extra_state
    set_extra_state = state.set_extra_state

    def state_dict(self, *, destination: Any = None, prefix: str = "", keep_vars: bool = False) -> Any:
        """Return every parameter and persistent buffer by its path, detached but on the same memory.

        Args:
            destination: the dictionary to write into (default: a new one). prefix: put before every name.
            keep_vars: give the parameters themselves, not detached.

        Example:
            >>> import wengert as wg
            >>> list(wg.nn.Sequential(wg.nn.Linear(2, 1)).state_dict())
            ['0.weight', '0.bias']
        """
        return state.collect(self, destination, prefix, keep_vars)

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> state.IncompatibleKeys:
        """Copy values from a state dictionary into parameters and buffers of the same names.

        Args:
            strict: refuse missing and unexpected names. assign: take the given tensors instead of copying from
                them; tied parameters stay tied.

        Returns:
            ``(missing_keys, unexpected_keys)``.

        Raises:
            RuntimeError: listing every missing and unexpected name (if strict) and every shape that does not fit.
        """
        return state.load(self, state_dict, strict, assign)

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        """Write the module's own state; a subclass may override it to change the layout."""
        state.collect_own(self, destination, prefix, keep_vars)

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, local_metadata: dict[str, Any], strict: bool,
        missing_keys: list[str], unexpected_keys: list[str], error_msgs: list[str],
    ) -> None:  # fmt: skip
        """Take the module's own state; a subclass may override it to read an older layout."""
        state.load_own(self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)

    # ---- hooks -----------------------------------------------------------------------

    def _table(self) -> ModuleHooks:
        if self._hooks is None:
            self._hooks = ModuleHooks()
        return self._hooks

    def register_forward_pre_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """Call ``hook(module, args)`` before forward; it may return the new arguments (a tuple, or one value).

        With ``with_kwargs`` it is called ``hook(module, args, kwargs)`` and may return ``(args, kwargs)``.
        """
        return add_hook(self._table().forward_pre, ForwardHook(hook, with_kwargs), prepend)

    def register_forward_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False, always_call: bool = False
    ) -> RemovableHandle:
        """Call ``hook(module, args, output)`` after forward; it may return a new output.

        With ``with_kwargs`` it is called ``hook(module, args, kwargs, output)``; with ``always_call`` also after an
        error in forward, with the output None.
        """
        return add_hook(self._table().forward, ForwardHook(hook, with_kwargs, always_call), prepend)

    def register_full_backward_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call ``hook(module, grad_output)`` when the gradients of the outputs are there; it may return new ones."""
        return add_hook(self._table().backward_pre, hook, prepend)

    def register_full_backward_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call ``hook(module, grad_input, grad_output)`` when the gradients of the inputs are there.

        Both are tuples, None where no gradient flows: ``grad_input`` has an entry for every positional argument,
        then for every keyword argument that holds a tensor. The hook may return a new ``grad_input``. If no input
        requires a gradient it is called when the gradients of the outputs are there.
        """
        return add_hook(self._table().backward, hook, prepend)

    def register_state_dict_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call ``hook(module, prefix, keep_vars)`` before the module writes its state."""
        return add_hook(self._table().state_pre, hook)

    def register_state_dict_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call ``hook(module, state_dict, prefix, local_metadata)``, which may edit, after the module wrote."""
        return add_hook(self._table().state_post, hook)

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call ``hook(module, *arguments of _load_from_state_dict)`` before the module loads its own state."""
        return add_hook(self._table().load_pre, hook)

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call ``hook(module, incompatible_keys)`` after loading; it may edit the two lists in place."""
        return add_hook(self._table().load_post, hook)

    # ---- text ------------------------------------------------------------------------

    def _get_name(self) -> str:
        return type(self).__name__

    def extra_repr(self) -> str:
        """Return what ``repr`` shows between the parentheses; a subclass may override it."""
        return ", ".join(f"{name}={getattr(self, name)}" for name in self._shown)

    def __repr__(self) -> str:
        extra = self.extra_repr().split("\n") if self.extra_repr() else []
        children = [f"({name}): {_indented(repr(self.__dict__[name]))}" for name in self._child_names]
        if len(extra) == 1 and not children:
            return f"{self._get_name()}({extra[0]})"
        if not extra and not children:
            return f"{self._get_name()}()"
        return f"{self._get_name()}(\n  " + "\n  ".join(extra + children) + "\n)"


class Calls:
    """The calls of a module as they are without :meth:`Module.compile`: what that compiles.

    An object, and no function: what holds it can be copied and pickled together with the module.
    """

    def __init__(self, module: Module) -> None:
        self.module, self.__qualname__ = module, type(module).__qualname__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        captures = thread.state.captures
        if captures is not None:
            captures.module(self.module)
        try:
            return call_with_hooks(self.module, args, kwargs)
        except AttributeError as error:
            _refuse_no_tensor(self.module, args, error)
            raise


def _indented(text: str) -> str:
    return text.replace("\n", "\n  ")


def _refuse_no_tensor(module: Module, args: tuple[Any, ...], error: AttributeError) -> None:
    """Raise TypeError if a layer of this package failed because it took something else for a tensor."""
    taken = error.obj
    given = any(taken is arg for arg in args) and not isinstance(taken, Tensor)
    if given and hasattr(Tensor, error.name or "") and type(module).__module__.startswith("wengert."):
        raise TypeError(f"{type(module).__name__}(): the input must be a tensor, got {taken!r}") from error


def _set_data(parameter: Any, value: Tensor) -> None:
    if value is not parameter:
        parameter.data = value


def _destination(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, DType | None, Any]:
    """Read the arguments of ``Module.to`` as (device, dtype, memory format)."""
    device, dtype = kwargs.pop("device", None), kwargs.pop("dtype", None)
    kwargs.pop("non_blocking", None)  # copies on the CPU are always done when `to` returns
    layout = kwargs.pop("memory_format", None)
    if not (has_order(layout, 4) or has_order(layout, 5)):
        memory_order("to", layout, 4)  # refuses what is no memory format
    args = (*args, kwargs.pop("tensor", None))
    if kwargs:
        raise TypeError(f"to() got unexpected arguments: {', '.join(kwargs)}; it takes device, dtype or a tensor")
    for value in args:
        if isinstance(value, Tensor):
            device, dtype = value.device, value.dtype
        elif isinstance(value, DType):
            dtype = value
        elif not isinstance(value, bool) and value is not None:
            device = value
    if dtype is not None:
        dtype = to_dtype(dtype)
        if not (dtype.is_floating_point or dtype.is_complex):
            raise TypeError(f"to() of a module takes a floating-point or complex dtype, got {dtype}")
    return device, dtype, layout
