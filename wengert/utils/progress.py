"""What a training loop shows and writes while it runs."""

import sys
from collections.abc import Mapping
from os import PathLike, fspath
from typing import Any, Self, TextIO

from wengert.core.tensor import Tensor
from wengert.extras import MissingExtraError, require

__all__ = ["Progress"]


class Progress:
    """A bar with the loss, items per second and the time that is left; and the same numbers as TensorBoard events.

    Args:
        total: how many items there are, for the time left: ``epochs * len(dataset)``. None if that is not known.
        bar: whether to show the bar, which needs tqdm. file: where (default: standard error).
        log_dir: a folder for the events, which need tensorboardX or tensorboard; None writes none.
        description: shown before the bar.
        start: how many steps were made before, and ``items`` of how many items: where training goes on.

    Attributes:
        steps, items: what was done so far.

    Raises:
        MissingExtraError: if a package that is needed is not installed; ``pip install 'wengert[progress]'`` brings both.
        ValueError: for a total that is negative, or a step of no item.

    Example:
        >>> import io
        >>> import wengert as wg
        >>> screen = io.StringIO()
        >>> with wg.utils.Progress(total=128, file=screen) as progress:
        ...     for loss in (0.5, 0.25):
        ...         progress.step(64, loss=loss)
        >>> "128/128" in screen.getvalue(), "loss=0.25" in screen.getvalue()
        (True, True)
    """

    def __init__(
        self, total: int | None = None, *, bar: bool = True, file: TextIO | None = None,
        log_dir: str | PathLike[str] | None = None, description: str = "", start: int = 0, items: int = 0,
    ) -> None:  # fmt: skip
        if total is not None and total < 0:
            raise ValueError(f"total must not be negative, got {total}")
        self.steps, self.items = start, items
        self._shown: dict[str, float] = {}
        self._writer = None if log_dir is None else _writer(fspath(log_dir))
        self._bar: Any = None
        if bar:
            self._bar = require("tqdm", "progress").tqdm(
                total=total, initial=items, desc=description or None, unit=" items", unit_scale=True,
                file=file or sys.stderr, dynamic_ncols=True,
            )  # fmt: skip

    def step(self, items: int = 1, **numbers: Any) -> None:
        """Say that a step with this many items was made; show and write its numbers (``loss=loss``, of one element)."""
        if items < 1:
            raise ValueError(f"a step has at least one item, got {items}")
        self.steps += 1
        self.items += items
        self._write(numbers)
        if self._bar is not None:
            self._bar.update(items)

    def log(self, **numbers: Any) -> None:
        """Show and write numbers beside those of the steps, such as ``accuracy`` on the validation set, at this step."""
        self._write(numbers)
        if self._bar is not None:
            self._bar.refresh()

    def close(self) -> None:
        """End the bar and the file of events. Leaving the context does that."""
        if self._bar is not None:
            self._bar.close()
        if self._writer is not None:
            self._writer.close()
        self._bar = self._writer = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _write(self, numbers: Mapping[str, Any]) -> None:
        values = {name: _number(name, value) for name, value in numbers.items()}
        self._shown |= values
        if self._bar is not None and values:
            texts = {name: f"{value:.4g}" for name, value in self._shown.items()}
            self._bar.set_postfix(texts, refresh=False)
        if self._writer is not None:
            for name, value in values.items():
                self._writer.add_scalar(name, value, self.steps)


def _number(name: str, value: Any) -> float:
    if isinstance(value, Tensor):
        if value.numel() != 1:
            raise ValueError(f"'{name}' must be one number, got a tensor of shape {tuple(value.shape)}")
        value = value.item()
    return float(value)


def _writer(folder: str) -> Any:
    """A writer of events: tensorboardX's, or else TensorBoard's own."""
    try:
        return require("tensorboardX", "progress").SummaryWriter(folder)
    except MissingExtraError as missing:
        try:
            return require("tensorboard.summary", "progress").Writer(folder)
        except MissingExtraError:
            raise missing from None
