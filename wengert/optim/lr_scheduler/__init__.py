"""Learning-rate schedules: the names, options and values are PyTorch's."""

from typing import Any

from wengert.core.registry import MissingNameError
from wengert.optim.lr_scheduler.base import LRScheduler
from wengert.optim.lr_scheduler.composed import ChainedScheduler, SequentialLR
from wengert.optim.lr_scheduler.cyclic import CyclicLR, OneCycleLR
from wengert.optim.lr_scheduler.decay import (
    ConstantLR,
    CosineAnnealingLR,
    CosineAnnealingWarmRestarts,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    MultiplicativeLR,
    MultiStepLR,
    PolynomialLR,
    StepLR,
)
from wengert.optim.lr_scheduler.plateau import ReduceLROnPlateau

__all__ = [
    "ChainedScheduler",
    "ConstantLR",
    "CosineAnnealingLR",
    "CosineAnnealingWarmRestarts",
    "CyclicLR",
    "ExponentialLR",
    "LRScheduler",
    "LambdaLR",
    "LinearLR",
    "MultiStepLR",
    "MultiplicativeLR",
    "OneCycleLR",
    "PolynomialLR",
    "ReduceLROnPlateau",
    "SequentialLR",
    "StepLR",
]


def __getattr__(name: str) -> Any:
    raise MissingNameError("module 'wengert.optim.lr_scheduler'", name, __all__)
