"""What the runtime remembers is bounded: functions, dtypes and layouts that never come back are let go."""

import gc
import threading
import weakref
from typing import Any

import numpy as np
import pytest

from wengert.core.tensor import Tensor
from wengert.loops.text import parse
from wengert.runtime import eager
from wengert.runtime.launch import Launcher, pointer
from wengert.runtime.pointwise import Expression
from wengert.runtime.recent import Recent
from wengert.runtime.recording import recording
from wengert.testing.opcheck_native import natively

MANY = 5 * eager.TABLE // 2


def test_the_least_recently_used_entry_goes_first() -> None:
    table: Recent[int, str] = Recent(3)
    for n in range(3):
        table[n] = str(n)
    assert table[0] == "0"
    table[3], table[4] = "3", "4"
    assert [table.get(n) for n in range(5)] == ["0", None, None, "3", "4"]
    with pytest.raises(KeyError):
        table[1]


def test_threads_share_a_table() -> None:
    table: Recent[int, int] = Recent(8)
    wrong: list[Any] = []

    def work(first: int) -> None:
        for n in range(first, first + 20_000):
            table[n % 24] = n % 24
            if table.get(n % 7) not in (None, n % 7):
                wrong.append(n)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert len(table) <= 8


def test_rules_that_are_made_for_one_call_are_let_go() -> None:
    g, x = np.ones(4, np.float32), np.arange(4, dtype=np.float32)
    alive: weakref.WeakSet[Any] = weakref.WeakSet()
    with natively():
        for n in range(MANY):

            def rule(g: Tensor, x: Tensor, n: int = n) -> Tensor:
                return g * x

            alive.add(rule)
            found = eager.run_rule(rule, (g, x))
        np.testing.assert_array_equal(found, x)
    del rule
    gc.collect()
    assert len(alive) <= eager.TABLE


def test_formulas_that_are_made_for_one_call_are_let_go() -> None:
    p, g = np.zeros(4, np.float32), np.ones(4, np.float32)
    alive: weakref.WeakSet[Any] = weakref.WeakSet()
    with natively():
        for n in range(MANY):

            def formula(p: Any, g: Any, n: int = n) -> None:
                p += g

            alive.add(formula)
            assert eager.run_update(formula, formula, (p, g))
    del formula
    gc.collect()
    assert len(alive) <= eager.TABLE
    np.testing.assert_array_equal(p, MANY)


def test_layouts_of_an_expression_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = Recent[Any, Any](4)
    x = np.arange(120, dtype=np.float32).reshape(2, 3, 4, 5)
    found: list[Expression] = []
    monkeypatch.setattr(Expression, "plan", _noting(found, kernels))
    with natively():
        for axes in np.ndindex(4, 4, 4, 4):
            if len(set(axes)) == 4:
                view = x.transpose(axes)[..., ::2]
                np.testing.assert_array_equal(eager.run_rule(_double, (view,)), 2 * view)
    assert found
    assert len(kernels) == 4


def _double(g: Tensor) -> Tensor:
    return g * 2


def _noting(found: list[Expression], kernels: Any) -> Any:
    plan = Expression.plan

    def noting(self: Expression, *arguments: Any) -> Any:
        self.kernels = kernels
        found.append(self)
        return plan(self, *arguments)

    return noting


def test_a_recording_keeps_the_code_it_calls() -> None:
    text = "kernel once(out y: f32[n: 1])\n  for i in 0:n\n    y[i] = 3.0_f32\n"
    launcher = Launcher("a recording keeps this", lambda: parse(text))
    library, y = weakref.ref(launcher._library), np.zeros(4, np.float32)
    with recording() as record:
        launcher([pointer(y), 4], 1, 1)
    del launcher
    gc.collect()
    assert library() is not None
    assert len(record.tasks) == 1
    del record
    gc.collect()
    assert library() is None
