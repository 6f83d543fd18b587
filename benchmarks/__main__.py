"""``python -m benchmarks``: measure wengert beside its peers and print the ratios."""

import argparse
import importlib
import pkgutil
import sys

from benchmarks import machine, workloads
from benchmarks.compare import compare
from benchmarks.report import case_table, outcome, summary_table
from benchmarks.workload import Limits, Workload

__all__ = ["chosen", "load", "main"]


def load() -> list[Workload]:
    """Return the workload of every file in ``benchmarks/workloads``, by file name."""
    names = sorted(module.name for module in pkgutil.iter_modules(workloads.__path__))
    return [importlib.import_module(f"{workloads.__name__}.{name}").WORKLOAD for name in names]


def chosen(known: list[Workload], only: str) -> list[Workload]:
    """Return the workloads that measure one of the named promises; all of them if none is named.

    Raises:
        ValueError: if nothing measures a named promise.
    """
    wanted = {word.strip().upper() for word in only.split(",") if word.strip()}
    missing = wanted - {workload.promise for workload in known}
    if missing:
        raise ValueError(f"nothing measures {', '.join(sorted(missing))}; there are {', '.join(promises(known))}")
    return [workload for workload in known if not wanted or workload.promise in wanted]


def promises(known: list[Workload]) -> list[str]:
    """Return the promises that are measured, in order."""
    return sorted({workload.promise for workload in known}, key=lambda promise: int(promise[1:]))


def arguments() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    option = parser.add_argument
    option("--only", default="", metavar="P1,P14", help="measure only these promises")
    option("--rounds", type=int, default=7, help="rounds per case (default: %(default)s)")
    option("--samples", type=int, default=100, help="samples per round (default: %(default)s)")
    option("--seconds", type=float, default=1.0, help="limit of a round (default: %(default)s)")
    option("--threads", type=int, default=machine.cores(), help="threads (default: all cores, %(default)s)")
    option("--patience", type=float, default=2.0, help="seconds to wait for a quiet machine (default: %(default)s)")
    return parser.parse_args()


def main() -> int:
    """Measure, print the tables, and return the exit status: 1 if wengert could not be measured everywhere."""
    options = arguments()
    try:
        selection = chosen(load(), options.only)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    machine.limit_threads(options.threads)
    print(f"{machine.describe()}; {options.threads} threads, {options.rounds} interleaved rounds")
    outcomes = []
    for workload in selection:
        for case in workload.cases.values():
            limits = Limits(options.samples, options.seconds)
            rows = compare(workload, case, options.rounds, limits, options.patience, progress)
            progress("")
            print(case_table(workload, case, rows), flush=True)
            outcomes.append(outcome(workload, case, rows))
    print(summary_table(outcomes))
    return int(any(each.ratio is None for each in outcomes))


def progress(text: str) -> None:
    """Show on a terminal what is being done now."""
    if sys.stderr.isatty():
        print(f"\r{text:60}", end="\r", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
