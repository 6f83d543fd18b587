"""How a matrix product is cut: what is packed, how much of k at a time, and the blocks that threads take.

The numbers follow the caches (K. Goto and R. van de Geijn, "Anatomy of high-performance matrix multiplication", 2008): a
panel of B and the tile's rows of A stay in the first, a block of A comes from the last. None of them changes a result.
"""

from typing import Final, NamedTuple

from wengert.codegen.contraction import PANEL
from wengert.codegen.microkernel import Tile

__all__ = ["Blocks", "Problem", "cut", "fitting", "parts"]

FIRST_CACHE: Final = PANEL // 2  # bytes of a panel of B, about: rows of A and of the result need room beside it
IN_PLACE: Final = 16 * 1024  # bytes of B that is not worth packing
REUSED: Final = 2  # tiles that read a panel of B, above which it is
LEFT: Final = 3 * 512 * 1024  # bytes of a block of A
WORKSPACE: Final = 16 * 1024 * 1024  # bytes of packed A that are kept at once
WIDE: Final = 1024  # columns of a block
TASK: Final = 500_000  # products that make it worth while to wake a thread
SHARES: Final = 4  # blocks per thread, so that one who is late does not keep the others waiting


class Problem(NamedTuple):
    """A batch of products of (rows, k) and (k, columns) matrices; strides are in bytes, ``unit`` is the size of an element.

    ``convert`` says that operands are not read as they are in memory.
    """

    batches: int
    rows: int
    columns: int
    k: int
    left: tuple[int, int]
    right: tuple[int, int]
    unit: int
    convert: bool


class Blocks(NamedTuple):
    """Whether A and B are packed, how much of k is taken at a time, and the rows and columns of a block.

    ``share_right`` says that B is packed before all blocks, and not by each just before it is used.
    """

    pack_left: bool
    pack_right: bool
    share_right: bool
    k: int
    rows: int
    columns: int


def parts(whole: int, part: int) -> int:
    """Return how many parts of a size there are, the last of which may be smaller."""
    return -(-whole // part)


def _rounded(size: int, step: int) -> int:
    return parts(size, step) * step


def _depth(k: int, tile: Tile, unit: int) -> int:
    """Return how much of k is taken at a time of packed B, in equal parts: at most what a panel has room for."""
    most = max(64, FIRST_CACHE // (tile.columns * unit))
    cuts = max(1, round(k / most))
    return _rounded(parts(k, cuts), 8) if cuts > 1 else k


def cut(problem: Problem, tile: Tile, unit: int, threads: int, *, masks: bool, dots: bool) -> Blocks:
    """Return how to cut a problem.

    Args:
        unit: bytes of what a lane reads of a packed operand. masks: whether B may be read in place where its last panel
            is not full. dots: whether the kernel is that of dot products, which takes everything as it is.
    """
    ragged = problem.columns % tile.columns != 0 and not masks
    strided = problem.right[1] != problem.unit and problem.columns > 1
    reused = problem.rows > REUSED * tile.rows and problem.k * problem.columns * unit > IN_PLACE
    pack_right = not dots and (problem.convert or ragged or strided or reused)
    depth = max(_depth(problem.k, tile, unit) if pack_right else problem.k, 1)
    tall = problem.left[1] != problem.unit and problem.k > 1
    pack_left = problem.convert or (
        problem.columns >= 4 * tile.columns and (tall or problem.rows * problem.k > 256 * 256)
    )
    rows = _rounded(min(problem.rows, max(tile.rows, LEFT // (depth * unit))), tile.rows)
    columns = _rounded(min(problem.columns, WIDE) if problem.rows > 1 else problem.columns, tile.columns)
    rows, columns = _shared(problem, tile, rows, columns, threads, pack_right)
    share_right = pack_right and rows < problem.rows and depth * problem.columns * unit <= WORKSPACE
    return Blocks(pack_left, pack_right, share_right, depth, rows, columns)


def _shared(problem: Problem, tile: Tile, rows: int, columns: int, threads: int, packed: bool) -> tuple[int, int]:
    """Return smaller blocks where there would be too few for all threads; every row of blocks packs B anew."""
    work = problem.batches * problem.rows * problem.columns * problem.k
    wanted = min(SHARES * threads, work // TASK) if threads > 1 else 1
    while problem.batches * parts(problem.rows, rows) * parts(problem.columns, columns) < wanted:
        if columns > 4 * tile.columns and (packed or columns > rows):
            columns = _rounded(parts(columns, 2), tile.columns)
        elif rows > 4 * tile.rows:
            rows = _rounded(parts(rows, 2), tile.rows)
        elif columns > tile.columns:
            columns = _rounded(parts(columns, 2), tile.columns)
        elif rows > tile.rows:
            rows = _rounded(parts(rows, 2), tile.rows)
        else:
            break
    return rows, columns


def fitting(count: int, step: int, each: int) -> int:
    """Return how many rows (or columns) of ``each`` bytes fit the workspace when they are packed, in steps of a tile."""
    return max(min(count, WORKSPACE // (each * step) * step), step)
