"""The benchmark driver: what it compares, which rounds count, how ratios are taken. No time is judged."""

import numpy as np
import pytest

from benchmarks.__main__ import chosen, load, promises
from benchmarks.compare import Row, compare, worst_error
from benchmarks.report import case_table, outcome, summary_table
from benchmarks.workload import Case, Limits, Round, RunnerError, Workload

LIMITS = Limits(samples=2, seconds=1.0)
CASE = Case("small", must=0.8, aim=0.4)


class Scripted:
    """A runner whose rounds are given: (time, busy cores) each."""

    def __init__(self, results, rounds, log, name):
        self.first, self.results = 0.5, results
        self._rounds, self._log, self._name = iter(rounds), log, name

    def round(self, limits):
        self._log.append(self._name)
        time, others = next(self._rounds)
        if time is None:
            raise RunnerError("broke")
        return Round([time] * limits.samples, others)

    def close(self):
        self._log.append(f"close {self._name}")


def measure(frameworks, rounds=3, **options):
    """Compare frameworks given as name -> (results, rounds); return the rows by name, and the order of the calls."""
    log = []
    workload = Workload("P0", "example", "nothing", [CASE], lambda case, rng: {}, from_outside=True, **options)
    for name, (results, script) in frameworks.items():

        @workload.framework(name)
        def start(case, data, name, results=results, script=script):
            if results is None:
                raise RunnerError("it is not installed")
            return Scripted(results, script, log, name)

    rows = compare(workload, CASE, rounds, LIMITS, 0.0, lambda text: None)
    return workload, {row.framework: row for row in rows}, log


ONE = {"y": np.ones(3)}
QUIET = [(1.0, 0.0)] * 3


def test_frameworks_take_turns_and_each_round_starts_with_another() -> None:
    _, _, log = measure({"wengert": (ONE, QUIET), "a": (ONE, QUIET), "b": (ONE, QUIET)})
    assert log[:9] == ["wengert", "a", "b", "a", "b", "wengert", "b", "wengert", "a"]
    assert sorted(log[9:]) == ["close a", "close b", "close wengert"]


def test_the_ratio_is_taken_round_by_round() -> None:
    """The machine gets ten times slower in the second round; the ratio in each round is one half."""
    own, peer = [(1.0, 0.0), (10.0, 0.0), (1.0, 0.0)], [(2.0, 0.0), (20.0, 0.0), (2.0, 0.0)]
    workload, rows, _ = measure({"wengert": (ONE, own), "a": (ONE, peer)})
    assert rows["wengert"].ratio == 0.5
    assert rows["a"].ratio == 1.0
    assert outcome(workload, CASE, list(rows.values()))[3:] == (0.5, "a", "kept")


def test_disturbed_rounds_do_not_count_if_there_are_quiet_ones() -> None:
    own, peer = [(9.0, 1.5), (1.0, 0.0), (9.0, 1.5)], [(4.0, 0.0), (4.0, 0.1), (4.0, 0.0)]
    _, rows, _ = measure({"wengert": (ONE, own), "a": (ONE, peer)})
    assert (rows["wengert"].median, rows["wengert"].ratio) == (1.0, 0.25)


def test_the_best_peer_is_the_fastest_whose_results_are_right() -> None:
    wrong = {"y": np.array([1.0, 1.0, 2.0])}
    fast, slow = [(0.1, 0.0)] * 3, [(4.0, 0.0)] * 3
    frameworks = {"wengert": (ONE, QUIET), "a": (ONE, slow), "wrong": (wrong, fast), "gone": (None, fast)}
    workload, rows, _ = measure(frameworks, reference=lambda case, data: ONE)
    assert rows["wengert"].ratio == 0.25
    assert "off by" in rows["wrong"].failure
    assert "not installed" in rows["gone"].failure
    table = case_table(workload, CASE, list(rows.values()))
    assert "wrong: its results are off by" in table
    assert "1.00 s" not in table


def test_a_framework_that_breaks_is_left_out() -> None:
    workload, rows, log = measure({"wengert": (ONE, [(1.0, 0.0), (None, 0.0)]), "a": (ONE, QUIET)})
    assert "wengert: broke" in case_table(workload, CASE, list(rows.values()))
    assert rows["wengert"].failure == "broke"
    assert log.count("wengert") == 2
    result = outcome(workload, CASE, list(rows.values()))
    assert (result.ratio, result.verdict) == (None, "not measured")
    assert "not measured" in summary_table([result])


@pytest.mark.parametrize(
    ("got", "expected"),
    [
        ({"y": np.ones(3)}, 0.0),
        ({}, float("inf")),
        ({"y": np.ones(4)}, float("inf")),
        ({"y": np.array([1.0, 1.0, np.nan])}, float("inf")),
        ({"y": np.array([1.0, 1.0, 1.0 + 3**0.5])}, 1.0),
    ],
)
def test_errors_are_relative_to_the_norm(got, expected) -> None:
    assert worst_error(got, ONE) == pytest.approx(expected)


def test_busy_cores_may_be_unknown() -> None:
    row = Row("a", True, rounds=[Round([1.0], None), Round([3.0], None)])
    assert (row.median, row.others) == (2.0, None)


def test_promises_are_chosen_by_id() -> None:
    known = load()
    assert promises(known)[0] == "P1"
    assert {workload.promise for workload in chosen(known, "p14")} == {"P14"}
    assert chosen(known, "") == known
    with pytest.raises(ValueError, match="P99"):
        chosen(known, "P1,P99")
