"""What the tests count: how many operators were held to their declarations, and by how many checks."""

import pytest

from wengert.testing.opcheck import Tally

TALLY = Tally()


@pytest.fixture(scope="session")
def opcheck_tally() -> Tally:
    """The count that the summary of the run shows."""
    return TALLY


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what was checked, after a run that checked operators."""
    if TALLY.operators:
        terminalreporter.write_sep("=", f"opcheck: {TALLY}")
