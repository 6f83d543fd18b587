"""How a matrix product is cut: what is packed, how much of k at a time, and the blocks that threads take.

The numbers follow the caches (K. Goto and R. van de Geijn, "Anatomy of high-performance matrix multiplication", 2008): a
panel of B and the tile's rows of A stay in the first, a block of A in the second. None of them changes a result.
"""

from typing import Final, NamedTuple

from wengert.codegen.microkernel import Tile

__all__ = ["Blocks", "Problem", "cut", "fitting", "parts"]

FIRST_CACHE: Final = 32 * 1024  # bytes of a panel of B
SECOND_CACHE: Final = 384 * 1024  # bytes of a block of A, of at least 512 KiB
WORKSPACE: Final = 16 * 1024 * 1024  # bytes of packed B that are kept at once
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
    """Whether A and B are packed, how much of k is taken at a time, and the rows and columns of a block."""

    pack_left: bool
    pack_right: bool
    k: int
    rows: int
    columns: int


def parts(whole: int, part: int) -> int:
    """Return how many parts of a size there are, the last of which may be smaller."""
    return -(-whole // part)


def _rounded(size: int, step: int) -> int:
    return parts(size, step) * step


def _depth(problem: Problem, tile: Tile, unit: int) -> int:
    """Return how much of k is taken at a time: about what the first cache holds, in equal parts."""
    most = max(64, FIRST_CACHE // (tile.columns * unit))
    few = (
        problem.rows <= 4 * tile.rows and problem.k <= 8 * most
    )  # a panel is read so few times that it may come from afar
    if few or problem.rows <= tile.rows or problem.k <= most + most // 2:
        return max(problem.k, 1)
    return _rounded(parts(problem.k, parts(problem.k, most)), 8)


def cut(problem: Problem, tile: Tile, unit: int, threads: int, *, masks: bool, dots: bool) -> Blocks:
    """Return how to cut a problem.

    Args:
        unit: bytes of what a lane reads of a packed operand. masks: whether B may be read in place where its last panel
            is not full. dots: whether the kernel is that of dot products, which takes everything as it is.
    """
    depth = max(problem.k, 1) if dots else _depth(problem, tile, unit)
    ragged = problem.columns % tile.columns != 0 and not masks
    strided = problem.right[1] != problem.unit and problem.columns > 1
    reused = problem.rows >= 64 and problem.k * problem.columns * unit > FIRST_CACHE
    pack_right = not dots and (problem.convert or ragged or strided or reused)
    tall = problem.left[1] != problem.unit and problem.k > 1
    pack_left = problem.convert or (
        problem.columns >= 4 * tile.columns and (tall or problem.rows * problem.k > 256 * 256)
    )
    rows = _rounded(min(problem.rows, max(tile.rows, SECOND_CACHE // (depth * unit))), tile.rows)
    columns = _rounded(min(problem.columns, WIDE), tile.columns)
    return Blocks(pack_left, pack_right, depth, *_shared(problem, tile, rows, columns, threads))


def _shared(problem: Problem, tile: Tile, rows: int, columns: int, threads: int) -> tuple[int, int]:
    """Return smaller blocks where there would be too few for all threads."""
    work = problem.batches * problem.rows * problem.columns * problem.k
    wanted = min(SHARES * threads, work // TASK) if threads > 1 else 1
    while problem.batches * parts(problem.rows, rows) * parts(problem.columns, columns) < wanted:
        if rows > 4 * tile.rows and rows >= columns:
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
