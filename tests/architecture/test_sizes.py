"""Files and functions stay short enough to be read whole. The exceptions may only become fewer and smaller."""

from collections.abc import Mapping

from tests.architecture.source import modules

FILE_LINES, FUNCTION_LINES = 500, 60

# What is still longer, with the size that it must not exceed. Remove an entry as soon as it is no longer needed.
LONG_FILES: dict[str, int] = {}
LONG_FUNCTIONS: dict[str, int] = {
    # One closure deep to the ufunc is what makes small tensors fast: a call less is a tenth of an operator.
    "wengert/core/lanes.py:binary_lane": 72,
}


def complaints(sizes: Mapping[str, int], limit: int, exceptions: Mapping[str, int]) -> list[str]:
    """Return a line for each thing that is too long, and for each exception that is no longer needed."""
    found = []
    for name, size in sizes.items():
        allowed = exceptions.get(name, limit)
        if size > allowed:
            found.append(f"{name} has {size} lines, at most {allowed} are allowed: split it")
    for name in exceptions:
        if sizes.get(name, 0) <= limit:
            found.append(f"{name} is within {limit} lines: remove its exception")
    return found


def test_files_are_short() -> None:
    sizes = {module.file: len(module.text.splitlines()) for module in modules()}
    found = complaints(sizes, FILE_LINES, LONG_FILES)
    assert not found, "\n".join(found)


def test_functions_are_short() -> None:
    sizes = {f"{module.file}:{function.name}": function.lines for module in modules() for function in module.functions}
    found = complaints(sizes, FUNCTION_LINES, LONG_FUNCTIONS)
    assert not found, "\n".join(found)


def test_what_is_too_long_and_what_is_needless_is_found() -> None:
    sizes = {"long": 12, "excepted": 12, "grown": 13, "shrunk": 9, "short": 3}
    exceptions = {"excepted": 12, "grown": 12, "shrunk": 12, "gone": 12}
    assert [line.split()[0] for line in complaints(sizes, 10, exceptions)] == ["long", "grown", "shrunk", "gone"]
