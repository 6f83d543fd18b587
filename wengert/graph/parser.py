"""Text to graph: the inverse of :mod:`wengert.graph.text`, which describes the grammar. Nothing of a text is ever executed."""

import ast
import math
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, NoReturn

from wengert.array.dtype import DTYPES
from wengert.array.layout import channels_last, channels_last_3d, contiguous_format, preserve_format
from wengert.core.operator import Op, Spec
from wengert.core.registry import names_near, operators
from wengert.core.signature import MISSING
from wengert.errors import GraphError
from wengert.graph.ir import Graph, Node, Value
from wengert.graph.operations import Fused
from wengert.graph.text import FILLED_BYTES, digest, filled, row_major
from wengert.graph.verify import verify

__all__ = ["parse", "parse_literal"]

_DEEP: Final = 64  # levels of brackets, and of graphs in graphs
_TOKEN: Final = re.compile(
    r"""(?P<space>[ \t\r]+)
    | (?P<newline>\n)
    | (?P<comment>\#[^\n]*)
    | (?P<value>%(?:[A-Za-z0-9_.]+|'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*"))
    | (?P<string>'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*")
    | (?P<number>\d+(?:\.\d*)?(?:[eE][+-]?\d+)?(?![A-Za-z0-9_]))
    | (?P<dots>\.\.\.)
    | (?P<name>[A-Za-z_]\w*(?:(?:::|\.)[A-Za-z_]\w*)*)
    | (?P<object><[^\n]*)
    | (?P<mark>[-!=:,()\[\]{}])""",
    re.VERBOSE,
)
_DTYPES: Final = {d.name: d for d in DTYPES}
_WORDS: Final[dict[str, Any]] = {
    "None": None, "True": True, "False": False, "inf": float("inf"), "nan": float("nan"), **_DTYPES,
    **{f.name: f for f in (contiguous_format, preserve_format, channels_last, channels_last_3d)},
}  # fmt: skip


class Token(NamedTuple):
    """A word of the text, and where it stands."""

    kind: str
    text: str
    line: int
    column: int


def parse(text: str, constants: Mapping[str, Any] | None = None) -> Graph:
    """Read the text of a graph.

    Args:
        text: as :func:`wengert.graph.text.show` writes it. constants: the arrays that do not stand in the text, by the name
            of the constant (see :func:`wengert.graph.text.stored`).

    Returns:
        A graph that has been verified, whose text is the one that was given.

    Raises:
        GraphError: for what is no such text, with line and column, or no sound graph.

    Example:
        >>> text = '''graph {
        ...   in %x: float32[2, 3]
        ...   %1: float32[2] = sum(%x, dim=(1,))
        ...   return %1
        ... }'''
        >>> str(parse(text)) == text
        True
    """
    if not isinstance(text, str):
        raise TypeError(f"parse() takes the text of a graph, got {type(text).__name__}")
    graph = _Parser(text, constants or {}).whole()
    verify(graph)
    return graph


def parse_literal(text: str) -> Any:
    """Read an argument that is no tensor: the inverse of :func:`wengert.graph.text.literal`.

    Raises:
        GraphError: for what is no such text.

    Example:
        >>> parse_literal("(1, slice(0, None, 2), float32, 'same')")
        (1, slice(0, None, 2), wengert.float32, 'same')
    """
    parser = _Parser(text, {})
    found = parser.literal()
    parser.end()
    return found


class _Scope:
    """A block that is being read: its graph, and its values by name."""

    def __init__(self) -> None:
        self.graph = Graph()
        self.values: dict[str, Value] = {}
        self.last = 0  # the greatest number at the end of a name


class _Parser:
    """Reads one text."""

    def __init__(self, text: str, constants: Mapping[str, Any]) -> None:
        self.text, self.constants = text, constants
        self.tokens, self.comments = self._split()
        self.at, self.depth = 0, 0
        self.operators = operators()
        self.scope = _Scope()

    def _split(self) -> tuple[list[Token], dict[int, str]]:
        """Return the words of the text, and the comment of each line that has one."""
        tokens, comments = [], {}
        position, line, start = 0, 1, 0
        while position < len(self.text):
            found = _TOKEN.match(self.text, position)
            token = Token(str(found and found.lastgroup), found.group() if found else "", line, position - start + 1)
            if found is None:
                self.fail(token, f"{self.text[position]!r} is no part of a graph")
            position = found.end()
            if token.kind == "newline":
                line, start = line + 1, position
            elif token.kind == "comment":
                comments[line] = token.text[1:].strip()
            elif token.kind != "space":
                tokens.append(token)
        return [*tokens, Token("end", "the end of the text", line, position - start + 1)], comments

    def fail(self, token: Token, problem: str) -> NoReturn:
        """Raise an error that names a place of the text, and points at it."""
        lines = self.text.split("\n")
        raise GraphError(
            f"line {token.line}, column {token.column}: {problem}\n"
            f"{token.line:4d} | {lines[token.line - 1]}\n     | {' ' * (token.column - 1)}^"
        ) from None

    # ---- words -----------------------------------------------------------------------

    @property
    def token(self) -> Token:
        """The next word."""
        return self.tokens[self.at]

    def next(self, *kinds: str, what: str = "") -> Token:
        """Take the next word, which must be of one of some kinds."""
        token = self.token
        if token.kind not in kinds:
            self.fail(token, f"expected {what or ' or '.join(kinds)}, got {_quoted(token)}")
        self.at += 1
        return token

    def match(self, text: str) -> bool:
        """Take the next word if it is this one."""
        if self.token.text != text or self.token.kind not in ("name", "mark"):
            return False
        self.at += 1
        return True

    def expect(self, text: str) -> Token:
        """Take the next word, which must be this one."""
        token = self.token
        if not self.match(text):
            self.fail(token, f"expected '{text}', got {_quoted(token)}")
        return token

    def integer(self) -> int:
        token = self.next("number", what="a number")
        if not token.text.isdigit() or len(token.text) > 18:
            self.fail(token, f"expected an integer, got {token.text}")
        return int(token.text)

    def deeper(self, token: Token) -> None:
        self.depth += 1
        if self.depth > _DEEP:
            self.fail(token, f"more than {_DEEP} levels of brackets")

    # ---- blocks ----------------------------------------------------------------------

    def whole(self) -> Graph:
        self.expect("graph")
        graph = self.block()
        self.end()
        return graph

    def end(self) -> None:
        """Refuse a text that goes on."""
        if self.token.kind != "end":
            self.fail(self.token, f"expected the end of the text, got {_quoted(self.token)}")

    def block(self) -> Graph:
        """Read a graph in braces; the values of the graph around it are not known inside."""
        self.deeper(self.expect("{"))
        outer, self.scope = self.scope, _Scope()
        graph = self.scope.graph
        while self.match("in"):
            self.inputs()
        while not self.match("return"):
            self.line()
        graph.outputs = self.names()
        while self.match("write"):
            target = self.value()
            self.expect("=")
            graph.writes.append((target, self.value()))
        self.expect("}")
        graph.reserve(self.scope.last)
        self.scope, self.depth = outer, self.depth - 1
        return graph

    def inputs(self) -> None:
        while True:
            value = self.declared()
            self.scope.graph.inputs.append(value)
            if not self.match(","):
                return

    def names(self) -> list[Value]:
        found = [self.value()] if self.token.kind == "value" else []
        while found and self.match(","):
            found.append(self.value())
        return found

    def line(self) -> None:
        """Read a constant or a node."""
        declared: list[tuple[Token, Value]] = []
        if self.token.kind == "value":
            declared.append((self.token, self.declared(known=False)))
            while self.match(","):
                declared.append((self.token, self.declared(known=False)))
            self.expect("=")
        first = self.token
        if self.match("constant"):
            if len(declared) != 1:
                self.fail(first, "a constant has one name")
            self.constant(first, declared[0][1])
        else:
            self.node(first, tuple(v for _, v in declared))
        for token, value in declared:
            self.enter(token, value)

    # ---- values ----------------------------------------------------------------------

    def declared(self, known: bool = True) -> Value:
        """Read a value with its shape and dtype; ``known``: it can be used from here on."""
        token = self.next("value", what="a value, %name")
        self.expect(":")
        dtype = self.next("name", what="a dtype")
        if dtype.text not in _DTYPES:
            self.fail(dtype, f"there is no dtype '{dtype.text}'; there are {', '.join(_DTYPES)}")
        shape = self.integers("[", "]")
        spec = Spec(shape, _DTYPES[dtype.text])
        strides = row_major(spec)
        if self.match("strides"):
            start = self.token
            strides = self.integers("(", ")")
            if len(strides) != len(shape):
                self.fail(start, f"{len(strides)} strides for {len(shape)} dimensions")
        value = Value(spec, strides, self.name_of(token))
        if known:
            self.enter(token, value)
        return value

    def integers(self, start: str, end: str) -> tuple[int, ...]:
        self.expect(start)
        found: list[int] = []
        while not self.match(end):
            sign = -1 if self.match("-") else 1
            if sign < 0 and start == "[":
                self.fail(self.token, "a size cannot be negative")
            found.append(sign * self.integer())
            if self.token.text != end:
                self.expect(",")
        return tuple(found)

    def name_of(self, token: Token) -> str:
        name = token.text[1:]
        return self.string(token, name) if name[0] in "'\"" else name

    def enter(self, token: Token, value: Value) -> None:
        """Make a value known."""
        if value.name in self.scope.values:
            self.fail(token, f"{token.text} is defined twice")
        self.scope.values[value.name] = value
        digits = re.search(r"[0-9]{1,18}$", value.name)
        self.scope.last = max(self.scope.last, int(digits.group()) if digits else 0)

    def value(self) -> Value:
        token = self.next("value", what="a value, %name")
        value = self.scope.values.get(self.name_of(token))
        if value is None:
            self.fail(token, f"{token.text} is not defined before it is used")
        return value

    def constant(self, start: Token, value: Value) -> None:
        token, spec = self.token, value.spec
        if token.kind == "string":
            array = self.given(self.next("string"), value)
        else:
            numbers = self.literal()
            if not isinstance(numbers, list) and spec.dtype.itemsize * math.prod(spec.shape) > FILLED_BYTES:
                self.fail(
                    token, f"a constant of {math.prod(spec.shape)} equal elements is too large to stand in a text"
                )
            try:
                array = filled(numbers, spec)
            except (ValueError, TypeError, ArithmeticError) as error:
                self.fail(token, f"this is no {spec.dtype.name}{list(spec.shape)}: {error}")
        if value.strides != row_major(spec):
            self.fail(start, "a constant has no strides: it is row-major")
        value.strides = array.strides
        self.scope.graph.constants[value] = array

    def given(self, token: Token, value: Value) -> Any:
        """Return the array of a constant that does not stand in the text."""
        array = self.constants.get(value.name)
        if array is None:
            self.fail(
                token, f"the array of the constant %{value.name} does not stand in the text; give it in constants="
            )
        spec = value.spec
        if array.shape != spec.shape or array.dtype != spec.dtype.numpy:
            self.fail(token, f"the array given for %{value.name} is {array.dtype}{list(array.shape)}")
        if digest(array) != self.string(token, token.text):
            self.fail(token, f"the array given for %{value.name} has other elements: its checksum is {digest(array)}")
        return array

    # ---- nodes -----------------------------------------------------------------------

    def node(self, start: Token, results: tuple[Value, ...]) -> None:
        if self.match("!"):
            self.fail(start, f"the operation '{self.token.text}' holds objects of Python, which no text can bring back")
        name = self.next("name", what="an operator")
        if name.text == "fused":
            kind = self.next("name", what="the kind of a fused operation").text
            arguments = self.sequence("(", ")")
            comment = self.comments.get(self.token.line)
            op: Any = Fused(kind, self.block())
        else:
            op = self.operator(name)
            arguments = self.arguments(name, op)
            comment = self.comments.get(self.tokens[self.at - 1].line)
        node = Node(op, tuple(arguments), comment)
        node.results = results
        for index, value in enumerate(results):
            value.node, value.index = node, index
        self.scope.graph.nodes.append(node)

    def operator(self, token: Token) -> Op:
        op: Op | None = self.operators.get(token.text)
        if op is None:
            near = names_near(token.text, self.operators)
            self.fail(token, f"there is no operator '{token.text}'" + (f"; near it: {', '.join(near)}" if near else ""))
        return op

    def arguments(self, name: Token, op: Op) -> list[Any]:
        """Read an operator's arguments, and put in the defaults that were left out."""
        signature = op.signature
        values = [slot.default for slot in signature.slots]
        given: set[int] = set()
        self.expect("(")
        while not self.match(")"):
            token = self.token
            if token.kind == "name" and self.tokens[self.at + 1].text == "=":
                at = signature.index.get(token.text, -1)
                self.at += 2
            else:
                at = len(given) if given == set(range(len(given))) and len(given) < len(values) else -1
            if at < 0 or at in given:
                self.fail(token, f"one argument too many, or one of no such name; the signature is {signature}")
            values[at] = self.literal()
            given.add(at)
            if self.token.text != ")":
                self.expect(",")
        missing = [s.name for s, v in zip(signature.slots, values, strict=True) if v is MISSING]
        if missing:
            self.fail(name, f"{op.name}() misses {', '.join(missing)}; the signature is {signature}")
        return values

    # ---- literals --------------------------------------------------------------------

    def literal(self) -> Any:
        token = self.token
        if token.kind == "value":
            return self.value()
        if token.kind in ("number", "mark") and token.text not in ("(", "["):
            return self.number()
        self.at += 1
        if token.kind == "string":
            return self.string(token, token.text)
        if token.kind == "dots":
            return ...
        if token.kind == "object":
            self.fail(token, "an argument is an object of Python, which no text can bring back")
        if token.kind == "mark":
            return self.bracketed(token)
        if token.kind != "name":
            self.fail(token, f"expected an argument, got {_quoted(token)}")
        if self.token.text == "(":
            return self.called(token)
        if token.text not in _WORDS:
            self.fail(token, f"'{token.text}' is no argument that a text can say")
        return _WORDS[token.text]

    def number(self) -> int | float:
        negative = self.match("-")
        token = self.token
        if token.kind == "name" and token.text in ("inf", "nan"):
            self.at += 1
            number: int | float = _WORDS[token.text]
        else:
            self.next("number", what="a number")
            if token.text.isdigit() and len(token.text) > 1000:
                self.fail(token, "a number of more than 1000 digits")
            number = int(token.text) if token.text.isdigit() else float(token.text)
        return -number if negative else number

    def string(self, token: Token, text: str) -> str:
        try:
            found = ast.literal_eval(text)
        except (ValueError, SyntaxError) as error:
            self.fail(token, f"this is no string: {error}")
        return str(found)

    def bracketed(self, token: Token) -> Any:
        self.at -= 1
        if token.text == "[":
            return self.sequence("[", "]")
        return tuple(self.sequence("(", ")"))

    def sequence(self, start: str, end: str) -> list[Any]:
        self.deeper(self.expect(start))
        found: list[Any] = []
        while not self.match(end):
            found.append(self.literal())
            if self.token.text != end:
                self.expect(",")
        self.depth -= 1
        return found

    def called(self, name: Token) -> Any:
        """Read a slice, a complex number or a step of a chain of views."""
        if name.text not in ("slice", "complex"):
            return self.step(name)
        inside = self.sequence("(", ")")
        if name.text == "slice":
            if len(inside) == 3 and all(v is None or type(v) is int for v in inside):
                return slice(*inside)
            self.fail(name, "a slice is slice(start, stop, step) of integers or None")
        if len(inside) == 2 and all(type(v) is float for v in inside):
            return complex(*inside)
        self.fail(name, "a complex number is complex(real, imaginary)")

    def step(self, name: Token) -> tuple[Op, list[Any], int | None]:
        op = self.operator(name)
        names = op.signature.names[1:]
        self.deeper(self.expect("("))
        self.expect("_")
        values: list[Any] = [None]
        for expected in names:
            self.expect(",")
            self.expect(expected)
            self.expect("=")
            values.append(self.literal())
        self.expect(")")
        self.depth -= 1
        number = None
        if self.match("["):
            number = self.integer()
            self.expect("]")
        if not op.view:
            self.fail(name, f"{op.name} gives no view")
        return op, values, number


def _quoted(token: Token) -> str:
    return token.text if token.kind == "end" else f"'{token.text}'"
