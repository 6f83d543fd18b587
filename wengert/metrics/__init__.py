"""How good predictions are, over many batches: ``update`` with each batch, ``compute``, ``reset``, ``merge``.

Scores of classes have their classes in dimension 1, as those of ``cross_entropy``. Gradients are not looked at.
"""

from typing import Any

from wengert.core.registry import MissingNameError
from wengert.metrics.classification import F1, Accuracy, ConfusionMatrix, Precision, Recall
from wengert.metrics.metric import Metric
from wengert.metrics.ranking import AUROC
from wengert.metrics.running import Mean, Perplexity

__all__ = ["AUROC", "F1", "Accuracy", "ConfusionMatrix", "Mean", "Metric", "Perplexity", "Precision", "Recall"]


def __getattr__(name: str) -> Any:
    raise MissingNameError("module 'wengert.metrics'", name, __all__)
