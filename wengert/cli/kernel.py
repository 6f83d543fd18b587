"""``python -m wengert kernel``: what native code an expression becomes, and how fast it runs on this machine.

The expression is read as Python: names are tensors, calls are operators. Its element-wise parts become one kernel each;
every other operator runs its own.
"""

import argparse
import ast
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from wengert.codegen.emit import emit, slots
from wengert.codegen.engine import assembly, optimised
from wengert.core.registry import operators, ops
from wengert.core.tensor import from_array
from wengert.loops.cost import bytes_of, flops_of
from wengert.loops.symbolic import trace_rule
from wengert.loops.text import show
from wengert.loops.tracing import Untraceable
from wengert.runtime.launch import Launch, watched
from wengert.runtime.machine import measured
from wengert.runtime.pointwise import Pointwise
from wengert.testing.opcheck_native import natively

__all__ = ["DESCRIPTION", "HELP", "NAME", "add_arguments", "run"]

NAME = "kernel"
HELP = "show the native code of an expression: loops, LLVM IR, assembly, speed"
DESCRIPTION = """Show what native code an expression becomes, for instance:
python -m wengert kernel 'sigmoid(x) * y + sum(z, -1)' --shapes x=1000,y=1000,z=1000x64"""
PARTS = ("loops", "llvm", "assembly", "speed")
REPEATS = 30


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("expression", help="a Python expression of tensors, such as 'sigmoid(x) * y'")
    parser.add_argument("--shapes", required=True, help="the shape of each name: x=1000x64,y=64 (a number: x=)")
    parser.add_argument("--dtype", default="float32", choices=("float32", "float64"), help="of all tensors")
    parser.add_argument("--show", default=",".join(PARTS), help=f"which of {', '.join(PARTS)} (default: all)")


def run(options: argparse.Namespace) -> None:
    """Run the expression natively and show each kernel that it called.

    Raises:
        LookupError: naming what is wrong in the expression, the shapes or the parts.
    """
    parts = options.show.split(",")
    if unknown := [p for p in parts if p not in PARTS]:
        raise LookupError(f"--show takes {', '.join(PARTS)}, got {', '.join(unknown)}")
    try:
        names = {name: _tensor(shape, options.dtype) for name, shape in _shapes(options.shapes).items()}
        with natively():
            evaluate = Evaluation(options.expression, names)
            evaluate()
            with watched() as launches:
                evaluate()
            fastest = _fastest(evaluate, len(launches))
    except (TypeError, ValueError, ArithmeticError, RuntimeError, MemoryError) as error:  # what operators raise
        raise LookupError(f"'{options.expression}' of {options.shapes}: {error}") from error
    if not launches:
        raise LookupError(f"'{options.expression}' runs no native kernel that is made of loops at these sizes")
    for number, (launch, seconds) in enumerate(zip(launches, fastest, strict=True), 1):
        print(f"kernel {number} of {len(launches)}")
        for text in describe(launch, seconds, parts):
            print(text)


def _shapes(text: str) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {}
    for part in text.split(","):
        name, equals, shape = part.strip().partition("=")
        try:
            if not equals or not name.isidentifier():
                raise ValueError
            sizes = tuple(int(n) for n in shape.split("x")) if shape else ()
        except ValueError:
            raise LookupError(f"--shapes takes NAME=SIZExSIZE,…, for instance x=1000x64,y=64; got {part!r}") from None
        if any(n < 0 for n in sizes):
            raise LookupError(f"a size must not be negative, got {part!r}")
        if name in found:
            raise LookupError(f"--shapes names '{name}' twice")
        found[name] = sizes
    return found


def _tensor(shape: tuple[int, ...], dtype: str) -> Any:
    return from_array(np.random.default_rng(0).standard_normal(shape).astype(dtype))


def _fastest(evaluate: "Evaluation", count: int) -> list[float]:
    """Return the shortest time of each kernel."""
    found = [float("inf")] * count
    for _ in range(REPEATS):
        with watched() as launches:
            evaluate()
        found = [min(best, launch.seconds) for best, launch in zip(found, launches, strict=True)]
    return found


def describe(launch: Launch, seconds: float, parts: Sequence[str]) -> Iterator[str]:
    """Yield the texts about one call of a kernel."""
    kernel = launch.launcher.build()
    text = emit(kernel)
    if "loops" in parts:
        yield show(kernel)
    if "llvm" in parts:
        yield optimised(text)
    if "assembly" in parts:
        yield assembly(text)
    if "speed" in parts:
        named = zip(slots(kernel), launch.slots, strict=False)
        sizes = {key: value for (kind, key), value in named if kind == "size"}
        flops, moved, machine = flops_of(kernel, sizes), bytes_of(kernel, sizes), measured()
        wide = any(buffer.dtype == "f64" for buffer in kernel.buffers)
        roof = max(flops / (machine.float64_all if wide else machine.float32_all), moved / machine.copy_all)
        yield (
            f"about {flops / 1e6:.2f} Mflop, {moved / 1e6:.2f} MB; {seconds * 1e6:.1f} µs: "
            f"{flops / seconds / 1e9:.1f} Gflop/s, {moved / seconds / 1e9:.1f} GB/s; "
            f"the machine could do it from memory in {roof * 1e6:.1f} µs\n"
        )


class Evaluation:
    """An expression that can be run again and again.

    Args:
        text: the expression. names: its tensors.

    Raises:
        LookupError: for what is not an expression of tensors and operators.
    """

    def __init__(self, text: str, names: dict[str, Any]) -> None:
        try:
            self.tree = ast.parse(text, mode="eval").body
        except SyntaxError as error:
            raise LookupError(f"'{text}' is not a Python expression: {error.msg}") from None
        self.names = names
        self.fused: dict[str, Pointwise] = {}
        _check(self.tree, names)

    def __call__(self) -> Any:
        """Return the value of the expression."""
        return self.value(self.tree)

    def value(self, node: ast.expr) -> Any:
        """Return the value of a part: its element-wise operators as one kernel, over the parts that are something else."""
        inner: list[ast.expr] = []
        outer = _element_wise(node, inner)
        if outer is None:
            return self.call(node)
        values = [self.names[part.id] if isinstance(part, ast.Name) else self.call(part) for part in inner]
        if isinstance(outer, ast.Name):
            return values[0]
        text = ast.unparse(outer)
        code = compile(ast.Expression(outer), "<expression>", "eval")

        def function(*tensors: Any) -> Any:
            return eval(code, {"__builtins__": {}}, _Names(enumerate(tensors)))

        fused = self.fused.setdefault(text, Pointwise("expression", lambda a, k: [trace_rule(function, a, k)], ()))
        try:
            found = fused([v._payload for v in values])
        except Untraceable:
            found = NotImplemented
        return function(*values) if found is NotImplemented else from_array(found[0])

    def call(self, node: ast.expr) -> Any:
        """Run an operator that is not element-wise."""
        assert isinstance(node, ast.Call)
        options = {k.arg: ast.literal_eval(k.value) for k in node.keywords if k.arg is not None}
        return getattr(ops, node.func.id)(*map(self.argument, node.args), **options)  # type: ignore[attr-defined]

    def argument(self, node: ast.expr) -> Any:
        """Return an argument of an operator: a tensor, several, or what is written."""
        if not _has_tensor(node, self.names):
            return ast.literal_eval(node)
        return [self.argument(e) for e in node.elts] if isinstance(node, _SEVERAL) else self.value(node)


_ALLOWED = (ast.Name, ast.Constant, ast.BinOp, ast.UnaryOp, ast.Compare, ast.Call)
_SEVERAL = (ast.Tuple, ast.List)


def _check(node: ast.expr, names: dict[str, Any]) -> None:
    """Look at an expression before anything runs.

    Raises:
        LookupError: for what is not an expression of tensors and operators.
    """
    if not isinstance(node, _ALLOWED) or (isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)):
        raise LookupError(f"'{ast.unparse(node)}' is not a tensor, a number, an operator or arithmetic")
    if isinstance(node, ast.Name) and node.id not in names:
        if node.id in operators():
            raise LookupError(f"'{node.id}' is an operator: say of what, as in '{node.id}({next(iter(names))})'")
        raise LookupError(f"--shapes does not say what '{node.id}' is, and there is no such operator")
    if isinstance(node, ast.Call):
        _check_call(node, names)
        return
    for part in ast.iter_child_nodes(node):
        if isinstance(part, ast.expr):
            _check(part, names)


def _check_call(node: ast.Call, names: dict[str, Any]) -> None:
    if not isinstance(node.func, ast.Name) or not hasattr(ops, node.func.id):
        raise LookupError(f"there is no such operator: '{ast.unparse(node.func)}'")
    for part in node.args:
        for one in part.elts if isinstance(part, _SEVERAL) else (part,):
            _check(one, names)
    for option in node.keywords:
        if option.arg is None or any(isinstance(n, ast.Name) for n in ast.walk(option.value)):
            raise LookupError(f"an option must be written out, such as dim=0, got '{ast.unparse(option)}'")


class _Names(dict[Any, Any]):
    """What names mean in an expression: ``_0``, ``_1`` … the parts, any other an operator."""

    def __missing__(self, name: str) -> Any:
        return self[int(name[1:])] if name[1:].isdigit() else getattr(ops, name)


def _has_tensor(node: ast.expr, names: dict[str, Any]) -> bool:
    return any(isinstance(n, ast.Name) and (n.id in names) for n in ast.walk(node))


def _element_wise(node: ast.expr, inner: list[ast.expr]) -> ast.expr | None:
    """Return a part with labels for what is not element-wise in it, which go to ``inner``; None if it is itself not."""

    def label(part: ast.expr) -> ast.expr:
        inner.append(part)
        return ast.copy_location(ast.Name(f"_{len(inner) - 1}", ast.Load()), part)

    def visit(part: ast.expr) -> ast.expr:
        if isinstance(part, ast.Name):
            return label(part)
        if isinstance(part, ast.BinOp):
            return ast.copy_location(ast.BinOp(visit(part.left), part.op, visit(part.right)), part)
        if isinstance(part, ast.UnaryOp):
            return ast.copy_location(ast.UnaryOp(part.op, visit(part.operand)), part)
        if isinstance(part, ast.Compare):
            return ast.copy_location(
                ast.Compare(visit(part.left), part.ops, [visit(c) for c in part.comparators]), part
            )
        if isinstance(part, ast.Call):
            if not _is_element_wise(part):
                return label(part)
            return ast.copy_location(ast.Call(part.func, [visit(a) for a in part.args], part.keywords), part)
        return part

    if isinstance(node, ast.Call) and not _is_element_wise(node):
        return None
    return visit(node)


def _is_element_wise(node: ast.Call) -> bool:
    op = operators().get(node.func.id) if isinstance(node.func, ast.Name) else None
    return op is not None and op.batch == "broadcast" and op.single
