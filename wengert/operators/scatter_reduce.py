"""Scatters that combine what meets: sum, product, mean, largest, smallest."""

from collections.abc import Callable
from typing import Any

import numpy as np

from wengert.core.apply import as_tensor
from wengert.core.arguments import Anything, Axis, Integer
from wengert.core.families import composite, operator
from wengert.core.methods import attach
from wengert.core.operator import Spec
from wengert.core.registry import ops
from wengert.core.state import thread
from wengert.errors import DTypeError, ShapeError
