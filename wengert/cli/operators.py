"""``python -m wengert ops``: what the registry knows of every operator, or of one."""

import argparse
import inspect
import textwrap
from collections.abc import Iterator
from typing import Any

from wengert.core import registry

__all__ = ["DESCRIPTION", "HELP", "NAME", "add_arguments", "describe", "run", "summary"]

NAME = "ops"
HELP = "list the operators, or describe one"
DESCRIPTION = "List the operators by family, or describe one: signature, rules, derivative, devices and cost."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="the operator to describe")
    parser.add_argument("--family", metavar="FAMILY", help="list only the operators of one family")


def run(options: argparse.Namespace) -> None:
    """Print the list, or the description of one operator.

    Raises:
        LookupError: if there is no such operator or family; the message names the nearest ones.
    """
    known = registry.operators()
    if options.name is not None:
        if options.name not in known:
            raise LookupError(_unknown("operator", options.name, known))
        print(describe(known[options.name]))
        return
    families = sorted({op.family for op in known.values()})
    if options.family not in (None, *families):
        raise LookupError(_unknown("family", options.family, families))
    for name in families if options.family is None else [options.family]:
        members = [op for op in known.values() if op.family == name]
        print(f"{name} ({len(members)})")
        print("\n".join(f"  {summary(op)}" for op in members), end="\n\n")


def summary(op: Any) -> str:
    """Return one line about an operator: its signature and the first line of its text."""
    return f"{op.signature}  —  {op.doc.strip().splitlines()[0]}"


def describe(op: Any) -> str:
    """Return everything that is declared of one operator, as text of several lines."""
    return "\n".join([str(op.signature), "", textwrap.indent(inspect.cleandoc(op.doc), "  "), "", *_rows(op)])


def _rows(op: Any) -> Iterator[str]:
    rows = {
        "family": op.family,
        "shape": op.shape_rule,
        "dtype": op.dtype_rule,
        "devices": ", ".join(op.devices),
        "cost": _cost(op),
    }
    for name, value in rows.items():
        yield f"  {name:12}{value}"
    if not op.derivative:
        yield f"  {'derivative':12}{'that of its body' if op.family == 'composite' else 'none'}"
    for name, rule in op.derivative.items():
        yield f"  {'d / d ' + name:12}{rule}"


def _cost(op: Any) -> str:
    """Return the cost rule in words or, where it is a function, as its source."""
    if op.cost is None:
        return "not declared"
    if isinstance(op.cost, str):
        return op.cost
    return " ".join(inspect.getsource(op.cost).split()).rstrip(",")


def _unknown(what: str, name: str, known: Any) -> str:
    near = registry.names_near(name, known)
    hint = f"; the nearest are: {', '.join(near)}" if near else "; `python -m wengert ops` lists them all"
    return f"there is no {what} '{name}'{hint}"
