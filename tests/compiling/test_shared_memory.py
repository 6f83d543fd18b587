"""Memory that tensors share with NumPy, or with a buffer of Python's: a compiled function does there what a plain one does."""

import array
import functools
import mmap
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert.compiling.function import Compiled
from wengert.errors import CaptureError

Run = Callable[[Callable[..., Any]], Callable[..., Any]]
# What the function gets hold of, the same memory as an array of NumPy, and how a tensor is made of the first.
Way = Callable[[], tuple[Any, Any, Callable[[Any], Any]]]


class Exporter:
    """An array of another library."""

    def __init__(self, values: Any) -> None:
        self.values = values

    def __dlpack__(self, **options: Any) -> Any:
        return self.values.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.values.__dlpack_device__()


def of_array(share: Callable[[Any], Any]) -> Way:
    def make() -> Any:
        values = np.zeros(3)
        return values, values, share

    return make


def of_buffer(make_buffer: Callable[[], Any]) -> Way:
    def make() -> Any:
        buffer = make_buffer()
        return buffer, np.frombuffer(buffer), lambda given: wg.frombuffer(given, dtype=wg.float64)

    return make


def of_exporter(share: Callable[[Any], Any]) -> Way:
    def make() -> Any:
        values = np.zeros(3)
        return Exporter(values), values, share

    return make


def of_bytes_by_numpy() -> Any:
    buffer = bytearray(24)
    return buffer, np.frombuffer(buffer), lambda given: wg.from_numpy(np.frombuffer(given))


WAYS: dict[str, Way] = {
    "from_numpy": of_array(wg.from_numpy), "as_tensor": of_array(wg.as_tensor), "asarray": of_array(wg.asarray),
    "from_numpy of a view": of_array(lambda values: wg.from_numpy(values[:])),
    "frombuffer of an array": of_array(lambda values: wg.frombuffer(values, dtype=wg.float64)),
    "frombuffer of bytes": of_buffer(lambda: bytearray(24)),
    "frombuffer of array.array": of_buffer(lambda: array.array("d", [0.0] * 3)),
    "frombuffer of a mapped file": of_buffer(lambda: mmap.mmap(-1, 24)),
    "frombuffer of a memoryview": of_buffer(lambda: memoryview(bytearray(24))),
    "from_numpy of bytes": of_bytes_by_numpy,
    "from_dlpack": of_exporter(wg.from_dlpack), "asarray by DLPack": of_exporter(wg.asarray),
}  # fmt: skip


def steps(run: Run, function: Callable[..., Any], view: Any, *arguments: Any) -> list[Any]:
    """Call a function after each of some writes by NumPy; return what it gives, and what lies in the memory."""
    compiled, found = run(function), []
    for value in (1.0, 2.0, 2.0, 3.0):
        view[:] = value
        found += [compiled(wg.zeros(3, dtype=wg.float64), *arguments).tolist(), view.tolist()]
    return found


def shared_inside(run: Run, way: Way) -> Any:
    source, view, share = way()
    return steps(run, lambda x: x + share(source), view)


def shared_before(run: Run, way: Way) -> Any:
    source, view, share = way()
    t = share(source)
    return steps(run, lambda x: x + t, view)


def an_argument(run: Run, way: Way) -> Any:
    source, view, share = way()
    return steps(run, lambda x, t: x + t, view, share(source))


def shared_by_a_method(run: Run, way: Way) -> Any:
    source, view, share = way()

    class Holder:
        def get(self) -> Any:
            return source

    holder = Holder()
    return steps(run, lambda x: x + share(holder.get()), view)


def another_one_is_named(run: Run, way: Way) -> Any:
    (source, view, share), (other, seen, _) = way(), way()
    seen[:] = 9
    space = {"named": source}
    found = steps(run, lambda x: x + share(space["named"]), view)
    space["named"] = other
    return found, steps(run, lambda x: x + share(space["named"]), view)


def returned(run: Run, way: Way) -> Any:
    source, view, share = way()

    def function(x: Any) -> Any:
        t = share(source)
        return x + 1, t, t[1:]

    compiled, found = run(function), []
    for value in (1.0, 2.0):
        view[:] = value
        kept = compiled(wg.zeros(3, dtype=wg.float64))
        view[:] = value + 10
        found.append([t.tolist() for t in kept])
    return found


def written(run: Run, way: Way) -> Any:
    source, view, share = way()

    def function(x: Any) -> Any:
        t = share(source)
        t.add_(1)
        return x + t

    return steps(run, function, view)


def written_and_read(run: Run, way: Way) -> Any:
    source, view, share = way()

    def function(x: Any) -> Any:
        t = share(source)
        t.add_(1)
        return x + float(view[0])

    return steps(run, function, view)


def shared_before_written_and_read(run: Run, way: Way) -> Any:
    source, view, share = way()
    t = share(source)

    def function(x: Any) -> Any:
        t.add_(1)
        return x + float(view[0])

    return steps(run, function, view)


def an_argument_written_and_read(run: Run, way: Way) -> Any:
    source, view, share = way()

    def function(x: Any, t: Any) -> Any:
        t.add_(1)
        return x + float(view[0])

    return steps(run, function, view, share(source))


def written_through_another(run: Run, way: Way) -> Any:
    source, view, share = way()

    def function(x: Any) -> Any:
        one, other = share(source), share(source)
        one.add_(1)
        return x + other

    return steps(run, function, view)


def written_by_numpy(run: Run, way: Way) -> Any:
    source, view, share = way()

    def function(x: Any) -> Any:
        t = share(source)
        view[:] = 5
        y = x + t
        view[:] = 7
        return y + 2 * (x + t)

    return steps(run, function, view)


def shared_before_written_by_numpy(run: Run, way: Way) -> Any:
    source, view, share = way()
    t = share(source)

    def function(x: Any) -> Any:
        view[:] = 5
        y = x + t
        view[:] = 7
        return y + 2 * (x + t)

    return steps(run, function, view)


def made_inside(run: Run, way: Way) -> Any:
    def function(x: Any) -> Any:
        source, view, share = way()
        t = share(source)
        view[:] = 5
        y = x + t
        view[:] = 7
        z = x + t
        t.add_(1)
        return y + 2 * z + float(view[0])

    return steps(run, function, np.zeros(3))


def made_inside_and_returned(run: Run, way: Way) -> Any:
    def function(x: Any) -> Any:
        source, _, share = way()
        return share(source)

    compiled, found = run(function), []
    for _ in range(3):
        t = compiled(wg.zeros(3, dtype=wg.float64))
        found.append(t.tolist())
        t.add_(1)
    return found


READING = [shared_inside, shared_before, an_argument, shared_by_a_method, another_one_is_named]
WRITING = [
    written, written_and_read, shared_before_written_and_read, an_argument_written_and_read, written_through_another,
    written_by_numpy, shared_before_written_by_numpy, made_inside,
]  # fmt: skip


def plain(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("program", [*READING, *WRITING, returned, made_inside_and_returned])
def test_it_is_as_without_compile(program: Callable[[Run, Way], Any], way: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of what is run as it is
        assert program(wg.compile, WAYS[way]) == program(plain, WAYS[way])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("program", READING)
def test_reading_is_captured(program: Callable[[Run, Way], Any], way: str) -> None:
    assert program(native, WAYS[way]) == program(plain, WAYS[way])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("program", WRITING)
def test_writing_is_refused(program: Callable[[Run, Way], Any], way: str) -> None:
    with pytest.raises(CaptureError, match=r"writes into the array of a tensor|it changes 'view'"):
        program(native, WAYS[way])


def native(function: Callable[..., Any]) -> Compiled:
    return Compiled(function, fullgraph=True, backend="native")


@functools.cache
def table() -> Any:
    return np.zeros((2, 3))


@pytest.mark.parametrize(
    "share", [wg.from_numpy, wg.as_tensor, lambda t: wg.from_numpy(t[:, ::2]), lambda t: wg.asarray(t.T)]
)
def test_arrays_that_no_name_leads_to(share: Callable[[Any], Any]) -> None:
    run = native(lambda x: x + share(table()).sum())
    for value in (1.0, 2.0, 2.0, 3.0):
        table()[:] = value
        assert run(wg.zeros(())).item() == share(table()).sum().item()
    assert len(next(iter(run.programs.values()))) == 3


# ---- memory that is given away

GIVEN = {
    "numpy": lambda t: t.numpy(), "np.asarray": np.asarray, "np.from_dlpack": np.from_dlpack,
    "numpy, by force": lambda t: t.numpy(force=True), "numpy of what is detached": lambda t: t.detach().numpy(),
    "numpy of a view": lambda t: t[:].numpy(), "memoryview": lambda t: np.frombuffer(memoryview(t.numpy())),
}  # fmt: skip
TENSORS = {
    "computed": lambda x: x * 2, "made inside": lambda x: wg.ones(3, dtype=wg.float64), "an argument": lambda x: x,
}  # fmt: skip


@pytest.mark.parametrize("tensor", TENSORS)
@pytest.mark.parametrize("give", GIVEN)
def test_what_is_given_away_is_not_written(give: str, tensor: str) -> None:
    def function(x: Any) -> Any:
        t = TENSORS[tensor](x)
        values = GIVEN[give](t)
        t.add_(1)
        return x + float(values[0])

    with pytest.raises(CaptureError, match=r"writes into the array of a tensor that (numpy|__dlpack__)"):
        native(function)(wg.ones(3, dtype=wg.float64))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        compiled = wg.compile(function)
        for k in (1.0, 1.0, 2.0):
            x, y = (wg.full((3,), k, dtype=wg.float64) for _ in range(2))
            assert compiled(x).tolist() == function(y).tolist()
            assert x.tolist() == y.tolist()


def test_what_is_given_away_may_be_read() -> None:
    run = native(lambda x: x + float((x * 2).numpy().sum()))
    for k in (1.0, 1.0, 2.0):
        assert run(wg.full((3,), k)).tolist() == [7 * k] * 3


# ---- buffers of Python's


@pytest.mark.parametrize("make", [lambda: bytearray(3), lambda: array.array("b", [0] * 3), lambda: mmap.mmap(-1, 3)])
def test_bytes_are_looked_at(make: Callable[[], Any]) -> None:
    buffer = make()
    run = native(lambda x: x + buffer[0])
    for value in (1, 2, 2, 3):
        buffer[0] = value
        assert run(wg.zeros(1)).tolist() == [value]


def test_a_look_does_not_hold_a_buffer(tmp_path: Path) -> None:
    buffer = bytearray(b"ab")
    run = native(lambda x: x + len(buffer))
    assert run(wg.zeros(1)).tolist() == [2]
    buffer.extend(b"cd")  # an error while somebody holds its memory
    assert run(wg.zeros(1)).tolist() == [4]
    (tmp_path / "file").write_bytes(b"abc")
    with (tmp_path / "file").open("r+b") as file:
        mapped = mmap.mmap(file.fileno(), 0)
    run = native(lambda x: x + (0 if mapped.closed else mapped[0]))
    assert run(wg.zeros(1)).tolist() == [ord("a")]
    mapped.close()
    assert run(wg.zeros(1)).tolist() == [0]
