"""Rounds and ratios: frameworks in turn, A B C, B C A, C A B, so that a drift of the machine falls on all alike."""

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from benchmarks.machine import wait_until_quiet
from benchmarks.process import Process
from benchmarks.workload import Arrays, Case, Limits, Round, Runner, RunnerError, Workload

__all__ = ["Row", "compare", "worst_error"]

QUIET = 0.25  # with more cores than this busy elsewhere, a round counts only if there are none better


@dataclass
class Row:
    """What was found of one framework in one case.

    Attributes:
        framework: its name in the workload. is_subject: whether this is wengert, not one of its peers.
        failure: why it has no time: not installed, failed, or results that disagree.
        first: seconds to build the work and do it once, without the import.
        error: the largest relative error of its results.
        rounds: what was measured.
        ratio: its time over the best peer's, the median over the rounds.
    """

    framework: str
    is_subject: bool
    failure: str = ""
    first: float | None = None
    error: float | None = None
    rounds: list[Round] = field(default_factory=list)
    ratio: float | None = None

    @property
    def samples(self) -> list[float]:
        """The samples of the rounds that count."""
        return [sample for number in _quiet(self) for sample in self.rounds[number].samples]

    @property
    def median(self) -> float:
        """The median sample."""
        return statistics.median(self.samples)

    @property
    def others(self) -> float | None:
        """The cores that other processes used, the median over the rounds that count."""
        seen = [busy for number in _quiet(self) if (busy := self.rounds[number].others) is not None]
        return statistics.median(seen) if seen else None


def compare(
    workload: Workload, case: Case, rounds: int, limits: Limits, patience: float, report: Callable[[str], None]
) -> list[Row]:
    """Set up every framework, compare their results, and measure those that agree in interleaved rounds.

    Args:
        rounds: how often every framework has its turn, each within ``limits``.
        patience: seconds to wait, before each turn, for other processes to leave the machine alone.
        report: is told what is being done.
    """
    rows, runners = {name: Row(name, workload.is_subject(name)) for name in workload.builders}, dict[str, Runner]()
    try:
        for name, row in rows.items():
            report(f"{case.name}: {name}")
            try:
                runners[name] = _start(workload, case, name)
                row.first = runners[name].first
            except RunnerError as error:
                row.failure = str(error)
        _check(workload, case, rows, runners)
        for number in range(rounds):
            report(f"{case.name}: round {number + 1} of {rounds}")
            _round(number, rows, runners, limits, patience)
    finally:
        for runner in runners.values():
            runner.close()
    _rate(list(rows.values()))
    return list(rows.values())


def _start(workload: Workload, case: Case, name: str) -> Runner:
    """Return a framework ready to be measured, in a process of its own unless the workload measures from outside."""
    if workload.from_outside:
        runner: Runner = workload.builders[name](case, workload.data(case), name)
        return runner
    return Process(workload, case, name)


def _check(workload: Workload, case: Case, rows: Mapping[str, Row], runners: dict[str, Runner]) -> None:
    """Compare all results with the reference, and end the frameworks that disagree."""
    if workload.reference is not None:
        right = workload.reference(case, workload.data(case))
    else:
        peers = [name for name in runners if not rows[name].is_subject] or list(runners)
        right = runners[peers[0]].results if peers else {}
    for name, runner in list(runners.items()):
        error = rows[name].error = worst_error(runner.results, right)
        if error > workload.tolerance:
            rows[name].failure = f"its results are off by {error:.1e}, at most {workload.tolerance:.0e} is allowed"
            runners.pop(name).close()


def worst_error(results: Arrays, right: Arrays) -> float:
    """Return the largest error of any result, relative to the norm of the right one.

    Example:
        >>> worst_error({"y": np.array([1.0, 2.5])}, {"y": np.array([1.0, 2.0])}).__round__(3)
        0.224
        >>> worst_error({}, {"y": np.array([1.0])})
        inf
    """
    worst = 0.0
    for name, expected in right.items():
        got = results.get(name)
        if got is None or got.shape != expected.shape:
            return float("inf")
        difference = np.linalg.norm(np.asarray(got, float) - expected)
        scale = np.linalg.norm(np.asarray(expected, float)) or 1.0
        if not np.isfinite(difference):
            return float("inf")
        worst = max(worst, float(difference / scale))
    return worst


def _round(number: int, rows: Mapping[str, Row], runners: dict[str, Runner], limits: Limits, patience: float) -> None:
    """Measure every framework once, starting with another one in each round."""
    names = list(runners)
    turn = number % len(names) if names else 0
    for name in names[turn:] + names[:turn]:
        wait_until_quiet(patience, QUIET)
        try:
            rows[name].rounds.append(runners[name].round(limits))
        except RunnerError as error:
            rows[name].failure = str(error)
            runners.pop(name).close()


def _rate(rows: list[Row]) -> None:
    """Give every row its ratio to the best peer, taken round by round so that drift cancels."""
    good = [row for row in rows if not row.failure]
    best = min((row for row in good if not row.is_subject), key=lambda row: row.median, default=None)
    if best is None:
        return
    for row in good:
        both = [number for number in _quiet(row) if number in _quiet(best)] or range(len(row.rounds))
        pairs = [(row.rounds[number].samples, best.rounds[number].samples) for number in both]
        row.ratio = statistics.median(statistics.median(own) / statistics.median(peer) for own, peer in pairs)


def _quiet(row: Row) -> list[int]:
    """Return the numbers of the rounds that count: those that others hardly disturbed, or all if there are none."""
    quiet = [number for number, each in enumerate(row.rounds) if each.others is None or each.others <= QUIET]
    return quiet or list(range(len(row.rounds)))
