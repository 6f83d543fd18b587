"""What the tests count: how many operators were held to their declarations, and which tests ran again, compiled."""

from dataclasses import astuple, fields
from typing import Any

import pytest

from tests import variants
from wengert.testing.opcheck import Tally

TALLY, AGAIN = Tally(), variants.Tally()


@pytest.fixture(scope="session")
def opcheck_tally() -> Tally:
    """The count that the summary of the run shows."""
    return TALLY


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let the user say how many tests run again."""
    parser.addoption(
        "--compiled", type=int, default=150, metavar="N", help="run every N-th test again, compiled (1: all, 0: none)"
    )


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Let some of the tests run again."""
    for item in items:
        if ways := variants.ways_of(item, config.getoption("--compiled")):
            variants.run_again(item, ways, AGAIN)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Send the counts of a worker, where several processes share the tests, to the one that shows the summary."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["tallies"] = [astuple(TALLY), astuple(AGAIN)]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: Any) -> None:
    """Add up what a worker counted."""
    for tally, numbers in zip((TALLY, AGAIN), getattr(node, "workeroutput", {}).get("tallies", ()), strict=False):
        for field, number in zip(fields(tally), numbers, strict=True):
            setattr(tally, field.name, getattr(tally, field.name) + number)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what was checked."""
    if TALLY.operators:
        terminalreporter.write_sep("=", f"opcheck: {TALLY}")
    if AGAIN.runs:
        terminalreporter.write_sep("=", f"compiled: {AGAIN}")
