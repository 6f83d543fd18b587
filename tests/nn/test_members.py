"""Registration, lookup and traversal: what a module owns."""

import copy
import pickle

import pytest

import wengert as wg
from wengert import nn


class Net(nn.Module):
    """Two layers, one shared weight, a buffer and an absent parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(2, 3)
        self.b = nn.Linear(3, 2, bias=False)
        self.tied = self.a
        self.scale = nn.Parameter(wg.tensor(2.0))
        self.register_parameter("absent", None)
        self.register_buffer("mean", wg.zeros(3))
        self.register_buffer("scratch", wg.ones(1), persistent=False)

    def forward(self, x: wg.Tensor) -> wg.Tensor:
        return self.b(self.a(x)) * self.scale


def test_names_follow_registration_and_shared_parameters_come_once() -> None:
    net = Net()
    assert [n for n, _ in net.named_parameters()] == ["scale", "a.weight", "a.bias", "b.weight"]
    assert [n for n, _ in net.named_parameters(remove_duplicate=False)] == [
        "scale", "a.weight", "a.bias", "b.weight", "tied.weight", "tied.bias",
    ]  # fmt: skip
    assert [n for n, _ in net.named_parameters(recurse=False)] == ["scale"]
    assert [n for n, _ in net.named_parameters(prefix="net")][:2] == ["net.scale", "net.a.weight"]
    assert [n for n, _ in net.named_buffers()] == ["mean", "scratch"]
    assert [n for n, _ in net.named_modules()] == ["", "a", "b"]
    assert [n for n, _ in net.named_modules(remove_duplicate=False)] == ["", "a", "b", "tied"]
    assert list(net.modules(remove_duplicate=False)) == [m for _, m in net.named_modules(remove_duplicate=False)]
    assert [n for n, _ in net.named_children()] == ["a", "b"]
    assert len(list(net.parameters())) == 4
    assert len(list(net.buffers())) == 2
    assert next(net.modules()) is net


def test_one_tensor_under_two_names_is_one_parameter() -> None:
    m = nn.Module()
    m.w = nn.Parameter(wg.ones(2))
    m.v = m.w
    assert [n for n, _ in m.named_parameters()] == ["w"]
    assert [n for n, _ in m.named_parameters(remove_duplicate=False)] == ["w", "v"]


@pytest.mark.parametrize(
    ("name", "value"),
    [("w", nn.Parameter), ("child", lambda _: nn.Identity()), ("buf", nn.Buffer)],
    ids=["parameter", "module", "buffer"],
)
def test_assigning_before_init_is_an_error(name: str, value) -> None:
    class Early(nn.Module):
        def __init__(self) -> None:
            setattr(self, name, value(wg.ones(1)))

    with pytest.raises(AttributeError, match=rf"'{name}' before Module.__init__\(\)"):
        Early()


@pytest.mark.parametrize("register", ["register_parameter", "register_buffer", "add_module", "register_module"])
@pytest.mark.parametrize(
    ("name", "error"), [("", KeyError), ("a.b", KeyError), ("forward", KeyError), (3, TypeError)], ids=str
)
def test_bad_names_are_refused(register: str, name, error: type[Exception]) -> None:
    with pytest.raises(error):
        getattr(nn.Module(), register)(name, None)


@pytest.mark.parametrize(
    ("register", "value", "error"),
    [
        ("register_parameter", wg.ones(1), TypeError),
        ("register_parameter", 3, TypeError),
        ("register_buffer", 3, TypeError),
        ("add_module", wg.ones(1), TypeError),
    ],
    ids=["tensor as parameter", "number as parameter", "number as buffer", "tensor as module"],
)
def test_bad_values_are_refused(register: str, value, error: type[Exception]) -> None:
    with pytest.raises(error, match=type(value).__name__):
        getattr(nn.Module(), register)("x", value)


def test_a_parameter_with_history_is_refused() -> None:
    p = nn.Parameter(wg.ones(2))
    q = nn.Parameter(wg.ones(2))
    q._node = (p * 2)._node  # what an optimised tensor would look like
    with pytest.raises(ValueError, match="leaf"):
        nn.Module().register_parameter("x", q)


@pytest.mark.parametrize(
    ("name", "value", "match"),
    [
        ("scale", 3.0, "float as parameter 'scale'"),
        ("scale", wg.ones(1), "Tensor as parameter"),
        ("a", 3, "int as child 'a'"),
        ("mean", 3, "int as buffer 'mean'"),
    ],
)
def test_a_registered_name_keeps_its_kind(name: str, value, match: str) -> None:
    with pytest.raises(TypeError, match=match):
        setattr(Net(), name, value)


def test_replacing_and_forgetting() -> None:
    net = Net()
    old = net.a.weight
    net.a.weight = nn.Parameter(wg.zeros(3, 2))
    assert net.a.weight is not old
    assert [n for n, _ in net.a.named_parameters()] == ["weight", "bias"]  # the place is kept
    net.scale = None
    assert net.scale is None
    assert "scale" not in dict(net.named_parameters())
    net.mean = wg.ones(5)
    assert net.mean.shape == (5,)
    net.b = nn.Identity()
    assert [n for n, _ in net.named_children()] == ["a", "b"]
    del net.b, net.mean, net.scale
    assert not hasattr(net, "b")
    assert [n for n, _ in net.named_buffers()] == ["scratch"]
    with pytest.raises(AttributeError):
        del net.never


def test_a_name_can_change_its_kind_by_assignment() -> None:
    m = nn.Module()
    m.x = 3
    m.x = nn.Parameter(wg.ones(1))
    assert [n for n, _ in m.named_parameters()] == ["x"]
    m.x = nn.Identity()
    assert [n for n, _ in m.named_parameters()] == []
    assert [n for n, _ in m.named_children()] == ["x"]


def test_buffer_objects_register_themselves() -> None:
    m = nn.Module()
    m.kept, m.lost = nn.Buffer(wg.ones(1)), nn.Buffer(wg.ones(1), persistent=False)
    assert [n for n, _ in m.named_buffers()] == ["kept", "lost"]
    assert list(m.state_dict()) == ["kept"]


def test_get_by_path() -> None:
    net = nn.Sequential(Net(), nn.ReLU())
    assert net.get_submodule("") is net
    assert net.get_submodule("0.a") is net[0].a
    assert net.get_parameter("0.a.weight") is net[0].a.weight
    assert net.get_buffer("0.mean") is net[0].mean
    for path in ("0.c", "0.scale", "0.a.weight.x"):
        with pytest.raises(AttributeError, match="looking for"):
            net.get_submodule(path)
    for path in ("0.absent", "0.mean", "0.a"):
        with pytest.raises(AttributeError, match="no parameter"):
            net.get_parameter(path)
    with pytest.raises(AttributeError, match="no buffer"):
        net.get_buffer("0.scale")


def test_set_submodule() -> None:
    net = nn.Sequential(nn.Sequential(nn.Linear(1, 1)))
    new = nn.Identity()
    net.set_submodule("0.0", new)
    assert net[0][0] is new
    net.set_submodule("0.more", nn.ReLU())
    assert [n for n, _ in net[0].named_children()] == ["0", "more"]
    with pytest.raises(AttributeError):
        net.set_submodule("0.none", new, strict=True)
    with pytest.raises(AttributeError):
        net.set_submodule("9.0", new)
    with pytest.raises(ValueError, match="non-empty"):
        net.set_submodule("", new)
    with pytest.raises(ValueError, match="takes a Module"):
        net.set_submodule("0.0", wg.ones(1))


@pytest.mark.parametrize("clone", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))], ids=["deepcopy", "pickle"])
def test_copies_are_equal_and_independent_and_keep_ties(clone) -> None:
    net = Net()
    net(wg.ones(4, 2)).sum().backward()
    new = clone(net)
    assert [n for n, _ in new.named_parameters()] == [n for n, _ in net.named_parameters()]
    assert new.tied is new.a
    for p, q in zip(net.parameters(), new.parameters(), strict=True):
        assert isinstance(q, nn.Parameter)
        assert q is not p
        assert q.requires_grad
        assert bool((p == q).all())
    with wg.no_grad():
        new.a.weight.zero_()
    assert bool((net.a.weight != 0).any())


def test_parameters_are_leaves_on_the_given_memory() -> None:
    data = wg.ones(2)
    p = nn.Parameter(data)
    assert p.is_leaf
    assert p.requires_grad
    assert isinstance(p, nn.Parameter)
    with wg.no_grad():
        p.fill_(5.0)
    assert data.tolist() == [5.0, 5.0]
    assert repr(p) == "Parameter containing:\ntensor([5., 5.], requires_grad=True)"
    frozen = nn.Parameter(wg.tensor([1, 2]), requires_grad=False)
    assert not frozen.requires_grad
    p.note = "kept"
    assert copy.deepcopy(p).note == "kept"
    p.grad = wg.ones(2)
    assert copy.deepcopy(p).grad is None
    with pytest.raises(TypeError, match="list"):
        nn.Parameter([1.0])
    with pytest.raises(RuntimeError, match="require gradients"):
        nn.Parameter(wg.tensor([1, 2]))
    assert nn.Parameter(wg.ones(2, requires_grad=True) * 2).is_leaf


def test_an_unknown_layer_names_the_nearest() -> None:
    with pytest.raises(AttributeError, match="Linear"):
        _ = nn.Linaer
