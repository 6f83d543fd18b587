"""opcheck notices damaged rules: a fixed random part of what ``python -m wengert.testing.mutation`` tries."""

import pytest

from wengert.core.registry import operators, ops
from wengert.testing.damage import mutations
from wengert.testing.mutation import notices, run
from wengert.testing.opcheck import opcheck

KINDS = {"vjp", "jvp", "batch", "spec", "kernel", "view", "inplace"}
SIZE = 400


def test_nearly_every_damage_is_noticed():
    report = run(count=SIZE, baseline=False)
    assert report.share >= 0.98, str(report)
    assert report.caught.total() + len(report.survivors) + len(report.idle) == SIZE
    assert set(report.caught) | {"view"} == KINDS  # damaged views are too few to be in every part of this size


def test_every_damaged_view_is_noticed():
    damaged = [m for op in operators().values() for m in mutations(op) if m.kind == "view"]
    assert len(damaged) >= 18
    assert [m.op.name for m in damaged if notices(m)[0] is None] == []


@pytest.mark.parametrize("name", ["mul", "tanh", "matmul", "permute", "lu_packed", "cumsum"])
def test_every_damage_is_undone(name):
    op = operators()[name]
    attributes = {slot: getattr(op, slot) for slot in op.__slots__}
    rules = dict(op.rules.rules), op.rules.joint, op.rules.holomorphic
    plans = {key: plan.rules for key, plan in op.rules.plans.items()}
    twin = vars(ops).get(f"{name}_")
    for mutation in mutations(op):
        with pytest.raises(KeyboardInterrupt), mutation.damage():
            raise KeyboardInterrupt
    assert {slot: getattr(op, slot) for slot in op.__slots__} == attributes
    assert (dict(op.rules.rules), op.rules.joint, op.rules.holomorphic) == rules
    assert {key: plan.rules for key, plan in op.rules.plans.items()} == plans
    assert vars(ops).get(f"{name}_") is twin
    assert opcheck(op) == {}


def test_each_kind_is_noticed_by_the_check_it_belongs_to():
    found = {(m.kind, m.what): notices(m)[0] for m in mutations(operators()["mul"])}
    assert found[("vjp", "a factor of 1.5 in 'input'")] == "vjp"
    assert found[("vjp", "'other' does not depend on arguments")] == "second order"
    assert found[("jvp", "the wrong sign in 'other'")] == "jvp"
    assert found[("batch", "examples mixed")] == "vmap"
    assert found[("spec", "another dtype")] == "spec"
    assert None not in found.values()


def test_a_composite_has_no_rules_to_damage():
    assert mutations(operators()["batch_norm"]) == []
