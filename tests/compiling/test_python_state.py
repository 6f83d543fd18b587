"""State of Python that compiled functions read: where it changes, they give what the function itself gives, not old numbers."""

import collections
import dataclasses
import enum
import functools
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import wengert as wg
from wengert import nn
from wengert.compiling import sources
from wengert.compiling.straight import conjunction

X = wg.ones(3)
G = 2.0


class Mode(enum.Enum):
    ONE, TWO = 1, 2


@dataclasses.dataclass
class Config:
    mode: Mode = Mode.ONE
    scale: float = 2.0
    steps: int = 0


@dataclasses.dataclass(slots=True)
class Slotted:
    scale: float = 2.0


class Node:
    """An object of the user's, with others inside of it."""

    shared = 2.0

    def __init__(self, depth: int = 0) -> None:
        self.value, self.table, self.steps = 2.0, {"k": [1.0, 2.0]}, 0
        if depth:
            self.inner = Node(depth - 1)

    @property
    def global_one(self) -> float:
        return G

    def times(self, x: Any) -> Any:
        return x * self.value * self.shared

    def named(self, x: Any) -> Any:
        return x * getattr(self, "val" + "ue") * getattr(self, "late", 1.0)


class Scaled(nn.Module):
    factor = 2.0

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.mode, self.items, self.node = 2.0, "plus", [1.0, [2.0]], Node()

    def forward(self, x: Any) -> Any:
        y = x * self.scale * self.items[1][0] * self.node.value * self.factor
        return y if self.mode == "plus" else -y


class Key:
    """All of them are equal."""

    def __init__(self, value: float) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Key)

    def __hash__(self) -> int:
        return 1


def over(table: dict[Any, Any]) -> Callable[[Any], Any]:
    """Return a function that goes over the items of a dictionary, in order."""

    def read(x: Any) -> Any:
        for key, value in table.items():
            x = x * value + (getattr(key, "value", 1.0) if key is not True else 5.0)
        return x

    return read


def again(table: dict[Any, Any], old: Any, new: Any) -> Callable[[], None]:
    """Return what takes an item out of a dictionary, and puts it behind the others under another key."""
    return lambda: table.update({new: table.pop(old)})


class Trainer:
    def __init__(self) -> None:
        self.model, self.config, self.step_count = Scaled(), Config(), 0
        self.optimizer = wg.optim.SGD([nn.Parameter(wg.ones(3))], lr=2.0)

    def step(self, x: Any) -> Any:
        return self.inner(x) * self.config.scale * self.optimizer.param_groups[0]["lr"]

    def inner(self, x: Any) -> Any:
        return self.model(x) * self.model.scale


def helper(x: Any) -> Any:
    return x * G


def with_default(x: Any, scale: float = 2.0) -> Any:
    return x * scale


def set_global(value: float) -> None:
    globals()["G"] = value


def python_module() -> Any:
    made = types.ModuleType("of_the_user")
    exec("alpha = 2.0\ndef scaled(x): return x * alpha", made.__dict__)
    return made


Case = tuple[Callable[..., Any], Callable[[], Any]]


def cases() -> Iterator[tuple[str, Case]]:
    """Yield functions, and what changes something that they read."""
    for name, change in (
        ("a number", lambda m: setattr(m, "scale", 5.0)),
        ("a text", lambda m: setattr(m, "mode", "minus")),
        ("a list in a list", lambda m: m.items[1].__setitem__(0, 7.0)),
        ("an object", lambda m: setattr(m.node, "value", 7.0)),
        ("deleted", lambda m: (setattr(m, "factor", 3.0), delattr(m, "factor"), setattr(m, "scale", 1.0))),
    ):
        for how, of in (
            ("module", lambda m: m),
            ("called", lambda m: lambda x: m(x)),
            ("forward", lambda m: lambda x: m.forward(x)),
            ("bound", lambda m: m.forward),
            ("in a dict", lambda m, /: (lambda d: lambda x: d["m"].forward(x))({"m": m})),
        ):
            model = Scaled()
            yield f"{how}: {name}", (of(model), functools.partial(change, model))
    model = Scaled()
    yield (
        "an attribute of a module that is not called",
        (lambda x: x * model.scale, lambda: setattr(model, "scale", 9.0)),
    )
    trainer = Trainer()
    yield "self.model", (trainer.step, lambda: setattr(trainer.model, "scale", 4.0))
    yield "self.config", (Trainer.step.__get__(trainer), lambda: setattr(trainer.config, "scale", 4.0))
    rates = trainer.optimizer.param_groups[0]
    yield "an option that is read", (trainer.step, lambda: rates.__setitem__("lr", 3.0))
    yield (
        "a new option",
        (
            lambda x: x * trainer.optimizer.param_groups[0].get("own", 1.0),
            lambda: rates.__setitem__("own", 3.0),
        ),
    )
    schedule = wg.optim.lr_scheduler.StepLR(trainer.optimizer, 1)
    yield "a scheduler", (lambda x: x * schedule.get_last_lr()[0], lambda: (trainer.optimizer.step(), schedule.step()))
    deep = Node(6)
    bottom = functools.reduce(lambda n, _: n.inner, range(6), deep)
    yield (
        "deep",
        (
            lambda x: x * deep.inner.inner.inner.inner.inner.inner.value,
            lambda: setattr(bottom, "value", 9.0),
        ),
    )
    node = Node()
    yield "a class attribute", (node.times, lambda: setattr(Node, "shared", 5.0))
    yield "getattr", (node.named, lambda: setattr(node, "value", 9.0))
    yield "an attribute that comes later", (node.named, lambda: setattr(node, "late", 9.0))
    yield "a property", (lambda x: x * node.global_one, lambda: set_global(11.0))
    replaced = Node()
    yield (
        "another dictionary of attributes",
        (lambda x: x * replaced.value, lambda: setattr(replaced, "__dict__", {**vars(replaced), "value": 9.0})),
    )
    reloaded = types.FunctionType(helper.__code__, {"G": 2.0}, "reloaded")
    yield "other code", (lambda x: reloaded(x), lambda: setattr(reloaded, "__code__", (lambda x: x * G * 3).__code__))
    yield "a default", (with_default, lambda: setattr(with_default, "__defaults__", (5.0,)))
    held = {"f": helper}
    yield "a function in a dict", (lambda x: held["f"](x), lambda: set_global(13.0))
    yield "a function that is transformed", (wg.func.grad(lambda x: (helper(x) * x).sum()), lambda: set_global(15.0))
    own = python_module()
    yield "a module of Python", (lambda x: own.scaled(x) * own.alpha, lambda: setattr(own, "alpha", 7.0))
    config, slotted = Config(), Slotted()
    yield "an enum", (lambda x: x * config.mode.value, lambda: setattr(config, "mode", Mode.TWO))
    yield "slots", (lambda x: x * slotted.scale, lambda: setattr(slotted, "scale", 7.0))
    numbers, table = [1.0] * 1000, collections.OrderedDict((i, 1.0) for i in range(1000))
    yield "a long list", (lambda x: x * numbers[500], lambda: numbers.__setitem__(500, 3.0))
    yield "a large dict", (lambda x: x * table[500], lambda: table.__setitem__(500, 3.0))
    ordered: dict[Any, Any] = {"a": 2.0, "b": 3.0}
    yield "the order of a dict", (over(ordered), again(ordered, "a", "a"))
    outer: dict[Any, Any] = {"inner": {"a": 2.0, "b": 3.0}}
    yield "the order of a dict in a dict", (lambda x: over(outer["inner"])(x), again(outer["inner"], "a", "a"))
    numbered: dict[Any, Any] = {1: 2.0}
    yield "an equal key of another type", (over(numbered), again(numbered, 1, True))
    equal: dict[Any, Any] = {Key(1.0): 2.0}
    yield "another key that says it is equal", (over(equal), again(equal, Key(1.0), Key(3.0)))
    pair = collections.namedtuple("pair", "a b")(1.0, [2.0])
    yield "a list in a tuple", (lambda x: x * pair.b[0], lambda: pair.b.__setitem__(0, 5.0))


@pytest.mark.parametrize(("function", "change"), [pytest.param(*c, id=name) for name, c in cases()])
def test_what_changes_is_noticed(function: Any, change: Callable[[], Any]) -> None:
    fast = wg.compile(function, fullgraph=True, backend="reference")
    before = [fast(X).tolist() for _ in range(2)]
    assert before[0] == before[1] == function(X).tolist()
    change()
    after = fast(X).tolist()
    assert after == function(X).tolist() != before[0]
    assert len(getattr(fast, "compiled", fast).retraces) == 1


def test_what_is_not_read_may_change() -> None:
    trainer = Trainer()
    fast = wg.compile(trainer.step, fullgraph=True, backend="reference")
    for _ in range(3):
        fast(X)
        trainer.step_count += 1
        trainer.config.steps += 1
        trainer.config.scale = float(str(trainer.config.scale))  # an equal number
        trainer.model.node = trainer.model.node
    assert fast.retraces == []


def test_equal_containers_may_come_in_place_of_others() -> None:
    node = Node()
    fast = wg.compile(lambda x: x * node.table["k"][1], fullgraph=True, backend="reference")
    assert fast(X).tolist() == [2.0] * 3
    node.table = {"k": [1.0, 2.0]}
    assert fast(X).tolist() == [2.0] * 3
    assert fast.retraces == []
    node.table["k"][1] = 3.0
    assert fast(X).tolist() == [3.0] * 3
    assert fast.retraces == ["'table' of Node has changed"]


def rounds() -> dict[str, Callable[[int, Any, Config], Any]]:
    """Return what happens before each of many calls, and does not make another program each time."""
    other = nn.Linear(2, 2)
    return {
        "gradients that are there every other time": lambda k, model, c: model.zero_grad() if k % 2 else None,
        "a mode that comes and goes": lambda k, model, c: model.train(k % 2 == 0),
        "another module that counts": lambda k, model, c: setattr(other, "count", k),
        "equal numbers": lambda k, model, c: setattr(c, "scale", float(str(2.0))) if k % 3 == 0 else None,
        "other memory": lambda k, model, c: setattr(model.weight, "data", model.weight.data.clone()) if k % 3 else None,
    }


@pytest.mark.parametrize("kind", rounds())
def test_what_comes_and_goes_is_not_written_out_anew_each_time(kind: str, monkeypatch: Any) -> None:
    """To write out what is compared, and to compile it, takes longer than many comparisons."""
    written: list[Any] = []
    monkeypatch.setattr(sources, "conjunction", lambda *args: written.append(args) or conjunction(*args))
    model, config, x = nn.Linear(3, 3), Config(), wg.ones(2, 3)

    def step(x: Any) -> Any:
        loss = (model(x) * config.scale).sum()
        loss.backward()
        return loss

    wanted, before = (model(x) * config.scale).sum().item(), rounds()
    fast = wg.compile(step, fullgraph=True, backend="reference")
    for k in range(60):
        before[kind](k, model, config)
        assert fast(x).item() == pytest.approx(wanted)
    assert len(fast.retraces) < 3
    assert len(written) < 8


@pytest.mark.parametrize("called", [False, True])
def test_a_counter_in_a_module_counts(called: bool) -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.count = 0

        def forward(self, x: Any) -> Any:
            self.count += 1
            return x * self.count

    model = Counting()
    fast = wg.compile(model if called else model.forward)
    with pytest.warns(RuntimeWarning, match="changes attributes of a module"):
        assert [fast(X)[0].item() for _ in range(10)] == list(range(1, 11))


def test_what_changes_before_each_call_ends_the_capturing() -> None:
    config = Config()
    fast = wg.compile(lambda x: x * config.scale, backend="reference")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for number in range(40):
            config.scale = float(number)
            assert fast(X)[0].item() == number
    assert len(said) == 1
    assert "is run as it is" in str(said[0].message)
    assert "'scale' of Config has changed" in fast.fallback
    assert len(fast.retraces) == 32


def test_a_mode_that_the_function_sets_is_that_of_each_call() -> None:
    layer = nn.Dropout(0.5)

    def evaluated(x: Any) -> Any:
        layer.eval()
        return layer(x)

    fast = wg.compile(evaluated, fullgraph=True, backend="reference")
    for _ in range(3):
        layer.train()
        assert fast(X).tolist() == X.tolist()
        assert not layer.training


shift = 0.0  # also the name of a method below


def test_a_method_of_the_name_of_a_global_is_not_that_global():
    """An attribute that a function looks up is not looked for among the globals."""
    global shift

    class Shifted:
        def shift(self, x):
            return x + 1

    @wg.compile(fullgraph=True)
    def f(of, x):
        return of.shift(x)

    one, x = Shifted(), wg.ones(2)
    for _ in range(3):
        assert f(one, x).tolist() == [2.0, 2.0]
        shift += 1.0
    assert f.retraces == []
