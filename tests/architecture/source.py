"""The package as text: every module of ``wengert`` with its syntax tree, and the imports in it."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PACKAGE = "wengert"


class Import(NamedTuple):
    """One imported module, by its full name, and where the statement stands."""

    module: str
    line: int
    function: str | None


class Function(NamedTuple):
    """A function or method by its qualified name, and its lines of code (the docstring is not counted)."""

    name: str
    lines: int


@dataclass(frozen=True)
class Module:
    """One file of the package."""

    path: Path

    @property
    def file(self) -> str:
        """The path from the root of the repository, as the exception lists name it."""
        return self.path.relative_to(ROOT).as_posix()

    @property
    def name(self) -> str:
        """The dotted name; a package is named without ``__init__``."""
        parts = self.path.relative_to(ROOT).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @property
    def package(self) -> str:
        """The name that relative imports start from."""
        return self.name if self.path.name == "__init__.py" else self.name.rpartition(".")[0]

    @cached_property
    def text(self) -> str:
        """The source."""
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def tree(self) -> ast.Module:
        """The syntax tree."""
        return ast.parse(self.text, filename=self.file)

    @cached_property
    def imports(self) -> list[Import]:
        """Every import in the file, those inside functions too."""
        return list(self._imports(self.tree, None))

    @property
    def functions(self) -> list[Function]:
        """Every function and method that is not itself inside a function."""
        return list(_functions(self.tree, ""))

    def _imports(self, node: ast.AST, function: str | None) -> Iterator[Import]:
        for child in _statements(node):
            if isinstance(child, ast.Import):
                yield from (Import(alias.name, child.lineno, function) for alias in child.names)
            elif isinstance(child, ast.ImportFrom):
                yield from self._imports_from(child, function)
            elif isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
                yield from self._imports(child, child.name)
            else:
                yield from self._imports(child, function)

    def _imports_from(self, node: ast.ImportFrom, function: str | None) -> Iterator[Import]:
        """``from a import b`` imports ``a.b`` where that is a module of the package, else ``a``."""
        base = node.module or ""
        if node.level:
            start = ".".join(self.package.split(".")[: len(self.package.split(".")) - node.level + 1])
            base = f"{start}.{base}" if base else start
        for alias in node.names:
            full = f"{base}.{alias.name}"
            yield Import(full if is_module(full) else base, node.lineno, function)


@lru_cache(maxsize=4096)
def is_module(name: str) -> bool:
    """Whether a dotted name is a module or package of this repository's package."""
    path = ROOT.joinpath(*name.split("."))
    return name.partition(".")[0] == PACKAGE and (path.with_suffix(".py").is_file() or (path / "__init__.py").is_file())


@lru_cache(maxsize=4)
def modules(folder: Path = ROOT / PACKAGE) -> list[Module]:
    """Return every module under a folder, by path."""
    return [Module(path) for path in sorted(folder.rglob("*.py"))]


def code_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return the lines from ``def`` to the last statement, less those of the docstring."""
    last = node.end_lineno or node.lineno
    first = node.body[0]
    documented = ast.get_docstring(node, clean=False) is not None
    docstring = (first.end_lineno or first.lineno) - first.lineno + 1 if documented else 0
    return last - node.lineno + 1 - docstring


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what statements a node consists of, but for expressions, which are most of a tree."""
    return (child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.expr))


def _functions(node: ast.AST, prefix: str) -> Iterator[Function]:
    for child in _statements(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield Function(prefix + child.name, code_lines(child))
        elif isinstance(child, ast.ClassDef):
            yield from _functions(child, f"{prefix}{child.name}.")
        else:
            yield from _functions(child, prefix)
