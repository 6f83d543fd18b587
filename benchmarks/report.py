"""Tables of what was measured: one per case, and at the end a line per promise."""

import statistics
from collections.abc import Sequence
from typing import NamedTuple

from benchmarks.compare import QUIET, Row
from benchmarks.workload import Case, Workload

__all__ = ["Outcome", "case_table", "outcome", "summary_table"]


class Outcome(NamedTuple):
    """How one case ended: wengert's best ratio to the best peer, against what is promised."""

    promise: str
    name: str
    case: Case
    ratio: float | None
    peer: str
    verdict: str


def case_table(workload: Workload, case: Case, rows: Sequence[Row]) -> str:
    """Return the table of one case, the fastest framework first."""
    measured = sorted((row for row in rows if not row.failure), key=lambda row: row.median)
    cells: list[tuple[str, ...]] = [("framework", "median", "p10", "p90", "ratio", "first call", "error", "others")]
    cells += [_cells(row, case.unit) for row in measured]
    lines = ["", f"{workload.promise} {workload.name}, {case.name}: {workload.title}", *_aligned(cells)]
    lines += [f"  {row.framework}: {row.failure}" for row in rows if row.failure]
    if any((row.others or 0) > QUIET for row in measured):
        lines.append(f"  Other processes used more than {QUIET} cores throughout: measure again on a quiet machine.")
    return "\n".join(lines)


def _cells(row: Row, unit: str) -> tuple[str, ...]:
    samples = sorted(row.samples)
    tenths = statistics.quantiles(samples, n=10) if len(samples) > 1 else samples * 9
    return (
        row.framework,
        amount(row.median, unit),
        amount(tenths[0], unit),
        amount(tenths[-1], unit),
        "-" if row.ratio is None else f"{row.ratio:.2f}",
        "-" if row.first is None else amount(row.first, "s"),
        "-" if row.error is None else f"{row.error:.0e}",
        "-" if row.others is None else f"{row.others:.2f}",
    )


def outcome(workload: Workload, case: Case, rows: Sequence[Row]) -> Outcome:
    """Return how a case ended."""
    own = [row for row in rows if row.is_subject and row.ratio is not None]
    peers = [row for row in rows if not row.is_subject and row.ratio is not None]
    if not own or not peers:
        return Outcome(workload.promise, workload.name, case, None, "-", "no peer" if own else "not measured")
    best = min(own, key=lambda row: row.ratio or 0.0)
    peer = min(peers, key=lambda row: row.median)
    ratio = best.ratio or 0.0
    verdict = "aim reached" if ratio <= case.aim else "kept" if ratio <= case.must else "not kept"
    return Outcome(workload.promise, workload.name, case, ratio, peer.framework, verdict)


def summary_table(outcomes: Sequence[Outcome]) -> str:
    """Return a line per case: the ratio of wengert to the best peer, what was promised, and whether it is kept."""
    cells: list[tuple[str, ...]] = [("promise", "work", "case", "ratio", "must", "aim", "best peer", "")]
    for each in outcomes:
        ratio = "-" if each.ratio is None else f"{each.ratio:.2f}"
        row = (each.promise, each.name, each.case.name, ratio, f"{each.case.must:g}", f"{each.case.aim:g}")
        cells.append((*row, each.peer, each.verdict))
    return "\n".join(["", "wengert over the best peer (below 1 is faster)", *_aligned(cells)])


def amount(value: float, unit: str) -> str:
    """Return a quantity in a unit that suits its size.

    Example:
        >>> amount(0.000123, "s"), amount(2.5, "s"), amount(865.0, "MB")
        ('123 µs', '2.5 s', '865 MB')
    """
    if unit != "s":
        return f"{value:.3g} {unit}"
    for scale, name in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if value >= scale:
            return f"{value / scale:.3g} {name}"
    return f"{value / 1e-9:.3g} ns"


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the rows as text in columns, words to the left and figures to the right."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    numeric = [any(cell[:1].isdigit() for cell in column) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = zip(row, widths, numeric, strict=True)
        padded = [cell.rjust(width) if right else cell.ljust(width) for cell, width, right in cells]
        lines.append("  " + "  ".join(padded).rstrip())
    return lines
