"""``python -m wengert ops``: what the registry knows of every operator, or of one."""

import argparse
import importlib
import inspect
import textwrap
from collections.abc import Iterator
from typing import Any

from wengert.cli.formulas import formula, spec_formulas
from wengert.core import registry

__all__ = ["DESCRIPTION", "HELP", "NAME", "add_arguments", "describe", "run", "summary"]

NAME = "ops"
HELP = "list the operators, or describe one"
DESCRIPTION = "List the operators by family, or describe one: signature, rules, derivative, devices and cost."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="the operator to describe")
    parser.add_argument(
        "--import", dest="modules", metavar="MODULE", action="append", default=[],
        help="import a module that declares operators first (may be repeated)",
    )  # fmt: skip
    parser.add_argument("--family", metavar="FAMILY", help="list only the operators of one family")


def run(options: argparse.Namespace) -> None:
    """Print the list, or the description of one operator.

    Raises:
        LookupError: if there is no such operator or family (the message names the nearest ones), or no such module.
    """
    for module in options.modules:
        try:
            importlib.import_module(module)
        except ImportError as error:
            raise LookupError(f"--import {module}: {error}") from error
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
    rows = (line for name, value in _facts(op) for line in _row(name, value))
    return "\n".join([str(op.signature), "", textwrap.indent(inspect.cleandoc(op.doc), "  "), "", *rows])


def _facts(op: Any) -> Iterator[tuple[str, str]]:
    """Yield what is declared of an operator besides its text, as (what, value)."""
    shape, dtype = _shape_and_dtype(op)
    yield "family", op.family
    yield "shape", shape
    yield "dtype", dtype
    yield "devices", ", ".join(op.devices)
    yield "cost", "not declared" if op.cost is None else f"{formula(op.cost)} floating-point operations"
    if op.family == "opaque":
        yield from op.kernel.registered().items()
    elif op.rules is None:
        yield "derivative", "that of its body" if op.composite else "none"
    elif op.rules.joint is not None:
        yield "derivative", formula(op.rules.joint[0])
    else:
        for argument, (rule, _) in op.rules.rules.items():
            yield f"d / d {op.signature.names[argument]}", formula(rule)


def _shape_and_dtype(op: Any) -> tuple[str, str]:
    """Return how shape and dtype of the result follow from the arguments'."""
    if op.family == "opaque":
        shape = op.kernel.registered()["shape rule"]
        return shape, shape
    if op.spec is None:
        return "that of its body", "that of its body"
    found = spec_formulas(op.spec)
    shape = "the tensor arguments broadcast" if op.batch == "broadcast" else found[0] if found else formula(op.spec)
    declared = op.promote is not None or op.result != "kernel"
    return shape, op.dtype_rule if declared or found is None else found[1]


def _row(name: str, value: str) -> list[str]:
    """Return one fact as lines; a value of several lines stands indented below its name."""
    if "\n" in value:
        return [f"  {name}", *textwrap.indent(value, " " * 6).splitlines()]
    return [f"  {name:15}{value}"]


def _unknown(what: str, name: str, known: Any) -> str:
    near = registry.names_near(name, known)
    hint = f"; the nearest are: {', '.join(near)}" if near else "; `python -m wengert ops` lists them all"
    return f"there is no {what} '{name}'{hint}"
