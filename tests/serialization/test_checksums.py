"""A file that was changed is noticed, wherever the change is; files without checksums are read all the same."""

import io
import json
import random
from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert.atomic import write_whole
from wengert.serialization import from_bytes, load, load_file, save, save_file, to_bytes

STATE = {
    "w": wg.arange(5.0),
    "b": [wg.tensor([True, False]), wg.tensor(3).to(wg.bfloat16)],
    "lr": 0.1,
    "empty": wg.ones(0, 4),
}


def saved(obj: Any = STATE) -> bytes:
    file = io.BytesIO()
    save(obj, file)
    return file.getvalue()


def test_every_flipped_bit_is_found() -> None:
    data = saved()
    for at in range(len(data)):
        for bit in range(8):
            changed = bytearray(data)
            changed[at] ^= 1 << bit
            try:
                found = load(io.BytesIO(bytes(changed)))
            except ValueError as error:
                assert "the given file" in str(error)  # noqa: PT017 - the name of the checksums is the exception
            else:  # the flip is in the name of the checksums: what is read is right all the same
                assert found["lr"] == 0.1
                assert found["w"].tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]
                assert data[at : at + 1] in b"wengert.checksums"


def test_the_error_names_file_and_tensor(tmp_path: Any) -> None:
    path = tmp_path / "w.safetensors"
    save_file({"a": wg.ones(2), "layer.weight": wg.ones(3)}, path)
    data = bytearray(path.read_bytes())
    data[-1] ^= 64
    path.write_bytes(data)
    with pytest.raises(ValueError, match=r"w\.safetensors is damaged: the values of 'layer\.weight' do not have"):
        load_file(path)
    assert load_file(path, verify=False)["a"].tolist() == [1.0, 1.0]
    with pytest.raises(ValueError, match=r"layer\.weight"):
        load(path)


def test_a_header_that_another_program_changed() -> None:
    data = to_bytes({"a": wg.ones(2)}, {"note": "text"})
    changed = data.replace(b"text", b"word")
    with pytest.raises(ValueError, match="another program changed it; verify=False"):
        from_bytes(changed)
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    del header["__metadata__"]
    text = json.dumps(header).encode()
    assert from_bytes(len(text).to_bytes(8, "little") + text + data[8 + length :])["a"].tolist() == [1.0, 1.0]
    with pytest.raises(ValueError, match=r"'wengert\.checksums' is made"):
        to_bytes({"a": wg.ones(2)}, {"wengert.checksums": "0"})


def test_files_of_other_programs() -> None:
    safetensors = pytest.importorskip("safetensors.numpy")
    array = np.arange(6.0).reshape(2, 3)
    plain = safetensors.save({"x": array, "longer name": array[:0]}, {"note": "text"})
    assert from_bytes(plain)["x"].tolist() == array.tolist()
    found = safetensors.load(
        to_bytes({"z": wg.ones(2), "a": wg.zeros(3, 1), "scalar": wg.tensor(2), "none": wg.ones(0)})
    )
    assert {name: (value.shape, value.sum()) for name, value in found.items()} == {
        "z": ((2,), 2.0), "a": ((3, 1), 0.0), "scalar": ((), 2), "none": ((0,), 0.0),
    }  # fmt: skip


@pytest.mark.parametrize("dtype", [wg.bool, wg.uint8, wg.bfloat16, wg.float32, wg.float64, wg.complex64], ids=str)
def test_a_mapped_file_is_not_changed_by_writes(dtype: Any, tmp_path: Any) -> None:
    path = tmp_path / "m.safetensors"
    tensors = {"x": wg.tensor([1, 0, 1]).to(dtype), "empty": wg.ones(0, 3).to(dtype), "scalar": wg.tensor(1).to(dtype)}
    save_file(tensors, path, {"note": "a"})
    before = path.read_bytes()
    found = load_file(path, mmap=True)
    for name, tensor in tensors.items():
        np.testing.assert_array_equal(found[name].numpy(), tensor.numpy())
        assert found[name].dtype is dtype
        found[name].fill_(0)
    assert path.read_bytes() == before
    assert load(path, mmap=True)["x"].tolist() == tensors["x"].tolist()


def test_mapped_numbers_that_begin_anywhere(tmp_path: Any) -> None:
    path = tmp_path / "odd.safetensors"
    text = b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'
    text += b" " * (1 - (8 + len(text)) % 4 + 4)
    path.write_bytes(len(text).to_bytes(8, "little") + text + np.array([1, 2], np.float32).tobytes())
    assert load_file(path, mmap=True)["a"].tolist() == load_file(path)["a"].tolist() == [1.0, 2.0]


def test_damaged_files_are_refused_or_right() -> None:
    data, rng = saved(), random.Random(0)
    for _ in range(1500):
        changed = bytearray(data)
        for _ in range(rng.choice((1, 2, 9))):
            at = rng.randrange(len(data))
            changed[at : at + rng.randrange(2)] = rng.randbytes(rng.randrange(3))
        for options in ({}, {"verify": False}):
            try:
                load(io.BytesIO(bytes(changed)), **options)
            except ValueError as error:
                assert "the given file" in str(error)  # noqa: PT017 - without checksums, most damages are not noticed


HEADERS = {
    "no dictionary": ("[]", "begin with"),
    "a name twice": ('{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{}}', "'a' comes twice"),
    "no offsets": ('{"a":{"dtype":"U8","shape":[1]}}', "does not say"),
    "dtype": ('{"a":{"dtype":"F8_E4M3","shape":[1],"data_offsets":[0,1]}}', "dtype F8_E4M3"),
    "dtype of numbers": ('{"a":{"dtype":[1],"shape":[1],"data_offsets":[0,1]}}', r"dtype \[1\]"),
    "negative shape": ('{"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}}', r"shape \[-1\]"),
    "bool in shape": ('{"a":{"dtype":"U8","shape":[true],"data_offsets":[0,1]}}', "shape"),
    "many dimensions": ('{"a":{"dtype":"U8","shape":[%s1],"data_offsets":[0,1]}}' % ("1," * 64), "shape"),
    "huge": ('{"a":{"dtype":"U8","shape":[99999999999999999999,0],"data_offsets":[0,0]}}', "shape"),
    "offsets turned": ('{"a":{"dtype":"U8","shape":[1],"data_offsets":[1,0]}}', "-1 bytes"),
    "three offsets": ('{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1,2]}}', "data_offsets"),
    "wrong size": ('{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,1]}}', "1 bytes, which shape"),
    "hole": ('{"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}', "begin at 1"),
    "overlap": ('{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}',
                "begin at 0, those before end at 1"),
    "too long": ('{"a":{"dtype":"U8","shape":[9],"data_offsets":[0,9]}}', "should have"),
    "metadata": ('{"__metadata__":{"a":1}}', "dictionary of texts"),
    "deep": ("{" + '"a":[' * 100_000, "no JSON"),
    "no text": ("{\udcff", "no JSON"),
}  # fmt: skip


@pytest.mark.parametrize("case", HEADERS)
def test_wrong_headers(case: str) -> None:
    header, match = HEADERS[case]
    text = header.encode("utf-8", "surrogateescape")
    with pytest.raises(ValueError, match=match) as error:
        from_bytes(len(text).to_bytes(8, "little") + text + b"\x01\x02")
    assert str(error.value).startswith("the given bytes is not a complete safetensors file")


def test_a_header_that_says_it_is_huge() -> None:
    with pytest.raises(ValueError, match="more than the 100000000"):
        from_bytes((10**9).to_bytes(8, "little") + b"{" * 64)


def test_what_killed_writers_left_is_removed(tmp_path: Any) -> None:
    path = tmp_path / "w.safetensors"
    left, other = tmp_path / "w.safetensors.0123abcd.partial", tmp_path / "v.safetensors.0123abcd.partial"
    for file in (left, other):
        file.write_bytes(b"half")
    save_file({"a": wg.ones(1)}, path)
    assert sorted(file.name for file in tmp_path.iterdir()) == [other.name, path.name]


def test_two_writers_do_not_remove_each_other_s_files(tmp_path: Any) -> None:
    path = tmp_path / "w.safetensors"

    def parts() -> Any:
        yield b"a"
        write_whole(path, b"of another writer, meanwhile")
        yield b"b"

    write_whole(path, parts())
    assert path.read_bytes() == b"ab"
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
