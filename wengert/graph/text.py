"""Graphs as text, which ``parse`` reads back.

::

    graph     = "graph" block
    block     = "{" {"in" [value {"," value}]} {constant} {node} "return" [%NAME {"," %NAME}] {"write" %NAME "=" %NAME} "}"
    value     = %NAME ":" DTYPE "[" [INTEGER {"," INTEGER}] "]" ["strides" "(" {INTEGER ","} ")"]
    constant  = value "=" "constant" (NUMBER | "[" [NUMBER {"," NUMBER}] "]" | "sha256:…")
    node      = [value {"," value} "="] (OPERATOR arguments | "fused" NAME arguments block) [# line of the program]
    arguments = "(" [argument {"," argument}] ")"         in the order of the operator's signature, from some point on by name
    argument  = [NAME "="] literal
    literal   = %NAME | NUMBER | STRING | "None" | "True" | "False" | "..." | DTYPE | MEMORY_FORMAT
              | "slice(" literal "," literal "," literal ")" | "complex(" NUMBER "," NUMBER ")"
              | "(" [literal {"," literal}] [","] ")" | "[" [literal {"," literal}] "]"
              | OPERATOR "(" "_" {"," NAME "=" literal} ")" ["[" INTEGER "]"]      a view, as a step of a chain of views

Strides are in bytes and stand where the memory is not row-major. Arguments are left out where they are the operator's
defaults. A constant is one number for all its elements, its elements in row-major order, or the checksum of an array that is
kept elsewhere under the constant's name. A name that is no word stands in quotes: ``%'my input'``.

``!`` marks an operation that holds objects of Python, a random generator say, ``<…>`` an argument that is such an object:
text alone cannot bring them back.
"""

import hashlib
import math
import re
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from wengert.array.dtype import BOOL, COMPLEX, FLOAT, INTEGER, DType
from wengert.array.layout import memory_format
from wengert.core.operator import Op, Spec
from wengert.core.place import describe
from wengert.core.signature import Slot
from wengert.graph.ir import Graph, Node, Value
from wengert.graph.operations import Fused

__all__ = ["digest", "filled", "inlined", "literal", "row_major", "show", "show_node", "stored"]

FEW: Final = 16  # elements of a constant that stand in the text
FILLED_BYTES: Final = 1 << 20  # of a constant whose elements are all the same
_NUMBERS: Final = {BOOL: bool, INTEGER: int, FLOAT: float, COMPLEX: complex}
_WORD: Final = re.compile(r"[A-Za-z0-9_.]+")


def show(graph: Graph, *, places: bool = True) -> str:
    """Return the text of a graph.

    Args:
        graph: any, also one that breaks the rules. places: whether each node's line of the user's program stands behind it.

    Example:
        >>> from wengert.array.dtype import float32
        >>> from wengert.core.operator import Spec
        >>> from wengert.core.registry import operators
        >>> graph = Graph()
        >>> x = graph.input(Spec((2,), float32), (4,), "x")
        >>> node = graph.call(operators()["exp"], (x,), [(x.spec, (4,))])
        >>> graph.outputs = list(node.results)
        >>> print(show(graph))
        graph {
          in %x: float32[2]
          %1: float32[2] = exp(%x)
          return %1
        }
    """
    return "\n".join(["graph {", *_block(graph, "  ", places, inner=False), "}"])


def show_node(node: Node) -> str:
    """Return the line of a node, without that of the program."""
    return f"{_results(node)}{_call(node)}"


def _block(graph: Graph, indent: str, places: bool, inner: bool) -> Iterator[str]:
    """Yield the lines between the braces; the inputs of an inner graph stand on one line."""
    inputs = [_declared(v) for v in graph.inputs]
    if inner:
        inputs = [", ".join(inputs)] if inputs else []
    yield from (f"{indent}in {text}" for text in inputs)
    for value, array in graph.constants.items():
        yield f"{indent}{_declared(value, laid=False)} = constant {_array(array, value.spec)}"
    for node in graph.nodes:
        comment = f"  # {' '.join(describe(node.place).split())}" if places and node.place is not None else ""
        if isinstance(node.op, Fused):
            yield f"{indent}{show_node(node)} {{{comment}"
            yield from _block(node.op.body, indent + "  ", places, inner=True)
            yield f"{indent}}}"
        else:
            yield f"{indent}{show_node(node)}{comment}"
    yield f"{indent}return {', '.join(map(_name, graph.outputs))}".rstrip()
    for target, value in graph.writes:
        yield f"{indent}write {_name(target)} = {_name(value)}"


# ---- values and nodes ----------------------------------------------------------------


def _name(value: Value) -> str:
    return f"%{value.name if _WORD.fullmatch(value.name) else repr(value.name)}"


def _declared(value: Value, laid: bool = True) -> str:
    spec = value.spec
    text = f"{_name(value)}: {spec.dtype.name}[{', '.join(map(str, spec.shape))}]"
    usual = not laid or 0 in spec.shape or value.strides == row_major(spec)
    return text if usual else f"{text} strides {value.strides!r}"


def row_major(spec: Spec) -> tuple[int, ...]:
    """Return the strides in bytes of new row-major memory."""
    strides: list[int] = []
    step = spec.dtype.itemsize
    for size in reversed(spec.shape):
        strides.append(step)
        step *= size or 1
    return tuple(reversed(strides))


def _results(node: Node) -> str:
    return f"{', '.join(_declared(v) for v in node.results)} = " if node.results else ""


def _call(node: Node) -> str:
    op = node.op
    if isinstance(op, Op) and len(op.signature.slots) == len(node.arguments):
        return f"{op.name}({', '.join(_arguments(op.signature.slots, node.arguments))})"
    arguments = ", ".join(map(literal, node.arguments))
    if isinstance(op, Fused):
        return f"fused {op.kind}({arguments})"
    return f"{'' if isinstance(op, Op) else '!'}{op.name}({arguments})"


def _arguments(slots: tuple[Slot, ...], values: tuple[Any, ...]) -> Iterator[str]:
    """Yield the arguments that are not the defaults: tensors by position while nothing was left out, the rest by name."""
    named = False
    for slot, value in zip(slots, values, strict=True):
        text = literal(value)
        named = named or slot.keyword_only or slot.input is None or value is None
        if not named:
            yield text
        elif text != literal(slot.default):
            yield f"{slot.name}={text}"


# ---- arguments that are no tensors ---------------------------------------------------


def literal(value: Any) -> str:
    """Return an argument as text: ``<…>`` around what the text cannot say."""
    if isinstance(value, Value):
        return _name(value)
    if isinstance(value, np.generic):
        value = value.item()
    kind = type(value)
    if kind in (tuple, list):
        return _sequence(value)
    if kind is slice:
        return f"slice({literal(value.start)}, {literal(value.stop)}, {literal(value.step)})"
    if kind is complex:
        return f"complex({value.real!r}, {value.imag!r})"
    if isinstance(value, DType | memory_format):
        return value.name
    if value is ...:
        return "..."
    if value is None or kind in (bool, int, float, str):
        return repr(value)
    return f"<{' '.join(repr(value).split())}>"


def _sequence(value: Any) -> str:
    if len(value) == 3 and isinstance(value[0], Op) and isinstance(value[1], list):
        return _step(*value)
    inside = ", ".join(map(literal, value))
    if isinstance(value, list):
        return f"[{inside}]"
    return f"({inside},)" if len(value) == 1 else f"({inside})"


def _step(op: Op, values: list[Any], number: int | None) -> str:
    """Return a step of a chain of views."""
    named = (f"{name}={literal(v)}" for name, v in zip(op.signature.names[1:], values[1:], strict=True))
    return f"{op.name}({', '.join(['_', *named])}){'' if number is None else f'[{number}]'}"


# ---- constants -----------------------------------------------------------------------


def stored(graph: Graph) -> dict[str, Any]:
    """Return the constants of a graph that do not stand in its text, by name.

    Example:
        >>> stored(Graph())
        {}
    """
    return {v.name: a for v, a in graph.constants.items() if inlined(a, v.spec) is None}


def _array(array: Any, spec: Spec) -> str:
    text = inlined(array, spec)
    return f'"{digest(array)}"' if text is None else text


def inlined(array: Any, spec: Spec) -> str | None:
    """Return the elements of a small constant, or the one number it is filled with; None for any other.

    It is None as well if the text would not give back the same bits (those of a NaN with a payload, say).
    """
    if array.dtype != spec.dtype.numpy or array.shape != spec.shape:
        return None
    flat = np.ascontiguousarray(array).reshape(-1)
    same = flat.size and array.nbytes <= FILLED_BYTES and _bits(flat) == _bits(flat[:1]) * flat.size
    if not same and flat.size > FEW:
        return None
    texts = [_number(x) for x in (flat[:1] if same else flat)]
    numbers = [float(t) if spec.dtype.category == FLOAT else x.item() for t, x in zip(texts, flat, strict=False)]
    if _bits(filled(numbers[0] if same else numbers, spec)) != _bits(flat):
        return None
    return texts[0] if same else f"[{', '.join(texts)}]"


def _number(element: Any) -> str:
    """Return the shortest text of an element that tells it from its neighbours."""
    if element.dtype.kind == "V":  # bfloat16
        return repr(float(element))
    return str(element) if element.dtype.kind == "f" else literal(element)


def filled(numbers: Any, spec: Spec) -> Any:
    """Return a constant from its elements in row-major order, or from the number that all of them are.

    Raises:
        ValueError: for a wrong count. TypeError, OverflowError, FloatingPointError: for a number that the dtype cannot hold.
    """
    given = numbers if isinstance(numbers, list) else [numbers]
    array = np.empty(len(given), spec.dtype.numpy)
    with np.errstate(over="raise"):
        for i, number in enumerate(given):
            if type(number) is not _NUMBERS[spec.dtype.category]:
                raise TypeError(f"{number!r} is no element of {spec.dtype.name}")
            array[i] = number
    if not isinstance(numbers, list):
        return np.full(spec.shape, array[0])
    if len(given) != math.prod(spec.shape):
        raise ValueError(f"{len(given)} elements for shape {list(spec.shape)}")
    return array.reshape(spec.shape)


def _bits(array: Any) -> bytes:
    return np.ascontiguousarray(array).tobytes()


def digest(array: Any) -> str:
    """Return the checksum of a constant's elements."""
    return f"sha256:{hashlib.sha256(_bits(array)).hexdigest()[:16]}"
