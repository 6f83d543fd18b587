"""``functional_call`` under its older name."""

from typing import Any

from wengert.func import functional_call as called_with

__all__ = ["functional_call"]


def functional_call(
    module: Any, parameters_and_buffers: Any, args: Any = None, kwargs: Any = None, *, tie_weights: bool = True,
    strict: bool = False,
) -> Any:  # fmt: skip
    """Call a module with other parameters and buffers; :func:`wengert.func.functional_call`, with its names of old.

    Example:
        >>> import wengert as wg
        >>> layer = wg.nn.Linear(1, 1)
        >>> given = {"weight": wg.tensor([[2.0]]), "bias": wg.zeros(1)}
        >>> wg.nn.utils.stateless.functional_call(layer, given, (wg.tensor([[3.0]]),))
        tensor([[6.]])
    """
    return called_with(module, parameters_and_buffers, args, kwargs, tie_weights=tie_weights, strict=strict)
