"""Saving and loading, in the safetensors format: tensors and text, never code.

``save_file`` and ``load_file`` take a flat dictionary of tensors, the format's own content. ``save`` and ``load`` take
nested dictionaries, lists, tuples, numbers, strings and tensors, such as a training state: the tensors are stored under
their paths and the rest as JSON beside them, so that any reader of the format still finds every tensor. ``load`` and
``load_pytorch`` also read the files that PyTorch's ``save`` writes, without running what is in them. ``save_sharded`` and
``load_sharded`` spread a model over several files with an index, as Hugging Face does.

Files are written under another name in the same folder and renamed when complete: neither a reader nor a crash ever
meets half a file. They hold checksums, which are compared when they are read.
"""

from wengert.serialization.pytorch import load_pytorch
from wengert.serialization.sharded import ShardedTensors, load_sharded, save_sharded
from wengert.serialization.state import load, save
from wengert.serialization.tensors import from_bytes, load_file, save_file, to_bytes

__all__ = [
    "ShardedTensors", "from_bytes", "load", "load_file", "load_pytorch", "load_sharded", "save", "save_file", "save_sharded",
    "to_bytes",
]  # fmt: skip
