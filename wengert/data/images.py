"""Pictures in folders, one folder for each class."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from wengert.data.dataset import Dataset
from wengert.extras import require

__all__ = ["IMAGE_SUFFIXES", "ImageFolder"]

IMAGE_SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")


class ImageFolder(Dataset[Any]):
    """The pictures in the sub-folders of a folder: sample i is ``(picture, class)``.

    The sub-folders, in order of their names, are the classes; their files, in order of their paths, the samples: the order
    is the same on every machine. Hidden files and files with other suffixes are passed over.

    Args:
        root: the folder. transform: what is made of a picture, which is a Pillow image (see
            :mod:`wengert.data.transforms`). target_transform: what is made of the number of a class.
        mode: Pillow's mode that pictures are converted to: "RGB", "L" for grey; None leaves them as they are.
        suffixes: of the files that are pictures.

    Attributes:
        classes: the names of the classes. class_to_idx: their numbers by name.
        samples: (path, number of the class) of every picture. targets: the numbers of the classes alone.

    Raises:
        NotADirectoryError: if there is no such folder. ValueError: if it has no sub-folders, or one has no picture; when a
            sample is asked for whose file is no picture, or a broken one, naming it. MissingExtraError: without Pillow.

    Example:
        >>> import pathlib, tempfile
        >>> import numpy as np
        >>> import wengert as wg
        >>> from PIL import Image
        >>> root = pathlib.Path(tempfile.mkdtemp())
        >>> for name in ("cat", "dog"):
        ...     (root / name).mkdir()
        ...     Image.fromarray(np.zeros((4, 6, 3), np.uint8)).save(root / name / "1.png")
        >>> data = wg.data.ImageFolder(root, transform=wg.data.transforms.ToTensor())
        >>> data.classes, len(data), data[1][0].shape, data[1][1]
        (['cat', 'dog'], 2, wengert.Size([3, 4, 6]), 1)
    """

    def __init__(
        self, root: str | os.PathLike[str], transform: Callable[[Any], Any] | None = None,
        target_transform: Callable[[int], Any] | None = None, *, mode: str | None = "RGB",
        suffixes: Sequence[str] = IMAGE_SUFFIXES,
    ) -> None:  # fmt: skip
        require("PIL.Image", "data")
        self.root, self.transform, self.target_transform, self.mode = Path(root), transform, target_transform, mode
        if not self.root.is_dir():
            raise NotADirectoryError(f"ImageFolder needs a folder with a sub-folder for each class; {root} is none")
        self.classes = sorted(p.name for p in self.root.iterdir() if p.is_dir() and not p.name.startswith("."))
        if not self.classes:
            raise ValueError(f"{root} has no sub-folders; ImageFolder takes one for each class: {root}/cat/1.png")
        self.class_to_idx = {name: i for i, name in enumerate(self.classes)}
        wanted = tuple(suffix.lower() for suffix in suffixes)
        self.samples = [(p, i) for name, i in self.class_to_idx.items() for p in _pictures(self.root / name, wanted)]
        self.targets = [number for _, number in self.samples]
        if empty := [name for name, i in self.class_to_idx.items() if i not in set(self.targets)]:
            raise ValueError(
                f"{self.root / empty[0]} holds no picture; the suffixes of pictures are: {', '.join(wanted)}"
            )

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: Any) -> Any:
        path, number = self.samples[index]
        picture: Any = self._opened(path)
        if self.transform is not None:
            picture = self.transform(picture)
        return picture, number if self.target_transform is None else self.target_transform(number)

    def broken(self) -> list[Path]:
        """Return the paths of all files that cannot be read, each of which is read for that."""
        found = []
        for path, _ in self.samples:
            try:
                self._opened(path)
            except ValueError:
                found.append(path)
        return found

    def _opened(self, path: Path) -> Any:
        image = require("PIL.Image", "data")
        try:
            with image.open(path) as picture:
                return picture.copy() if self.mode is None else picture.convert(self.mode)
        except (OSError, SyntaxError, image.DecompressionBombError) as error:  # SyntaxError: Pillow's for a broken PNG
            raise ValueError(f"{path} is no picture that can be read: {error}") from error


def _pictures(folder: Path, suffixes: tuple[str, ...]) -> list[Path]:
    """The pictures below a folder in the order of their paths."""
    found = (p for p in folder.rglob("*") if p.suffix.lower() in suffixes and p.is_file())
    visible = [p for p in found if not any(part.startswith(".") for part in p.relative_to(folder).parts)]
    return sorted(visible, key=lambda p: p.relative_to(folder).as_posix())
