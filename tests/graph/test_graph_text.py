"""The text of graphs: golden, exact for every number, and refused with its place where it is none."""

import contextlib
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import wengert as wg
from wengert.array.dtype import DTYPES, DType, complex64, dtype_of, float16, float32, int64, uint8
from wengert.compiling.trace import trace
from wengert.core.operator import Spec
from wengert.core.registry import operators
from wengert.errors import GraphError
from wengert.graph.ir import Graph
from wengert.graph.operations import Fused
from wengert.graph.parser import parse, parse_literal
from wengert.graph.text import literal, row_major, show, stored

GOLDEN = """\
graph {
  in %x: float32[2, 3] strides (4, 8)
  in %'a b': int64[]
  %const1: float32[3] = constant [0.1, -0.0, inf]
  %const2: float32[100] = constant 1.0
  %5: float32[3, 2] = transpose(%x, dim0=0, dim1=1)  # model.py:3 in f: y = x.t()
  %6: float32[2, 3], %7: int64[2, 3] = sort(%x)
  %8: float32[2] = sum(%6, dim=(1,))
  %9: float32[3], %10: float32[3] = fused pointwise(%const1, %const1) {  # model.py:4 in f
    in %a: float32[3], %b: float32[3]
    %const1: float32[] = constant 2.0
    %2: float32[3] = mul(%a, %const1)
    %3: float32[3] = add(%2, %b, alpha=0.5)
    return %3, %2
  }
  %12: float32[2, 3] strides (4, 8) = view_write(%x, %9, chain=(getitem(_, index=(1,)),))
  %11: float32[6] = cat((%9, %10))
  return %11, %5
  write %x = %12
}"""


def test_golden() -> None:
    graph = parse(GOLDEN)
    assert show(graph) == str(graph) == GOLDEN
    assert "#" not in graph.text(places=False)
    assert graph.inputs[0].strides == (4, 8)
    assert graph.inputs[1].name == "a b"
    fused, written = graph.nodes[3].op, graph.nodes[4]
    assert isinstance(fused, Fused)
    assert fused.body.nodes[1].arguments[2] == 0.5
    assert written.arguments[2] == ((operators()["getitem"], [None, (1,)], None),)
    assert graph.nodes[0].place == "model.py:3 in f: y = x.t()"
    assert graph.fresh() == "13"


def test_places_are_lines_of_the_program() -> None:
    def function(x: Any) -> Any:
        return x.sin() + 1

    lines = str(trace(function)(wg.ones(2))).splitlines()
    assert lines[2].endswith("in function: return x.sin() + 1")
    assert "test_graph_text.py:" in lines[2]


# ---- numbers -------------------------------------------------------------------------

LITERALS = [
    0, -1, 2**70, 0.1, -0.0, 1e300, 5e-324, float("inf"), float("-inf"), True, None, "it's # \n \"text\"", "", ...,
    1j, -0.5 + 2j, (), (1,), (1, (2.0, "x")), [], [1, [None]], slice(1, None, -2), float32, wg.bool, wg.channels_last,
    (slice(None), None, ...), ((operators()["split_with_sizes"], [None, [1, 2], 0], 1),), np.float32(0.5), np.int64(3),
]  # fmt: skip


@pytest.mark.parametrize("value", LITERALS, ids=repr)
def test_literals(value: Any) -> None:
    want = value.item() if isinstance(value, np.generic) else value
    found = parse_literal(literal(value))
    assert found == want
    assert type(found) is type(want)
    assert literal(found) == literal(value)
    assert str(found) == str(want)


def constant(array: Any) -> Graph:
    graph = Graph()
    graph.outputs = [graph.constant(Spec(array.shape, dtype_of(array.dtype)), array)]
    return graph


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
@pytest.mark.parametrize("shape", [(), (3,), (2, 2), (0, 3), (5, 7)], ids=repr)
def test_constants_keep_their_bits(dtype: DType, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(1)
    size = int(np.prod(shape)) * dtype.itemsize
    noise = rng.integers(0, 2 if dtype.name == "bool" else 256, size, np.uint8).tobytes()
    for array in (
        np.frombuffer(noise, dtype.numpy).reshape(shape),
        np.zeros(shape, dtype.numpy),
        np.ones(shape, dtype.numpy),
    ):
        graph = constant(array)
        text = str(graph)
        found = parse(text, stored(graph))
        assert str(found) == text
        assert next(iter(found.constants.values())).tobytes() == array.tobytes()


SPECIAL = [np.nan, -np.nan, np.inf, -0.0, 1e-45, 0.1, 3.4e38]


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64, ml_dtypes.bfloat16])
def test_special_numbers_stand_in_the_text(kind: Any) -> None:
    with np.errstate(over="ignore"):
        array = np.array(SPECIAL).astype(kind)
    graph = constant(array)
    assert next(iter(parse(str(graph), stored(graph)).constants.values())).tobytes() == array.tobytes()


def test_the_payload_of_a_nan_is_kept_beside_the_text() -> None:
    array = np.array([0x7FC00001, 0x3F800000], np.uint32).view(np.float32)
    graph = constant(array)
    assert list(stored(graph)) == ["const1"]
    assert next(iter(parse(str(graph), stored(graph)).constants.values())).tobytes() == array.tobytes()


@pytest.mark.parametrize("shape", [(), (3,), (2, 1, 3), (1, 1)], ids=repr)
def test_row_major_strides_are_those_of_numpy(shape: tuple[int, ...]) -> None:
    assert row_major(Spec(shape, float32)) == np.empty(shape, np.float32).strides


# ---- what is no text -----------------------------------------------------------------


def block(*lines: str) -> str:
    return "\n".join(["graph {", "  in %x: float32[2]", *(f"  {line}" for line in lines), "}"])


DEEP = f"%1: float32[2] = sum(%x, dim={'(' * 100}"
BAD: dict[str, tuple[str, str]] = {
    "empty": ("", r"line 1, column 1: expected 'graph', got the end of the text"),
    "unclosed": ("graph {\n  return", r"line 2, column 9: expected '}'"),
    "goes on": ("graph {\n  return\n} x", r"line 3, column 3: expected the end of the text, got 'x'"),
    "character": (block("$"), r"line 3, column 3: '\$' is no part of a graph"),
    "dtype": (block("%1: float31[2] = relu(%x)"), r"line 3, column 7: there is no dtype 'float31'"),
    "operator": (block("%1: float32[2] = rlu(%x)"), r"line 3, column 20: there is no operator 'rlu'; near it: .*relu"),
    "undefined": (block("%1: float32[2] = relu(%y)", "return"), r"line 3, column 25: %y is not defined"),
    "itself": (block("%1: float32[2] = relu(%1)", "return"), r"line 3, column 25: %1 is not defined"),
    "later": (block("return %1"), r"line 3, column 10: %1 is not defined"),
    "twice": (block("%x: float32[2] = relu(%x)", "return"), r"line 3, column 3: %x is defined twice"),
    "two results": (block("%1: float32[2], %1: float32[2] = sort(%x)"), r"column 19: %1 is defined twice"),
    "outer value": (
        block("%1: float32[2] = fused pointwise(%x) {", "in %a: float32[2]", "return %x", "}"), "%x is not defined",
    ),
    "missing": (block("%1: float32[2] = add(%x)", "return"), r"line 3, column 20: add\(\) misses other"),
    "too many": (block("%1: float32[2] = exp(%x, %x)", "return"), r"column 28: one argument too many"),
    "keyword": (block("%1: float32[2] = exp(%x, y=1)", "return"), r"column 28: .* or one of no such name"),
    "given twice": (block("%1: float32[2] = exp(%x, input=%x)", "return"), r"column 28: one argument too many"),
    "draw": (block("%1: float32[2] = !draw.randn()", "return"), r"column 20: the operation 'draw.randn' holds"),
    "object": (block("%1: float32[2] = sum(%x, dim=<object>)"), r"column 32: an argument is an object of Python"),
    "word": (block("%1: float32[2] = sum(%x, dim=os)"), r"column 32: 'os' is no argument that a text can say"),
    "call": (block("%1: float32[2] = sum(%x, dim=eval('1'))"), r"column 32: there is no operator 'eval'"),
    "no view": (block("%1: float32[2] = sum(%x, dim=exp(_))"), r"column 32: exp gives no view"),
    "slice": (block("%1: float32[2] = sum(%x, dim=slice(1, 2))"), r"a slice is slice\(start, stop, step\)"),
    "string": (block("%1: float32[2] = sum(%x, dim='\\N{x}')"), r"this is no string"),
    "deep": (block(DEEP), r"more than 64 levels of brackets"),
    "size": (block("%1: float32[9999999999999999999] = relu(%x)"), r"expected an integer"),
    "negative size": (block("%1: float32[-1] = relu(%x)"), r"a size cannot be negative"),
    "strides": (block("%1: float32[2] strides (4, 4) = relu(%x)"), r"2 strides for 1 dimensions"),
    "number": (block("%1: uint8[] = constant 256", "return"), r"column 26: this is no uint8\[\]"),
    "kind of number": (block("%1: float32[] = constant 1", "return"), r"1 is no element of float32"),
    "count": (block("%1: int64[2] = constant [1, 2, 3]", "return"), r"3 elements for shape \[2\]"),
    "huge constant": (block("%1: float32[9999, 999999999] = constant 1.0"), r"too large to stand in a text"),
    "no array": (block('%1: float32[2] = constant "sha256:00"'), r"the array of the constant %1 does not stand in the text"),
    "digits": (block(f"%1: float32[2] = add(%x, {'9' * 5000})"), r"a number of more than 1000 digits"),
    "constant of two": (block("%1: int64[], %2: int64[] = constant 1"), r"a constant has one name"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_refused(name: str) -> None:
    text, match = BAD[name]
    with pytest.raises(GraphError, match=match):
        parse(text)


def test_an_error_points_at_its_place() -> None:
    with pytest.raises(GraphError) as caught:
        parse(block("%1: float32[2] = relu(%y)", "return"))
    assert str(caught.value).splitlines()[1:] == [
        "   3 |   %1: float32[2] = relu(%y)",
        "     |                         ^",
    ]


def test_any_part_of_a_text_is_read_or_refused() -> None:
    graph = trace(lambda x: (x[0].mul_(2), x.sort())[1])(wg.ones(2, 3))
    text = str(graph)
    for end in range(len(text)):
        with pytest.raises(GraphError):
            parse(text[:end])
        with contextlib.suppress(GraphError):
            parse(text[:end] + text[end + 1 :])


def test_arrays_beside_the_text_are_checked() -> None:
    graph = constant(np.arange(100))
    text = str(graph)
    for array, match in [
        (np.arange(99), r"int64\[99\]"), (np.arange(100.0), "float64"), (np.arange(100)[::-1], "other elements"),
    ]:  # fmt: skip
        with pytest.raises(GraphError, match=match):
            parse(text, {"const1": array})


def test_random_numbers_are_marked() -> None:
    graph = trace(lambda: wg.rand(2))().graph
    assert "!draw.rand" in str(graph)
    with pytest.raises(GraphError, match=r"draw\.rand"):
        parse(str(graph))


def test_dtypes_used_above() -> None:
    """Keep the table of literals honest: words of the text are the dtypes themselves."""
    for dtype in (float16, complex64, int64, uint8):
        assert parse_literal(dtype.name) is dtype
