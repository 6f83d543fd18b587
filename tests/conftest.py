"""What the tests count: how many operators were held to their declarations, and by how many checks."""

from dataclasses import astuple
from typing import Any

import pytest

from wengert.testing.opcheck import Tally

TALLY = Tally()


@pytest.fixture(scope="session")
def opcheck_tally() -> Tally:
    """The count that the summary of the run shows."""
    return TALLY


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Send the count of a worker, where several processes share the tests, to the one that shows the summary."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["opcheck"] = astuple(TALLY)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: Any) -> None:
    """Add up what a worker counted."""
    operators, samples, checks = getattr(node, "workeroutput", {}).get("opcheck", (0, 0, 0))
    TALLY.operators += operators
    TALLY.samples += samples
    TALLY.checks += checks


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what was checked, after a run that checked operators."""
    if TALLY.operators:
        terminalreporter.write_sep("=", f"opcheck: {TALLY}")
