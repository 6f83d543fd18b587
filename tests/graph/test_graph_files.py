"""Files of graphs: written whole, read back exactly, and refused where they are damaged."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert.array.dtype import DTYPES, DType, dtype_of
from wengert.compiling.trace import load_traced, trace
from wengert.core.operator import Spec
from wengert.errors import GraphError, TransformError
from wengert.graph.files import load, save
from wengert.graph.ir import Graph


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
def test_constants(dtype: DType, tmp_path: Path) -> None:
    array = (np.arange(60).reshape(3, 20) % 2).astype(dtype.numpy).T
    graph = Graph()
    graph.outputs = [graph.constant(Spec(a.shape, dtype_of(a.dtype)), a) for a in (array, array[:0], array[0])]
    save(graph, tmp_path / "g")
    found = load(tmp_path / "g")
    assert found.text() == graph.text()
    for a, b in zip(found.constants.values(), graph.constants.values(), strict=True):
        assert a.dtype == b.dtype
        assert a.tobytes() == b.tobytes()
        assert a.flags.writeable


def example() -> Graph:
    table = wg.arange(300.0)
    return trace(lambda x: x.softmax(0) + wg.arange(300.0) + table)(wg.ones(300)).graph  # type: ignore[no-any-return]


def test_every_damage_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "g"
    save(example(), path)
    data = path.read_bytes()
    damaged = [data[:n] for n in {*range(0, 40), *range(40, len(data), 97)}]
    damaged += [data[:n] + bytes([data[n] ^ 1]) + data[n + 1 :] for n in range(0, len(data), 37)]
    damaged += [data + b"\0", b"", b"\xff" * 100]
    for wrong in damaged:
        path.write_bytes(wrong)
        with pytest.raises(GraphError, match=r"g: this is no file of a graph, or a damaged one"):
            load(path)


def with_header(header: Any) -> bytes:
    encoded = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(encoded).to_bytes(8, "little") + encoded


HOSTILE: dict[str, bytes] = {
    "long header": (1 << 60).to_bytes(8, "little") + b"{}",
    "list": with_header([]),
    "deep": with_header(b"[" * 100000),
    "no text": with_header({"__metadata__": {"graph": 1}}),
    "format": with_header({"__metadata__": {"graph": "", "format": "other"}}),
    "pickle": b"\x80\x04\x95\x00\x00\x00\x00\x00\x00\x00\x00.",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile(name: str, tmp_path: Path) -> None:
    (tmp_path / "g").write_bytes(HOSTILE[name])
    with pytest.raises(GraphError, match="this is no file of a graph"):
        load(tmp_path / "g")


def test_a_failed_save_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "g"
    save(example(), path)
    before = path.read_bytes()
    with pytest.raises(GraphError, match=r"draw\.rand"):
        save(trace(lambda: wg.rand(2))().graph, path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["g"]
    with pytest.raises(FileNotFoundError):
        save(example(), tmp_path / "no folder" / "g")


# ---- programs ------------------------------------------------------------------------


def test_a_program_with_what_it_holds(tmp_path: Path) -> None:
    linear = wg.nn.Linear(3, 2)
    total = wg.zeros(2)

    def function(x: Any, *, shift: float) -> Any:
        y = linear(x["in"]) + shift
        total.add_(y.detach().sum(0))
        y.square().sum().backward()
        return {"y": y, "total": total, "first": x["in"][0], "n": (3, None, [])}

    x = {"in": wg.arange(6.0).reshape(2, 3)}
    path = tmp_path / "p"
    traced = trace(function)(x, shift=0.5)
    traced.save(path)
    loaded = load_traced(path)
    assert str(loaded) == str(traced)
    for _ in range(2):
        want, got = traced.evaluate(x, shift=0.5), loaded.evaluate(x, shift=0.5)
        assert got["n"] == (3, None, [])
        for key in ("y", "total", "first"):
            np.testing.assert_array_equal(got[key].detach().numpy(), want[key].detach().numpy())
        linear.zero_grad()
        loaded = load_traced(path)
        total.zero_()
    with pytest.raises(ValueError, match=r"argument 1 was 0\.5 when it was traced, now it is 1\.5"):
        loaded.evaluate(x, shift=1.5)


@pytest.mark.parametrize(
    ("function", "match"),
    [
        (lambda x: (x, object()), "an object of Python"),
        (lambda x: x + wg.rand(2), r"draw\.rand"),
        (lambda x: wg.aminmax(x), "not aminmax"),
    ],
)
def test_programs_that_no_file_can_hold(function: Any, match: str, tmp_path: Path) -> None:
    with pytest.raises(GraphError, match=match):
        trace(function)(wg.ones(2)).save(tmp_path / "p")
    assert not os.listdir(tmp_path)


def test_the_way_that_was_taken_is_kept(tmp_path: Path) -> None:
    traced = trace(lambda x: x * 2 if x.sum() > 0 else x)(wg.ones(2))
    traced.save(tmp_path / "p")
    loaded = load_traced(tmp_path / "p")
    assert loaded.evaluate(wg.ones(2)).tolist() == [2, 2]
    with pytest.raises(TransformError, match=r"was True when it was traced, and is False now"):
        loaded.evaluate(-wg.ones(2))


def test_a_graph_is_no_program(tmp_path: Path) -> None:
    save(example(), tmp_path / "g")
    with pytest.raises(GraphError, match="holds a graph alone"):
        load_traced(tmp_path / "g")
