"""Checkpointing a chain of functions segment by segment."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from wengert.array.shape import as_int
from wengert.transforms.checkpoint import checkpoint
from wengert.transforms.control_check import check_callable

__all__ = ["checkpoint_sequential"]


def checkpoint_sequential(
    functions: Iterable[Callable[[Any], Any]],
    segments: int,
    input: Any,  # noqa: A002 - PyTorch's name
    use_reentrant: bool | None = False,
    **kwargs: Any,
) -> Any:
    """Run functions one after the other, keeping for backward what goes into each segment of them, and no more.

    The last segment keeps everything: it is the first that backward needs. With √n segments of n functions alike, memory
    grows as √n for one more forward (Chen et al., arXiv:1604.06174, section 3).

    Args:
        functions: an :class:`wengert.nn.Sequential`, or functions of one argument.
        segments: how many parts to cut the chain into.
        input: the argument of the first.
        use_reentrant, kwargs: as :func:`checkpoint` takes them (``preserve_rng_state``, ``context_fn`` …).

    Raises:
        TypeError: for something else than functions, or a number of segments that is no int.
        ValueError: if there are fewer functions than segments, or for an unknown option.

    Example:
        >>> import wengert as wg
        >>> from wengert.utils.checkpoint import checkpoint_sequential
        >>> net = wg.nn.Sequential(*[wg.nn.Linear(3, 3) for _ in range(4)])
        >>> checkpoint_sequential(net, 2, wg.ones(2, 3)).shape
        wengert.Size([2, 3])
    """
    if not isinstance(functions, Iterable):
        raise TypeError(f"functions must be a Sequential or a list of functions, got {type(functions).__name__}")
    chain = list(functions)
    for i, function in enumerate(chain):
        check_callable("checkpoint_sequential", **{f"functions[{i}]": function})
    segments = as_int(segments, "segments")
    if not 1 <= segments <= len(chain):
        raise ValueError(f"segments must be from 1 to the number of functions, {len(chain)}; got {segments}")
    unknown = kwargs.keys() - {"preserve_rng_state", "context_fn", "determinism_check", "debug", "early_stop"}
    if unknown:
        raise ValueError(f"checkpoint_sequential() has no option {', '.join(map(repr, sorted(unknown)))}")
    size = len(chain) // segments
    for start in range(0, size * (segments - 1), size):
        input = checkpoint(  # noqa: A001 - PyTorch's name
            _Chain(chain[start : start + size]), input, use_reentrant=use_reentrant, **kwargs
        )
    return _Chain(chain[size * (segments - 1) :])(input)


class _Chain:
    """Several functions as one."""

    def __init__(self, functions: Sequence[Callable[[Any], Any]]) -> None:
        self.functions = functions
        self.__qualname__ = f"a chain of {len(functions)} functions"

    def __call__(self, value: Any) -> Any:
        for function in self.functions:
            value = function(value)
        return value
