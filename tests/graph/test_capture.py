"""What a function was written down as gives what the function gives, and writes what it writes."""

from typing import Any

import numpy as np
import pytest

import wengert as wg
from tests.graph.programs import BASE, HELD, PROGRAMS, arguments
from wengert import tree
from wengert.compiling.trace import trace
from wengert.graph.parser import parse
from wengert.graph.text import stored


def plain(found: Any) -> list[Any]:
    """Return the leaves of results: arrays, and other values."""
    return [leaf.detach().numpy().copy() if isinstance(leaf, wg.Tensor) else leaf for leaf in tree.flatten(found)[0]]


def equal(got: list[Any], want: list[Any]) -> bool:
    """Whether leaves have the same shapes, dtypes and elements."""
    for a, b in zip(got, want, strict=True):
        if not isinstance(b, np.ndarray):
            assert a == b
        else:
            assert (a.shape, a.dtype) == (b.shape, b.dtype)
            np.testing.assert_array_equal(a, b)
    return True


def run(call: Any, args: Any, kwargs: Any) -> tuple[Any, Any, list[Any]]:
    """Return the structure and leaves of a call's results, and what its arguments and held tensors hold afterwards."""
    HELD.copy_(wg.arange(6.0).reshape(2, 3))
    found = call(*args, **kwargs)
    return tree.structure(found), plain(found), plain((args, kwargs, HELD, BASE))


@pytest.mark.parametrize("name", PROGRAMS)
def test_evaluated(name: str) -> None:
    function = PROGRAMS[name][0]
    structure, results, after = run(function, *arguments(name))
    args, kwargs = arguments(name)
    before = plain((args, kwargs, HELD, BASE))
    traced = trace(function)(*args, **kwargs)
    assert equal(plain((args, kwargs, HELD, BASE)), before), "capturing changed something"
    traced.verify()
    got_structure, got, got_after = run(traced.evaluate, args, kwargs)
    assert got_structure == structure
    assert equal(got, results)
    assert equal(got_after, after)


@pytest.mark.parametrize("name", PROGRAMS)
def test_evaluated_on_other_numbers(name: str) -> None:
    """Nothing of the arguments' values has become part of the graph."""

    def other() -> tuple[Any, Any]:
        return tree.map(lambda t: -t - t if isinstance(t, wg.Tensor) else t, arguments(name))

    if name == "argument twice":
        pytest.skip("its arguments are one tensor")
    function = PROGRAMS[name][0]
    args, kwargs = arguments(name)
    traced = trace(function)(*args, **kwargs)
    want, got = run(function, *other()), run(traced.evaluate, *other())
    assert equal(got[1], want[1])
    assert equal(got[2], want[2])


@pytest.mark.parametrize("name", PROGRAMS)
def test_text_and_back(name: str) -> None:
    args, kwargs = arguments(name)
    graph = trace(PROGRAMS[name][0])(*args, **kwargs).graph
    text = str(graph)
    again = parse(text, stored(graph))
    assert str(again) == text
    for value, other in zip(graph.constants, again.constants, strict=True):
        assert graph.constants[value].tobytes() == again.constants[other].tobytes()
