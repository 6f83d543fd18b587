"""Saved tensors in files: the same gradients, and no file that is not needed."""

import errno
import os
import subprocess
import sys
import weakref

import numpy as np
import pytest

import wengert as wg
from wengert.autograd.graph import save_on_cpu, save_on_disk
from wengert.tape import disk


def files(folder):
    return sorted(path.name for path in folder.iterdir())


ARRAYS = [
    lambda x: x,
    lambda x: x.t(),
    lambda x: x[:, ::2],
    lambda x: x.flip(0)[:, 1],
    lambda x: x[1, 1],
    lambda x: x[:0],
    lambda x: x[:, :1].expand(4, 5),
    lambda x: x.reshape(2, 2, 6).permute(2, 0, 1),
]


@pytest.mark.parametrize("dtype", [wg.float64, wg.float32, wg.bfloat16, wg.complex128])
@pytest.mark.parametrize("take", ARRAYS, ids=range(len(ARRAYS)))
@pytest.mark.parametrize("hooks", [lambda path: save_on_disk(path, min_bytes=0), lambda path: save_on_cpu()])
def test_gradients_are_the_same_to_the_last_bit(hooks, take, dtype, tmp_path):
    x = wg.arange(24).reshape(4, 6).to(dtype).div(10).requires_grad_()

    def gradient():
        y = take(x * 2)
        return wg.autograd.grad((y * y).exp().sum().abs(), x)[0]

    expected = gradient()
    with hooks(tmp_path):
        found = gradient()
    assert found.dtype is expected.dtype
    assert bool((found == expected).all())


@pytest.mark.parametrize(
    "array", [np.arange(12.0).reshape(3, 4).T, np.float32(3.0).reshape(()), np.arange(6)[::-2], np.zeros((0, 3)),
              np.broadcast_to(np.arange(3.0), (4, 3)), np.arange(24.0).reshape(2, 3, 4).transpose(1, 2, 0)],
    ids=["transposed", "0-d", "reversed", "empty", "expanded", "permuted"],
)  # fmt: skip
def test_what_is_read_is_what_was_written_in_the_same_order_of_memory(array, tmp_path):
    array = np.asarray(array)
    found = disk.File(array, disk.Folder(tmp_path)).read()
    assert found.dtype == array.dtype
    np.testing.assert_array_equal(found, array)
    if array.flags.forc:
        assert (found.flags.c_contiguous, found.flags.f_contiguous) == (
            array.flags.c_contiguous,
            array.flags.f_contiguous,
        )


def test_an_expanded_tensor_is_written_once(tmp_path):
    assert disk.File(np.broadcast_to(np.arange(3.0), (1000, 3)), disk.Folder(tmp_path)).nbytes == 24


def test_files_are_there_until_their_part_of_the_graph_is_freed(tmp_path):
    x = wg.ones(8, requires_grad=True)
    with save_on_disk(tmp_path, min_bytes=0):
        y = x.exp().sin()
    assert len(files(tmp_path)) == 1  # exp keeps its result, which is what sin keeps: written once
    y.sum().backward(retain_graph=True)
    assert len(files(tmp_path)) == 1
    y.sum().backward()
    assert files(tmp_path) == []


def test_files_go_with_a_graph_that_is_dropped_unused(tmp_path):
    x = wg.ones(8, requires_grad=True)
    with save_on_disk(tmp_path, min_bytes=0):
        y = x.exp()
    assert len(files(tmp_path)) == 1
    del y
    assert files(tmp_path) == []


def test_the_memory_is_freed(tmp_path):
    x = wg.ones(8, requires_grad=True)
    with save_on_disk(tmp_path, min_bytes=0):
        y = x.exp()
        held = weakref.ref(y._payload)
        z = y.sin()
    del y
    assert held() is None
    z.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), np.full(8, np.cos(np.e) * np.e), rtol=1e-6)


def test_a_changed_tensor_is_written_again(tmp_path):
    x = wg.ones(8, requires_grad=True)
    with save_on_disk(tmp_path, min_bytes=0):
        y = x * 1
        a = y.sin()
        y.mul_(2)
        b = y.sin()
    (a + b).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), np.full(8, np.cos(1) + 2 * np.cos(2)), rtol=1e-6)


def test_leaves_and_small_tensors_stay_in_memory_and_are_watched(tmp_path):
    w, x = wg.ones(100, requires_grad=True), wg.ones(100)
    with save_on_disk(tmp_path, min_bytes=500):
        y = (w * x[:1]).sum() + (w * (x * 2)).sum()
    assert len(files(tmp_path)) == 0  # x * 2 takes 400 bytes
    with wg.no_grad():
        w.mul_(2)
    y.backward()  # the gradient needs x alone
    np.testing.assert_array_equal(w.grad.numpy(), np.full(100, 3.0))
    with save_on_disk(tmp_path, min_bytes=0):
        y = (w * w).sum()
    with wg.no_grad():
        w.mul_(2)
    with pytest.raises(RuntimeError, match=r"shape \(100,\).*changed in place by mul_\(\)"):
        y.backward()


def test_double_backward_reads_twice(tmp_path):
    x = wg.tensor([0.5, 1.5], requires_grad=True)
    with save_on_disk(tmp_path, min_bytes=0):
        y = (x * 1).exp().sum()
    (g,) = wg.autograd.grad(y, x, create_graph=True)
    (h,) = wg.autograd.grad(g.sum(), x)
    np.testing.assert_allclose(h.numpy(), np.exp([0.5, 1.5]), rtol=1e-6)
    del y, g
    assert files(tmp_path) == []


def test_a_folder_of_its_own_is_removed_with_the_last_file(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    x = wg.ones(8, requires_grad=True)
    with save_on_disk(min_bytes=0):
        y = x.exp()
    (folder,) = tmp_path.iterdir()
    assert len(files(folder)) == 1
    y.sum().backward()
    assert files(tmp_path) == []


def test_nothing_is_left_when_python_ends(tmp_path):
    code = (
        "import wengert as wg, os, sys\n"
        "x = wg.ones(8, requires_grad=True)\n"
        "with wg.autograd.graph.save_on_disk(sys.argv[1], min_bytes=0): y = x.exp()\n"
        "with wg.autograd.graph.save_on_disk(min_bytes=0): z = x.exp()\n"
        "if os.fork() == 0: sys.exit()\n"
        "os.wait()\n"
        "y.sum().backward(); z.sum().backward()\n"
        "with wg.autograd.graph.save_on_disk(sys.argv[1], min_bytes=0): y = x.exp()\n"
    )
    environment = dict(os.environ, TMPDIR=str(tmp_path))
    run = subprocess.run([sys.executable, "-c", code, str(tmp_path)], env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert files(tmp_path) == []


def test_a_file_that_is_gone_or_changed_is_named(tmp_path):
    x = wg.ones(8, requires_grad=True)
    with save_on_disk(tmp_path, min_bytes=0):
        y = x.exp()
    (file,) = tmp_path.iterdir()
    file.write_bytes(b"123")
    with pytest.raises(OSError, match=rf"was changed: .*{file.name} holds 3 bytes, 32 were written"):
        y.sum().backward(retain_graph=True)
    file.unlink()
    with pytest.raises(FileNotFoundError, match=r"cannot be read.*must stay until backward"):
        y.sum().backward()


def test_a_full_disk_is_named_and_leaves_nothing(tmp_path, monkeypatch):
    def full(file, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(disk, "_write", full)
    x = wg.ones(8, requires_grad=True)
    with (
        pytest.raises(OSError, match=r"32 bytes of a saved tensor of shape \(8,\) could not be written"),
        save_on_disk(tmp_path, min_bytes=0),
    ):
        x.exp()
    assert files(tmp_path) == []


def test_bad_arguments_are_refused(tmp_path):
    with pytest.raises(ValueError, match="min_bytes must not be negative, got -1"):
        save_on_disk(tmp_path, min_bytes=-1)
    occupied = tmp_path / "file"
    occupied.touch()
    with pytest.raises(TypeError, match=r"min_bytes must be an int, got 1.5"):
        save_on_disk(tmp_path, min_bytes=1.5)
    with pytest.raises(FileExistsError, match="cannot be made a folder"):
        save_on_disk(occupied)
