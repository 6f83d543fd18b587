"""Policies of the scheduler: which of the ready tasks goes first.

A policy of one's own is a subclass of :class:`Policy`::

    class LargestFirst(Policy):
        name = "largest first"

        def urgencies(self, problem):
            return problem.shortest

    schedule(tasks, resources, LargestFirst())
"""

from collections.abc import Sequence
from typing import ClassVar

from wengert.runtime.tasks import Problem

__all__ = ["Policy", "Priority", "Ready", "Topological", "policy_of"]


class Policy:
    """How ready tasks are chosen. Values never depend on it, only time and memory do.

    Attributes:
        name: for reports. one_by_one: whether a task begins only when all others that have begun have ended.
    """

    name: ClassVar[str] = "policy"
    one_by_one: ClassVar[bool] = False

    def urgencies(self, problem: Problem) -> Sequence[float]:
        """Return a number for each task: the greatest of the ready ones goes first; of equal ones, the first given."""
        raise NotImplementedError(f"{type(self).__name__} must say how urgent tasks are: define urgencies(problem)")


class Topological(Policy):
    """One task at a time, in the order given (or the nearest to it that dependencies allow)."""

    name = "topological"
    one_by_one = True

    def urgencies(self, problem: Problem) -> Sequence[float]:
        """Return the places in the order, those in front greatest."""
        found = [0.0] * len(problem.order)
        for place, task in enumerate(problem.order):
            found[task] = -float(place)
        return found


class Ready(Policy):
    """Any free resource takes any ready task: the first given."""

    name = "ready"

    def urgencies(self, problem: Problem) -> Sequence[float]:
        """Return zeros."""
        return [0.0] * len(problem.tasks)


class Priority(Policy):
    """The task with the longest remaining path first: what the end waits for is not kept waiting.

    The list scheduling of T. C. Hu, "Parallel sequencing and assembly line problems", Operations Research 9 (1961), with costs:
    critical-path scheduling.
    """

    name = "priority"

    def urgencies(self, problem: Problem) -> Sequence[float]:
        """Return the lengths of the longest paths from each task's beginning, in seconds."""
        return problem.remaining()


_POLICIES = {policy.name: policy for policy in (Topological, Ready, Priority)}


def policy_of(policy: str | Policy) -> Policy:
    """Return a policy by its name.

    Raises:
        ValueError: if there is none of this name. TypeError: if it is neither a name nor a policy.
    """
    if isinstance(policy, Policy):
        return policy
    if not isinstance(policy, str):
        raise TypeError(f"policy must be a name or a Policy, got {type(policy).__name__}")
    if policy not in _POLICIES:
        raise ValueError(
            f"there is no policy {policy!r}; choose from {', '.join(_POLICIES)}, or give a Policy of your own"
        )
    return _POLICIES[policy]()
