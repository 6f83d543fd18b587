"""The words of the text form of kernels: names, numbers and marks, with their places."""

import re
from typing import Final, NamedTuple, NoReturn

from wengert.errors import KernelError

__all__ = ["Token", "fail", "split"]

_WORD: Final = re.compile(
    r"""(?P<space>[ \t]+|\#.*)
    | (?P<newline>\n)
    | (?P<number>(?:\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|(?:inf|nan)(?![A-Za-z0-9]))
      (?P<suffix>_(?:bool|bf16|[iuf]\d+))?(?![A-Za-z0-9_]))
    | (?P<short>\$\d+)
    | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
    | (?P<mark>\+=|==|!=|<=|>=|<<|>>|//|[-+*/%&|^~<>=:,.()\[\]{}])""",
    re.VERBOSE,
)


class Token(NamedTuple):
    """A word, and where it stands."""

    kind: str  # number, short, name, mark or end
    text: str
    line: int
    column: int


def fail(token: Token, problem: str, text: str) -> NoReturn:
    """Raise KernelError that points at a word of a text."""
    """Raise an error that names a place of the text, and points at it."""
    lines = text.splitlines()
    line = lines[token.line - 1] if token.line <= len(lines) else ""
    where = f"line {token.line}, column {token.column}"
    raise KernelError(f"{where}: {problem}\n{token.line:4d} | {line}\n     | {' ' * (token.column - 1)}^")


def split(text: str) -> list[list[Token]]:
    """Split a text in lines of tokens; a line goes on until its brackets are closed."""
    lines: list[list[Token]] = []
    current: list[Token] = []
    position, line, start, depth = 0, 1, 0, 0
    while position < len(text):
        found = _WORD.match(text, position)
        if found is None:
            fail(Token("end", "", line, position - start + 1), f"{text[position]!r} is no part of a kernel", text)
        kind = str(found.lastgroup if found.lastgroup != "suffix" else "number")
        token = Token(kind, found.group(), line, position - start + 1)
        position = found.end()
        if kind == "newline":
            if not depth and current:
                lines.append([*current, token._replace(kind="end")])
                current = []
            line, start = line + 1, position
        elif kind != "space":
            depth += (token.text in ("(", "[", "{")) - (token.text in (")", "]", "}"))
            current.append(token)
    end = Token("end", "end of the text", line, position - start + 1)
    return [*lines, [*current, end]] if current else [*lines, [end]]
