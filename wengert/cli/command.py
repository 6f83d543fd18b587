"""The command line: which commands exist, their options, and how an error ends one."""

import argparse
import sys
from collections.abc import Callable, Sequence

from wengert.cli import cache, demo, info, kernel, machine, operators
from wengert.extras import MissingExtraError

__all__ = ["build_parser", "main"]

Command = Callable[[argparse.Namespace], None]


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of ``python -m wengert``; each command's function is its ``run`` default."""
    parser = argparse.ArgumentParser(prog="python -m wengert", description="Differentiable programming in Python.")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for module in (demo, operators, info, cache, machine, kernel):
        command = commands.add_parser(module.NAME, help=module.HELP, description=module.DESCRIPTION)
        module.add_arguments(command)
        command.set_defaults(run=module.run)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit status: 0, 1 if it failed, 2 if the arguments were wrong.

    Args:
        arguments: the words after ``python -m wengert``; those of this process if None.

    Example:
        >>> main(["ops", "no_such_operator"])
        1
    """
    options = build_parser().parse_args(arguments)
    run: Command = options.run
    try:
        run(options)
    except (MissingExtraError, LookupError, OSError) as error:
        print(f"error: {error.args[0] if isinstance(error, LookupError) else error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130
    return 0
