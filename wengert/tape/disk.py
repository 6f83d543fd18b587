"""Saved tensors in files: what backward needs leaves the main memory until it is needed."""

import os
import tempfile
import weakref
from contextlib import suppress
from typing import Any

import numpy as np

from wengert.array.shape import as_int
from wengert.core.node import Leaf, Version
from wengert.core.state import thread
from wengert.core.tensor import from_array, version_of
from wengert.errors import InplaceError
from wengert.tape.saved import saved_tensors_hooks

__all__ = ["save_on_disk"]


class Folder:
    """Where files go; a folder of our own is removed with the last of them."""

    def __init__(self, directory: Any) -> None:
        if directory is None:
            self.path = tempfile.mkdtemp(prefix="wengert-saved-")
            weakref.finalize(self, _remove, os.rmdir, self.path, os.getpid())
        else:
            self.path = os.fspath(directory)
            try:
                os.makedirs(self.path, exist_ok=True)
            except OSError as error:
                raise OSError(error.errno, f"save_on_disk: {self.path} cannot be made a folder ({error.strerror}); "
                              "give another directory") from error  # fmt: skip


def _remove(remove: Any, path: str, owner: int) -> None:
    """Remove a file or folder, unless this is a fork of the process it belongs to."""
    if os.getpid() == owner:
        with suppress(OSError):  # gone already, or not ours any more: nothing is lost by leaving it
            remove(path)


class File:
    """The elements of an array in a file, which is removed as soon as nobody refers to this.

    Dimensions along which the array was expanded are written once, and the order of the others in memory is kept, so that
    kernels give the same numbers for what is read.
    """

    def __init__(self, array: Any, folder: Folder) -> None:
        self.shape, self.dtype, self.folder = array.shape, array.dtype, folder
        compact = array[(..., *(slice(0, 1) if s == 0 else slice(None) for s in array.strides))]
        self.order = sorted(range(array.ndim), key=lambda axis: -abs(compact.strides[axis]))
        ordered: Any = np.asarray(compact.transpose(self.order), order="C")
        self.stored, self.nbytes = ordered.shape, ordered.nbytes
        remove: Any = None
        try:
            number, self.path = tempfile.mkstemp(prefix="saved-", suffix=".bin", dir=folder.path)
            remove = weakref.finalize(self, _remove, os.unlink, self.path, os.getpid())
            with open(number, "wb", buffering=0) as file:
                _write(file, memoryview(ordered.reshape(-1).view(np.uint8)))
        except OSError as error:
            if remove is not None:
                remove()
            raise OSError(
                error.errno,
                f"save_on_disk: {self.nbytes:,} bytes of a saved tensor of shape {tuple(self.shape)} could not be written to "
                f"{folder.path} ({error.strerror}); free some space there, or give another directory",
            ) from error

    def read(self) -> Any:
        """Return the array.

        Raises:
            OSError: if the file was removed or changed.
        """
        try:
            data = np.fromfile(self.path, np.uint8)
        except OSError as error:
            raise OSError(
                error.errno,
                f"save_on_disk: the file of a saved tensor of shape {tuple(self.shape)} cannot be read: {self.path} "
                f"({error.strerror}); it must stay until backward has run",
            ) from error
        if data.nbytes != self.nbytes:
            raise OSError(
                f"save_on_disk: the file of a saved tensor was changed: {self.path} holds {data.nbytes:,} bytes, "
                f"{self.nbytes:,} were written"
            )
        array = data.view(self.dtype).reshape(self.stored).transpose(np.argsort(self.order).tolist())
        return array if array.shape == self.shape else np.broadcast_to(array, self.shape)


def _write(file: Any, data: memoryview) -> None:
    """Write all of it: one call may write less."""
    while data:
        data = data[file.write(data) :]


class Held:
    """A saved tensor that stays in memory, and its version."""

    __slots__ = ("count", "payload", "version")

    def __init__(self, tensor: Any) -> None:
        self.payload, self.version = tensor._payload, version_of(tensor)
        self.count = self.version.count

    def read(self) -> Any:
        """Return its payload.

        Raises:
            InplaceError: if it was written since.
        """
        if self.version.count != self.count:
            raise InplaceError(
                f"a tensor of shape {tuple(self.payload.shape)} that backward needs was changed in place by "
                f"{self.version.first_write_after(self.count)}; change it out of place, or after backward"
            )
        return self.payload


class Writer:
    """Writes the saved tensors of one context to files: each array once, as long as it is unchanged."""

    def __init__(self, folder: Folder, min_bytes: int) -> None:
        self.folder, self.min_bytes = folder, min_bytes
        # An array may be collected and its id taken by another: the weak reference tells.
        self.written: dict[int, tuple[weakref.ref[Any], Version, int, weakref.ref[File]]] = {}

    def keep(self, tensor: Any) -> File | Held:
        """Return what stands for a saved tensor."""
        array = tensor._payload
        if type(tensor._node) is Leaf or tensor.nbytes < max(1, self.min_bytes):
            return Held(tensor)
        if not isinstance(array, np.ndarray):
            if thread.state.captures is not None:
                thread.state.captures.refuse("save_on_disk, which writes what backward needs to files,")
            raise TypeError(
                f"save_on_disk writes arrays, got a tensor of a running transform ({type(array).__name__}) of shape "
                f"{tuple(array.shape)}; take the transform out of the block, or raise min_bytes"
            )
        version = version_of(tensor)
        known = self.written.get(id(array))
        if known is not None and known[0]() is array and known[1] is version and known[2] == version.count:
            file = known[3]()
            if file is not None:
                return file
        file = File(array, self.folder)
        forget, number = self.written.pop, id(array)
        reference = weakref.ref(array, lambda gone: forget(number, None))
        self.written[number] = reference, version, version.count, weakref.ref(file)
        return file


class save_on_disk(saved_tensors_hooks):  # noqa: N801 - as PyTorch's save_on_cpu
    """Keep saved tensors in files until backward needs them; a file is removed as soon as its part of the graph is.

    A tensor that several operators save is written once. Leaves that require grad stay in memory: they are there anyway.
    Around a :func:`~wengert.utils.checkpoint.checkpoint`, its arguments go to files and the rest is computed again.

    Args:
        directory: where to write; made if it is not there. None: a folder of its own among the temporary files
            (``TMPDIR``), removed with the last file.
        min_bytes: smaller tensors stay in memory.

    Raises:
        OSError: if a file cannot be written, or in backward, read.
        TypeError: for a tensor of a running transform (``vmap``, ``jvp``), which has no elements of its own to write.

    Example:
        >>> import wengert as wg
        >>> x = wg.ones(1000, requires_grad=True)
        >>> with wg.autograd.graph.save_on_disk(min_bytes=0):
        ...     y = x.exp().sin()
        >>> y.sum().backward()
        >>> x.grad[:2]
        tensor([-2.4784, -2.4784])
    """

    def __init__(self, directory: Any = None, min_bytes: int = 1 << 16) -> None:
        min_bytes = as_int(min_bytes, "min_bytes")
        if min_bytes < 0:
            raise ValueError(f"min_bytes must not be negative, got {min_bytes}")
        super().__init__(Writer(Folder(directory), min_bytes).keep, lambda kept: from_array(kept.read()))
