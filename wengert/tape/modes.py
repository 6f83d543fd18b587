"""Grad modes: contexts and decorators that switch recording on and off, restored whatever happens."""

import functools
import inspect
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from wengert.core.state import thread

__all__ = [
    "detect_anomaly", "enable_grad", "inference_mode", "is_anomaly_check_nan_enabled", "is_anomaly_enabled",
    "is_grad_enabled", "is_inference_mode_enabled", "no_grad", "set_detect_anomaly", "set_grad_enabled",
]  # fmt: skip


def is_grad_enabled() -> bool:
    """Return True if this thread records operators.

    Example:
        >>> import wengert as wg
        >>> with wg.no_grad():
        ...     wg.is_grad_enabled()
        False
    """
    return thread.state.grad


def is_inference_mode_enabled() -> bool:
    """Return True inside :class:`inference_mode`.

    Example:
        >>> import wengert as wg
        >>> with wg.inference_mode():
        ...     wg.is_inference_mode_enabled()
        True
    """
    return thread.state.inference


def is_anomaly_enabled() -> bool:
    """Return True if this thread's backward checks gradients for NaN."""
    return thread.state.anomaly


def is_anomaly_check_nan_enabled() -> bool:
    """Return True if anomaly mode takes a NaN as an error."""
    return thread.state.anomaly_nan


class Mode:
    """A change to the thread's state, as a context manager and as a decorator of functions and generators.

    Attributes:
        changes: the fields of :class:`~wengert.core.state.State` that it changes, and puts back.
    """

    changes: tuple[str, ...] = ("grad",)

    def __init__(self) -> None:
        self._before: list[tuple[Any, ...]] = []

    def current(self) -> tuple[Any, ...]:
        """Return what the fields that it changes hold now."""
        state = thread.state
        return tuple(getattr(state, name) for name in self.changes)

    def restore(self, values: tuple[Any, ...]) -> None:
        """Put back what :meth:`current` returned."""
        state = thread.state
        for name, value in zip(self.changes, values, strict=True):
            setattr(state, name, value)
        state.update()

    def change(self) -> None:
        """Make the change."""
        raise NotImplementedError

    def fresh(self) -> "Mode":
        """Return a mode that makes the same change."""
        return type(self)()

    def __enter__(self) -> Self:
        self._before.append(self.current())
        self.change()
        thread.state.update()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.restore(self._before.pop())

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        if inspect.isclass(function):
            raise TypeError(
                f"{type(self).__name__} decorates functions; decorate the methods of {function.__name__} instead"
            )
        if inspect.isgeneratorfunction(function):
            return self._wrap_generator(function)

        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with self.fresh():
                return function(*args, **kwargs)

        return wrapped

    def _wrap_generator(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Switch the mode on while the generator runs and off while its consumer does."""

        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            generator = function(*args, **kwargs)
            step: Callable[[], Any] = functools.partial(next, generator)
            try:
                while True:
                    with self.fresh():
                        value = step()
                    try:
                        sent = yield value
                        step = functools.partial(generator.send, sent)
                    except GeneratorExit:
                        with self.fresh():
                            generator.close()
                        raise
                    except BaseException as error:
                        step = functools.partial(generator.throw, error)
            except StopIteration as stop:
                return stop.value

        return wrapped


class Switch(Mode):
    """A mode that holds from the call on, and as a context or decorator only until the block or function ends."""

    def __init__(self) -> None:
        super().__init__()
        self._outer = self.current()
        self.change()

    def __enter__(self) -> Self:
        super().__enter__()
        self._before[-1] = self._outer
        return self

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        self.restore(self._outer)
        return super().__call__(function)


class no_grad(Mode):  # noqa: N801 - PyTorch's name
    """Do not record operators. Works as ``with no_grad():`` and as ``@no_grad()``.

    Example:
        >>> import wengert as wg
        >>> x = wg.tensor(2.0, requires_grad=True)
        >>> with wg.no_grad():
        ...     (x * x).requires_grad
        False
    """

    def __new__(cls, function: Callable[..., Any] | None = None) -> Any:
        mode = object.__new__(cls)
        if function is None:
            return mode
        mode.__init__()  # type: ignore[misc]
        return mode(function)

    def __init__(self, function: None = None) -> None:
        super().__init__()

    def change(self) -> None:
        """Switch recording off."""
        thread.state.grad = False


class enable_grad(no_grad):  # noqa: N801 - PyTorch's name
    """Record operators even inside :class:`no_grad`.

    Example:
        >>> import wengert as wg
        >>> x = wg.tensor(2.0, requires_grad=True)
        >>> with wg.no_grad(), wg.enable_grad():
        ...     (x * x).requires_grad
        True
    """

    def change(self) -> None:
        """Switch recording on."""
        thread.state.grad = not thread.state.inference


class set_grad_enabled(Switch):  # noqa: N801 - PyTorch's name
    """Switch recording on or off: at once when called, and until the end of the block when used as a context.

    Example:
        >>> import wengert as wg
        >>> x = wg.tensor(2.0, requires_grad=True)
        >>> training = False
        >>> with wg.set_grad_enabled(training):
        ...     (x * x).requires_grad
        False
    """

    def __init__(self, mode: bool) -> None:
        if not isinstance(mode, bool):
            raise TypeError(f"set_grad_enabled() takes True or False, got {mode!r}")
        self.mode = mode
        super().__init__()

    def change(self) -> None:
        """Switch recording to the mode."""
        thread.state.grad = self.mode and not thread.state.inference

    def fresh(self) -> "Mode":
        """Return the context for one call of the decorated function."""
        return enable_grad() if self.mode else no_grad()


class inference_mode(Mode):  # noqa: N801 - PyTorch's name
    """Do not record, count versions or track views; tensors made inside cannot enter recorded operators later.

    Args:
        mode: False leaves inference mode inside an outer one.

    Example:
        >>> import wengert as wg
        >>> x = wg.tensor(2.0, requires_grad=True)
        >>> with wg.inference_mode():
        ...     y = x * x
        >>> y.requires_grad, y.is_inference()
        (False, True)
    """

    changes = ("grad", "inference")

    def __init__(self, mode: bool = True) -> None:
        super().__init__()
        self.mode = mode

    def change(self) -> None:
        """Enter (or leave) inference mode."""
        thread.state.inference = self.mode
        thread.state.grad = not self.mode

    def fresh(self) -> "Mode":
        """Return a mode that makes the same change."""
        return inference_mode(self.mode)


class detect_anomaly(Mode):  # noqa: N801 - PyTorch's name
    """Check every gradient that backward computes for NaN and name the forward operator and user line that made it.

    Args:
        check_nan: whether a NaN is an error.

    Example:
        >>> import wengert as wg
        >>> x = wg.tensor(0.0, requires_grad=True)
        >>> with wg.autograd.detect_anomaly():
        ...     (x.sqrt() * 0).backward()
        Traceback (most recent call last):
        wengert.errors.AnomalyError: the derivative of sqrt() with respect to 'input' is NaN; it ran at ...
    """

    changes = ("anomaly", "anomaly_nan")

    def __init__(self, check_nan: bool = True) -> None:
        super().__init__()
        self.check_nan = check_nan

    def change(self) -> None:
        """Switch the check on."""
        thread.state.anomaly, thread.state.anomaly_nan = True, self.check_nan

    def fresh(self) -> "Mode":
        """Return a mode that makes the same change."""
        return detect_anomaly(self.check_nan)


class set_detect_anomaly(Switch):  # noqa: N801 - PyTorch's name
    """Switch anomaly detection on or off: at once when called, and until the end of the block when used as a context."""

    changes = ("anomaly", "anomaly_nan")

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        self.mode, self.check_nan = bool(mode), check_nan
        super().__init__()

    def change(self) -> None:
        """Switch the check to the mode."""
        thread.state.anomaly, thread.state.anomaly_nan = self.mode, self.check_nan

    def fresh(self) -> "Mode":
        """Return a mode that makes the same change."""
        return set_detect_anomaly(self.mode, self.check_nan)
