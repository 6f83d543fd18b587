"""Files that were damaged or made to do harm: each is refused with a ValueError, without running, hanging or filling memory."""

import io
import os
import pickle
import pickletools
import random
import resource
import struct
import time
import tracemalloc
import zipfile
from collections import Counter, OrderedDict
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wengert as wg
from tests.serialization.archives import archive_of, pickle_of, rewritten

FOLDER = Path(__file__).parent / "pytorch"
FILES = ("training.pt", "views.pt", "values.pt", "dtypes.pt")
OPCODES = [opcode.code.encode("latin1") for opcode in pickletools.opcodes]
ROUNDS = 300  # damages of each kind and file


def refused(data: bytes, match: str = "the given file") -> None:
    with pytest.raises(ValueError, match=match) as error:
        wg.load(io.BytesIO(data))
    assert str(error.value).startswith("the given file")


# ---- pickles that would run something


class Call:
    """Pickles as a call."""

    def __init__(self, function: Any, *args: Any, state: Any = None) -> None:
        self.reduced = (function, args) if state is None else (function, args, state)

    def __reduce__(self) -> Any:
        return self.reduced

    def __repr__(self) -> str:
        return f"a call of {self.reduced[0].__name__}"


SYSTEM = f"{os.system.__module__}.system"


@pytest.mark.parametrize("protocol", [2, 4, 5])
@pytest.mark.parametrize(
    ("value", "name"),
    [
        (Call(os.system, "touch trace"), SYSTEM),
        ({"weights": [1, (Call(eval, "open('trace', 'w')"),)]}, "eval"),
        (Call(getattr, "x", "upper"), "getattr"),
        (Call(OrderedDict, state={"__class__": 3}), "BUILD"),
        (Call(OrderedDict, Call(exec, "open('trace', 'w')")), "exec"),
        (os.system, SYSTEM),
        (OrderedDict, "OrderedDict itself"),
        (Path("x"), "pathlib"),
        (np.float64(3), "numpy"),
        (bytearray(b"x"), "bytearray|BYTEARRAY8"),
        (Call(Counter, Call(eval, "open('trace', 'w')")), "eval"),
        (Call(Counter, "abc"), "counter wrongly"),
        (frozenset([1]), "frozenset|FROZENSET"),
    ],
    ids=str,
)
def test_calls_are_refused_by_name(value: Any, name: str, protocol: int, tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    refused(archive_of(pickle.dumps(value, protocol)), name)
    assert not list(tmp_path.iterdir())


PROTO = b"\x80\x02"
# Lists of twenty times the list before.
BOMB = b"(]q\x00" + b"".join(b"]q%c(" % i + b"h%c" % (i - 1) * 20 + b"e" for i in range(1, 9)) + b"l."


@pytest.mark.parametrize(
    ("body", "match"),
    [
        (b"cos\nsystem\n.", "os.system"),
        (b"c os\nsystem\n(tR.", "system"),
        (b"\x8c\x02os\x8c\x06system\x93.", "os.system"),
        (b"K\x01K\x02\x93.", "name that is no text"),
        (b"(S'ls'\nios\nsystem\n.", "STRING"),
        (b"(cos\nsystem\no.", "os.system"),
        (b"c__builtin__\nset\n)\x81.", "NEWOBJ"),
        (b"\x82\x01.", "EXT1"),
        (b"Psomewhere\n.", "PERSID"),
        (b"K\x01Q.", "a int in the place of a storage"),
        (BOMB[:-1] + b"Q.", "a list in the place of a storage"),
        (b"c" + b"x" * 10**6 + b"\ny\n.", "asks for x{200}, which"),
        (b"c\x1b[31m\ny\n.", r"asks for '.x1b"),
        (b"K\x01)R.", "calls int"),
        (b"ctorch\nFloatStorage\n)R.", "calls torch.FloatStorage, which cannot"),
        (b"ctorch\nFloatStorage\n.", "FloatStorage itself"),
        (b"ctorch\nSize\nctorch\nSize\nR.", "calls torch.Size"),
        (b"}K\x01K\x02s", "does not end"),
        (b"X\xff\xff\xff\xffabc.", "argument of 4294967295 bytes"),
        (b"K", "damaged"),
        (b"cos\nsystem", "damaged"),
        (b"K\x01K\x02.", "several values"),
        (b"K\x01a.", "no list"),
        (b"K\x01K\x02a.", "no list"),
        (b"(K\x01K\x02u.", "no dict"),
        (b"}(K\x01u.", "key without value"),
        (b"t.", "mark that is not there"),
        (b"(.", "takes a value"),
        (b"h\x05.", "damaged"),
        (b"I5\n.", "opcode INT"),
        (b"L" + b"9" * 10_000 + b"L\n.", "opcode LONG"),
        (b"\xff.", "opcode 0xff"),
        (b"}" * 10 + b"0.", "POP"),
        (b"}2.", "DUP"),
        (b"]q\x00h\x00a.", "contains itself"),
        (b"}q\x00K\x01h\x00s.", "contains itself"),
        (b"]" * 1000 + b"a" * 999 + b".", "nested 201 deep"),
        (b")" + b"\x85" * 100_000 + b".", "nested 201 deep"),
        (b"})" + b"\x85" * 100_000 + b"K\x01s.", "tuple as a key"),
        (b"}\x8a\x09" + (2**64).to_bytes(9, "little") + b"K\x01s.", "int as a key"),
        (b"}]K\x01s.", "list as a key"),
        (b"}K\x01\x8a\x08" + (2**59).to_bytes(8, "little") + b"\x86K\x01s.", "int as a key"),
        (b"}K\x01G" + bytes(8) + b"\x86K\x01s.", "float as a key"),
        (BOMB, "nested 7 deep with 67368421 values"),
        (b"]" * 1_000_001 + b".", "more than 1000000"),
        (b"\x80\x04" + b"K\x01" * (1 << 23) + b".", "at most 16777216"),
        (b"c_codecs\nencode\n" + b"X\x20\xa1\x07\x00" + b"x" * 500_000 + b"q\x00X\x06\x00\x00\x00latin1\x86R"
         + b"c_codecs\nencode\nh\x00X\x06\x00\x00\x00latin1\x86R" * 3 + b".", "more than 1000000"),
        (b"c_codecs\nencode\nX\x01\x00\x00\x00xX\x05\x00\x00\x00utf-7\x86R.", "bytes wrongly"),
        (b"ctorch\nSize\n(J\xff\xff\xff\xfft\x85R.", "size wrongly"),
        (b"ctorch._utils\n_rebuild_tensor_v2\n(K\x01K\x02tR.", "damaged"),
        (b"ctorch._utils\n_rebuild_parameter\nK\x01K\x01K\x01\x87R.", "parameter wrongly"),
        (b"cc\x0f\x00\n\n.", "asks for"),
    ],
)  # fmt: skip
def test_hostile_pickles(body: bytes, match: str) -> None:
    begun = time.perf_counter()
    refused(archive_of(PROTO + body), match)
    assert time.perf_counter() - begun < 20


# ---- tensors that would leave their storage


def tensor(
    offset: int = 0, size: Any = (2,), stride: Any = (1,), grad: Any = False, *, count: int = 2, kind: str = "FloatStorage",
    key: Any = "0", hooks: bytes = b"ccollections\nOrderedDict\n)R", tail: bytes = b"",
) -> bytes:  # fmt: skip
    """A pickle of one tensor."""

    def number(value: Any) -> bytes:
        if isinstance(value, tuple):
            return b"(" + b"".join(map(number, value)) + b"t"
        if isinstance(value, bool):
            return b"\x88" if value else b"\x89"
        if isinstance(value, str):
            return b"X" + struct.pack("<I", len(value)) + value.encode()
        return b"\x8a\x10" + value.to_bytes(16, "little", signed=True)

    storage = (
        b"("
        + number("storage")
        + b"ctorch\n"
        + kind.encode()
        + b"\n"
        + number(key)
        + number("cpu")
        + number(count)
        + b"tQ"
    )
    made = storage + number(offset) + number(size) + number(stride) + number(grad) + hooks + tail
    return PROTO + b"ctorch._utils\n_rebuild_tensor_v2\n(" + made + b"tR."


BYTES = np.array([1.0, 2.0], np.float32).tobytes()


def test_a_tensor_made_by_hand_is_read() -> None:
    assert wg.load(io.BytesIO(archive_of(tensor(), {"0": BYTES}))).tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"size": (3,)}, "ends at element 2 of a storage of 2"),
        ({"offset": 1}, "ends at element 2"),
        ({"stride": (2,)}, "ends at element 2"),
        ({"size": (2**62,), "stride": (2**62,)}, "ends at element"),
        ({"offset": -1}, "shape of a tensor wrongly"),
        ({"size": (-2,)}, "shape of a tensor wrongly"),
        ({"stride": (-1,), "offset": 1}, "shape of a tensor wrongly"),
        ({"size": (2**64,), "stride": (0,)}, "shape of a tensor wrongly"),
        ({"size": (2**40, 2**40), "stride": (0, 0)}, "shape of a tensor wrongly"),
        ({"size": (1,) * 65, "stride": (1,) * 65}, "shape of a tensor wrongly"),
        ({"stride": ()}, "shape of a tensor wrongly"),
        ({"size": ("x",)}, "shape of a tensor wrongly"),
        ({"size": 2}, "shape of a tensor wrongly"),
        ({"count": 3}, "has 8 bytes, which 3 elements do not fit"),
        ({"count": -1}, "storage wrongly"),
        ({"kind": "DoubleStorage"}, "do not fit"),
        ({"kind": "QInt8Storage"}, "asks for torch.QInt8Storage"),
        ({"kind": "Size"}, "storage wrongly"),
        ({"key": "1"}, "storage '1' is missing"),
        ({"key": "../../x"}, "is missing"),
        ({"key": 0}, "storage wrongly"),
        ({"grad": 2}, "whether a tensor requires gradients"),
        ({"grad": True, "kind": "IntStorage"}, "int32 that requires gradients"),
        ({"hooks": b"}"}, "hooks"),
        ({"hooks": b"ccollections\nOrderedDict\n)RK\x01K\x02s"}, "hooks"),
        ({"tail": b"}K\x01\x88s"}, "marks other than"),
        ({"tail": b"K\x01"}, "marks other than"),
        ({"tail": b"}X\x04\x00\x00\x00conj" + BOMB[:-1] + b"s}"}, "damaged"),
        ({"tail": b"}K\x01" + BOMB[:-1] + b"s"}, "marks other than"),
        ({"tail": b"}}"}, "damaged"),
    ],
    ids=str,
)
def test_tensors_stay_in_their_storages(changes: dict[str, Any], match: str) -> None:
    refused(archive_of(tensor(**changes), {"0": BYTES}), match)


def test_a_huge_expanded_tensor_takes_no_memory() -> None:
    found = wg.load(io.BytesIO(archive_of(tensor(size=(2**40,), stride=(0,)), {"0": BYTES})))
    assert (found.shape, found[2**39].item()) == ((2**40,), 1.0)


@pytest.mark.parametrize(("mark", "value"), [("neg", -1.0), ("conj", 1.0)])
def test_marks_of_expanded_tensors_take_no_memory(mark: str, value: float) -> None:
    tail = b"}X" + struct.pack("<I", len(mark)) + mark.encode() + b"\x88s"
    found = wg.load(io.BytesIO(archive_of(tensor(size=(2**40,), stride=(0,), tail=tail), {"0": BYTES})))
    assert (found.shape, found[2**39].item()) == ((2**40,), value)


def test_a_storage_is_computed_once_however_many_tensors_ask_for_it() -> None:
    tail = b"}X\x03\x00\x00\x00neg\x88s"
    one = tensor(size=(1,), count=2**18, tail=tail)[2:-1]
    body = PROTO + b"](" + one + b"q\x00" + one * 999 + b"e."
    tracemalloc.start()
    found = wg.load(io.BytesIO(archive_of(body, {"0": bytes(2**20)})))
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(found) == 1000
    assert most < 2**24


def test_attributes_hide_nothing() -> None:
    rebuilt = tensor()[2:-1]
    for name, value in (("backward", b"K\x01"), ("_payload", b"N"), ("__class__", b"N"), ("note", b"]")):
        state = b"}X" + struct.pack("<I", len(name)) + name.encode() + value + b"s"
        body = (
            b"ctorch._utils\n_rebuild_parameter_with_state\n("
            + rebuilt
            + b"\x89ccollections\nOrderedDict\n)R"
            + state
            + b"tR."
        )
        refused(archive_of(PROTO + body, {"0": BYTES}), f"sets the attribute '{name}'")


# ---- archives


def test_compressed_entries_are_refused() -> None:
    bomb = archive_of(tensor(size=(10**7,), count=10**7), {"0": bytes(4 * 10**7)})
    small = rewritten(bomb, lambda _, data: data, zipfile.ZIP_DEFLATED)
    assert len(small) < 10**5
    refused(small, "is compressed")


def test_entries_that_overlap_are_refused() -> None:
    data = archive_of(tensor(), {"0": BYTES, "1": BYTES})
    one, two = (data.rindex(f"a/data/{key}".encode()) - 4 for key in "01")  # where the table says where the entries are
    refused(data[:two] + data[one : one + 4] + data[two + 4 :], "overlaps|damaged")


def test_an_entry_that_comes_twice() -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("a/data.pkl", b"x")
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("a/data.pkl", b"y")
    refused(out.getvalue(), "twice")


# ---- real files, damaged


def damaged(data: bytes, rng: random.Random) -> bytes:
    kind = rng.randrange(4)
    at = rng.randrange(len(data))
    if kind == 0:
        return data[:at]
    if kind == 1:
        return data[:at] + data[at + rng.randrange(1, 9) :]
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8))):
        changed[rng.randrange(len(data))] = rng.randrange(256) if kind == 2 else rng.choice((0, 255, 127, 128))
    return bytes(changed)


def other_opcodes(data: bytes, rng: random.Random) -> bytes:
    """Opcodes of a pickle changed, left out, doubled or put elsewhere."""
    places = [at for _, _, at in pickletools.genops(data) if at is not None] + [len(data)]
    parts = [data[a:b] for a, b in pairwise(places)]
    for _ in range(rng.choice((1, 1, 2, 5))):
        i, j = rng.randrange(len(parts)), rng.randrange(len(parts))
        choice = rng.randrange(4)
        if choice == 0:
            parts[i] = rng.choice(OPCODES) + parts[i][1:]
        elif choice == 1:
            parts[i], parts[j] = parts[j], parts[i]
        elif choice == 2:
            parts[i] = b""
        else:
            parts[i] += parts[j]
    return b"".join(parts)


def tried(data: bytes) -> bool:
    """Whether a file is read; nothing but a ValueError may come, and soon."""
    begun = time.perf_counter()
    try:
        wg.load(io.BytesIO(data), verify=False)
    except ValueError as error:
        assert str(error).startswith("the given file")  # noqa: PT017 - both ways are right
        return False
    finally:
        assert time.perf_counter() - begun < 5
    return True


@pytest.mark.parametrize("name", FILES)
def test_damaged_files(name: str) -> None:
    data, rng = (FOLDER / name).read_bytes(), random.Random(name)
    inside, pickled = pickle_of(data)
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    read = [tried(damaged(data, rng)) for _ in range(ROUNDS)]
    for change in (damaged, other_opcodes):
        for _ in range(ROUNDS):
            new = change(pickled, rng)
            read.append(tried(rewritten(data, lambda n, old, new=new: new if n == inside else old)))
    assert 0.3 * len(read) < read.count(False) < len(read)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - most < 100_000  # kB


def test_every_cut_of_a_file_is_refused() -> None:
    data = (FOLDER / "views.pt").read_bytes()
    for length in range(9, len(data), 37):
        refused(data[:length])
