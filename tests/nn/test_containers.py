"""Sequential, lists and dictionaries of modules and of parameters."""

from collections import OrderedDict
from typing import Any

import pytest

import wengert as wg
from wengert import nn


def names(m: nn.Module) -> list[str]:
    return [f"{n}:{type(c).__name__}" for n, c in m.named_children()]


def three(cls: type[Any]) -> Any:
    modules = [nn.ReLU(), nn.Tanh(), nn.Sigmoid()]
    return cls(*modules) if cls is nn.Sequential else cls(modules)


NUMBERED = pytest.mark.parametrize("cls", [nn.Sequential, nn.ModuleList])


@NUMBERED
def test_indexing(cls: type[Any]) -> None:
    m = three(cls)
    assert len(m) == 3
    assert isinstance(m[1], nn.Tanh)
    assert isinstance(m[-1], nn.Sigmoid)
    assert [type(c).__name__ for c in m] == ["ReLU", "Tanh", "Sigmoid"]
    part = m[1:]
    assert isinstance(part, cls)
    assert len(part) == 2
    assert part[0] is m[1]
    for index in (3, -4):
        with pytest.raises(IndexError, match="out of range"):
            m[index]
    m[0] = nn.GELU()
    assert names(m) == ["0:GELU", "1:Tanh", "2:Sigmoid"]


@NUMBERED
@pytest.mark.parametrize(
    ("change", "want"),
    [
        (lambda m: m.append(nn.ELU()), "ReLU Tanh Sigmoid ELU"),
        (lambda m: m.extend([nn.ELU(), nn.GELU()]), "ReLU Tanh Sigmoid ELU GELU"),
        (lambda m: m.insert(1, nn.ELU()), "ReLU ELU Tanh Sigmoid"),
        (lambda m: m.insert(-1, nn.ELU()), "ReLU Tanh ELU Sigmoid"),
        (lambda m: m.insert(3, nn.ELU()), "ReLU Tanh Sigmoid ELU"),
        (lambda m: m.pop(0), "Tanh Sigmoid"),
        (lambda m: m.pop(-1), "ReLU Tanh"),
        (lambda m: m.__delitem__(1), "ReLU Sigmoid"),
        (lambda m: m.__delitem__(slice(0, 2)), "Sigmoid"),
    ],
)
def test_changes_renumber(cls: type[Any], change: Any, want: str) -> None:
    m = three(cls)
    change(m)
    assert names(m) == [f"{i}:{kind}" for i, kind in enumerate(want.split())]


@NUMBERED
def test_insert_refuses(cls: type[Any]) -> None:
    with pytest.raises(IndexError):
        three(cls).insert(4, nn.ELU())
    with pytest.raises(TypeError):
        three(cls).insert(0, 3)


def test_sequential_calls_in_order() -> None:
    m = nn.Sequential(OrderedDict(scale=nn.Linear(1, 1, bias=False), shift=nn.Threshold(0.0, -1.0)))
    with wg.no_grad():
        m.scale.weight.fill_(2.0)
    assert m(wg.tensor([[3.0], [-3.0]])).tolist() == [[6.0], [-1.0]]
    assert names(m[1:]) == ["shift:Threshold"]
    assert nn.Sequential()(5) == 5


def test_sequential_arithmetic() -> None:
    a, b = nn.Sequential(nn.ReLU()), nn.Sequential(nn.Tanh())
    assert names(a + b) == ["0:ReLU", "1:Tanh"]
    assert [type(m).__name__ for m in 2 * b] == ["Tanh", "Tanh"]
    a += b
    assert names(a) == ["0:ReLU", "1:Tanh"]
    a *= 2
    assert [type(m).__name__ for m in a] == ["ReLU", "Tanh"] * 2
    assert a[0] is a[2]
    for bad in (lambda: a + nn.ReLU(), lambda: a * 0, lambda: a * 1.5):
        with pytest.raises(ValueError):
            bad()


def test_list_arithmetic() -> None:
    m = nn.ModuleList([nn.ReLU()])
    m += [nn.Tanh()]
    assert names(m + nn.ModuleList([nn.ELU()])) == ["0:ReLU", "1:Tanh", "2:ELU"]
    assert names(m) == ["0:ReLU", "1:Tanh"]
    assert repr(nn.ModuleList()) == "ModuleList()"


def test_module_dict() -> None:
    m = nn.ModuleDict({"a": nn.Linear(1, 1)})
    m["b"] = nn.ReLU()
    m.update([("c", nn.Tanh())])
    m.update({"a": nn.ELU()})
    assert names(m) == ["a:ELU", "b:ReLU", "c:Tanh"]
    assert list(m) == list(m.keys()) == ["a", "b", "c"]
    assert [type(v).__name__ for v in m.values()] == ["ELU", "ReLU", "Tanh"]
    assert dict(m.items())["b"] is m["b"]
    assert "b" in m
    assert isinstance(m.pop("b"), nn.ReLU)
    del m["c"]
    assert len(m) == 1
    m.clear()
    assert len(m) == 0
    for key in ("x", "training"):
        with pytest.raises(KeyError):
            m[key]
        with pytest.raises(KeyError):
            del m[key]
    with pytest.raises(KeyError, match="attribute"):
        m["keys"] = nn.ReLU()
    with pytest.raises(TypeError):
        m.update(3)


def test_parameter_list() -> None:
    p = nn.ParameterList([wg.ones(2), nn.Parameter(wg.zeros(3)), "text"])
    assert [n for n, _ in p.named_parameters()] == ["0", "1"]
    assert isinstance(p[0], nn.Parameter)
    p.append(wg.ones(1)).extend([wg.ones(4)])
    p += [wg.ones(5)]
    assert len(p) == 6
    assert [len(v) for v in p] == [2, 3, 4, 1, 4, 5]
    assert p[-1] is p[5]
    assert len(p[1:3]) == 2
    assert p.pop(1).shape == (3,)
    assert p.pop().shape == (5,)
    assert list(p.state_dict()) == ["0", "2", "3"]
    p[0] = wg.zeros(7)
    assert p[0].shape == (7,)
    with pytest.raises(IndexError):
        p[9]
    for values in (wg.ones(2), 3):
        with pytest.raises(TypeError):
            p.extend(values)
    assert "(0): Parameter containing: [wengert.float32 of size 7]" in repr(p)
    assert "(1): Object of type: str" in repr(p)


def test_parameter_dict() -> None:
    p = nn.ParameterDict({"a": wg.ones(2), "n": 3})
    assert [n for n, _ in p.named_parameters()] == ["a"]
    p["b"] = nn.Parameter(wg.zeros(3))
    assert list(p) == ["a", "n", "b"]
    assert list(reversed(p)) == ["b", "n", "a"]
    assert (p.get("x", 7), p.setdefault("n", 9), p.setdefault("m", 9)) == (7, 3, 9)
    assert p.popitem() == ("m", 9)
    merged = p | {"c": wg.ones(1)}
    assert list(merged.keys()) == ["a", "n", "b", "c"]
    assert merged["a"] is p["a"]
    p |= {"n": 4}
    assert p["n"] == 4
    assert p.pop("n") == 4
    assert dict(p.items())["b"] is p["b"]
    assert len(list(p.values())) == len(p) == 2
    assert list(p.fromkeys(["x"], 1)) == ["x"]
    del p["a"]
    p.clear()
    assert len(p) == 0
    for bad in (lambda: p["zz"], lambda: p.__delitem__("zz"), lambda: p.__setitem__("keys", 1)):
        with pytest.raises(KeyError):
            bad()
    with pytest.raises(TypeError):
        p.update(3)
