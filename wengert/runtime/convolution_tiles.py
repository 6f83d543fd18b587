"""Which tiles and blocks suit a convolution. They change the time that it takes, and no result."""

from collections.abc import Sequence
from typing import Final

from wengert.codegen.microkernel import Tile, arithmetic, tile_of
from wengert.codegen.target import host

__all__ = ["block", "fitting", "gradient_tile", "sums_tile"]

ENOUGH: Final = 8  # sums at once that keep a processor busy; fewer take as long
NARROW: Final = 1.1  # what a vector costs in a tile that is not full, since it shares less of what is read
BLOCK: Final = 1 / 16  # what a block costs, as a part of a row of windows


def fitting(count: int, sizes: Sequence[int]) -> int:
    """Return the size that leaves the least of ``count`` in a part that is not full; of equally good ones the largest."""
    return min(sizes, key=lambda n: (-(-count // n) * n, -n))


def sums_tile(dtype: str, channels: int) -> Tile:
    """Return the tile for a number of output channels: as many rows as fit them, and vectors to fill the registers."""
    most = tile_of(arithmetic(dtype, host()), host())
    rows = fitting(channels, range(1, most.rows + 1))
    return Tile(rows, min(8, most.rows * most.vectors // rows), most.lanes)


def gradient_tile(dtype: str, channels: int) -> Tile:
    """Return the tile for a number of output channels, which are its columns."""
    most = tile_of(arithmetic(dtype, host()), host())
    vectors = fitting(-(-channels // most.lanes), range(1, most.vectors + 1))
    return Tile(most.rows * most.vectors // vectors, vectors, most.lanes)


def block(shape: tuple[int, int, int], pitch: int, most: int, tile: Tile) -> tuple[int, int]:
    """Return the rows and columns of windows that are taken at a time, at most so many with what lies between rows."""
    _, height, width = shape
    if width > most:
        return 1, most // tile.columns * tile.columns
    rows = range(1, min(height, max(1, (most - width) // pitch + 1)) + 1)

    def cost(n: int) -> float:
        """Return the vectors that are computed for a row of windows."""
        whole, rest = divmod(-(-((n - 1) * pitch + width) // tile.lanes), tile.vectors)
        return (whole * tile.vectors + (max(NARROW * rest, ENOUGH / tile.rows) if rest else 0)) / n

    blocks = {-(-height // n): -(-height // -(-height // n)) for n in rows}
    return min(blocks.values(), key=lambda n: (cost(n) * (1 + BLOCK / n), -n)), width
