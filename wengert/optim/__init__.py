"""Optimisers and learning-rate schedules: the names, options and trajectories are PyTorch's."""

from typing import Any

from wengert.core.registry import missing_message
from wengert.optim import lr_scheduler
from wengert.optim.adam import Adam, Adamax, AdamW, NAdam, RAdam
from wengert.optim.adaptive import Adadelta, Adagrad, RMSprop, Rprop
from wengert.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from wengert.optim.sgd import ASGD, SGD

__all__ = [
    "ASGD",
    "SGD",
    "Adadelta",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "NAdam",
    "Optimizer",
    "RAdam",
    "RMSprop",
    "Rprop",
    "lr_scheduler",
    "register_optimizer_step_post_hook",
    "register_optimizer_step_pre_hook",
]


def __getattr__(name: str) -> Any:
    raise AttributeError(missing_message("module 'wengert.optim'", name, __all__), name=name)
