"""Optimisers and learning-rate schedules: the names, options and trajectories are PyTorch's."""

from typing import Any

from wengert.core.registry import MissingNameError
from wengert.optim import lr_scheduler, multitask, swa_utils
from wengert.optim.accumulation import accumulate
from wengert.optim.adam import Adam, Adamax, AdamW, NAdam, RAdam
from wengert.optim.adaptive import Adadelta, Adagrad, RMSprop, Rprop
from wengert.optim.lbfgs import LBFGS
from wengert.optim.lion import Lion
from wengert.optim.matrix import Adafactor, Muon
from wengert.optim.noise_scale import GradientNoiseScale
from wengert.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from wengert.optim.sgd import ASGD, SGD
from wengert.optim.sparse_adam import SparseAdam

__all__ = [
    "ASGD",
    "LBFGS",
    "SGD",
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "GradientNoiseScale",
    "Lion",
    "Muon",
    "NAdam",
    "Optimizer",
    "RAdam",
    "RMSprop",
    "Rprop",
    "SparseAdam",
    "accumulate",
    "lr_scheduler",
    "multitask",
    "register_optimizer_step_post_hook",
    "register_optimizer_step_pre_hook",
    "swa_utils",
]


def __getattr__(name: str) -> Any:
    raise MissingNameError("module 'wengert.optim'", name, __all__)
