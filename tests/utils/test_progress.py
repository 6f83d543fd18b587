"""The bar and the events of a training loop, and when it stops."""

import io
import math
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import wengert as wg
from wengert import nn
from wengert.extras import MissingExtraError
from wengert.utils import EarlyStopping, Progress

# ---- progress


def test_the_bar_shows_numbers_speed_and_the_time_left() -> None:
    screen = io.StringIO()
    with Progress(total=96, file=screen, description="train") as progress:
        progress.step(32, loss=wg.tensor(0.25, requires_grad=True))
        progress.log(accuracy=0.5)
        middle = screen.getvalue().rpartition("\r")[2]
        progress.step(64, loss=0.125)
    assert all(part in middle for part in ("train:  33%", "32.0/96.0", "<", "items/s", "loss=0.25", "accuracy=0.5"))
    last = screen.getvalue().rpartition("\r")[2]
    assert all(part in last for part in ("100%", "96.0/96.0", "loss=0.125", "accuracy=0.5"))
    assert (progress.steps, progress.items) == (2, 96)


def test_without_a_total_or_a_bar() -> None:
    screen = io.StringIO()
    with Progress(file=screen) as progress:
        progress.step()
    assert "1.00 items" in screen.getvalue()
    with Progress(bar=False, file=screen, start=5, items=50) as progress:
        progress.step(10)
    assert (progress.steps, progress.items) == (6, 60)


def test_events_can_be_read(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    with Progress(bar=False, log_dir=tmp_path, start=7) as progress:
        for loss in (0.5, 0.25):
            progress.step(4, loss=loss)
        progress.log(accuracy=1.0)
    assert events(tmp_path) == [("loss", 0.5, 8), ("loss", 0.25, 9), ("accuracy", 1.0, 9)]


def events(folder: Path) -> list[tuple[str, float, int]]:
    """The scalars of the files of events in a folder: records of length, check, message and check."""
    from tensorboardX.proto.event_pb2 import Event

    found = []
    for path in folder.iterdir():
        data = path.read_bytes()
        while data:
            length = int.from_bytes(data[:8], "little")
            event = Event.FromString(data[12 : 12 + length])
            found += [(value.tag, value.simple_value, event.step) for value in event.summary.value]
            data = data[16 + length :]
    return found


def test_tensorboard_s_own_writer_is_the_second_choice(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    written: list[Any] = []

    class Writer:
        def __init__(self, folder: str) -> None:
            written.append(folder)

        def add_scalar(self, tag: str, data: float, step: int) -> None:
            written.append((tag, data, step))

        def close(self) -> None:
            written.append("closed")

    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    monkeypatch.setitem(sys.modules, "tensorboard.summary", SimpleNamespace(Writer=Writer))
    with Progress(bar=False, log_dir=tmp_path) as progress:
        progress.step(loss=2.0)
    assert written == [str(tmp_path), ("loss", 2.0, 1), "closed"]


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("tqdm", "tensorboardX", "tensorboard.summary"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtraError, match=r"'tqdm'.*pip install 'wengert\[progress\]'"):
        Progress()
    with pytest.raises(MissingExtraError, match=r"'tensorboardX'.*pip install 'wengert\[progress\]'"):
        Progress(bar=False, log_dir=tmp_path)
    Progress(bar=False).step(loss=1.0)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: Progress(total=-1), "total"),
        (lambda: Progress(bar=False).step(0), "at least one item"),
        (lambda: Progress(bar=False).step(loss=wg.ones(2)), r"'loss' must be one number, got a tensor of shape \(2,\)"),
    ],
)
def test_progress_refuses(make: Any, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        make()


# ---- early stopping


@pytest.mark.parametrize(
    ("options", "values", "want"),
    [
        ({"patience": 1}, [3, 2, 2], [0, 0, 1]),
        ({"patience": 2}, [3, 4, 2, 3, 2.5], [0, 0, 0, 0, 1]),
        ({"patience": 2, "min_delta": 0.5}, [3, 2.6, 2.5, 1], [0, 0, 1, 0]),
        ({"patience": 1, "min_delta": 0.5}, [3, 2.5], [0, 1]),
        ({"patience": 2, "mode": "max"}, [1, 2, 1, 2, 3], [0, 0, 0, 1, 0]),
        ({"patience": 2}, [math.nan, math.nan], [0, 1]),
        ({"patience": 2}, [1, math.nan, 0.5, math.nan, math.nan], [0, 0, 0, 0, 1]),
        ({"patience": 2}, [math.inf, 1, 2], [0, 0, 0]),
        ({"patience": 1}, [-math.inf, -math.inf], [0, 1]),
    ],
)
def test_when_to_stop(options: dict[str, Any], values: list[float], want: list[int]) -> None:
    assert list(map(EarlyStopping(**options).step, values)) == [bool(w) for w in want]


def test_the_best_state_is_restored(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(2, 1), nn.BatchNorm1d(1))
    stopping = EarlyStopping(patience=2, keep=model)
    with pytest.raises(RuntimeError, match="no best state"):
        stopping.restore()
    best = None
    for step, loss in enumerate((3.0, 1.0, wg.tensor(2.0))):
        with wg.no_grad():
            for p in model.parameters():
                p.fill_(step)
        model(wg.rand(4, 2))
        stopping.step(loss)
        assert stopping.improved == (step < 2)
        if step == 1:
            best = {name: t.clone() for name, t in model.state_dict().items()}
    assert best is not None
    wg.save(stopping.state_dict(), tmp_path / "stopping")
    for restored in (stopping, EarlyStopping(patience=2, keep=nn.Sequential(nn.Linear(2, 1), nn.BatchNorm1d(1)))):
        restored.load_state_dict(wg.load(tmp_path / "stopping"))
        restored.restore()
        found = restored.keep.state_dict()
        assert all(bool((found[name] == best[name]).all()) for name in best)
        assert (restored.best, restored.best_step, restored.improved) == (1.0, 1, False)
        assert restored.step(1.5)
        with wg.no_grad():
            restored.keep[0].weight.fill_(7)  # changes no copy
        restored.restore()
        assert restored.keep[0].weight.tolist() == [[1.0, 1.0]]


@pytest.mark.parametrize("options", [{"patience": 0}, {"min_delta": -1}, {"min_delta": math.nan}, {"mode": "low"}])
def test_early_stopping_refuses(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        EarlyStopping(**options)
