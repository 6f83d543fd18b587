"""Rules as text: what a lambda or a short function of a declaration computes, read from its source."""

import ast
import inspect
import linecache
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from typing import Any

__all__ = ["formula", "spec_formulas"]

Function = ast.Lambda | ast.FunctionDef

_SILENT = {"ops", "math", "np"}  # prefixes that add nothing to a formula


def formula(rule: Callable[..., Any]) -> str:
    """Return the expression that a rule computes; its statements where it is more than one expression.

    Numbers from the surrounding function stand in place of their names.

    Example:
        >>> from wengert.core.registry import operators
        >>> formula(operators()["tanh"].rules.rules[0][0])
        'g * (1 - out * out)'
    """
    rule = inspect.unwrap(rule.func if isinstance(rule, partial) else rule)
    node = _definition(rule)
    if node is None:
        return f"{rule.__name__}{inspect.signature(rule)}"
    expression = _result(node)
    if expression is not None:
        return _text(expression, rule)
    assert isinstance(node, ast.FunctionDef)
    return "\n".join(_text(statement, rule) for statement in node.body[_documented(node) :])


def spec_formulas(spec: Callable[..., Any]) -> tuple[str, str] | None:
    """Return the shape and dtype that a spec rule gives, or None if it is not of the form ``Spec(shape, dtype)``."""
    spec = inspect.unwrap(spec)
    node = _definition(spec)
    result = None if node is None else _chosen(_last_result(node))
    if isinstance(result, ast.Name):
        return f"that of {result.id}", f"that of {result.id}"
    if not (isinstance(result, ast.Call) and isinstance(result.func, ast.Name) and result.func.id == "Spec"):
        return None
    if len(result.args) != 2:
        return None
    shape, dtype = (_text(_resolved(part, node), spec) for part in result.args)
    return shape, dtype


@lru_cache(maxsize=64)
def _functions(file: str) -> dict[int, list[Function]]:
    """Return the functions of a source file by the line on which they start."""
    found: dict[int, list[Function]] = {}
    for node in ast.walk(ast.parse("".join(linecache.getlines(file)))):
        if isinstance(node, Function):
            decorators = node.decorator_list if isinstance(node, ast.FunctionDef) else []
            found.setdefault(min([node.lineno, *(d.lineno for d in decorators)]), []).append(node)
    return found


def _definition(rule: Callable[..., Any]) -> Function | None:
    """Return the syntax of a function, told from others that start on its line by its name, arguments and columns."""
    code = getattr(rule, "__code__", None)
    if code is None:
        return None
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    for node in _functions(code.co_filename).get(code.co_firstlineno, ()):
        arguments = node.args
        same = tuple(a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)) == names
        if same and getattr(node, "name", "<lambda>") == code.co_name and _holds(node, code.co_positions()):
            return node
    return None


def _holds(node: Function, positions: Iterator[tuple[int | None, ...]]) -> bool:
    """Whether instructions at these positions lie within the body of a function."""
    body = node.body if isinstance(node.body, list) else [node.body]
    first, last = body[0], body[-1]
    start, end = (first.lineno, first.col_offset), (last.end_lineno or 0, last.end_col_offset or 0)
    return all(
        start <= (line, column) and (end_line or 0, end_column) <= end
        for line, end_line, column, end_column in positions
        if line is not None and column is not None and end_column
    )


def _documented(node: ast.FunctionDef) -> int:
    """Return how many statements of a function are its docstring: one or none."""
    return int(ast.get_docstring(node) is not None)


def _result(node: Function) -> ast.expr | None:
    """Return the expression that a function returns, if it does nothing else."""
    if isinstance(node, ast.Lambda):
        return node.body
    statements = node.body[_documented(node) :]
    return statements[0].value if len(statements) == 1 and isinstance(statements[0], ast.Return) else None


def _last_result(node: Function) -> ast.expr | None:
    """Return the expression that a function returns at its end."""
    if isinstance(node, ast.Lambda):
        return node.body
    last = node.body[-1]
    return last.value if isinstance(last, ast.Return) else None


def _chosen(expression: ast.expr | None) -> ast.expr | None:
    """Return c of ``(check, c)[1]``, the idiom of a lambda that checks something first."""
    if isinstance(expression, ast.Subscript) and isinstance(expression.value, ast.Tuple):
        index = expression.slice
        if isinstance(index, ast.Constant) and isinstance(index.value, int):
            return expression.value.elts[index.value]
    return expression


def _resolved(expression: ast.expr, node: Function | None) -> ast.expr:
    """Return what a local variable was set to, where the expression is nothing but its name."""
    if isinstance(expression, ast.Name) and isinstance(node, ast.FunctionDef):
        for statement in node.body:
            if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == expression.id:
                return statement.value
    return expression


class _Plain(ast.NodeTransformer):
    """Leaves out prefixes that add nothing, and puts numbers in place of names that stand for them."""

    def __init__(self, numbers: dict[str, float]) -> None:
        self.numbers = numbers

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """Turn ``ops.tanh`` into ``tanh``."""
        if isinstance(node.value, ast.Name) and node.value.id in _SILENT:
            return ast.Name(node.attr)
        return self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """Turn the name of a number into the number."""
        return ast.Constant(self.numbers[node.id]) if node.id in self.numbers else node


def _text(node: ast.AST, rule: Callable[..., Any]) -> str:
    """Return a piece of a rule's source as text."""
    outside = inspect.getclosurevars(rule).nonlocals
    numbers = {name: value for name, value in outside.items() if isinstance(value, (int, float))}
    copy = ast.parse(ast.unparse(node)).body[0]
    return ast.unparse(_Plain(numbers).visit(copy))
