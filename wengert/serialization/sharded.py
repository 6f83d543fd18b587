"""A dictionary of tensors over several safetensors files, with an index that says which file holds which, as Hugging Face
keeps models.

``model.safetensors.index.json`` holds ``{"metadata": {"total_size": bytes}, "weight_map": {name: file}}``.
"""

import json
import os
import re
import secrets
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath

from wengert.atomic import write_whole
from wengert.core.tensor import Tensor
from wengert.serialization.header import Header, once, parse
from wengert.serialization.source import Path, Source, check_file, opened
from wengert.serialization.tensors import check, pieces, read_tensor

__all__ = ["ShardedTensors", "load_sharded", "save_sharded"]

_INDEX = "model.safetensors.index.json"
_WHOLE = "model.safetensors"  # what a model in one file is called
_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}


# ---- reading ---------------------------------------------------------------------------


class ShardedTensors(Mapping[str, Tensor]):
    """The tensors of several files, each read when it is asked for; what :func:`load_sharded` returns.

    Attributes:
        folder: where the files are. files: by tensor, the name of its file.
    """

    def __init__(self, folder: str, files: Mapping[str, str], verify: bool) -> None:
        self.folder, self.files = folder, dict(files)
        self._verify = verify
        self._headers: dict[str, Header] = {}

    def __getitem__(self, name: str) -> Tensor:
        file = self.files[name]
        with opened(os.path.join(self.folder, file), mapped=True) as source:  # anew, without what was written to before
            if file not in self._headers:
                self._headers[file] = self._header(source, file)
            return read_tensor(source, name, self._headers[file].entries[name], self._verify)

    def __iter__(self) -> Iterator[str]:
        return iter(self.files)

    def __len__(self) -> int:
        return len(self.files)

    def __repr__(self) -> str:
        return f"ShardedTensors({len(self.files)} tensors in {len(set(self.files.values()))} files of {self.folder!r})"

    def shards(self) -> Iterator[dict[str, Tensor]]:
        """Yield the tensors file by file, so that no more than one file's are needed at a time."""
        for file in dict.fromkeys(self.files.values()):
            yield {name: self[name] for name, other in self.files.items() if other == file}

    def _header(self, source: Source, file: str) -> Header:
        """Read the header of a file and compare it with the index."""
        header = parse(source, self._verify)
        wanted = {name for name, other in self.files.items() if other == file}
        _compare(source.name, wanted, set(header.entries), self.files)
        return header


def _compare(source: str, wanted: set[str], found: set[str], files: Mapping[str, str]) -> None:
    for name in sorted(wanted - found):
        raise ValueError(f"the index says that '{name}' is in {source}, which does not hold it")
    for name in sorted(found - wanted):
        where = f"in {files[name]}" if name in files else "nowhere"
        raise ValueError(f"{source} holds '{name}', which is {where} according to the index")


def load_sharded(path: Path, *, verify: bool = True) -> ShardedTensors:
    """Open a model that is kept in several files, with an index.

    Nothing but the index is read at first; a file is opened, and compared with the index, when one of its tensors is
    asked for. Files are mapped into memory: a tensor that is copied into a model is copied once, and one that is written
    to leaves the file as it is.

    Args:
        path: the folder, or the index itself. A folder without an index may hold one file, ``model.safetensors``, as small
            models do. verify: compare the checksum of a tensor when it is asked for.

    Returns:
        A mapping from names to tensors, which ``load_state_dict`` takes. :meth:`ShardedTensors.shards` gives the tensors
        file by file: ``for part in found.shards(): model.load_state_dict(part, strict=False)``.

    Raises:
        FileNotFoundError: if there is no index and no such file, or a file that the index names is not there.
        ValueError: if the index is damaged or names a file outside its folder; when a tensor is read, if the file is damaged,
            lacks it, or holds others.

    Example:
        >>> import tempfile
        >>> import wengert as wg
        >>> folder = tempfile.mkdtemp()
        >>> _ = wg.save_sharded({"a": wg.ones(3), "b": wg.zeros(3)}, folder, max_shard_size=12)
        >>> found = wg.load_sharded(folder)
        >>> found["b"], sorted(set(found.files.values()))
        (tensor([0., 0., 0.]), ['model-00001-of-00002.safetensors', 'model-00002-of-00002.safetensors'])
    """
    check_file("load_sharded", path, "")
    index = os.path.join(path, _INDEX) if os.path.isdir(path) else os.fspath(path)
    folder = os.path.dirname(index)
    if os.path.isdir(path) and not os.path.exists(index):
        return ShardedTensors(folder, _only_file(folder, verify), verify)
    files = _files(index)
    for file in sorted(set(files.values())):
        if not os.path.isfile(os.path.join(folder, file)):
            raise FileNotFoundError(f"{index} names the file {file!r}, which is not there")
    return ShardedTensors(folder, files, verify)


def _only_file(folder: str, verify: bool) -> dict[str, str]:
    """The names in the one file of a folder without an index, and that file."""
    path = os.path.join(folder, _WHOLE)
    if not os.path.isfile(path):
        raise FileNotFoundError(f"the folder {folder!r} holds neither {_INDEX} nor {_WHOLE}")
    with opened(path, mapped=True) as source:
        return dict.fromkeys(parse(source, verify).entries, _WHOLE)


def _files(index: str) -> dict[str, str]:
    """The names of an index and their files."""
    with open(index, "rb") as file:
        data = file.read()
    try:
        files = json.loads(data, object_pairs_hook=once)["weight_map"]
        if not isinstance(files, dict) or not all(isinstance(file, str) and file for file in files.values()):
            raise ValueError("weight_map is no dictionary of file names")
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        raise ValueError(f"{index} is not an index of safetensors files: {error!r}") from error
    for name, file in files.items():
        way = PurePosixPath(file.replace("\\", "/"))
        if way.is_absolute() or ".." in way.parts or ":" in file or "\0" in file:
            raise ValueError(f"{index} says that '{name}' is in {file!r}, which is outside its folder")
    return files


# ---- writing ---------------------------------------------------------------------------


def save_sharded(
    tensors: Mapping[str, Tensor], folder: Path, max_shard_size: int | str = "5GB",
    metadata: Mapping[str, str] | None = None,
) -> list[str]:  # fmt: skip
    """Write a dictionary of tensors to several files and an index, in the layout of Hugging Face.

    The files keep the order of the tensors. Files of an earlier index in the folder stay until the new index is in its
    place and are removed then, if they are called ``*.safetensors``; so a crash leaves the old model, or the new one.

    Args:
        folder: made if it is not there. max_shard_size: most bytes of tensors in a file, as a number or like "500MB" or
            "2GiB"; a tensor that is larger gets a file of its own. metadata: names and texts, kept in every file.

    Returns:
        The names of the files.

    Raises:
        TypeError, ValueError: as :func:`save_file`; ValueError for a size that is none.

    Example:
        >>> import tempfile
        >>> import wengert as wg
        >>> wg.save_sharded({"w": wg.ones(3)}, tempfile.mkdtemp())
        ['model-00001-of-00001.safetensors']
    """
    most = _bytes_of(max_shard_size)
    check(tensors, metadata)
    groups = _groups(tensors, most)
    os.makedirs(folder, exist_ok=True)
    index = os.path.join(folder, _INDEX)
    old = set(_files(index).values()) if os.path.exists(index) else set()
    files = [f"model-{i:05}-of-{len(groups):05}.safetensors" for i in range(1, len(groups) + 1)]
    if old & set(files):
        run = secrets.token_hex(4)
        files = [file.replace("model-", f"model-{run}-") for file in files]
    texts = {"format": "pt", **(metadata or {})}  # without a format, the usual loaders refuse a file
    for file, group in zip(files, groups, strict=True):
        write_whole(os.path.join(folder, file), pieces(group, texts))
    content = {
        "metadata": {"total_size": sum(tensor.nbytes for tensor in tensors.values())},
        "weight_map": {name: file for file, group in zip(files, groups, strict=True) for name in group},
    }
    write_whole(index, (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode())
    for file in old - set(files):
        if _is_shard(file) and os.path.exists(os.path.join(folder, file)):
            os.remove(os.path.join(folder, file))
    return files


def _is_shard(file: str) -> bool:
    """Whether a file that an index names may be removed: an index from elsewhere could name any file."""
    return file.endswith(".safetensors") and file == os.path.basename(file)


def _bytes_of(size: int | str) -> int:
    if isinstance(size, str):
        found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)", size.strip())
        if found and found[2].upper() in _UNITS:
            return _bytes_of(int(float(found[1]) * _UNITS[found[2].upper()]))
    elif isinstance(size, int) and not isinstance(size, bool) and size > 0:
        return size
    raise ValueError(
        f"max_shard_size must be a number of bytes above 0, or a text such as '500MB' or '2GiB', got {size!r}"
    )


def _groups(tensors: Mapping[str, Tensor], most: int) -> list[dict[str, Tensor]]:
    """The tensors in their order, in groups of at most ``most`` bytes."""
    groups: list[dict[str, Tensor]] = [{}]
    held = 0
    for name, tensor in tensors.items():
        if groups[-1] and held + tensor.nbytes > most:
            groups.append({})
            held = 0
        groups[-1][name] = tensor
        held += tensor.nbytes
    return groups
