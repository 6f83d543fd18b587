"""Random numbers in a dataset depend on the loader's seed and the batch, never on which worker makes it when."""

import time

import numpy as np
import pytest

import wengert as wg


class Noise(wg.utils.data.Dataset):
    """Draws each item from the default generator, some of them late."""

    def __len__(self):
        return 24

    def __getitem__(self, index):
        time.sleep(0.001 * (index % 3))
        return wg.rand(4)


def epoch(workers):
    loader = wg.utils.data.DataLoader(
        Noise(), batch_size=3, num_workers=workers, generator=wg.Generator().manual_seed(7)
    )
    return np.concatenate([batch.numpy() for batch in loader])


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_the_number_of_workers_does_not_change_the_numbers(workers):
    want = epoch(3)
    np.testing.assert_array_equal(epoch(workers), want)
    assert len(np.unique(want)) == want.size
