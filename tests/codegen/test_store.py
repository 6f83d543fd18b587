"""Files of kernels: whole or absent, the user's own or not trusted, no more than the limit."""

import errno
import os
import threading
import time
from pathlib import Path

import pytest

from wengert.codegen import store
from wengert.codegen.store import FORMAT, HEADER, Store

HERE, ELSEWHERE = b"h" * 32, b"e" * 32
KEY, OTHER = b"k" * 32, b"o" * 32
CODE = bytes(range(256)) * 10

needs_owners = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="files have no owners here")


@pytest.fixture
def files(tmp_path) -> Store:
    return Store(tmp_path / "a" / "kernels", limit=1 << 20)


def only(files: Store) -> Path:
    assert files.directory is not None
    (path,) = files.directory.iterdir()
    return path


def test_what_was_put_is_got(files) -> None:
    assert files.get(HERE, KEY) is None
    assert files.put(HERE, KEY, CODE)
    assert files.get(HERE, KEY) == CODE
    assert files.get(HERE, OTHER) is None
    assert files.get(ELSEWHERE, KEY) is None
    assert files.put(HERE, KEY, b"new")
    assert files.get(HERE, KEY) == b"new"
    assert only(files).suffix == ".kernel"


def test_uses_are_counted(files) -> None:
    files.put(HERE, KEY, CODE)
    os.utime(only(files), (1e9, 1e9))
    for _ in range(3):
        files.get(HERE, KEY)
    (file,) = files.files()
    assert (file.uses, file.fault, file.environment) == (3, "", HERE)
    assert file.size == HEADER.size + len(CODE)
    assert time.time() - file.used < 60


@needs_owners
def test_nobody_else_may_read(files) -> None:
    files.put(HERE, KEY, CODE)
    assert only(files).stat().st_mode & 0o777 == 0o600
    assert files.directory.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("length", [0, 1, HEADER.size - 1, HEADER.size, HEADER.size + 1, HEADER.size + len(CODE) - 1])
def test_a_truncated_file_is_replaced(files, length) -> None:
    files.put(HERE, KEY, CODE)
    whole = only(files).read_bytes()
    only(files).write_bytes(whole[:length])
    assert files.get(HERE, KEY) is None
    assert [bool(file.fault) for file in files.files()] == [True]
    assert files.put(HERE, KEY, CODE)
    assert files.get(HERE, KEY) == CODE


def test_every_changed_byte_is_noticed(files) -> None:
    """Except those of the count of uses."""
    files.put(HERE, KEY, CODE)
    path = only(files)
    whole = path.read_bytes()
    uses = range(store.USES_AT, store.USES_AT + store.USES.size)
    for at in range(0, len(whole), 1 if len(whole) < 4096 else 7):
        changed = bytearray(whole)
        changed[at] ^= 0x10
        path.write_bytes(changed)
        assert (files.get(HERE, KEY) == CODE) == (at in uses), at


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda data: b"something else" * 20, "not a kernel"),
        (
            lambda data: data[:8] + (FORMAT + 1).to_bytes(4, "little") + data[12:],
            f"of format {FORMAT + 1}, not {FORMAT}",
        ),
        (lambda data: data[:20], "shorter than its header"),
        (lambda data: data + b"x", f"{len(CODE) + 1} bytes of code, not {len(CODE)}"),
        (lambda data: data[:-1] + b"\0", "the checksum does not fit"),
    ],
)
def test_faults_are_named(files, change, fault) -> None:
    files.put(HERE, KEY, CODE)
    path = only(files)
    path.write_bytes(change(path.read_bytes()))
    assert [file.fault for file in files.files()] == [fault]
    assert files.get(HERE, KEY) is None


def test_a_file_under_another_name_is_not_loaded(files) -> None:
    """One that was copied there from another machine, say."""
    files.put(ELSEWHERE, KEY, CODE)
    foreign = only(files)
    files.put(HERE, KEY, b"mine")
    (path,) = (p for p in files.directory.iterdir() if p != foreign)
    os.replace(foreign, path)
    assert files.get(HERE, KEY) is None
    assert [file.fault for file in files.files()] == ["under another kernel's name"]


@needs_owners
@pytest.mark.parametrize("mode", [0o602, 0o620, 0o666])
def test_a_file_that_others_may_write_is_not_loaded(files, mode) -> None:
    files.put(HERE, KEY, CODE)
    only(files).chmod(mode)
    assert files.get(HERE, KEY) is None
    assert "others may write to it" in next(files.files()).fault


@needs_owners
@pytest.mark.parametrize("mode", [0o702, 0o770, 0o1777])
def test_a_directory_that_others_may_write_is_not_used(files, mode) -> None:
    files.put(HERE, KEY, CODE)
    files.directory.chmod(mode)
    assert files.get(HERE, KEY) is None
    assert not files.put(HERE, OTHER, CODE)
    assert files.read("numbers.json") is None
    assert "others may write to it" in files.trouble()
    files.directory.chmod(0o700)
    assert files.get(HERE, KEY) == CODE


@needs_owners
def test_what_belongs_to_another_user_is_not_loaded(files, monkeypatch) -> None:
    files.put(HERE, KEY, CODE)
    me = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: me + 1)
    assert files.trouble() == f"belongs to user {me}, not {me + 1}"
    assert files.get(HERE, KEY) is None
    assert not files.put(HERE, OTHER, CODE)
    monkeypatch.setattr(store.Store, "trouble", lambda self, create=False: "")
    assert files.get(HERE, KEY) is None, "the file itself is looked at too"


@pytest.mark.skipif(not hasattr(os, "symlink"), reason="no links here")
def test_a_link_is_not_followed(files, tmp_path) -> None:
    files.put(HERE, KEY, CODE)
    path = only(files)
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert files.get(HERE, KEY) is None
    files.clear()
    assert path.is_symlink(), "it was not written here"


def test_no_directory_is_no_harm(tmp_path) -> None:
    (tmp_path / "file").write_text("")
    for files in (
        Store(None, 1 << 20),
        Store(tmp_path / "file", 1 << 20),
        Store(tmp_path / "file" / "below", 1 << 20),
        Store(tmp_path, 1 << 20, off="WENGERT_CACHE is 0"),
    ):
        assert not files.put(HERE, KEY, CODE)
        assert files.get(HERE, KEY) is None
        assert not files.write("numbers.json", b"{}")
        assert files.read("numbers.json") is None
        assert files.trouble(create=True)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_a_full_disk_is_no_harm(files, number, monkeypatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", refuse)
        assert not files.put(HERE, KEY, CODE)
    assert list(files.directory.iterdir()) == []
    assert files.put(HERE, KEY, CODE)


@pytest.mark.skipif(hasattr(os, "geteuid") and os.geteuid() == 0, reason="root may write anywhere")
def test_a_directory_to_read_only_is_of_use(files) -> None:
    files.put(HERE, KEY, CODE)
    only(files).chmod(0o400)
    files.directory.chmod(0o500)
    try:
        assert files.get(HERE, KEY) == CODE
        assert not files.put(HERE, OTHER, CODE)
    finally:
        files.directory.chmod(0o700)


def test_the_longest_unused_go_first(files) -> None:
    files.limit = 10 * (HEADER.size + len(CODE))
    keys = [bytes([i]) * 32 for i in range(11)]
    for age, key in enumerate(keys[:10]):
        files.put(HERE, key, CODE)
        newest = max(files.directory.iterdir(), key=lambda path: path.stat().st_mtime)
        os.utime(newest, (1e9 + age, 1e9 + age))
    files.get(HERE, keys[0])  # used again
    files.put(HERE, keys[10], CODE)
    left = [i for i, key in enumerate(keys) if files.get(HERE, key) is not None]
    assert left == [0, 4, 5, 6, 7, 8, 9, 10], "down to eight tenths"


def test_what_other_processes_wrote_is_counted(files) -> None:
    """A store that has not looked for a while learns of it at the latest after so many files."""
    other = Store(files.directory, files.limit)
    files.put(HERE, KEY, b"")
    files.limit = 40 * (HEADER.size + len(CODE))
    for i in range(60):
        other.put(ELSEWHERE, bytes([i]) * 32, CODE)
    for i in range(store.SCAN_EVERY + 1):
        files.put(HERE, i.to_bytes(32, "big"), b"")
    assert sum(file.size for file in files.files()) <= files.limit


def test_what_dead_processes_left_is_removed(files) -> None:
    files.put(HERE, KEY, CODE)
    old, new = files.directory / "0123.17.abcd.tmp", files.directory / "0123.18.abcd.tmp"
    for path in (old, new):
        path.write_bytes(b"half a fi")
    os.utime(old, (1e9, 1e9))
    files.evict()
    assert (old.exists(), new.exists()) == (False, True)


def test_only_our_files_are_cleared(files) -> None:
    files.put(HERE, KEY, CODE)
    files.write("machine_0.json", b"{}")
    foreign = [files.directory / name for name in ("notes.txt", "x.kernel", "holiday.jpeg")]
    for path in foreign:
        path.write_text("mine")
    assert files.clear() == 2
    assert sorted(files.directory.iterdir()) == sorted(foreign)
    assert files.put(HERE, KEY, CODE)


def test_other_files_can_be_kept(files) -> None:
    assert files.read("numbers.json") is None
    assert files.write("numbers.json", b"[1]")
    assert files.read("numbers.json") == b"[1]"
    with pytest.raises(ValueError, match="is not a name that"):
        files.write("../numbers", b"")


def test_threads_see_whole_files(files) -> None:
    """One writes again and again, others read: they get one of the codes, whole."""
    codes = [bytes([i]) * (1000 * i) for i in range(1, 20)]
    files.put(HERE, KEY, codes[0])
    over = threading.Event()
    wrong: list[object] = []

    def read() -> None:
        while not over.is_set():
            code = files.get(HERE, KEY)
            if code not in codes:
                wrong.append(code)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for _ in range(10):
        for code in codes:
            assert files.put(HERE, KEY, code)
    over.set()
    for reader in readers:
        reader.join()
    assert not wrong
