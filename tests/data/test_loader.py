"""The loader: batches, order, workers."""

import gc
import threading
import time
from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    get_worker_info,
)  # fmt: skip


class Squares(Dataset[int]):
    def __init__(self, count: int = 10) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, i: int) -> int:
        return i * i


def batches(loader: DataLoader) -> list[Any]:
    return [b.tolist() for b in loader]


@pytest.mark.parametrize(
    "data", [wg.arange(5.0), np.arange(5.0), [0.0, 1.0, 2.0, 3.0, 4.0]], ids=lambda d: type(d).__name__
)
def test_what_has_a_length_and_samples_is_a_dataset(data: Any) -> None:
    assert batches(DataLoader(data, batch_size=2)) == [[0.0, 1.0], [2.0, 3.0], [4.0]]
    assert batches(DataLoader(Subset(data, [4, 0, 1]), batch_size=2)) == [[4.0, 0.0], [1.0]]


WORKERS = pytest.mark.parametrize("workers", [0, 1, 3])


def alive() -> int:
    return sum(t.name.startswith("wengert-data") and t.is_alive() for t in threading.enumerate())


def wait_until_gone() -> None:
    deadline = time.monotonic() + 10
    while alive() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert alive() == 0


# ---- batches and order


@WORKERS
@pytest.mark.parametrize(
    ("options", "want"),
    [
        ({}, [[i * i] for i in range(10)]),
        ({"batch_size": 4}, [[0, 1, 4, 9], [16, 25, 36, 49], [64, 81]]),
        ({"batch_size": 4, "drop_last": True}, [[0, 1, 4, 9], [16, 25, 36, 49]]),
        ({"batch_size": None}, [i * i for i in range(10)]),
        ({"batch_size": 2, "sampler": [3, 1, 2]}, [[9, 1], [4]]),
        ({"batch_sampler": [[1, 2], [3]]}, [[1, 4], [9]]),
    ],
    ids=["single", "four", "drop last", "unbatched", "sampler", "batch sampler"],
)
def test_batches(workers: int, options: dict[str, Any], want: Any) -> None:
    loader = DataLoader(Squares(), num_workers=workers, **options)
    got = [b if isinstance(b, int) else b.tolist() for b in loader]
    assert got == want
    assert len(loader) == len(want)
    assert [b if isinstance(b, int) else b.tolist() for b in loader] == want  # a second epoch


def test_the_order_depends_on_the_generator_alone() -> None:
    def epochs(workers: int) -> list[Any]:
        loader = DataLoader(
            Squares(), batch_size=3, shuffle=True, num_workers=workers, generator=wg.Generator().manual_seed(5)
        )
        return [batches(loader), batches(loader)]

    first, second = epochs(0)
    assert first != second
    assert sorted(v for batch in first for v in batch) == [i * i for i in range(10)]
    assert epochs(0) == [first, second]
    assert epochs(1) == [first, second]
    assert epochs(3) == [first, second]


def test_a_tensor_dataset_is_gathered_by_one_index_operation() -> None:
    asked: list[Any] = []

    class Watched(TensorDataset):
        def gather(self, indices: Any) -> Any:
            asked.append(list(indices))
            return super().gather(indices)

    data = Watched(wg.arange(12.0).reshape(6, 2), wg.arange(6))
    got = [(x.tolist(), y.tolist()) for x, y in DataLoader(data, batch_size=4)]
    assert asked == [[0, 1, 2, 3], [4, 5]]
    assert got == [([[0, 1], [2, 3], [4, 5], [6, 7]], [0, 1, 2, 3]), ([[8, 9], [10, 11]], [4, 5])]
    asked.clear()
    assert [y.tolist() for _, y in DataLoader(Subset(data, [5, 0, 2]), batch_size=2)] == [[5, 0], [2]]
    assert asked == [[5, 0], [2]]


def test_a_subclass_that_changes_single_samples_is_asked_for_them() -> None:
    class Doubled(TensorDataset):
        def __getitem__(self, i: int) -> Any:
            return tuple(2 * t for t in super().__getitem__(i))

    data = Doubled(wg.arange(3.0))
    assert [x.tolist() for (x,) in DataLoader(data, batch_size=3)] == [[0.0, 2.0, 4.0]]
    assert [x.tolist() for (x,) in DataLoader(Subset(data, [2]), batch_size=3)] == [[4.0]]
    with_collate = DataLoader(TensorDataset(wg.arange(3.0)), batch_size=3, collate_fn=len)
    assert list(with_collate) == [3]


def test_getitems_gives_several_samples_at_once() -> None:
    class Bulk(Squares):
        def __getitems__(self, indices: list[int]) -> list[int]:
            return [-i for i in indices]

    assert batches(DataLoader(Bulk(4), batch_size=2)) == [[0, -1], [-2, -3]]


# ---- streams


class Count(IterableDataset[int]):
    """0, 1, 2 …; with workers, each takes its share."""

    def __iter__(self) -> Any:
        info = get_worker_info()
        return iter(range(7)) if info is None else iter(range(info.id, 7, info.num_workers))


@pytest.mark.parametrize(
    ("workers", "options", "want"),
    [
        (0, {"batch_size": 3}, [[0, 1, 2], [3, 4, 5], [6]]),
        (0, {"batch_size": 3, "drop_last": True}, [[0, 1, 2], [3, 4, 5]]),
        (1, {"batch_size": 3}, [[0, 1, 2], [3, 4, 5], [6]]),
        (2, {"batch_size": 2}, [[0, 2], [1, 3], [4, 6], [5]]),
        (3, {"batch_size": 9}, [[0, 3, 6], [1, 4], [2, 5]]),
        (9, {"batch_size": 2}, [[0], [1], [2], [3], [4], [5], [6]]),
    ],
)
def test_streams(workers: int, options: dict[str, Any], want: Any) -> None:
    assert batches(DataLoader(Count(), num_workers=workers, **options)) == want


def test_streams_without_batches_and_with_length() -> None:
    class Sized(Count):
        def __len__(self) -> int:
            return 7

    assert list(DataLoader(Count(), batch_size=None)) == list(range(7))
    assert len(DataLoader(Sized(), batch_size=3)) == 3
    assert len(DataLoader(Sized(), batch_size=3, drop_last=True)) == 2
    assert len(DataLoader(Sized(), batch_size=None)) == 7
    with pytest.raises(TypeError):
        len(DataLoader(Count()))


# ---- workers


def test_batches_are_made_ahead_and_in_parallel() -> None:
    barrier = threading.Barrier(2, timeout=10)

    class Together(Squares):
        def __getitem__(self, i: int) -> int:
            if i < 2:
                barrier.wait()  # passes only if two workers are here at once
            return i

    assert batches(DataLoader(Together(6), num_workers=2)) == [[i] for i in range(6)]


def test_no_more_than_prefetch_factor_batches_are_made_ahead() -> None:
    made: list[int] = []

    class Watched(Squares):
        def __getitem__(self, i: int) -> int:
            made.append(i)
            return i

    it = iter(DataLoader(Watched(100), num_workers=2, prefetch_factor=3))
    next(it)
    time.sleep(0.2)
    assert len(made) <= 6
    it.close()
    wait_until_gone()


def test_an_error_comes_with_the_worker_s_trace() -> None:
    class Broken(Squares):
        def __getitem__(self, i: int) -> int:
            if i == 5:
                raise KeyError("sample 5 is broken")
            return i

    batches = iter(DataLoader(Broken(), batch_size=2, num_workers=2))
    assert [next(batches).tolist() for _ in range(2)] == [[0, 1], [2, 3]]
    with pytest.raises(KeyError, match="sample 5 is broken") as error:
        next(batches)
    assert any(entry.name == "__getitem__" for entry in error.traceback)
    assert error.value.__notes__ == [
        "making sample 5 of Broken",
        "in worker 0 of a DataLoader, making batch 2 of [4, 5]",
    ]
    wait_until_gone()


@WORKERS
def test_a_sample_that_stops_an_iteration_is_an_error_that_names_it(workers: int) -> None:
    class Stopping(Squares):
        def __getitem__(self, i: int) -> int:
            return next(iter([])) if i == 3 else i

    with pytest.raises(RuntimeError, match="sample 3 of Stopping raised StopIteration"):
        list(DataLoader(Stopping(), batch_size=2, num_workers=workers))


def test_an_error_of_a_stream_says_how_far_it_was() -> None:
    class Broken(IterableDataset[int]):
        def __iter__(self) -> Any:
            yield from (1, 2)
            raise ValueError("no more")

    with pytest.raises(ValueError, match="no more") as error:
        list(DataLoader(Broken(), batch_size=2, num_workers=1))
    assert error.value.__notes__ == [
        "after sample 1 of the stream Broken",
        "in worker 0 of a DataLoader, making batch 1",
    ]


def test_leaving_early_ends_the_workers() -> None:
    for _ in DataLoader(Squares(1000), num_workers=3):
        break
    gc.collect()
    wait_until_gone()


def test_persistent_workers_stay_for_the_next_epoch() -> None:
    started: list[int] = []
    loader = DataLoader(Squares(4), num_workers=2, persistent_workers=True, worker_init_fn=started.append)
    assert batches(loader) == batches(loader)
    assert sorted(started) == [0, 1]
    assert alive() == 2
    del loader
    gc.collect()
    wait_until_gone()


def test_workers_start_anew_each_epoch_otherwise() -> None:
    started: list[int] = []
    loader = DataLoader(Squares(4), num_workers=2, worker_init_fn=started.append)
    batches(loader)
    batches(loader)
    assert sorted(started) == [0, 0, 1, 1]
    wait_until_gone()


def test_a_slow_worker_is_reported() -> None:
    release = threading.Event()

    class Slow(Squares):
        def __getitem__(self, i: int) -> int:
            release.wait(10)
            return i

    try:
        with pytest.raises(RuntimeError, match=r"within 0\.05 s"):
            next(iter(DataLoader(Slow(), num_workers=1, timeout=0.05)))
    finally:
        release.set()
    wait_until_gone()


def test_a_timeout_error_of_the_dataset_is_its_own() -> None:
    class Remote(Squares):
        def __getitem__(self, i: int) -> int:
            raise TimeoutError("server")

    with pytest.raises(TimeoutError, match="server"):
        next(iter(DataLoader(Remote(), num_workers=1, timeout=5)))
    wait_until_gone()


def test_random_numbers_of_workers_do_not_depend_on_scheduling() -> None:
    class Noise(Squares):
        def __getitem__(self, i: int) -> Any:
            info = get_worker_info()
            assert info is not None
            time.sleep(0.001 * (i % 3))
            return wg.rand(2, generator=info.generator)

    def draw(workers: int) -> list[Any]:
        loader = DataLoader(Noise(), batch_size=2, num_workers=workers, generator=wg.Generator().manual_seed(1))
        return batches(loader)

    first = draw(1)
    assert draw(3) == first
    assert len({tuple(row) for batch in first for row in batch}) == 10


def test_worker_info() -> None:
    assert get_worker_info() is None

    class Who(Squares):
        def __getitem__(self, i: int) -> int:
            info = get_worker_info()
            assert info is not None
            assert info.dataset is self
            return 10 * info.num_workers + info.id

    assert batches(DataLoader(Who(4), num_workers=2)) == [[20], [21], [20], [21]]
    assert get_worker_info() is None


# ---- samplers


def test_samplers() -> None:
    data = "abcde"
    g = wg.Generator().manual_seed(0)
    assert list(SequentialSampler(data)) == [0, 1, 2, 3, 4]
    assert sorted(RandomSampler(data, generator=g)) == [0, 1, 2, 3, 4]
    many = list(RandomSampler(data, num_samples=12, generator=g))
    assert len(many) == 12
    assert sorted(many[:5]) == sorted(many[5:10]) == [0, 1, 2, 3, 4]
    drawn = list(RandomSampler(data, replacement=True, num_samples=200, generator=g))
    assert set(drawn) == {0, 1, 2, 3, 4}
    assert sorted(SubsetRandomSampler([7, 9], generator=g)) == [7, 9]
    weighted = list(WeightedRandomSampler([1.0, 0.0, 3.0], 4000, generator=g))
    share = np.bincount(weighted, minlength=3) / 4000
    np.testing.assert_allclose(share, [0.25, 0.0, 0.75], atol=0.03)
    assert sorted(WeightedRandomSampler([1.0, 1.0, 1.0], 3, replacement=False, generator=g)) == [0, 1, 2]
    sampler = BatchSampler(SequentialSampler(data), 2, drop_last=True)
    assert (list(sampler), len(sampler)) == ([[0, 1], [2, 3]], 2)
    assert len(BatchSampler(SequentialSampler(data), 2, drop_last=False)) == 3
    assert [len(s) for s in (RandomSampler(data), SubsetRandomSampler([1]), WeightedRandomSampler([1.0], 9))] == [
        5,
        1,
        9,
    ]


# ---- arguments


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"sampler": [1], "shuffle": True}, "exclude"),
        ({"batch_sampler": [[1]], "batch_size": 2}, "batch_sampler excludes"),
        ({"batch_sampler": [[1]], "shuffle": True}, "batch_sampler excludes"),
        ({"batch_size": None, "drop_last": True}, "drop_last"),
        ({"batch_size": 0}, "batch_size"),
        ({"batch_size": 1.5}, "batch_size"),
        ({"num_workers": -1}, "num_workers"),
        ({"timeout": -1}, "timeout"),
        ({"prefetch_factor": 2}, "prefetch_factor"),
        ({"prefetch_factor": 0, "num_workers": 1}, "prefetch_factor"),
        ({"persistent_workers": True}, "persistent_workers"),
        ({"multiprocessing_context": "fork"}, "needs num_workers"),
        ({"multiprocessing_context": "thread", "num_workers": 1}, "one of"),
    ],
    ids=lambda v: str(v) if isinstance(v, dict) else "",
)
def test_bad_arguments(options: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        DataLoader(Squares(), **options)


@pytest.mark.parametrize(
    "options", [{"shuffle": True}, {"sampler": [1]}, {"batch_sampler": [[1]]}, {"batch_size": 0}], ids=str
)
def test_bad_arguments_for_streams(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"IterableDataset|batch_size"):
        DataLoader(Count(), **options)


def test_pinning_warns() -> None:
    with pytest.warns(UserWarning, match="no effect"):
        DataLoader(Squares(), pin_memory=True)


@pytest.mark.parametrize(
    "make",
    [
        lambda: RandomSampler("ab", replacement=1),
        lambda: RandomSampler("ab", num_samples=0),
        lambda: WeightedRandomSampler([1.0], 0),
        lambda: WeightedRandomSampler([1.0], 1, replacement=0),
        lambda: WeightedRandomSampler([[1.0]], 1),
        lambda: BatchSampler([1], 1, drop_last=0),
        lambda: BatchSampler([1], True, drop_last=False),
    ],
)  # fmt: skip
def test_bad_samplers(make: Any) -> None:
    with pytest.raises(ValueError):
        make()


def test_public_names() -> None:
    assert wg.utils.data.DataLoader is DataLoader
    from wengert.utils.data import DataLoader as Same

    assert Same is DataLoader
    with pytest.raises(AttributeError, match="DataLoader"):
        _ = wg.data.Dataloader


# ---- going on in the middle of an epoch


@WORKERS
@pytest.mark.parametrize(
    "make",
    [
        lambda workers, g: DataLoader(Squares(), batch_size=3, shuffle=True, num_workers=workers, generator=g),
        lambda workers, g: DataLoader(Squares(), batch_size=None, num_workers=workers, generator=g),
        lambda workers, g: DataLoader(Squares(), batch_sampler=[[1, 2], [3], [4]], num_workers=workers, generator=g),
        lambda workers, g: DataLoader(Count(), batch_size=2, num_workers=workers, generator=g),
    ],
    ids=["shuffled", "unbatched", "batch sampler", "stream"],
)  # fmt: skip
def test_resuming_goes_on_with_the_next_batch(make: Any, workers: int) -> None:
    def plain(b: Any) -> Any:
        return b.tolist() if isinstance(b, wg.Tensor) else b

    first = make(workers, wg.Generator().manual_seed(4))
    batches = iter(first)
    for _ in range(2):
        next(batches)
    state = first.state_dict()
    rest = [plain(b) for b in batches]
    following = [plain(b) for b in first]
    second = make(workers, wg.Generator())
    second.load_state_dict(state)
    assert second.state_dict()["batches"] == 2
    assert [plain(b) for b in second] == rest
    assert [plain(b) for b in second] == following
    assert second.state_dict()["batches"] == 0


def test_resuming_skips_without_making_batches() -> None:
    made: list[int] = []

    class Watched(Squares):
        def __getitem__(self, i: int) -> int:
            made.append(i)
            return i

    loader = DataLoader(Watched(6), batch_size=2)
    loader.load_state_dict({"seed": 3, "batches": 2, "generator": None})
    assert [b.tolist() for b in loader] == [[4, 5]]
    assert made == [4, 5]


def test_two_epochs_at_once_do_not_disturb_each_other() -> None:
    def loader() -> DataLoader:
        return DataLoader(Squares(), shuffle=True, generator=wg.Generator().manual_seed(4))

    one = loader()
    a, b = iter(one), iter(one)
    mixed = [(next(a).item(), next(b).item()) for _ in range(10)]
    apart = loader()
    assert [x for x, _ in mixed] == [v.item() for v in apart]
    assert [y for _, y in mixed] == [v.item() for v in apart]
