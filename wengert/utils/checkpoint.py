"""``wengert.utils.checkpoint``: activation checkpointing, under PyTorch's names."""

from wengert.transforms.checkpoint import (
    checkpoint,
    is_recomputing,
    noop_context_fn,
    set_checkpoint_debug_enabled,
    set_checkpoint_early_stop,
)
from wengert.transforms.checkpoint_policy import (
    CheckpointPolicy,
    SelectiveCheckpointContext,
    create_selective_checkpoint_contexts,
)
from wengert.transforms.checkpoint_report import CheckpointError
from wengert.transforms.checkpoint_sequential import checkpoint_sequential

__all__ = [
    "CheckpointError", "CheckpointPolicy", "SelectiveCheckpointContext", "checkpoint", "checkpoint_sequential",
    "create_selective_checkpoint_contexts", "is_recomputing", "noop_context_fn", "set_checkpoint_debug_enabled",
    "set_checkpoint_early_stop",
]  # fmt: skip
