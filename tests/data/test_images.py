"""Folders of pictures, and transforms."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import wengert as wg
from wengert.data import DataLoader, ImageFolder, from_arrow
from wengert.data.transforms import Compose, Normalize, RandomCrop, RandomHorizontalFlip, Resize, ToTensor
from wengert.extras import MissingExtraError

PIXELS = np.arange(4 * 6 * 3, dtype=np.uint8).reshape(4, 6, 3)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("dog/b.png", "dog/a/c.PNG", "cat/1.png", "cat/.hidden.png"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(PIXELS + len(name)).save(path)
    (tmp_path / "cat" / "notes.txt").touch()
    (tmp_path / ".cache").mkdir()
    return tmp_path


# ---- folders


def test_the_order_of_a_folder(root: Path) -> None:
    data = ImageFolder(root, transform=np.asarray, target_transform=lambda i: 10 * i)
    assert data.classes == ["cat", "dog"]
    assert [p.relative_to(root).as_posix() for p, _ in data.samples] == ["cat/1.png", "dog/a/c.PNG", "dog/b.png"]
    assert data.targets == [0, 1, 1]
    pixels, number = data[1]
    np.testing.assert_array_equal(pixels, PIXELS + len("dog/a/c.PNG"))
    assert number == 10
    assert ImageFolder(root, mode="L")[0][0].mode == "L"
    images, labels = next(iter(DataLoader(ImageFolder(root, transform=ToTensor()), batch_size=3)))
    assert (images.shape, labels.tolist()) == ((3, 3, 4, 6), [0, 1, 1])


@pytest.mark.parametrize("workers", [0, 1])
def test_broken_files_are_named(root: Path, workers: int) -> None:
    whole = (root / "dog" / "b.png").read_bytes()
    (root / "dog" / "b.png").write_bytes(whole[: len(whole) // 2])
    (root / "cat" / "2.jpg").write_text("no picture")
    data = ImageFolder(root, transform=ToTensor())
    assert data.broken() == [root / "cat" / "2.jpg", root / "dog" / "b.png"]
    batches = iter(DataLoader(data, num_workers=workers))
    next(batches)
    with pytest.raises(ValueError, match=r"2\.jpg is no picture") as error:
        next(batches)
    assert error.value.__notes__[0] == "making sample 1 of ImageFolder"


def test_folders_that_are_none(root: Path) -> None:
    with pytest.raises(NotADirectoryError, match="nowhere"):
        ImageFolder(root / "nowhere")
    with pytest.raises(ValueError, match="no sub-folders"):
        ImageFolder(root / "cat")
    (root / "empty").mkdir()
    with pytest.raises(ValueError, match="empty holds no picture"):
        ImageFolder(root)


def test_a_missing_library_is_named(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for make in (lambda: ImageFolder(root), lambda: from_arrow({})):
        with pytest.raises(MissingExtraError, match=r"pip install 'wengert\[data\]'"):
            make()


# ---- transforms


@pytest.mark.parametrize(
    ("picture", "want"),
    [
        (PIXELS, PIXELS.transpose(2, 0, 1) / np.float32(255)),
        (Image.fromarray(PIXELS), PIXELS.transpose(2, 0, 1) / np.float32(255)),
        (PIXELS[:, :, 0], PIXELS[None, :, :, 0] / np.float32(255)),
        (Image.fromarray(PIXELS[:, :, 0] > 20), (PIXELS[None, :, :, 0] > 20).astype(np.float32)),
        (PIXELS.astype(np.float64), PIXELS.transpose(2, 0, 1).astype(np.float32)),
        (PIXELS.astype(np.int32), PIXELS.transpose(2, 0, 1).astype(np.int32)),
    ],
)  # fmt: skip
def test_to_tensor(picture: Any, want: Any) -> None:
    got = ToTensor()(picture)
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-7, strict=True)
    assert PIXELS[0, 0, 1] == 1  # and the picture is what it was


def test_normalize() -> None:
    x = wg.arange(12.0).reshape(3, 2, 2)
    got = Normalize([1, 2, 3], [0.5, 1, 2])(x).numpy()
    want = (x.numpy() - np.array([1, 2, 3]).reshape(3, 1, 1)) / np.array([0.5, 1, 2]).reshape(3, 1, 1)
    np.testing.assert_allclose(got, want)


@pytest.mark.parametrize(("size", "want"), [(8, (12, 8)), ((3, 5), (5, 3))])
def test_resize(size: Any, want: tuple[int, int]) -> None:
    picture = Image.fromarray(PIXELS)
    got = Resize(size)(picture)
    assert got.size == want
    np.testing.assert_array_equal(np.asarray(got), np.asarray(picture.resize(want, Image.Resampling.BILINEAR)))


def kinds(pixels: np.ndarray[Any, Any]) -> list[tuple[Any, Any]]:
    """A picture of each kind, and what makes an array (height, width, channels) of it."""
    tensor = wg.from_numpy(pixels.transpose(2, 0, 1).copy())
    return [
        (Image.fromarray(pixels), np.asarray),
        (pixels, np.asarray),
        (tensor, lambda t: t.numpy().transpose(1, 2, 0)),
    ]


@pytest.mark.parametrize("kind", range(3), ids=["image", "array", "tensor"])
def test_random_crops_and_flips(kind: int) -> None:
    picture, back = kinds(PIXELS)[kind]
    places = set()
    crop = RandomCrop((2, 3), padding=1, generator=wg.Generator().manual_seed(0))
    padded = np.pad(PIXELS, [(1, 1), (1, 1), (0, 0)])
    parts = {padded[i : i + 2, j : j + 3].tobytes(): (i, j) for i in range(5) for j in range(6)}
    for _ in range(60):
        places.add(parts[back(crop(picture)).tobytes()])  # a KeyError if it is no part
    assert {i for i, _ in places} == set(range(5))
    assert {j for _, j in places} == set(range(6))
    flip = RandomHorizontalFlip(generator=wg.Generator().manual_seed(0))
    flipped = [back(flip(picture)).tobytes() for _ in range(40)]
    assert set(flipped) == {PIXELS.tobytes(), PIXELS[:, ::-1].tobytes()}
    assert 8 < flipped.count(PIXELS.tobytes()) < 32


def test_random_transforms_are_seeded_by_the_loader(root: Path) -> None:
    data = ImageFolder(root, transform=Compose([RandomCrop(3), RandomHorizontalFlip(), ToTensor()]))

    def epochs(workers: int, seed: int) -> list[Any]:
        loader = DataLoader(data, num_workers=workers, generator=wg.Generator().manual_seed(seed))
        return [images.numpy().tobytes() for _ in range(2) for images, _ in loader]

    assert epochs(0, 1) == epochs(0, 1) == epochs(2, 1)
    assert epochs(0, 1) != epochs(0, 2)
    assert epochs(0, 1)[:3] != epochs(0, 1)[3:]


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (lambda: Compose([3]), TypeError, "functions"),
        (lambda: ToTensor()("a.png"), TypeError, "str"),
        (lambda: ToTensor()(np.zeros(3)), ValueError, r"\(3,\)"),
        (lambda: Normalize([0.5], [0.0]), ValueError, "must not be 0"),
        (lambda: Normalize([0.5], [1.0, 2.0]), ValueError, "each channel"),
        (lambda: Normalize([0.5], [1.0])(wg.zeros(3, 2, 2)), ValueError, "1 channels"),
        (lambda: Normalize([0.5], [1.0])(PIXELS), TypeError, "ToTensor"),
        (lambda: Normalize([0.5], [1.0])(wg.zeros(1, 2, 2, dtype=wg.uint8)), TypeError, "uint8"),
        (lambda: Resize(0), ValueError, "positive"),
        (lambda: Resize((3,)), ValueError, "height, width"),
        (lambda: Resize(3, "cubic"), ValueError, "cubic"),
        (lambda: Resize(3)(PIXELS), TypeError, "Pillow"),
        (lambda: RandomCrop(5)(PIXELS), ValueError, "5×5 from a picture of 4×6"),
        (lambda: RandomCrop(2, padding=-1), ValueError, "padding"),
        (lambda: RandomHorizontalFlip(1.5), ValueError, "probability"),
        (lambda: RandomHorizontalFlip()("x"), TypeError, "str"),
        (lambda: RandomHorizontalFlip()(wg.zeros(2)), ValueError, "height"),
    ],
)
def test_transforms_refuse(make: Any, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        make()
