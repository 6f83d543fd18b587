"""The commands of ``python -m wengert``: a demonstration, the list of operators, facts about the machine."""

from wengert.cli.command import main

__all__ = ["main"]
