"""opcheck can fail: a declaration that is damaged in one place is found, and named, when it is read or checked."""

from collections.abc import Iterator

import numpy as np
import pytest

import wengert as wg
from wengert.core import registry
from wengert.core.arguments import Number
from wengert.core.methods import TensorMethods
from wengert.errors import DeclarationError, MissingRuleError
from wengert.library import Spec, elementwise, linear, nondifferentiable, opcheck, operator
from wengert.testing.opcheck import Failure


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    """Take the operators that a test declares out of the registry again."""
    declared, functions, methods = dict(registry._declared), dict(registry.ops.__dict__), set(vars(TensorMethods))
    yield
    for table, before in ((registry._declared, declared), (registry.ops.__dict__, functions)):
        table.clear()
        table.update(before)
    for name in set(vars(TensorMethods)) - methods:
        delattr(TensorMethods, name)


def twice(x: Number):
    """Return its argument twice."""
    return x * 2


def declared(kernel=twice, family=operator, **changes):
    """Declare ``twice``, right but for what is changed."""
    options = {
        "vjp": {"x": lambda g: g * 2}, "jvp": {"x": lambda g: g * 2}, "spec": lambda x: x,
        "batch": "front",
        "samples": lambda s: [s((2, 3)), s(())],
    }  # fmt: skip
    return family(**{k: v for k, v in {**options, **changes}.items() if v is not None})(kernel)


def writes_its_argument(x: Number):
    """Return its argument twice, and overwrite it."""
    x *= 2
    return x.copy()


def shares_memory(x: Number):
    """Return the memory of its argument."""
    return x[...]


def sees_the_layout(x: Number):
    """Return the elements as they lie in memory."""
    return np.ravel(x, order="K").reshape(x.shape)


def right(g):
    return g


DAMAGE = [
    ("a wrong shape rule", {"spec": lambda x: Spec((*x.shape, 1), x.dtype)}, "spec gives shape"),
    ("a wrong dtype rule", {"spec": lambda x: Spec(x.shape, wg.float32)}, "spec gives wengert.float32"),
    ("a wrong vjp", {"vjp": {"x": lambda g: g * 3}}, "vjp"),
    ("a wrong jvp", {"jvp": {"x": lambda g: g * 3}}, "jvp gives"),
    ("a batching rule that mixes the examples",
     {"batch": lambda op, values, batched, size: op.function.execute([values[0].flip(0)])}, "vmap over"),
    ("a batching rule with the batch elsewhere",
     {"batch": lambda op, values, batched, size: op.function.execute(values).transpose(0, -1)}, "vmap"),
    ("a mutated argument", {"kernel": writes_its_argument}, "argument 'x' was changed"),
    ("an undeclared view",
     {"kernel": shares_memory, "vjp": {"x": right}, "jvp": {"x": right}}, "shares memory with an argument"),
    ("a kernel that sees strides",
     {"kernel": sees_the_layout, "vjp": {"x": right}, "jvp": {"x": right}}, "transposed arguments"),
    ("no samples", {"samples": lambda s: []}, None),
    ("an error that does not come", {"samples": lambda s: [s.error(ValueError, "no", (2,))]}, "no error, expected"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "text"), [case[1:] for case in DAMAGE], ids=[case[0] for case in DAMAGE])
def test_damage_is_found_and_named(changes, text):
    op = declared(**changes).op
    found = opcheck(op, raise_exception=False)
    assert found
    assert op.name in " ".join([*found, *found.values()])
    if text is not None:
        assert any(text in what for what in found.values()), found
        with pytest.raises(Failure):
            opcheck(op)


def test_a_derivative_that_cannot_be_differentiated_again_is_found():
    def rule(g, x):
        return g * (2 * x).detach()

    def squared(x: Number):
        """Return the square."""
        return x * x

    op = declared(squared, elementwise, derivative={"x": rule}, vjp=None, jvp=None, spec=None, batch=None).op
    assert [where.split(" of ")[0] for where in opcheck(op, raise_exception=False)] == ["second order"] * 2


def test_nothing_is_found_where_nothing_is_wrong():
    assert opcheck(declared().op) == {}


def undocumented(x: Number):
    return x


DECLARATIONS = [
    ({"kernel": undocumented}, "has no docstring"),
    ({"samples": None}, "does not say: samples"),
    ({"jvp": None}, "does not say: jvp"),
    ({"spec": None}, "does not say: spec"),
    ({"batch": None}, r"does not say: batch, .*'broadcast'.*'front'.*Body.*'loop'.*'refuse'"),
    ({"batch": "sideways"}, "there is no batching rule 'sideways'; there are broadcast, front, loop, refuse"),
    ({"vjp": {"other": lambda g: g}}, "'other', which is not a tensor argument"),
    ({"vjp": {"x": lambda g, weight: g}}, "names 'weight'; it may name: g, x"),
    ({"view": True, "vjp": {"x": lambda g, out: g}}, "must not name its result"),
    ({"name": "tanh"}, "'tanh' is declared twice"),
]


@pytest.mark.parametrize(("changes", "text"), DECLARATIONS, ids=[text for _, text in DECLARATIONS])
def test_an_incomplete_or_contradictory_declaration_is_refused_when_it_is_read(changes, text):
    with pytest.raises(DeclarationError, match=text):
        declared(**changes)


def test_an_operator_without_a_derivative_says_so_when_it_is_called():
    function = declared(vjp=None, jvp=None)
    assert function(wg.ones(2)).tolist() == [2.0, 2.0]
    with pytest.raises(MissingRuleError, match=r"twice\(\) has no derivative with respect to 'x'"):
        function(wg.ones(2, requires_grad=True))


def test_a_nondifferentiable_operator_gives_results_without_a_gradient():
    function = declared(family=nondifferentiable, vjp=None, jvp=None)
    assert not function(wg.ones(2, requires_grad=True)).requires_grad


def test_the_transpose_alone_makes_a_linear_operator():
    function = declared(family=linear, transpose=lambda g: g * 2, vjp=None, jvp=None)
    assert opcheck(function.op) == {}
    leaf = wg.ones(2, requires_grad=True)
    function(leaf).sum().backward()
    assert leaf.grad.tolist() == [2.0, 2.0]
