"""Kernels as text: a printer and a parser, exact inverses of one another.

::

    kernel     = "kernel" NAME ["[" [NAME {"," NAME}] "]"] "(" [argument {"," argument}] ")" block
    argument   = ["out" | "inout"] NAME ":" DTYPE "[" [dim {"," dim}] "]"          a buffer
               | NAME ":" DTYPE                                                    a number
    dim        = (NAME | INTEGER) [":" ("0" | "1")]                                its size, and its stride where it is fixed
    block      = {statement}                                                       further indented than the line before
    statement  = ("for" | "fold" | "parallel") NAME "in" expr ":" expr
                 ["step" INTEGER] ["by" INTEGER "lanes"] ["unroll" INTEGER] ["of" fold {"," fold}] block
               | "stage" NAME ":" DTYPE "[" expr "]"
               | NAME "=" expr
               | NAME "=" MONOID "(" expr {"," expr} ")"                           an update of a fold
               | NAME "[" [expr {"," expr}] "]" ("=" | "+=") expr ["if" expr]      a store, and its guard
               | "$" INTEGER "=" expr                                              short for expr in the lines that follow
    fold       = NAME ":" DTYPE MONOID

The sizes after the kernel's name are left out where they are the names of the dimensions, in order of appearance. A
``fold`` loop accumulates what the updates in it name, but for those in a ``fold`` loop within it; ``of`` says it where this
rule does not.

Expressions have Python's operators with Python's precedence (comparisons do not chain), and ::

    atom       = NAME ["." INTEGER]                         a size, param, loop variable, value, or part of a fold's result
               | NUMBER ["_" DTYPE] | "True" | "False"      also inf and nan
               | NAME "[" [expr {"," expr}] ["if" expr] "]" a load, and its guard
               | DTYPE "(" expr ")"                         a cast
               | "bits" "(" expr "," DTYPE ")"
               | DTYPE "{" NUMBER {"," NUMBER} "}" "[" expr "]"   a lookup in a table
               | FUNCTION "(" expr {"," expr} ")"           any operation of ``scalar.OPS``
               | "$" INTEGER | "(" expr ")"

A number takes the dtype of the other operand, of the buffer it is stored in, or i64 as an index or bound; elsewhere its
dtype follows it: ``2.0_f32``. ``#`` starts a comment. Inside brackets a line may be broken.
"""

import math
from collections.abc import Iterator
from itertools import zip_longest
from typing import Final

import numpy as np

from wengert.loops.ir import Buffer, Fold, Kernel, Let, Loop, Stage, Statement, Store, Update
from wengert.loops.parser import parse
from wengert.loops.scalar import OPS, Scalar, postorder

__all__ = ["line_of", "parse", "show", "show_scalar"]

_LEVELS: Final = (
    ("eq", "ne", "lt", "le", "gt", "ge"), ("or",), ("xor",), ("and",), ("shl", "shr"), ("add", "sub"),
    ("mul", "div", "quotient", "remainder"),
)  # fmt: skip
_PRECEDENCE: Final = {op: level for level, ops in enumerate(_LEVELS, 1) for op in ops}
_COMPARE, _UNARY, _ATOM = 1, len(_LEVELS) + 1, len(_LEVELS) + 2
_LONG, _DEEP = 120, 64  # nodes of a line, and levels of it, from which on its parts get lines of their own


def show(kernel: Kernel) -> str:
    """Return the text of a kernel, which ``parse`` reads back as an equal kernel.

    Example:
        >>> from wengert.loops import monoids
        >>> text = "kernel total(x: f32[n: 1], out y: f32[])\\n  fold i in 0:n\\n    s = sum(x[i])\\n  y[] = s\\n"
        >>> show(parse(text)) == text
        True
    """
    return "".join(f"{line}\n" for _, line in _Printer(kernel).lines())


def line_of(kernel: Kernel, statement: Statement | None) -> str:
    """Return the line of a statement in the text of a kernel, with its number (of the kernel's head, if None)."""
    lines = [
        f"{number:4d} | {line}"
        for number, (owner, line) in enumerate(_Printer(kernel).lines(), 1)
        if owner is statement
    ]
    return lines[-1] if lines else f"     | {show_statement(statement)}"


def show_statement(statement: Statement | None) -> str:
    """Return the line of a statement outside a kernel."""
    return "".join(line for _, line in _Printer(None).statement(statement, "")) if statement is not None else ""


def show_scalar(x: Scalar) -> str:
    """Return the text of an expression."""
    return _Printer(None).expr(x)


def _number(value: float, dtype: str) -> str:
    if dtype == "f32" and math.isfinite(value):
        return str(np.float32(value))
    return repr(value)


def _sizes_in_dims(buffers: tuple[Buffer, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(d for b in buffers for d in b.dims if isinstance(d, str)))


def _show_buffer(b: Buffer) -> str:
    dims = [f"{d}" if s is None else f"{d}: {s}" for d, s in zip_longest(b.dims, b.strides)]
    return f"{'' if b.role == 'in' else b.role + ' '}{b.name}: {b.dtype}[{', '.join(dims)}]"


class _Printer:
    """Prints one kernel: it knows the dtypes of its buffers, the folds in scope, and the short names ``$1``, ``$2`` …"""

    def __init__(self, kernel: Kernel | None) -> None:
        self.kernel = kernel
        self.dtypes = {b.name: b.dtype for b in kernel.buffers} if kernel is not None else {}
        self.folds: dict[str, Fold] = {}
        self.short: dict[Scalar, str] = {}
        self.implied = kernel is None or _folds_are_implied(kernel.body, None)

    def lines(self) -> Iterator[tuple[Statement | None, str]]:
        kernel = self.kernel
        assert kernel is not None
        sizes = "" if kernel.sizes == _sizes_in_dims(kernel.buffers) else f"[{', '.join(kernel.sizes)}]"
        arguments = [_show_buffer(b) for b in kernel.buffers] + [f"{p.name}: {p.dtype}" for p in kernel.params]
        yield None, f"kernel {kernel.name}{sizes}({', '.join(arguments)})"
        for statement in kernel.body:
            yield from self.statement(statement, "  ")

    def statement(self, statement: Statement, indent: str) -> Iterator[tuple[Statement, str]]:
        for name, text in self.abbreviate(_expressions(statement)):
            yield statement, f"{indent}{name} = {text}"
        if isinstance(statement, Loop):
            yield statement, indent + self.head(statement)
            self.folds.update({f.name: f for f in statement.folds})
            for inner in statement.body:
                yield from self.statement(inner, indent + "  ")
        else:
            yield statement, indent + self.simple(statement)

    def head(self, loop: Loop) -> str:
        word = "parallel" if loop.parallel else "fold" if loop.folds else "for"
        text = (
            f"{word} {loop.variable} in {self.expr(loop.start, expected='i64')}:{self.expr(loop.stop, expected='i64')}"
        )
        text += f" step {loop.step}" if loop.step != 1 else ""
        text += f" by {loop.lanes} lanes" if loop.lanes != 1 else ""
        text += f" unroll {loop.unroll}" if loop.unroll != 1 else ""
        if loop.folds and (loop.parallel or not self.implied):
            text += " of " + ", ".join(f"{f.name}: {f.dtype} {f.monoid}" for f in loop.folds)
        return text

    def simple(self, statement: Let | Store | Update | Stage) -> str:
        if isinstance(statement, Let):
            return f"{statement.name} = {self.expr(statement.value)}"
        if isinstance(statement, Stage):
            self.dtypes[statement.name] = statement.dtype
            return f"stage {statement.name}: {statement.dtype}[{self.expr(statement.size, expected='i64')}]"
        if isinstance(statement, Update):
            fold = self.folds.get(statement.name)
            values = ", ".join(self.expr(v) for v in statement.values)
            return f"{statement.name} = {fold.monoid if fold else 'unknown'}({values})"
        index = ", ".join(self.expr(i, expected="i64") for i in statement.index)
        value = self.expr(statement.value, expected=self.dtypes.get(statement.buffer, ""))
        guard = f" if {self.expr(statement.guard)}" if statement.guard is not None else ""
        return f"{statement.buffer}[{index}] {'+=' if statement.add else '='} {value}{guard}"

    def abbreviate(self, roots: tuple[Scalar, ...]) -> Iterator[tuple[str, str]]:
        """Give short names to what a long line would repeat, and to parts of what is deep."""
        nodes, uses = postorder(roots), dict.fromkeys(roots, 1)
        count: dict[Scalar, int] = {}
        depth: dict[Scalar, int] = {}
        for x in nodes:
            count[x] = 1 + sum(count[a] for a in x.args)
            depth[x] = 1 + max((depth[a] for a in x.args), default=0)
            for a in x.args:
                uses[a] = uses.get(a, 0) + 1
        if sum(count[r] for r in roots) <= _LONG and max((depth[r] for r in roots), default=0) <= _DEEP:
            return
        for x in nodes:
            if x.op == "const" or x in self.short:
                continue
            if (uses[x] > 1 and count[x] > 2) or depth[x] % _DEEP == 0:
                text, name = self.expr(x), f"${len(self.short) + 1}"
                self.short[x] = name
                yield name, text

    def expr(self, x: Scalar, level: int = 0, expected: str = "") -> str:
        """Return an expression as text, in parentheses where its operator binds less than ``level``."""
        if x in self.short:
            return self.short[x]
        if x.op == "const":
            return self.constant(x, expected)
        text, own = self.operation(x)
        return f"({text})" if own < level else text

    def constant(self, x: Scalar, expected: str) -> str:
        if x.dtype == "bool":
            return str(x.data)
        return _number(x.data, x.dtype) + ("" if x.dtype == expected else f"_{x.dtype}")

    def operation(self, x: Scalar) -> tuple[str, int]:
        if x.op in _PRECEDENCE:
            return self.binary(x), _PRECEDENCE[x.op]
        if x.op in ("neg", "not"):
            operand = self.expr(x.args[0], _UNARY)
            plain = x.args[0].op == "const"  # -2 is a constant, -(2) an operation
            return OPS[x.op].symbol + (f"({operand})" if plain else operand), _UNARY
        return self.atom(x), _ATOM

    def binary(self, x: Scalar) -> str:
        level = _PRECEDENCE[x.op]
        known = self.known(x.args)
        left = self.expr(x.args[0], level + (level == _COMPARE), known)
        return f"{left} {OPS[x.op].symbol} {self.expr(x.args[1], level + 1, known)}"

    def known(self, operands: tuple[Scalar, ...]) -> str:
        """The dtype that numbers among operands of one dtype are understood to have."""
        return next((a.dtype for a in operands if a.op != "const"), "")

    def atom(self, x: Scalar) -> str:
        if x.op == "var":
            name, part = x.data
            return f"{name}.{part}" if part else name
        if x.op in ("index", "size", "param"):
            return str(x.data)
        if x.op == "load":
            name, guarded = x.data
            index = ", ".join(self.expr(i, expected="i64") for i in (x.args[:-1] if guarded else x.args))
            guard = f"{' ' if index else ''}if {self.expr(x.args[-1])}" if guarded else ""
            return f"{name}[{index}{guard}]"
        if x.op == "cast":
            return f"{x.dtype}({self.expr(x.args[0])})"
        if x.op == "bits":
            return f"bits({self.expr(x.args[0])}, {x.dtype})"
        if x.op == "lookup":
            table = ", ".join(map(repr, x.data))
            return f"{x.dtype}{{{table}}}[{self.expr(x.args[0], expected='i64')}]"
        condition = x.args[:1] if x.op in ("select", "rarely") else ()
        rest = x.args[len(condition) :]
        known = self.known(rest)
        return f"{x.op}({', '.join([*map(self.expr, condition), *(self.expr(a, expected=known) for a in rest)])})"


def _expressions(statement: Statement) -> tuple[Scalar, ...]:
    """The expressions of a statement's own line."""
    if isinstance(statement, Loop):
        return statement.start, statement.stop
    if isinstance(statement, Let):
        return (statement.value,)
    if isinstance(statement, Stage):
        return (statement.size,)
    if isinstance(statement, Update):
        return statement.values
    return (*statement.index, statement.value, *(() if statement.guard is None else (statement.guard,)))


def _folds_are_implied(body: tuple[Statement, ...], owner: Loop | None) -> bool:
    """Whether the updates tell the folds of every loop: each is of the innermost loop with folds around it."""
    found: dict[str, str] = {}
    if not _collect(body, found):
        return False
    return [(f.name, f.dtype) for f in owner.folds] == list(found.items()) if owner is not None else not found


def _collect(body: tuple[Statement, ...], found: dict[str, str]) -> bool:
    for statement in body:
        if isinstance(statement, Update):
            found.setdefault(statement.name, statement.values[0].dtype if statement.values else "")
        elif isinstance(statement, Loop):
            inner = (
                _folds_are_implied(statement.body, statement) if statement.folds else _collect(statement.body, found)
            )
            if not inner:
                return False
    return True
