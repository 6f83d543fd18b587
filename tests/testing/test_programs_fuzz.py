"""The program fuzzer: it finds nothing, its cases are code that runs alone, and it finds what is planted."""

from typing import Any

import pytest

from wengert.compiling import program
from wengert.testing import programs
from wengert.testing.programs import difference, fuzz, smaller
from wengert.testing.random_programs import Case, random_case


def test_nothing_is_found() -> None:
    report = fuzz(seed=2, start=0, stop=25)
    assert (report.count, [f.message for f in report.failures]) == (25, [])
    assert report.captured > 15


def test_cases_are_code() -> None:
    case = random_case(0, 3)
    assert case == random_case(0, 3)
    assert case != random_case(0, 4)
    space: dict[str, Any] = {}
    exec(case.text(), space)
    held, arguments = space["build"](), space["arguments"](space["CALLS"][0], 0)
    assert isinstance(held["step"](*arguments), tuple)


@pytest.mark.parametrize(
    ("body", "explained"),
    [
        (("v0 = a0 // 0", "v1 = a0 + 1"), True),
        (("a0.add_(1)", "v0 = a0 // 0", "v1 = a0.clone()"), False),
        (("v1 = a0 // 0 + a0 + 1",), False),
    ],
)
def test_an_error_may_be_missing_where_nothing_needs_the_result(body: tuple[str, ...], explained: bool) -> None:
    arguments = (("a0", "drawn(20 + k, (n,), 'int64')"),)
    found, _ = programs._observed(Case((), arguments, ("v1 = a0 + 1",), ("v1",), (3, 3)).text(), None)
    case = Case((), arguments, body, ("v1",), (3, 3))
    assert programs._compared(found, programs._observed(case.text(), None)[0], "").startswith("call 0: error None")
    assert programs._leaves_out(case, found) is explained


def test_a_planted_fault_is_found_and_made_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program.Program, "writes", property(lambda self: [], lambda self, value: None), raising=False)
    case = Case(
        ("c0 = drawn(10, (3,), 'float32')",), (("a0", "drawn(20 + k, (n,), 'float32')"),),
        ("v0 = a0 * 2", "v1 = v0.sin()", "c0.add_(1)", "v2 = v1 + c0"), ("v1", "v2"), (3, 3),
    )  # fmt: skip
    message, captured = difference(case, "reference")
    assert message.startswith("call 0: c0: ")
    assert captured
    assert smaller(case, "reference", message).body == ("c0.add_(1)",)
    monkeypatch.undo()
    assert difference(case, "reference") == ("", True)
