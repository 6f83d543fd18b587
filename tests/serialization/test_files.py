"""Saving and loading: round trips, broken files, crashes."""

import io
import os
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert import nn, optim
from wengert.serialization import from_bytes, load, load_file, save, save_file, to_bytes

DTYPES = [
    wg.bool, wg.uint8, wg.int8, wg.int16, wg.uint16, wg.int32, wg.uint32, wg.int64, wg.uint64, wg.float16, wg.bfloat16,
    wg.float32, wg.float64, wg.complex64,
]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(2, 3), (), (0, 4)], ids=str)
def test_every_dtype_comes_back_bit_for_bit(dtype: Any, shape: tuple[int, ...], tmp_path: Any) -> None:
    t = (wg.rand(*shape) * 100 - 50).abs().to(dtype)
    path = tmp_path / "t.safetensors"
    save_file({"t": t}, path, {"note": "text"})
    back = load_file(path)["t"]
    assert back.dtype is dtype
    assert tuple(back.shape) == shape
    assert back._payload.tobytes() == t._payload.tobytes()
    assert back._payload.flags.writeable


@pytest.mark.parametrize(
    "view",
    [lambda t: t.t(), lambda t: t[::2, 1:], lambda t: t.flip(0), lambda t: t[:, :1].expand(4, 3)],
    ids=["transposed", "strided", "flipped", "expanded"],
)
def test_non_contiguous_tensors(view: Any) -> None:
    t = view(wg.arange(12.0).reshape(4, 3))
    assert from_bytes(to_bytes({"t": t}))["t"].tolist() == t.tolist()


def test_parameters_come_back_as_plain_tensors() -> None:
    back = from_bytes(to_bytes({"p": nn.Parameter(wg.ones(2))}))["p"]
    assert type(back) is wg.Tensor
    assert not back.requires_grad


def test_the_safetensors_library_reads_the_same() -> None:
    import safetensors.numpy

    t = wg.randn(3, 2)
    data = to_bytes({"a": t, "b": wg.arange(3)})
    found = safetensors.numpy.load(data)
    np.testing.assert_array_equal(found["a"], t.numpy())
    np.testing.assert_array_equal(from_bytes(safetensors.numpy.save({"x": t.numpy()}))["x"].numpy(), t.numpy())


BASE = wg.arange(12.0).reshape(4, 3)


@pytest.mark.parametrize(
    ("tensors", "refused"),
    [
        ({"a": BASE, "b": BASE}, True),
        ({"a": BASE, "b": BASE[2:]}, True),
        ({"a": BASE.t(), "b": BASE[:, 0]}, True),
        ({"a": BASE[:2], "b": BASE[2:]}, False),
        ({"a": BASE[:, :1], "b": BASE[:, 1:]}, False),
        ({"a": BASE, "b": BASE.clone(), "c": wg.empty(0)}, False),
    ],
    ids=["same", "part", "column", "halves", "columns apart", "copy"],
)
def test_shared_memory_is_refused(tensors: dict[str, Any], refused: bool) -> None:
    if refused:
        with pytest.raises(ValueError, match=r"'[ab]' and '[ab]' share memory"):
            to_bytes(tensors)
    else:
        back = from_bytes(to_bytes(tensors))
        assert {k: v.tolist() for k, v in back.items()} == {k: v.tolist() for k, v in tensors.items()}


@pytest.mark.parametrize(
    ("tensors", "metadata", "error", "match"),
    [
        ({"a": [1.0]}, None, TypeError, "'a' is a list"),
        ({3: BASE}, None, TypeError, "strings"),
        ({"a": BASE}, {"n": 3}, TypeError, "3"),
        ({"a": BASE.to(wg.complex128)}, None, ValueError, "complex128"),
    ],
)
def test_bad_content_is_refused(tensors: Any, metadata: Any, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        to_bytes(tensors, metadata)


@pytest.mark.parametrize(
    "damage",
    [
        lambda b: b"", lambda b: b[:5], lambda b: b[:-1], lambda b: b + b"x", lambda b: b"\xff" * 64,
        lambda b: b[:8] + b"!" + b[9:],
    ],
    ids=["empty", "header", "cut", "longer", "noise", "json"],
)  # fmt: skip
@pytest.mark.parametrize("reader", [load_file, load], ids=["load_file", "load"])
def test_broken_files_are_named(damage: Any, reader: Any, tmp_path: Any) -> None:
    path = tmp_path / "broken.safetensors"
    path.write_bytes(damage(to_bytes({"t": BASE})))
    with pytest.raises(ValueError, match=r"broken\.safetensors is not a complete safetensors file"):
        reader(path)
    with pytest.raises(FileNotFoundError):
        reader(tmp_path / "none")


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Any, monkeypatch: Any) -> None:
    path = tmp_path / "w.safetensors"
    save_file({"t": wg.ones(2)}, path)

    def fail(_: int) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        save_file({"t": wg.zeros(2)}, path)
    monkeypatch.undo()
    assert load_file(path)["t"].tolist() == [1.0, 1.0]
    assert os.listdir(tmp_path) == ["w.safetensors"]


def test_a_killed_writer_leaves_the_old_file(tmp_path: Any) -> None:
    path = tmp_path / "w.safetensors"
    save_file({"t": wg.ones(2)}, path)
    script = (
        "import os, sys, wengert as wg\n"
        "os.fsync = lambda _: os._exit(9)\n"
        "wg.save_file({'t': wg.zeros(2)}, sys.argv[1])\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(path)], check=False)
    assert done.returncode == 9
    assert load_file(path)["t"].tolist() == [1.0, 1.0]


# ---- nested structures


def test_an_empty_tensor_of_a_shape_that_no_memory_holds(tmp_path: Any) -> None:
    header = b'{"w":{"dtype":"F32","shape":[4611686018427387904,0],"data_offsets":[0,0]}}'
    with pytest.raises(ValueError, match="no memory can hold"):
        from_bytes(len(header).to_bytes(8, "little") + header)


@pytest.mark.skipif(os.name != "posix", reason="links, permissions, pipes")
def test_a_link_and_permissions_stay(tmp_path: Any) -> None:
    (tmp_path / "sub").mkdir()
    real, link = tmp_path / "sub" / "real", tmp_path / "link"
    link.symlink_to(real)
    wg.save([1], link)
    real.chmod(0o600)
    wg.save([2], link)
    assert link.is_symlink()
    assert wg.load(real) == [2]
    assert real.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in (tmp_path / "sub").iterdir()] == ["real"]


@pytest.mark.skipif(os.name != "posix", reason="links, permissions, pipes")
def test_a_pipe_is_written_to_and_a_folder_refused(tmp_path: Any) -> None:
    os.mkfifo(tmp_path / "pipe")
    reader = threading.Thread(target=lambda: got.append((tmp_path / "pipe").read_bytes()))
    got: list[bytes] = []
    reader.start()
    wg.save({"a": wg.ones(2)}, tmp_path / "pipe")
    reader.join()
    assert wg.load(io.BytesIO(got[0]))["a"].tolist() == [1.0, 1.0]
    assert (tmp_path / "pipe").is_fifo()
    with pytest.raises(IsADirectoryError, match="a folder"):
        wg.save([1], tmp_path)


def through(obj: Any) -> Any:
    f = io.BytesIO()
    save(obj, f)
    f.seek(0)
    return load(f)


@pytest.mark.parametrize(
    "obj",
    [
        None, True, 3, 2**80, 0.1, float("inf"), "text", [], {}, (), [1, (2, [None])],
        {"a": {1: "x", None: 2.5}},
        {"tensor": 1, "dict": {"list": [(), {}]}}, 1 - 2j, [complex("inf-0j")],
    ],
    ids=repr,
)  # fmt: skip
def test_structures_round_trip(obj: Any) -> None:
    back = through(obj)
    assert back == obj
    assert type(back) is type(obj)


def test_nan_round_trips() -> None:
    assert np.isnan(through([float("nan")])[0])


@pytest.mark.parametrize(
    "value", [np.float32(0.1), np.float64(0.1), np.int64(-3), np.uint8(7), np.bool_(True), np.complex64(1j)]
)
def test_numbers_of_numpy_come_back_as_python_s(value: Any) -> None:
    back = through({"a": [value], np.int64(4): value})
    assert back == {"a": [value.item()], 4: value.item()}
    assert type(back["a"][0]) is type(value.item())


def test_complex128_keeps_every_bit() -> None:
    z = wg.tensor([1 / 3 - 2j, complex("nan+infj"), -0.0 + 1e-300j], dtype=wg.complex128)
    back = through(
        {"z": z, "again": z, "scalar": z[0].clone(), "t": wg.ones(2, 3, dtype=wg.complex128).t(), "none": z[:0].clone()}
    )
    assert (back["z"].dtype, back["z"].numpy().tobytes()) == (wg.complex128, z.numpy().tobytes())
    assert (back["scalar"].item(), back["t"].shape, back["none"].shape) == (1 / 3 - 2j, (3, 2), (0,))
    sparse = wg.sparse_coo_tensor([[1]], wg.tensor([1j], dtype=wg.complex128), (2,))
    assert through(sparse).to_dense().tolist() == [0j, 1j]


def test_an_object_in_itself_is_refused() -> None:
    loop: dict[str, Any] = {}
    loop["again"] = [loop]
    with pytest.raises(ValueError, match="contains itself"):
        through(loop)


@pytest.mark.parametrize("place", [None, "cpu", "cpu:0", wg.device("cpu"), {"cuda:0": "cpu"}, {}], ids=str)
def test_tensors_are_brought_to_the_cpu(place: Any, tmp_path: Any) -> None:
    path = tmp_path / "plain.safetensors"
    save({"t": wg.ones(2)}, path)
    assert load(path, place)["t"].device.type == load(path, map_location=place)["t"].device.type == "cpu"


@pytest.mark.parametrize(
    ("place", "error", "match"),
    [
        (lambda storage, location: storage, TypeError, "pass 'cpu'"), ("cuda", RuntimeError, "'cuda' is not available"),
        ({"cpu": "cuda:1"}, RuntimeError, "'cuda:1' is not available"), (3, TypeError, "device"),
    ],
)  # fmt: skip
def test_tensors_are_brought_nowhere_else(place: Any, error: type[Exception], match: str, tmp_path: Any) -> None:
    with pytest.raises(error, match=match):
        load(tmp_path / "not even looked for", map_location=place)


def test_tensors_are_stored_under_their_paths() -> None:
    f = io.BytesIO()
    save({"model": {"w": wg.ones(1), "b": [wg.zeros(1)]}, "model.w": wg.full((1,), 2.0), 0: wg.ones(1) * 3}, f)
    found = from_bytes(f.getvalue())
    assert sorted(found) == ["0", "model.b.0", "model.w", "model.w#2"]
    f.seek(0)
    back = load(f)
    assert (back["model"]["w"].item(), back["model.w"].item(), back[0].item()) == (1.0, 2.0, 3.0)


def test_one_tensor_twice_is_one_tensor_again() -> None:
    t = wg.ones(2)
    a, b = through([t, {"x": t.detach()}])
    assert a is b["x"]
    with pytest.raises(ValueError, match="share memory"):
        through([BASE, BASE[1:]])


def test_any_safetensors_file_loads_as_a_dictionary(tmp_path: Any) -> None:
    path = tmp_path / "plain.safetensors"
    save_file({"t": wg.ones(2)}, path)
    assert load(path)["t"].tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    ("obj", "match"),
    [
        ({"a": [object()]}, r"object \(at 'a\.0'\)"),
        ({"a": {(1, 2): 3}}, r"\(1, 2\) \(at 'a'\)"),
        ({1}, "set.*list of its elements"),
        (b"x", "bytes"),
        (np.ones(2), r"ndarray.*from_numpy\(\)"),
        ({"model": wg.nn.Linear(1, 1)}, r"Linear \(at 'model'\).*store its \.state_dict\(\)"),
        (np.longdouble(1), "longdouble"),
    ],
)
def test_other_objects_are_refused(obj: Any, match: str) -> None:
    with pytest.raises(TypeError, match=match):
        through(obj)


def test_a_training_state_resumes_bit_for_bit(tmp_path: Any) -> None:
    def build() -> tuple[Any, Any, Any]:
        wg.manual_seed(0)
        m = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
        o = optim.AdamW(m.parameters(), lr=0.1, amsgrad=True)
        return m, o, optim.lr_scheduler.MultiStepLR(o, [2, 4])

    def step(m: Any, o: Any, s: Any) -> None:
        o.zero_grad()
        (m(wg.randn(8, 3)) ** 2).mean().backward()
        o.step()
        s.step()

    m, o, s = build()
    for _ in range(3):
        step(m, o, s)
    state = {
        "model": m.state_dict(),
        "optimizer": o.state_dict(),
        "schedule": s.state_dict(),
        "random": wg.random.get_rng_state(),
    }
    save(state, tmp_path / "state")
    for _ in range(3):
        step(m, o, s)
    n, p, t = build()
    state = load(tmp_path / "state")
    n.load_state_dict(state["model"])
    p.load_state_dict(state["optimizer"])
    t.load_state_dict(state["schedule"])
    wg.random.set_rng_state(state["random"])
    for _ in range(3):
        step(n, p, t)
    for a, b in zip(m.state_dict().values(), n.state_dict().values(), strict=True):
        assert a._payload.tobytes() == b._payload.tobytes()
    assert o.param_groups[0]["lr"] == p.param_groups[0]["lr"]
