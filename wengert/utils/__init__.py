"""``wengert.utils``: PyTorch's place for loading data and for handles of hooks."""

from wengert.utils import data, hooks

__all__ = ["data", "hooks"]
