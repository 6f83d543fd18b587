"""Files that PyTorch 2.13 wrote (``python -m tests.peers.record_files``) are read as data; what is not data is refused."""

import io
import pickle
import shutil
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wengert as wg
from tests.serialization.archives import rewritten
from wengert import nn, optim
from wengert.serialization import load_pytorch

FOLDER = Path(__file__).parent / "pytorch"
DTYPES = (
    "bool", "uint8", "int8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "bfloat16", "float32",
    "float64", "complex64", "complex128",
)  # fmt: skip

both = pytest.mark.parametrize("mmap", [False, True], ids=["read", "mapped"])


@both
def test_every_dtype(mmap: bool) -> None:
    found = wg.load(FOLDER / "dtypes.pt", mmap=mmap)
    assert tuple(found) == DTYPES
    for name, tensor in found.items():
        assert tensor.dtype is getattr(wg, name)
        np.testing.assert_array_equal(tensor.numpy(), np.array([0, 1, 1]))


@both
def test_views_and_shared_memory(mmap: bool) -> None:
    found = load_pytorch(FOLDER / "views.pt", mmap=mmap)
    base = np.arange(12.0).reshape(3, 4)
    for name, want in {
        "base": base, "t": base.T, "part": base[1:, ::2], "wide": np.tile(base[:, :1], 5), "scalar": base[2, 3],
        "empty": np.empty((0, 4)), "conj": np.array([1 - 2j, 3 + 4j]), "neg": np.array([-2.0, 4.0]), "once": np.array([5]),
        "flags": np.array([False, True]),
    }.items():  # fmt: skip
        np.testing.assert_array_equal(found[name].numpy(), want, err_msg=name)
    assert found["t"].stride() == (1, 4)
    assert found["once"] is found["twice"][0] is found["twice"][1]
    found["base"][1, 0] = 100.0
    assert found["part"][0, 0].item() == found["wide"][1, 4].item() == found["t"][0, 1].item() == 100.0
    assert load_pytorch(FOLDER / "views.pt", mmap=mmap)["base"][1, 0].item() == 4.0  # the file is as it was


def test_the_backward_of_a_tensor_notices_writes_to_what_shares_its_memory() -> None:
    found = load_pytorch(FOLDER / "views.pt")
    weight = wg.ones(4, 3, requires_grad=True)
    product = (weight * found["t"]).sum()
    found["base"].zero_()
    with pytest.raises(RuntimeError, match=r"in place|overwritten|in-place"):
        product.backward()


def test_other_values() -> None:
    found = load_pytorch(FOLDER / "values.pt")
    assert found["numbers"] == [0, -1, 255, 65535, 2**31, 2**70, -(2**70), 0.1, float("inf"), 1 + 2j, True, False, None]
    assert found["texts"] == ("", "x", "ä€", "y" * 300)
    assert (found["bytes"], found["set"], found[3]) == ([b"", b"ab\xff"], {1, 2}, {None: (), 2.5: [[]]})
    assert list(found["ordered"].items()) == [("b", 1), ("a", 2)]
    assert type(found["ordered"]) is OrderedDict
    assert found["counter"] == {3: 2, 5: 1}
    assert (found["size"], type(found["size"])) == ((2, 3), wg.Size)
    assert (found["dtype"], found["device"]) == (wg.bfloat16, wg.device("cpu"))
    gradients = {name: found[name].requires_grad for name in ("parameter", "frozen", "grad", "marked", "kept")}
    assert gradients == {"parameter": True, "frozen": False, "grad": True, "marked": False, "kept": True}
    assert (found["marked"].note, found["kept"].scale, found["kept"].item()) == ("kept", 3, 2.5)


def test_training_goes_on_from_a_state_of_pytorch() -> None:
    found = wg.load(FOLDER / "training.pt")
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    optimizer = optim.Adam(model.parameters(), lr=1.0)
    schedule = optim.lr_scheduler.StepLR(optimizer, 1)
    model.load_state_dict(found["model"])
    optimizer.load_state_dict(found["optimizer"])
    schedule.load_state_dict(found["schedule"])
    assert found["epoch"] == 2
    assert found["model"]._metadata[""] == {"version": 1}
    assert model[1].num_batches_tracked.item() == 2
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.001)
    assert optimizer.state_dict()["state"][0]["step"].item() == 2.0
    (model(wg.linspace(0, 1, 12).reshape(4, 3)) ** 3).sum().backward()
    optimizer.step()


@pytest.mark.parametrize(
    ("name", "match"),
    [
        ("old.pt", r"before version 1\.6.*torch\.save\(torch\.load"),
        ("module.pt", r"asks for torch\.nn\.modules\.linear\.Linear"),
        ("sparse.pt", r"asks for torch\._utils\._rebuild_sparse_tensor"),
        ("script.pt", r"TorchScript.*state_dict"),
    ],
)
def test_what_is_not_read_is_named(name: str, match: str) -> None:
    for read in (wg.load, load_pytorch):
        with pytest.raises(ValueError, match=match) as error:
            read(FOLDER / name)
        assert name in str(error.value)


def test_big_endian_files_are_turned() -> None:
    def swapped(name: str, data: bytes) -> bytes:
        if name.endswith("byteorder"):
            return b"big"
        return np.frombuffer(data, "<f4").astype(">f4").tobytes() if name.endswith("data/0") else data

    data = rewritten((FOLDER / "views.pt").read_bytes(), swapped)
    np.testing.assert_array_equal(wg.load(io.BytesIO(data))["t"].numpy(), np.arange(12.0).reshape(3, 4).T)
    other = rewritten((FOLDER / "views.pt").read_bytes(), lambda n, d: b"middle" if n.endswith("byteorder") else d)
    with pytest.raises(ValueError, match="byte order is b'middle'"):
        wg.load(io.BytesIO(other))


def test_open_files_copies_under_other_names_and_other_files(tmp_path: Any) -> None:
    shutil.copy(FOLDER / "dtypes.pt", tmp_path / "weights.bin")
    assert set(wg.load(tmp_path / "weights.bin")) == set(DTYPES)
    with (FOLDER / "dtypes.pt").open("rb") as file:
        assert set(wg.load(file)) == set(DTYPES)
    with (FOLDER / "dtypes.pt").open("rb") as file, pytest.raises(ValueError, match="mmap=True takes a path"):
        wg.load(file, mmap=True)
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as archive:
        archive.writestr("a/b.txt", "x")
    with pytest.raises(ValueError, match=r"other\.zip is a zip file, but not one that PyTorch wrote"):
        wg.load(tmp_path / "other.zip")
    (tmp_path / "state.pkl").write_bytes(pickle.dumps({"a": 1}))
    with pytest.raises(ValueError, match="plain pickle"):
        wg.load(tmp_path / "state.pkl")
    wg.save_file({"a": wg.ones(1)}, tmp_path / "a.safetensors")
    with pytest.raises(ValueError, match="not a file that PyTorch wrote"):
        load_pytorch(tmp_path / "a.safetensors")
    with pytest.raises(ValueError, match="never done here"):
        wg.load(FOLDER / "dtypes.pt", weights_only=False)
    with pytest.raises(TypeError, match="path or an open file"):
        load_pytorch(3)  # type: ignore[arg-type]


def test_a_flipped_bit_in_a_storage_is_found() -> None:
    data = bytearray((FOLDER / "views.pt").read_bytes())
    at = data.index(np.arange(12.0, dtype=np.float32).tobytes()) + 20
    data[at] ^= 1
    with pytest.raises(ValueError, match=r"'views/data/0' does not have its checksum|data/0' does not have"):
        wg.load(io.BytesIO(bytes(data)))
    assert wg.load(io.BytesIO(bytes(data)), verify=False)["base"][1, 1].item() != 5.0
