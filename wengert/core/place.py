"""The user's source line, remembered cheaply (a code object and an instruction offset) and resolved when shown."""

import itertools
import linecache
import os
import sys
from types import CodeType, FrameType

__all__ = ["Place", "describe", "here", "is_internal", "line_of", "raised_at", "stacklevel"]

Place = tuple[CodeType, int]

_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_internal: dict[str, bool] = {}


def is_internal(filename: str) -> bool:
    """True if the file belongs to the package itself."""
    known = _internal.get(filename)
    if known is None:
        known = _internal[filename] = filename.startswith(_ROOT)
    return known


def here(depth: int = 1) -> Place:
    """Return the place of the nearest caller outside the package."""
    start = sys._getframe(depth + 1)
    frame: FrameType | None = start
    while frame is not None:
        code = frame.f_code
        internal = _internal.get(code.co_filename)
        if internal is None:
            internal = is_internal(code.co_filename)
        if not internal:
            return code, frame.f_lasti
        frame = frame.f_back
    return start.f_code, start.f_lasti


def raised_at(error: BaseException) -> Place | None:
    """Return the last place outside the package on the way from where an error was caught to where it was raised."""
    found, trace = None, error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if not is_internal(code.co_filename):
            found = code, trace.tb_lasti
        trace = trace.tb_next
    return found


def stacklevel() -> int:
    """Return the ``stacklevel`` with which the caller's warning points at the nearest line outside the package."""
    frame: FrameType | None = sys._getframe(1)
    level = 1
    while frame is not None and is_internal(frame.f_code.co_filename):
        frame, level = frame.f_back, level + 1
    return level


def describe(place: Place | str | None) -> str:
    """Return ``file:line in function: source text`` for a place; one that was read from text is that text."""
    if place is None:
        return "an unknown line"
    if isinstance(place, str):
        return place
    file, line = _line(place)
    text = linecache.getline(file, line).strip()
    return f"{file}:{line} in {place[0].co_name}" + (f": {text}" if text else "")


def line_of(place: Place | str | None) -> tuple[str, int] | None:
    """Return the file and the line of a place; None for one that was read from text, and for none."""
    return None if place is None or isinstance(place, str) else _line(place)


def _line(place: Place) -> tuple[str, int]:
    code, lasti = place
    positions = next(itertools.islice(code.co_positions(), lasti // 2, None), (None,))
    return code.co_filename, positions[0] or code.co_firstlineno
