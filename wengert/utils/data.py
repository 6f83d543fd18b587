"""``wengert.utils.data``: the names of :mod:`wengert.data`, at the place where PyTorch has them."""

from wengert.data import *  # noqa: F403
from wengert.data import __all__ as __all__
from wengert.data import __getattr__ as __getattr__
