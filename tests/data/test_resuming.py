"""A loader that goes on in the middle of an epoch gives exactly the rest; errors name the sample."""

import io
import random
from typing import Any

import pytest

import wengert as wg
from wengert.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    Sampler,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)  # fmt: skip


class Noisy(Dataset[Any]):
    """Index and a random number."""

    def __len__(self) -> int:
        return 12

    def __getitem__(self, i: int) -> Any:
        return i, wg.rand(())


class NoisyStream(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return ((i, wg.rand(())) for i in range(12))


class Foreign(Sampler[int]):
    """Draws from Python's generator, and says where that stands."""

    def __init__(self) -> None:
        self.random = random.Random(4)

    def __iter__(self) -> Any:
        order = list(range(12))
        self.random.shuffle(order)
        return iter(order)

    def __len__(self) -> int:
        return 12

    def state_dict(self) -> dict[str, Any]:
        version, state, gauss = self.random.getstate()
        return {"version": version, "state": list(state), "gauss": gauss}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.random.setstate((state["version"], tuple(state["state"]), state["gauss"]))


def seeded() -> wg.Generator:
    return wg.Generator().manual_seed(3)


LOADERS = {
    "shuffle": lambda **o: DataLoader(Noisy(), 2, shuffle=True, **o),
    "shuffle, own generator": lambda **o: DataLoader(Noisy(), 2, shuffle=True, generator=seeded(), **o),
    "sampler": lambda **o: DataLoader(Noisy(), 2, sampler=RandomSampler(range(12)), **o),
    "sampler, own generator": lambda **o: DataLoader(
        Noisy(), 2, sampler=RandomSampler(range(12), num_samples=20, generator=seeded()), **o
    ),
    "subset sampler": lambda **o: DataLoader(Noisy(), 2, sampler=SubsetRandomSampler(range(11), seeded()), **o),
    "weighted": lambda **o: DataLoader(Noisy(), 2, sampler=WeightedRandomSampler([1.0] * 12, 10), **o),
    "batches": lambda **o: DataLoader(
        Noisy(), batch_sampler=BatchSampler(RandomSampler(range(12), generator=seeded()), 5, drop_last=True), **o
    ),
    "foreign": lambda **o: DataLoader(Noisy(), 2, sampler=Foreign(), **o),
    "single": lambda **o: DataLoader(Noisy(), None, shuffle=True, **o),
    "stream": lambda **o: DataLoader(NoisyStream(), 2, **o),
}  # fmt: skip


def plain(batch: Any) -> list[Any]:
    return [v.tolist() if isinstance(v, wg.Tensor) else v for v in batch]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("name", LOADERS)
def test_the_rest_of_the_epoch_and_the_next_one(name: str, workers: int) -> None:
    wg.manual_seed(1)
    first = LOADERS[name](num_workers=workers)
    for _ in first:  # so that generators have moved
        pass
    batches = iter(first)
    given = [plain(next(batches)) for _ in range(2)]
    file = io.BytesIO()
    wg.save({"loader": first.state_dict(), "random": wg.get_rng_state()}, file)
    rest, following = [plain(b) for b in batches], [plain(b) for b in first]
    assert len({value for _, value in given + rest if not isinstance(value, list)}) in (0, len(given + rest))

    wg.manual_seed(2)  # another process
    second = LOADERS[name](num_workers=workers)
    file.seek(0)
    state = wg.load(file)
    second.load_state_dict(state["loader"])
    wg.set_rng_state(state["random"])
    assert [plain(b) for b in second] == rest
    assert [plain(b) for b in second] == following


def test_between_epochs_the_next_epoch_follows() -> None:
    first, second = LOADERS["sampler, own generator"](), LOADERS["sampler, own generator"]()
    for _ in first:
        pass
    second.load_state_dict(first.state_dict())
    wg.manual_seed(5)
    following = [plain(b) for b in first]
    wg.manual_seed(5)
    assert [plain(b) for b in second] == following


def test_a_state_of_another_loader() -> None:
    with pytest.raises(ValueError, match="1 samplers of their own state, not 0"):
        LOADERS["shuffle"]().load_state_dict(LOADERS["foreign"]().state_dict())


def test_what_a_dataset_draws_leaves_the_user_s_numbers_alone() -> None:
    wg.manual_seed(0)
    loader = DataLoader(Noisy(), 2)
    batches = iter(loader)
    state = wg.get_rng_state()
    next(batches)
    assert wg.get_rng_state().tolist() == state.tolist()


@pytest.mark.parametrize("workers", [0, 2])
def test_a_dataset_may_seed_its_samples(workers: int) -> None:
    class Fixed(Noisy):
        def __getitem__(self, i: int) -> Any:
            with wg.random.fork_rng():
                wg.manual_seed(i)
                return wg.rand(())

    wg.manual_seed(9)
    state = wg.get_rng_state()
    got = [v for batch in DataLoader(Fixed(), 5, num_workers=workers, generator=seeded()) for v in batch.tolist()]
    assert wg.get_rng_state().tolist() == state.tolist()
    want = [wg.rand((), generator=wg.Generator().manual_seed(i)).item() for i in range(12)]
    assert got == want


# ---- errors name the sample


class Broken(Noisy):
    def __getitem__(self, i: int) -> Any:
        if i == 5:
            raise KeyError("lost")
        return i if i < 9 else [i]


class BrokenStream(IterableDataset[Any]):
    def __iter__(self) -> Any:
        yield from (0, 1, 2)
        raise KeyError("lost")


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize(
    ("dataset", "options", "note"),
    [
        (Broken(), {"batch_size": 4}, "making sample 5 of Broken"),
        (Broken(), {"batch_size": None}, "making sample 5 of Broken"),
        (Broken(), {"sampler": [3, 12, 5]}, "making sample 5 of Broken"),
        (Broken(), {"batch_sampler": [[8, 9]]}, "making a batch of the samples [8, 9] of Broken"),
        (Subset(Broken(), [5]), {}, "making sample 0 of Subset"),
        (TensorDataset(wg.ones(2)), {"sampler": [1, 7]}, "making a batch of the samples [7] of TensorDataset"),
        (BrokenStream(), {"batch_size": 2}, "after sample 2 of the stream BrokenStream"),
        (BrokenStream(), {"batch_size": None}, "after sample 2 of the stream BrokenStream"),
    ],
)
def test_errors_name_the_sample(dataset: Any, options: dict[str, Any], note: str, workers: int) -> None:
    with pytest.raises((KeyError, IndexError, ValueError)) as error:
        for _ in DataLoader(dataset, num_workers=workers, **options):
            pass
    assert error.value.__notes__[0] == note
    assert len(error.value.__notes__) == 1 + workers
