"""The front door: ``wengert.compile`` and what tells of compiled functions."""

import functools
from collections.abc import Callable
from typing import Any

from wengert.compiling.function import Compiled
from wengert.core.structure import structure
from wengert.runtime.budget import budget_of
from wengert.runtime.policies import Policy, policy_of

__all__ = ["compile"]

BACKENDS = {"native": "native", "inductor": "native", "reference": "reference", "aot_eager": "reference"}


def compile(  # noqa: A001 - PyTorch's name
    model: Any = None, *, fullgraph: bool = False, dynamic: bool | None = None, backend: str = "native",
    mode: str | None = None, options: dict[str, Any] | None = None, disable: bool = False, verify: str | None = None,
    memory_budget: float | str | None = None, policy: str | Policy = "priority", background: bool = False,
    frozen: bool = False,
) -> Any:  # fmt: skip
    """Return a function (or module) that is captured when it is first called, and then run as one native program.

    What is captured is everything: forward, ``backward()``, clipping, the optimiser's and the scheduler's step, random
    numbers, running statistics. Tensors that the function holds are read at each call, and those it writes are written.
    Python's own effects (printing, appending to a list) happen when it is captured, and not again.

    A program is made for shapes, dtypes and options of its arguments, for modules in one mode, and for the way that the
    function took where it asked for values; another one is made when these change.

    Args:
        model: the function, method or module; without it, a decorator is returned.
        fullgraph: raise where something cannot be captured, instead of running the function as it is with one warning.
        backend: "native" (PyTorch's "inductor" means it too), or "reference": NumPy, kernel by kernel, for debugging.
        dynamic, mode, options: accepted for PyTorch's sake; kernels are made for structures and serve all shapes.
            ``options={"freezing": True}`` means ``frozen``.
        disable: return the function as it is.
        verify: "first_call": run the function itself as well at the first run of each program, and compare: see
            :mod:`wengert.compiling.verify`. "always": at each run, for debugging.
        memory_budget: the most that a call may take, in bytes, as text such as "200M", or as a fraction of what it takes
            without; values are computed again instead of kept: see :mod:`wengert.runtime.budget`.
        policy: how nodes share the threads: "topological": one after the other, each on all threads; "ready": beside one
            another, in any order, where a simulation says that it is faster; "priority": likewise, those that most waits for
            first. Values do not depend on it. See :mod:`wengert.runtime.overlap`.
        background: make native code beside the first calls, which run the function as it is until the code is there.
        frozen: for inference: take tensors that the function holds and only reads for constants. What is made of weights alone
            is then made once, such as the layout that products read, which takes as much memory again for each form of the
            arguments. A write by an operator, to ``.data`` as well, is seen, and makes another program; one through NumPy's
            view of the memory is not. Where results have a history nothing is frozen: call the function under ``no_grad()``
            or ``inference_mode()``.

    Raises:
        TypeError: if ``model`` cannot be called. ValueError: for a backend, a manner of verifying or a policy that there
            is not, a budget that is none; and at the first call, for a budget that cannot be met, with the least that can.

    Example:
        >>> import wengert as wg
        >>> @wg.compile
        ... def f(x):
        ...     return (x * x).sum()
        >>> f(wg.tensor([1.0, 2.0]))
        tensor(5.)
    """
    if backend not in BACKENDS and backend != "eager":
        raise ValueError(f"compile(): there is no backend {backend!r}; there are native, reference and eager")
    if verify not in (None, "first_call", "always"):
        raise ValueError(f'compile(): verify is "first_call", "always" or None, got {verify!r}')
    budget, _ = budget_of(memory_budget), policy_of(policy)
    if budget is not None and BACKENDS.get(backend) == "reference":
        raise ValueError(f"compile(): a memory_budget needs the native backend, {backend} plans no memory")
    if model is None:
        return functools.partial(
            compile, fullgraph=fullgraph, dynamic=dynamic, backend=backend, mode=mode, options=options,
            disable=disable, verify=verify, memory_budget=memory_budget, policy=policy, background=background,
            frozen=frozen,
        )  # fmt: skip
    if not callable(model):
        raise TypeError(f"compile() takes a function or a module, got {type(model).__name__}")
    if disable or backend == "eager":
        return model
    chosen: dict[str, Any] = {
        "fullgraph": fullgraph, "backend": BACKENDS[backend], "verify": verify, "budget": budget, "policy": policy,
        "background": background, "frozen": frozen or bool((options or {}).get("freezing")),
    }  # fmt: skip
    if hasattr(type(model), "forward") and hasattr(type(model), "named_parameters"):
        return ModuleCalls.of_module(model, chosen)
    return Compiled(model, **chosen)


class ModuleCalls(Compiled):
    """The calls of a module, as a compiled function."""

    @classmethod
    def of_module(cls, module: Any, options: dict[str, Any]) -> Any:
        """Return the module with its calls compiled: what a pickled or copied one becomes."""
        return structure.compiled(module, cls(_calling(module), **options))


def _calling(module: Any) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        return module(*args, **kwargs)

    call.__qualname__ = type(module).__qualname__
    return call
