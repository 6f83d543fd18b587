"""Workers that are processes give what threads give; they end, and say why they died."""

import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import wengert as wg
from wengert.data import DataLoader, Dataset, IterableDataset, RandomSampler, get_worker_info

pytestmark = [
    pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="fork"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning"),  # NumPy's threads, from Python 3.12 on
]
SHARED = Path("/dev/shm")


def blocks(process: int | None = None) -> set[str]:
    """The blocks of shared memory of the loaders of a process."""
    return {path.name for path in SHARED.glob(f"wg-{process or os.getpid():x}-*")} if SHARED.exists() else set()


@pytest.fixture(autouse=True)
def nothing_is_left() -> Any:
    yield
    deadline = time.monotonic() + 10
    while multiprocessing.active_children() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not multiprocessing.active_children()
    assert not blocks()


class Noisy(Dataset[Any]):
    """Index, random numbers of three kinds, and which process made it."""

    def __len__(self) -> int:
        return 13

    def __getitem__(self, i: int) -> Any:
        return i, wg.rand(2), np.random.rand(), os.getpid()


class NoisyStream(IterableDataset[Any]):
    def __iter__(self) -> Any:
        info = get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        return ((i, wg.rand(2), 0.0, os.getpid()) for i in range(first, 13, step))


LOADERS = {
    "shuffle": lambda **o: DataLoader(Noisy(), 2, shuffle=True, **o),
    "sampler": lambda **o: DataLoader(Noisy(), 3, sampler=RandomSampler(range(13), num_samples=20), **o),
    "batches": lambda **o: DataLoader(Noisy(), batch_sampler=[[1, 2], [3], [4, 5, 6]], **o),
    "single": lambda **o: DataLoader(Noisy(), None, shuffle=True, **o),
    "stream": lambda **o: DataLoader(NoisyStream(), 2, **o),
}


def epoch(batches: Any) -> list[Any]:
    """Indices and the package's random numbers, and whether other processes made them."""
    found = []
    for i, drawn, _, process in batches:
        assert os.getpid() not in np.atleast_1d(process)
        found.append((np.asarray(i).tolist(), drawn.tolist()))
    return found


@pytest.mark.parametrize("name", LOADERS)
def test_they_give_what_threads_give(name: str) -> None:
    def several(**options: Any) -> list[Any]:
        loader = LOADERS[name](generator=wg.Generator().manual_seed(3), num_workers=2, **options)
        return [[(np.asarray(b[0]).tolist(), b[1].tolist()) for b in loader] for _ in range(2)]

    wg.manual_seed(0)
    threads = several()
    wg.manual_seed(0)
    assert several(multiprocessing_context="fork") == threads


@pytest.mark.parametrize("name", LOADERS)
def test_going_on_in_the_middle_of_an_epoch(name: str) -> None:
    options = {"num_workers": 2, "multiprocessing_context": "fork"}
    wg.manual_seed(1)
    first = LOADERS[name](**options)
    batches = iter(first)
    for _ in range(2):
        next(batches)
    state, numbers = first.state_dict(), wg.get_rng_state()
    rest, following = epoch(batches), epoch(first)
    wg.manual_seed(2)
    second = LOADERS[name](**options)
    second.load_state_dict(state)
    wg.set_rng_state(numbers)
    assert epoch(second) == rest
    assert epoch(second) == following


def test_numpy_s_random_numbers_differ_between_workers_and_do_not_depend_on_them() -> None:
    def drawn(workers: int) -> list[float]:
        loader = DataLoader(
            Noisy(), 2, num_workers=workers, multiprocessing_context="fork", generator=wg.Generator().manual_seed(5)
        )
        return [value for batch in loader for value in batch[2].tolist()]

    assert len(set(drawn(3))) == 13
    assert drawn(1) == drawn(3)


# ---- shared memory


class Arrays(Dataset[Any]):
    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return 40

    def __getitem__(self, i: int) -> Any:
        return np.full(self.size, i, np.float32)


@pytest.mark.parametrize("size", [1, 100, 50_000])
def test_arrays_come_in_memory_of_their_own(size: int) -> None:
    kept = list(DataLoader(Arrays(size), 4, num_workers=2, multiprocessing_context="fork"))
    for n, batch in enumerate(kept):
        assert (batch[:, 0] == wg.arange(4.0) + 4 * n).all()
        assert (batch[:, -1] == wg.arange(4.0) + 4 * n).all()
        batch.mul_(0)


def test_blocks_are_used_again() -> None:
    loader = DataLoader(Arrays(20_000), 1, num_workers=2, prefetch_factor=2, multiprocessing_context="fork")
    seen: set[str] = set()
    for _ in loader:
        seen |= blocks()
    assert 1 <= len(seen) <= 2 * (2 + 2)


def growing(samples: list[Any]) -> Any:
    return wg.ones(int(samples[0][0]) * 5000 + 1)


def test_batches_may_grow() -> None:
    found = DataLoader(Arrays(1), 1, num_workers=1, multiprocessing_context="fork", collate_fn=growing)
    assert [len(batch) for batch in found] == [i * 5000 + 1 for i in range(40)]
    assert all(bool((batch == 1).all()) for batch in found)


class Pair(NamedTuple):
    left: Any
    right: Any


class Many(Dataset[Any]):
    """Tensors of many dtypes and layouts, arrays, and values that are neither."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, i: int) -> Any:
        base = (wg.arange(6000) + i).reshape(60, 100)
        dtypes = (wg.bool, wg.uint8, wg.float16, wg.bfloat16, wg.float64, wg.complex64)
        return {
            "dtypes": [base.to(dtype) for dtype in dtypes], "views": (base.t(), base[::2], base[0, 0], base[:0]),
            "arrays": np.asfortranarray(base.numpy()), "text": ["a", None, b"c" * 70_000], "pair": Pair(1, base),
        }  # fmt: skip


def test_every_kind_of_value() -> None:
    want = [Many()[i] for i in range(2)]
    found = list(
        DataLoader(Many(), None, num_workers=1, multiprocessing_context="fork", collate_fn=lambda sample: sample)
    )
    for a, b in zip(found, want, strict=True):
        for x, y in zip(
            [*a["dtypes"], *a["views"], a["pair"].right], [*b["dtypes"], *b["views"], b["pair"].right], strict=True
        ):
            assert (x.dtype, x.shape) == (y.dtype, y.shape)
            np.testing.assert_array_equal(x.numpy(), y.numpy())
        np.testing.assert_array_equal(a["arrays"], b["arrays"])
        assert (a["text"], type(a["pair"]), a["pair"].left) == (b["text"], Pair, 1)


# ---- errors


class AwkwardError(Exception):
    """Cannot be made again from its arguments."""

    def __init__(self, one: Any, two: Any) -> None:
        super().__init__(f"{one} and {two}")


class Broken(Dataset[Any]):
    """Does something bad at sample 5."""

    def __init__(self, what: str) -> None:
        self.what = what

    def __len__(self) -> int:
        return 12

    def __getitem__(self, i: int) -> Any:
        if i == 5:
            if self.what == "raise":
                raise KeyError("lost")
            if self.what == "awkward":
                raise AwkwardError("here", "there")
            if self.what == "SIGBUS":  # without the report that the tests would print
                signal.signal(signal.SIGBUS, signal.SIG_DFL)
            if self.what.startswith("SIG"):
                os.kill(os.getpid(), signal.Signals[self.what])
            if self.what == "system exit":
                raise SystemExit(4)
            if self.what == "exit":
                os._exit(3)
            if self.what == "timeout":
                raise TimeoutError("server")
            time.sleep(float(self.what))
        return i


def broken(what: str, **options: Any) -> Any:
    return iter(DataLoader(Broken(what), 2, num_workers=2, multiprocessing_context="fork", **options))


def test_an_error_names_sample_and_worker() -> None:
    batches = broken("raise")
    assert [next(batches).tolist() for _ in range(2)] == [[0, 1], [2, 3]]
    with pytest.raises(KeyError, match="lost") as error:
        next(batches)
    assert error.value.__notes__ == [
        "making sample 5 of Broken",
        "in worker 0 of a DataLoader, making batch 2 of [4, 5]",
    ]
    assert "in __getitem__" in str(error.value.__cause__)


def test_an_error_that_cannot_be_sent_says_the_same() -> None:
    with pytest.raises(RuntimeError, match="AwkwardError: here and there") as error:
        list(broken("awkward"))
    assert error.value.__notes__[0] == "making sample 5 of Broken"


def test_a_batch_that_cannot_be_sent() -> None:
    loader = DataLoader(Noisy(), 2, num_workers=1, multiprocessing_context="fork", collate_fn=lambda _: lambda: 3)
    with pytest.raises((AttributeError, pickle.PicklingError)) as error:
        list(loader)
    assert "as a pickle" in error.value.__notes__[0]


@pytest.mark.parametrize(
    ("what", "match"),
    [
        ("SIGKILL", r"worker 0 .* was killed by SIGKILL while it was to make batch 2 of \[4, 5\]; .*memory runs out"),
        ("SIGBUS", r"worker 0 .* was killed by SIGBUS while .* shared memory \(/dev/shm\).* is full"),
        ("system exit", r"worker 0 .* exited with code 4 while it was to make batch 2 of \[4, 5\]"),
        ("exit", r"worker 0 .* exited with code 3 while it was to make batch 2 of \[4, 5\]"),
    ],
)
def test_a_worker_that_dies(what: str, match: str) -> None:
    batches = broken(what)
    assert [next(batches).tolist() for _ in range(2)] == [[0, 1], [2, 3]]
    with pytest.raises(RuntimeError, match=match):
        next(batches)


def test_a_worker_that_is_killed_while_it_waits() -> None:
    loader = DataLoader(Noisy(), 2, num_workers=2, multiprocessing_context="fork", persistent_workers=True)
    (_, _, _, processes) = next(iter(loader))
    os.kill(int(processes[0]), signal.SIGKILL)
    with pytest.raises(RuntimeError, match="was killed by SIGKILL"):
        list(loader)
    with pytest.raises(RuntimeError, match="was killed by SIGKILL"):
        list(loader)


def test_a_slow_worker_is_reported() -> None:
    batches = broken("1.0", timeout=0.2)
    assert [next(batches).tolist() for _ in range(2)] == [[0, 1], [2, 3]]
    with pytest.raises(RuntimeError, match=r"within 0\.2 s"):
        next(batches)
    with pytest.raises(TimeoutError, match="server"):
        list(broken("timeout", timeout=5))


def test_what_cannot_be_pickled_is_named() -> None:
    class Local(Noisy):
        pass

    with pytest.raises((AttributeError, pickle.PicklingError)) as error:
        next(iter(DataLoader(Local(), num_workers=2, multiprocessing_context="spawn")))
    assert "by spawn" in error.value.__notes__[0]


# ---- the life of workers


def test_persistent_workers_stay() -> None:
    started = multiprocessing.get_context("fork").Value("i", 0)

    def count(_: int) -> None:
        with started.get_lock():
            started.value += 1

    loader = DataLoader(
        Noisy(), 2, num_workers=2, multiprocessing_context="fork", persistent_workers=True, worker_init_fn=count
    )
    processes = [{int(p) for batch in loader for p in batch[3]} for _ in range(3)]
    assert processes[0] == processes[1] == processes[2]
    assert (len(processes[0]), started.value) == (2, 2)
    for _ in loader:  # left early: what is under way is dropped
        break
    assert sorted(i for batch in loader for i in batch[0].tolist()) == list(range(13))
    a, b = iter(loader), iter(loader)  # two epochs at once
    assert [(next(a)[0].tolist(), next(b)[0].tolist()) for _ in range(7)] == [([*r], [*r]) for r in _pairs()]
    del a, b


def _pairs() -> list[range]:
    return [range(i, min(i + 2, 13)) for i in range(0, 13, 2)]


class Wide(Dataset[Any]):
    """Arrays of ``size`` bytes; from sample ``stuck`` on they take long. ``made`` counts."""

    def __init__(self, size: int, stuck: int) -> None:
        self.size, self.stuck = size, stuck
        self.made = multiprocessing.get_context("fork").Value("i", 0)

    def __len__(self) -> int:
        return 100

    def __getitem__(self, i: int) -> Any:
        if i >= self.stuck:
            time.sleep(30)
        self.made.value += 1
        return np.full(self.size, i % 256, np.uint8)

    def wait(self, count: int) -> None:
        """Wait until so many were made."""
        deadline = time.monotonic() + 20
        while self.made.value < count and time.monotonic() < deadline:
            time.sleep(0.01)


def test_a_worker_that_waits_to_send_is_not_waited_for() -> None:
    data = Wide(8000, stuck=1000)
    for _ in DataLoader(data, None, num_workers=1, multiprocessing_context="fork", prefetch_factor=100):
        data.wait(20)
        time.sleep(0.2)  # the line is full
        begun = time.perf_counter()
        break
    assert time.perf_counter() - begun < 1.5


def test_batches_that_nobody_took_are_removed_with_their_worker() -> None:
    data = Wide(50_000, stuck=6)
    for _ in DataLoader(data, None, num_workers=1, multiprocessing_context="fork", prefetch_factor=20):
        data.wait(6)
        time.sleep(0.2)
        break  # the worker is stuck and must be killed


def test_a_process_forked_from_the_loader_s_leaves_the_workers_alone() -> None:
    loader = DataLoader(range(40), 4, num_workers=2, multiprocessing_context="fork", persistent_workers=True)
    batches = iter(loader)
    first = next(batches)
    child = os.fork()
    if child == 0:
        try:
            loader._workers.close()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert [i for batch in (first, *batches) for i in batch.tolist()] == list(range(40))
    assert len(list(loader)) == 10


@pytest.mark.parametrize("where", ["connection.recv", "connection.send", "receiver.unpack"])
def test_after_an_interruption_in_the_middle_of_a_message_there_are_new_workers(where: str, monkeypatch: Any) -> None:
    loader = DataLoader(
        Wide(50_000, stuck=1000), 10, num_workers=2, multiprocessing_context="fork", persistent_workers=True
    )
    batches = iter(loader)
    next(batches)
    part, method = where.split(".")
    workers = loader._workers
    for line in workers._lines:
        monkeypatch.setattr(getattr(line, part), method, interrupt)
    with pytest.raises(KeyboardInterrupt):
        list(batches)
    monkeypatch.undo()
    assert [batch[:, 0].tolist() for batch in loader] == [[*range(i, i + 10)] for i in range(0, 100, 10)]
    assert loader._workers is not workers


def interrupt(*_: Any) -> Any:
    raise KeyboardInterrupt


class Unmade:
    """Can be pickled, but not unpickled."""

    def __reduce__(self) -> Any:
        return int, ("no number",)


def test_a_batch_that_cannot_be_made_again_names_the_reason_and_the_others_come() -> None:
    loader = DataLoader(
        [0, Unmade(), 2], None, num_workers=1, multiprocessing_context="fork", collate_fn=same, persistent_workers=True
    )
    for _ in range(2):
        batches = iter(loader)
        assert next(batches) == 0
        with pytest.raises(ValueError, match=r"(?s)no number.*could not be made again"):
            next(batches)


def same(value: Any) -> Any:
    return value


def test_leaving_early_ends_the_workers() -> None:
    begun = time.perf_counter()
    for _ in broken("30"):
        break
    assert time.perf_counter() - begun < 10


def test_worker_info() -> None:
    loader = DataLoader(Who(), 1, num_workers=2, multiprocessing_context="fork")
    assert [batch.tolist() for batch in loader] == [[20], [21], [20], [21]]


class Who(Dataset[Any]):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, i: int) -> int:
        info = get_worker_info()
        assert info is not None
        assert info.dataset is self
        return 10 * info.num_workers + info.id


def test_spawned_workers() -> None:
    def drawn(**options: Any) -> list[Any]:
        loader = DataLoader(Noisy(), 4, shuffle=True, generator=wg.Generator().manual_seed(2), **options)
        return [(b[0].tolist(), b[1].tolist()) for b in loader]

    context = multiprocessing.get_context("spawn")
    assert drawn(num_workers=1, multiprocessing_context=context) == drawn(num_workers=0)


SCRIPT = """
import os, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # what runs in the background of a shell ignores it
import numpy as np
import wengert as wg
from wengert.data import DataLoader, Dataset

class Slow(Dataset):
    def __len__(self):
        return 10**6
    def __getitem__(self, i):
        time.sleep(0.01)
        return np.zeros(20_000, np.float32), os.getpid()

seen = set()
for n, (x, process) in enumerate(DataLoader(Slow(), 1, num_workers=2, multiprocessing_context="fork")):
    if process.item() not in seen:
        seen.add(process.item())
        print(process.item(), flush=True)
"""


@pytest.mark.parametrize("by", ["SIGINT", "SIGKILL"])
def test_workers_end_with_their_loader(by: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    loader = subprocess.Popen(
        [sys.executable, "-c", SCRIPT], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert loader.stdout is not None
    workers = [int(loader.stdout.readline()) for _ in range(2)]
    loader.send_signal(getattr(signal, by))
    if by == "SIGINT":
        _, errors = loader.communicate(timeout=20)
        assert errors.count("Traceback") == 1  # of the loader, none of the workers
        assert "KeyboardInterrupt" in errors
        assert "leaked" not in errors
    else:
        loader.wait(20)
    deadline = time.monotonic() + 20
    while any(map(alive, workers)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(alive, workers))
    while blocks(loader.pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not blocks(loader.pid)
    for stream in (loader.stdout, loader.stderr):
        assert stream is not None
        stream.close()


def alive(process: int) -> bool:
    """Whether a process runs, and has not just ended without anybody asking for its end."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{process}/status").read_text()
    except OSError:
        return False
