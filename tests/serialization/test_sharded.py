"""A model in several files with an index, as Hugging Face keeps it."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

import wengert as wg
from wengert import nn
from wengert.serialization import load_file, load_sharded, save_file, save_sharded

INDEX = "model.safetensors.index.json"


def tensors() -> dict[str, Any]:
    return {"z": wg.arange(3.0), "a": wg.ones(2, 2), "big": wg.arange(20.0), "n": wg.tensor(4)}


def index_of(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / INDEX).read_text())
    return found


def write_index(folder: Path, files: Any) -> Path:
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": files}))
    return folder


def test_the_layout(tmp_path: Path) -> None:
    files = save_sharded(tensors(), tmp_path / "new", max_shard_size=30, metadata={"note": "x"})
    assert files == [f"model-{i:05}-of-00003.safetensors" for i in (1, 2, 3)]
    assert index_of(tmp_path / "new") == {
        "metadata": {"total_size": 12 + 16 + 80 + 8},
        "weight_map": {"z": files[0], "a": files[0], "big": files[1], "n": files[2]},
    }
    assert load_file(tmp_path / "new" / files[1])["big"].tolist() == list(range(20))


@pytest.mark.parametrize("size", [1, 28, 30, 10**9, "1KB", "0.1 MB", "5GiB"])
@pytest.mark.parametrize("by", ["folder", "index"])
def test_round_trip(size: Any, by: str, tmp_path: Path) -> None:
    save_sharded(tensors(), tmp_path, size)
    found = load_sharded(tmp_path if by == "folder" else tmp_path / INDEX)
    assert list(found) == list(tensors())
    assert {k: (v.tolist(), v.dtype) for k, v in found.items()} == {
        k: (v.tolist(), v.dtype) for k, v in tensors().items()
    }
    assert {k for part in found.shards() for k in part} == set(tensors())
    assert "4 tensors" in repr(found)
    assert "other" not in found


def test_a_model_is_loaded(tmp_path: Path) -> None:
    first, second = (nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)) for _ in range(2))
    save_sharded(first.state_dict(), tmp_path, 60)
    found = load_sharded(tmp_path)
    second.load_state_dict(found)
    for part in found.shards():
        assert not second.load_state_dict(part, strict=False).unexpected_keys
    for a, b in zip(first.state_dict().values(), second.state_dict().values(), strict=True):
        assert a.tolist() == b.tolist()


def test_only_the_files_that_are_asked_for_are_opened(tmp_path: Path, monkeypatch: Any) -> None:
    files = save_sharded(tensors(), tmp_path, 30)
    (tmp_path / files[1]).write_bytes(b"damaged")
    found = load_sharded(tmp_path)
    assert found["z"].tolist() == [0.0, 1.0, 2.0]
    assert found["n"].item() == 4
    with pytest.raises(ValueError, match=rf"{files[1]} is not a complete safetensors file"):
        _ = found["big"]
    with pytest.raises(KeyError, match="other"):
        _ = found["other"]


def test_writes_leave_the_files_alone(tmp_path: Path) -> None:
    save_sharded(tensors(), tmp_path)
    found = load_sharded(tmp_path)
    found["z"].fill_(9.0)
    assert found["z"].tolist() == [0.0, 1.0, 2.0]


def test_a_flipped_bit_is_found(tmp_path: Path) -> None:
    (file,) = save_sharded({"a": wg.ones(2), "b": wg.ones(3)}, tmp_path)
    data = bytearray((tmp_path / file).read_bytes())
    data[-1] ^= 1
    (tmp_path / file).write_bytes(data)
    found = load_sharded(tmp_path)
    assert found["a"].tolist() == [1.0, 1.0]
    with pytest.raises(ValueError, match="the values of 'b' do not have their checksum"):
        _ = found["b"]
    assert len(load_sharded(tmp_path, verify=False)["b"]) == 3


@pytest.mark.parametrize(
    "file",
    ["../x.safetensors", "a/../../x.safetensors", "/x.safetensors", "..\\x", "C:x", "a\0b", "..", "C:\\x"],
    ids=repr,
)
def test_files_outside_the_folder_are_refused(file: str, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    save_file({"x": wg.ones(1)}, tmp_path / "x.safetensors")
    with pytest.raises(ValueError, match="outside its folder"):
        load_sharded(write_index(tmp_path / "in", {"x": file}))


def test_files_in_folders_below_and_links_are_read(tmp_path: Path) -> None:
    (tmp_path / "in" / "sub").mkdir(parents=True)
    save_file({"x": wg.ones(1)}, tmp_path / "blob")
    os.symlink(tmp_path / "blob", tmp_path / "in" / "sub" / "x")
    assert load_sharded(write_index(tmp_path / "in", {"x": "sub/x"}))["x"].tolist() == [1.0]


def test_what_does_not_fit_the_index(tmp_path: Path) -> None:
    save_file({"a": wg.ones(1), "b": wg.ones(1)}, tmp_path / "one")
    save_file({"b": wg.ones(1)}, tmp_path / "two")
    with pytest.raises(FileNotFoundError, match=r"names the file 'three', which is not there"):
        load_sharded(write_index(tmp_path, {"a": "one", "b": "three"}))
    with pytest.raises(ValueError, match=r"says that 'c' is in .*two, which does not hold it"):
        _ = load_sharded(write_index(tmp_path, {"a": "one", "b": "one", "c": "two"}))["c"]
    with pytest.raises(ValueError, match=r"one holds 'b', which is in two according to the index"):
        _ = load_sharded(write_index(tmp_path, {"a": "one", "b": "two"}))["a"]
    with pytest.raises(ValueError, match=r"one holds 'b', which is nowhere according to the index"):
        _ = load_sharded(write_index(tmp_path, {"a": "one"}))["a"]


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ('{"weight_map": {"a": "x", "a": "y"}}', "'a' comes twice"),
        ('{"weight_map": ["x"]}', "no dictionary of file names"),
        ('{"weight_map": {"a": 3}}', "no dictionary of file names"),
        ('{"weight_map": {"a": ""}}', "no dictionary of file names"),
        ("{}", "weight_map"),
        ("[]", "index"),
        ("{", "index"),
        ("[" * 100_000, "index"),
    ],
)
def test_damaged_indices(text: str, match: str, tmp_path: Path) -> None:
    (tmp_path / INDEX).write_text(text)
    with pytest.raises(ValueError, match=match) as error:
        load_sharded(tmp_path)
    assert INDEX in str(error.value)


def test_no_index(tmp_path: Path) -> None:
    with pytest.raises(
        FileNotFoundError, match=r"holds neither model\.safetensors\.index\.json nor model\.safetensors"
    ):
        load_sharded(tmp_path)
    save_file({"a": wg.ones(1), "b": wg.zeros(2)}, tmp_path / "model.safetensors")
    found = load_sharded(tmp_path)
    assert {name: tensor.tolist() for name, tensor in found.items()} == {"a": [1.0], "b": [0.0, 0.0]}
    assert [sorted(part) for part in found.shards()] == [["a", "b"]]
    assert load_sharded(str(tmp_path))["a"].tolist() == [1.0]


def test_a_crash_leaves_the_old_model_and_success_removes_it(tmp_path: Path, monkeypatch: Any) -> None:
    save_sharded(tensors(), tmp_path, 30)
    real = os.replace

    def fail(source: Any, target: Any) -> None:
        if str(target).endswith(INDEX):
            raise OSError("disk full")
        real(source, target)

    changed = {name: tensor + 1 for name, tensor in tensors().items()}
    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        save_sharded(changed, tmp_path, 30)
    monkeypatch.undo()
    assert load_sharded(tmp_path)["z"].tolist() == [0.0, 1.0, 2.0]
    for _ in range(2):
        files = save_sharded(changed, tmp_path, 30)
        assert load_sharded(tmp_path)["z"].tolist() == [1.0, 2.0, 3.0]
        assert set(files) <= set(os.listdir(tmp_path))
    assert (
        not (tmp_path / "model-00002-of-00003.safetensors").exists() or files[0] == "model-00001-of-00003.safetensors"
    )


@pytest.mark.parametrize("file", ["notes.txt", "model.safetensors.index.json", "sub/x.safetensors"])
def test_saving_removes_no_file_that_an_index_merely_names(file: str, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / file).touch()
    write_index(tmp_path, {"w": file})
    wg.save_sharded({"w": wg.ones(2)}, tmp_path)
    assert (tmp_path / file).exists()
    assert wg.load_sharded(tmp_path)["w"].tolist() == [1.0, 1.0]


@pytest.mark.parametrize("size", [0, -1, 1.5, True, "big", "5 XB", "", None, "0KB"], ids=repr)
def test_bad_sizes(size: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="max_shard_size"):
        save_sharded(tensors(), tmp_path, size)


def test_shared_memory_is_refused_across_files(tmp_path: Path) -> None:
    base = wg.ones(4)
    with pytest.raises(ValueError, match="share memory"):
        save_sharded({"a": base, "b": base[1:]}, tmp_path, 1)
    assert not os.listdir(tmp_path)


def test_the_safetensors_library_reads_the_files(tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors")
    for file in save_sharded(tensors(), tmp_path, 30):
        with safetensors.safe_open(tmp_path / file, "numpy") as opened:
            assert opened.metadata()["format"] == "pt"
            for name in opened.keys():  # noqa: SIM118 - no dictionary
                assert opened.get_tensor(name).tolist() == tensors()[name].tolist()
