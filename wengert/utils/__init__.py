"""``wengert.utils``: PyTorch's place for activation checkpointing, loading data and handles of hooks.

What a training loop shows (:class:`Progress`), and when it stops (:class:`EarlyStopping`), are here too.
"""

from wengert.utils import checkpoint, data, hooks
from wengert.utils.early_stopping import EarlyStopping
from wengert.utils.progress import Progress

__all__ = ["EarlyStopping", "Progress", "checkpoint", "data", "hooks"]
