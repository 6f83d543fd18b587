"""How long kernels take at best on this machine: what they move over its bandwidth, or what they compute over its peak.

The roofline of S. Williams, A. Waterman, D. Patterson, "Roofline: an insightful visual performance model for multicore
architectures", Communications of the ACM 52 (2009), with the bandwidth of the level of the memory that the operands fit in.
"""

from wengert.graph.ir import Node
from wengert.passes.traffic import flops_of, kernels_of, traffic_of
from wengert.runtime.machine import Machine

__all__ = ["roof"]


def roof(node: Node, machine: Machine) -> float:
    """Return the seconds that a node takes at best: on one thread, or on all with what it takes to hand it to them.

    Example:
        >>> import wengert as wg
        >>> from wengert.compiling.trace import trace
        >>> from wengert.runtime.machine import measured
        >>> small, large = (trace(lambda x: x + 1)(wg.ones(n)).graph.nodes[0] for n in (1000, 1_000_000))
        >>> roof(small, measured()) < roof(large, measured())
        True
    """
    if not kernels_of(node):
        return 0.0
    moved, computed = traffic_of([node]), flops_of(node)
    flops, flops_all = _peaks(node, machine)
    bandwidth, bandwidth_all = _bandwidths(moved, machine)
    alone = max(moved / bandwidth, computed / flops)
    shared = max(moved / bandwidth_all, computed / flops_all) + machine.parallel
    return min(alone, shared) if machine.threads > 1 else alone


def _peaks(node: Node, machine: Machine) -> tuple[float, float]:
    """Return the flops of one thread and of all."""
    if any(value.dtype.itemsize >= 8 and value.dtype.numpy.kind in "fc" for value in node.results):
        return machine.float64, machine.float64_all
    return machine.float32, machine.float32_all


def _bandwidths(moved: int, machine: Machine) -> tuple[float, float]:
    """Return the bytes that one thread, and all of them, copy per second where so many bytes fit."""
    for size, rate in ((machine.l1, machine.copy_l1), (machine.l2, machine.copy_l2), (machine.l3, machine.copy_l3)):
        if moved <= size:
            return rate, rate * machine.threads
    return machine.copy_memory, machine.copy_all
