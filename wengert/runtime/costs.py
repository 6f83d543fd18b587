"""What the work of a plan costs: seconds on one thread, and how far more threads help; what schedules are made from.

Kernels come near the roofs of a machine (:mod:`wengert.runtime.roof`), not up to them. What part of a roof they reach is a
constant here for each kind of kernel, measured once; how high the roofs are is measured on each machine.
"""

import math
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from wengert.core.operator import Op
from wengert.graph.ir import Node
from wengert.graph.operations import Formula, Fused
from wengert.passes.traffic import bytes_of, flops_of, traffic_of
from wengert.runtime.machine import Machine

__all__ = ["Cost", "cost"]

# Parts of the peak of multiply-adds that kernels reach: products of matrices, convolutions, attention; operations on elements,
# with divisions, roots, comparisons and conversions among them; and those in the kernel of a product, behind it.
PRODUCTS: Final = {
    "matmul": 0.8, "linear": 0.8, "rows_product": 0.75, "addmm": 0.8, "baddbmm": 0.8, "conv": 0.7, "conv_input": 0.7,
    "conv_weight": 0.7, "fused_attention": 0.45, "fused_attention_backward": 0.45,
}  # fmt: skip
ELEMENTS: Final = 0.2
BEHIND: Final = 0.05
MOVED: Final = 0.5  # part of the bandwidth
LAUNCH: Final = 0.1e-6  # seconds to begin and end a task
SHARED: Final = 0.8  # what a thread contributes to a task that another one has begun
UPDATE: Final = 4, 10  # operations on an element in an optimiser's formula: at least, and for each moment
LOGARITHM: Final = 60  # operations that an exponential or logarithm of an element takes, with what is around it
LOSSES: Final = frozenset(
    {"softmax", "log_softmax", "class_loss", "class_loss_backward", "softmax_backward", "logsumexp"}
)


class Cost(NamedTuple):
    """What a piece of work takes.

    Attributes:
        seconds: of one thread that has the machine to itself. threads: how many may share it.
        efficiency: what each of them but the first contributes, as far as the number of chunks goes, and what it takes to hand
            them out allows.
        crowded: what is left of a thread's speed while all threads work.
    """

    seconds: float
    threads: int
    efficiency: float
    crowded: float


def cost(node: Node, chunks: Sequence[int], machine: Machine) -> Cost:
    """Return what the tasks of a node take.

    Args:
        chunks: how many chunks each of them has; a view, which has no tasks, costs nothing.
    """
    if not chunks:
        return Cost(0.0, 1, 1.0, 1.0)
    moved, threads = traffic_of([node]) or sum(map(bytes_of, (*node.inputs, *node.results))), machine.threads
    flops, flops_all, bandwidth, bandwidth_all = _roofs(node, moved, machine)
    computing, moving = _operations(node) / flops, moved / (MOVED * bandwidth)
    share = computing / (computing + moving) if computing + moving else 0.0
    crowded = share * _left(flops, flops_all, threads) + (1 - share) * _left(bandwidth, bandwidth_all, threads)
    speed, seconds = _speed(node, chunks, threads), max(computing, moving) + LAUNCH * len(chunks)
    if speed <= 1:
        return Cost(seconds, 1, 1.0, crowded)
    sharing, joined = min(threads, max(chunks)), sum(number > 1 for number in chunks)
    together = seconds / (1 + SHARED * (speed - 1)) + joined * max(0.0, machine.parallel - machine.call)
    return Cost(seconds, sharing, max(0.0, seconds / together - 1) / (sharing - 1), crowded)


def _speed(node: Node, chunks: Sequence[int], threads: int) -> float:
    """Return how much faster so many threads are at tasks of so many chunks, if chunks are equal.

    Of a product the last task counts, to which the others bring the operands.
    """
    some = chunks[-1:] if _is_product(node) else chunks
    return sum(some) / sum(math.ceil(number / threads) for number in some)


def _is_product(node: Node) -> bool:
    op = node.op
    return op.name in PRODUCTS or (isinstance(op, Fused) and op.kind == "product")


def _left(one: float, together: float, threads: int) -> float:
    """Return what is left of a thread's rate when all work, from what one reaches alone and what all reach together."""
    return min(1.0, max(1 / threads, together / (threads * one)))


def _roofs(node: Node, moved: int, machine: Machine) -> tuple[float, float, float, float]:
    """Return the operations, and the bytes, per second that one thread and all threads reach."""
    wide = any(v.dtype.itemsize >= 8 and v.dtype.numpy.kind in "fc" for v in node.results)
    peaks = (machine.float64, machine.float64_all) if wide else (machine.float32, machine.float32_all)
    for size, rate in ((machine.l1, machine.copy_l1), (machine.l2, machine.copy_l2), (machine.l3, machine.copy_l3)):
        if moved <= size:
            return *peaks, rate, rate * machine.threads
    return *peaks, machine.copy_memory, machine.copy_all


def _operations(node: Node) -> float:
    """Return the operations of a node, as many multiply-adds would be that take as long."""
    op: Any = node.op
    if isinstance(op, Fused):
        share = ELEMENTS / BEHIND if op.kind == "product" else 1.0
        return sum(_operations(inner) * (1.0 if _is_product(inner) else share) for inner in op.body.nodes)
    if isinstance(op, Formula):
        count = math.prod(node.results[0].shape)
        return count * (UPDATE[0] + UPDATE[1] * op.moments) / ELEMENTS
    if not isinstance(op, Op):
        return 0.0
    if op.name in LOSSES:
        return LOGARITHM * max(math.prod(v.shape) for v in (*node.inputs, *node.results)) / ELEMENTS
    return flops_of(node) / PRODUCTS.get(op.name, ELEMENTS)
