"""``wengert.utils``: PyTorch's place for activation checkpointing, loading data and handles of hooks."""

from wengert.utils import checkpoint, data, hooks

__all__ = ["checkpoint", "data", "hooks"]
