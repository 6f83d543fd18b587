"""Reading the text form of kernels, a statement after the other; its grammar is in ``wengert.loops.text``."""

import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple, NoReturn

from wengert.errors import KernelError
from wengert.loops.ir import MONOIDS, Buffer, Fold, Kernel, Let, Loop, Param, Stage, Statement, Store, Update
from wengert.loops.scalar import DTYPES, OPS, Scalar, bits, const, index, is_float, make, param, var
from wengert.loops.tokens import Token, fail, split

__all__ = ["KEYWORDS", "parse"]

KEYWORDS: Final = frozenset(
    ("kernel", "out", "inout", "for", "fold", "parallel", "in", "step", "by", "lanes", "unroll", "of", "stage", "if", "True",
     "False", "inf", "nan")
)  # fmt: skip

_BINARY: Final[dict[str, tuple[int, str]]] = {
    "==": (1, "eq"), "!=": (1, "ne"), "<": (1, "lt"), "<=": (1, "le"), ">": (1, "gt"), ">=": (1, "ge"),
    "|": (2, "or"), "^": (3, "xor"), "&": (4, "and"), "<<": (5, "shl"), ">>": (5, "shr"),
    "+": (6, "add"), "-": (6, "sub"), "*": (7, "mul"), "/": (7, "div"), "//": (7, "quotient"), "%": (7, "remainder"),
}  # fmt: skip


class _Literal(NamedTuple):
    """A number whose dtype its surroundings will tell."""

    text: str
    token: Token


class _Scope(NamedTuple):
    """A loop whose body is being read: its folds, and whether its updates add to them."""

    folds: list[Fold]
    implied: bool


def parse(text: str) -> Kernel:
    """Return the kernel that a text describes.

    Raises:
        KernelError: if it describes none; the message names the line, the column, and what was expected there.

    Example:
        >>> parse("kernel double(x: f32[n: 1], out y: f32[n: 1])\\n  for i in 0:n\\n    y[i] = x[i] * 2.0\\n").sizes
        ('n',)
    """
    try:
        return _Parser(text).kernel()
    except RecursionError:
        raise KernelError("an expression is nested too deeply: give names to its parts") from None


class _Parser:
    """Reads statements line by line, and expressions by precedence climbing."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.lines = split(text)
        self.row = self.at = 0
        self.names: dict[str, Any] = {}  # name → Buffer or Stage, or a function from the part to an expression
        self.short: dict[str, Scalar] = {}
        self.scopes: list[_Scope] = []

    # tokens

    @property
    def token(self) -> Token:
        return self.lines[self.row][self.at]

    def fail(self, problem: str, token: Token | None = None) -> NoReturn:
        fail(token or self.token, problem, self.text)

    def expected(self, what: str) -> NoReturn:
        token = self.token
        self.fail(f"expected {what}, found {'the end of the line' if token.kind == 'end' else repr(token.text)}")

    def take(self, *texts: str) -> str:
        """Go past the next token if it is one of these, and return it, or ""."""
        text = self.token.text
        if self.token.kind not in ("name", "mark") or text not in texts:
            return ""
        self.at += 1
        return text

    def need(self, *texts: str) -> str:
        return self.take(*texts) or self.expected(" or ".join(map(repr, texts)))

    def name(self, what: str) -> str:
        token = self.token
        if token.kind != "name":
            self.expected(what)
        if token.text in KEYWORDS or token.text in DTYPES:
            self.fail(f"expected {what}, found {token.text!r}, which has a meaning of its own")
        self.at += 1
        return token.text

    def dtype(self) -> str:
        return self.need(*DTYPES) if self.token.text in DTYPES else self.expected("a dtype (" + ", ".join(DTYPES) + ")")

    def integer(self, what: str) -> int:
        token = self.token
        if token.kind != "number" or not token.text.isdigit():
            self.expected(what)
        self.at += 1
        return int(token.text)

    def many(self, item: Callable[[], Any], close: str) -> list[Any]:
        """Read items between commas, up to a closing bracket."""
        items: list[Any] = []
        while not self.take(close):
            if items and self.need(",", close) == close:
                break
            items.append(item())
        return items

    def end(self) -> None:
        """Go to the next line."""
        if self.token.kind != "end":
            self.expected("the end of the line")
        if self.row + 1 < len(self.lines):
            self.row, self.at = self.row + 1, 0

    @property
    def finished(self) -> bool:
        return self.row + 1 >= len(self.lines) and self.token.kind == "end"

    # the kernel and its arguments

    def kernel(self) -> Kernel:
        self.need("kernel")
        head = self.token
        name = self.name("the kernel's name")
        sizes = self.many(lambda: self.name("the name of a size"), "]") if self.take("[") else None
        self.need("(")
        arguments = self.many(self.argument, ")")
        buffers = tuple(a for a in arguments if isinstance(a, Buffer))
        params = tuple(a for a in arguments if isinstance(a, Param))
        if sizes is None:
            sizes = list(dict.fromkeys(d for b in buffers for d in b.dims if isinstance(d, str)))
        for key, value in [(a.name, a) for a in arguments] + [(s, s) for s in sizes]:
            if key in self.names:
                self.fail(f"the name {key!r} is given twice", head)
            self.names[key] = self.argument_value(value)
        body = self.block(head._replace(column=1))
        if not self.finished:
            self.expected("a statement of the kernel, further indented than its head")
        return Kernel(name, buffers, tuple(sizes), body, params)

    def argument_value(self, value: Any) -> Any:
        if isinstance(value, Buffer):
            return value
        if isinstance(value, Param):
            return lambda part: param(value.name, value.dtype)
        return lambda part: make("size", (), "i64", value)

    def argument(self) -> Buffer | Param:
        role = self.take("out", "inout") or "in"
        name = self.name("the name of an argument")
        self.need(":")
        dtype = self.dtype()
        if not self.take("["):
            return Param(name, dtype) if role == "in" else self.expected(f"'[' (only a buffer can be {role!r})")
        dims = self.many(self.dim, "]")
        return Buffer(name, dtype, tuple(d for d, _ in dims), tuple(s for _, s in dims), role)

    def dim(self) -> tuple[str | int, int | None]:
        size = self.integer("a size") if self.token.kind == "number" else self.name("a size")
        stride = None
        if self.take(":"):
            stride = self.integer("the stride 0 or 1")
            if stride > 1:
                self.at -= 1
                self.fail(f"a fixed stride is 0 or 1, not {stride}; leave it out if it comes with the call")
        return size, stride

    # statements

    def block(self, head: Token) -> tuple[Statement, ...]:
        """Read the lines that are further indented than ``head``."""
        self.end()
        outer, self.names = self.names, dict(self.names)
        body: list[Statement] = []
        column = self.token.column
        while not self.finished and self.token.column > head.column and self.token.line != head.line:
            if self.token.column != column:
                self.fail(f"indented to column {self.token.column} where the lines before begin in column {column}")
            statement = self.statement()
            body += [] if statement is None else [statement]
        self.names = outer
        return tuple(body)

    def statement(self) -> Statement | None:
        token = self.token
        if token.text in ("for", "fold", "parallel"):
            return self.loop()
        if token.kind == "short":
            self.at += 1
            self.need("=")
            self.short[token.text] = self.scalar("")
            self.end()
            return None
        statement = self.stage() if self.take("stage") else self.assignment()
        self.end()
        return statement

    def loop(self) -> Loop:
        head = self.token
        word = self.need("for", "fold", "parallel")
        variable = self.name("the loop's variable")
        self.need("in")
        start = self.scalar("i64")
        self.need(":")
        stop = self.scalar("i64")
        step = self.integer("a step") if self.take("step") else 1
        lanes = 1
        if self.take("by"):
            lanes = self.integer("a number of lanes")
            self.need("lanes")
        unroll = self.integer("a number of steps") if self.take("unroll") else 1
        folds: list[Fold] = []
        explicit = bool(self.take("of"))
        while explicit and (not folds or self.take(",")):
            folds.append(self.fold())
        outer = self.names
        self.names = {**outer, variable: lambda part: index(variable), **{f.name: _results(f) for f in folds}}
        self.scopes.append(_Scope(folds, implied=word == "fold" and not explicit))
        body = self.block(head)
        self.scopes.pop()
        if word == "fold" and not folds:
            self.fail("a fold loop without an update: expected NAME = MONOID(value) in it", head)
        self.names = outer
        outer.update({f.name: _results(f) for f in folds})
        return Loop(variable, start, stop, body, tuple(folds), step, word == "parallel", lanes, unroll)

    def fold(self) -> Fold:
        name = self.name("the name of a fold")
        self.need(":")
        dtype = self.dtype()
        return Fold(name, dtype, self.need(*MONOIDS))

    def stage(self) -> Stage:
        name = self.name("the stage's name")
        self.need(":")
        dtype = self.dtype()
        self.need("[")
        size = self.scalar("i64")
        self.need("]")
        stage = Stage(name, dtype, size)
        self.names[name] = stage
        return stage

    def assignment(self) -> Store | Update | Let:
        token = self.token
        name = self.name("a statement")
        if self.take("["):
            return self.store(name, token)
        self.need("=")
        following = self.lines[self.row][self.at + 1 :][:1]
        if self.token.text in MONOIDS and following and following[0].text == "(":
            return self.update(name)
        value = self.scalar("")
        self.names[name] = lambda part: var(name, value.dtype, part)
        return Let(name, value)

    def store(self, name: str, token: Token) -> Store:
        buffer = self.buffer(name, token)
        indices = tuple(self.many(lambda: self.scalar("i64"), "]"))
        add = self.need("=", "+=") == "+="
        value = self.scalar(buffer.dtype)
        guard = self.scalar("bool") if self.take("if") else None
        return Store(name, indices, value, guard, add)

    def update(self, name: str) -> Update:
        token = self.token
        monoid = self.need(*MONOIDS)
        self.need("(")
        values = tuple(self.many(lambda: self.scalar(""), ")"))
        for scope in reversed(self.scopes):
            if any(f.name == name for f in scope.folds):
                break
        else:
            found = next((s for s in reversed(self.scopes) if s.implied), None)
            if found is None:
                self.fail(f"{name!r} is no fold of a loop around this line: expected it in a 'fold' loop", token)
            scope = found
            if not values:
                self.fail(f"{monoid} of no value", token)
            scope.folds.append(Fold(name, values[0].dtype, monoid))
        fold = next(f for f in scope.folds if f.name == name)
        if fold.monoid != monoid:
            self.fail(f"the fold {name!r} is a {fold.monoid}, not a {monoid}", token)
        self.names[name] = _results(fold)
        return Update(name, values)

    # expressions

    def scalar(self, dtype: str) -> Scalar:
        """Read an expression; a number alone has the dtype given."""
        return self.typed(self.expression(0), dtype)

    def typed(self, x: Scalar | _Literal, dtype: str) -> Scalar:
        if isinstance(x, Scalar):
            return x
        if not dtype:
            hint = "_f32" if re.search(r"[.einf]", x.text) else "_i64"
            self.fail(f"expected a dtype after the number, as in {x.text}{hint}: nothing around it tells", x.token)
        return self.number(x.text, dtype, x.token)

    def number(self, text: str, dtype: str, token: Token) -> Scalar:
        if is_float(dtype):
            return const(float(text), dtype)
        if not text.lstrip("-").isdigit() or dtype == "bool":
            self.fail(f"expected a number of dtype {dtype}, found {text}", token)
        value = int(text)
        if const(value, dtype).data != value:
            self.fail(f"{value} does not fit in {dtype}", token)
        return const(value, dtype)

    def build(self, token: Token, op: str, args: list[Any]) -> Scalar:
        """Make an operation; numbers among its operands take the dtype of the others."""
        skip = op in ("select", "rarely")
        operands = args[skip:]
        known = next((a.dtype for a in operands if isinstance(a, Scalar)), "")
        try:
            return make(op, (*(self.typed(a, "bool") for a in args[:skip]), *(self.typed(a, known) for a in operands)))
        except TypeError as error:
            self.fail(str(error), token)

    def expression(self, level: int) -> Scalar | _Literal:
        left = self.unary()
        while self.token.kind == "mark" and self.token.text in _BINARY:
            token = self.token
            own, op = _BINARY[token.text]
            if own <= level:
                break
            self.at += 1
            left = self.build(token, op, [left, self.expression(own)])
            if own == 1 and self.token.kind == "mark" and _BINARY.get(self.token.text, (0,))[0] == 1:
                self.fail("comparisons do not chain: put one of them in parentheses")
        return left

    def unary(self) -> Scalar | _Literal:
        token = self.token
        if self.take("~"):
            return self.build(token, "not", [self.unary()])
        if not self.take("-"):
            return self.atom()
        if self.token.kind == "number":
            return self.literal("-")
        return self.build(token, "neg", [self.unary()])

    def literal(self, sign: str) -> Scalar | _Literal:
        token = self.token
        self.at += 1
        text, _, dtype = token.text.partition("_")
        return self.number(sign + text, dtype, token) if dtype else _Literal(sign + text, token)

    def atom(self) -> Scalar | _Literal:
        token = self.token
        if token.kind == "number":
            return self.literal("")
        if token.kind == "short":
            self.at += 1
            found = self.short.get(token.text)
            return self.fail(f"{token.text} is not defined", token) if found is None else found
        if self.take("("):
            inner = self.expression(0)
            self.need(")")
            return inner
        if self.take("True", "False"):
            return const(token.text == "True", "bool")
        if token.text in DTYPES:
            return self.conversion(self.dtype())
        if token.kind != "name":
            self.expected("an expression")
        self.at += 1
        if self.take("("):
            return self.call(token)
        if self.take("["):
            return self.load(token)
        return self.value(token)

    def conversion(self, dtype: str) -> Scalar:
        """A cast ``f32(x)``, or a lookup ``f32{0.5, 0.25}[i]``."""
        if self.need("(", "{") == "(":
            inner = self.scalar("")
            self.need(")")
            return make("cast", (inner,), dtype)
        table = tuple(self.many(self.entry, "}"))
        self.need("[")
        place = self.scalar("i64")
        self.need("]")
        return make("lookup", (place,), dtype, table)

    def entry(self) -> int | float | bool:
        if self.token.text in ("True", "False"):
            return self.need("True", "False") == "True"
        sign = self.take("-")
        token = self.token
        if token.kind != "number" or "_" in token.text:
            self.expected("a number")
        self.at += 1
        return int(sign + token.text) if token.text.isdigit() else float(sign + token.text)

    def call(self, token: Token) -> Scalar:
        if token.text == "bits":
            inner = self.scalar("")
            self.need(",")
            dtype = self.dtype()
            self.need(")")
            try:
                return bits(inner, dtype)
            except TypeError as error:
                self.fail(str(error), token)
        if token.text not in OPS or OPS[token.text].arity < 1 or token.text in ("cast", "lookup"):
            self.fail(f"{token.text!r} is no function of a kernel; known are {', '.join(_FUNCTIONS)}", token)
        return self.build(token, token.text, self.many(lambda: self.expression(0), ")"))

    def buffer(self, name: str, token: Token) -> Buffer | Stage:
        found = self.names.get(name)
        if not isinstance(found, Buffer | Stage):
            self.fail(f"{name!r} is no buffer", token)
        return found

    def load(self, token: Token) -> Scalar:
        buffer = self.buffer(token.text, token)
        args: list[Scalar] = []
        guarded = False
        while not self.take("]"):
            if args and self.token.text not in ("if", "]"):
                self.need(",")
            if self.take("if"):
                args.append(self.scalar("bool"))
                guarded = True
                self.need("]")
                break
            args.append(self.scalar("i64"))
        return make("load", tuple(args), buffer.dtype, (token.text, guarded))

    def value(self, token: Token) -> Scalar:
        found = self.names.get(token.text)
        if found is None or isinstance(found, Buffer | Stage):
            problem = "is a buffer: expected '[' after it" if found is not None else "is not defined"
            self.fail(f"{token.text!r} {problem}", token)
        part = self.integer("the part of a fold's result") if self.take(".") else 0
        return found(part)


def _results(fold: Fold) -> Callable[[int], Scalar]:
    """The parts of a fold's result by number."""
    dtypes = MONOIDS[fold.monoid].dtypes(fold.dtype)
    return lambda part: var(fold.name, dtypes[min(part, len(dtypes) - 1)], part)


_FUNCTIONS: Final = sorted(
    op for op, row in OPS.items() if row.arity >= 1 and not row.symbol and op not in ("cast", "lookup")
)
