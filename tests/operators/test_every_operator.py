"""Every declared operator against its declaration: a new row is covered the moment it exists."""

import pytest

import wengert as wg
from wengert.core.registry import operators, ops
from wengert.testing.opcheck import CHECKS, Failure, opcheck
from wengert.testing.samples import ErrorSample, samples_of

OPERATORS = operators()


@pytest.mark.parametrize("name", OPERATORS)
def test_operator_keeps_its_declaration(name, opcheck_tally):
    opcheck(name, tally=opcheck_tally)


@pytest.mark.parametrize("name", OPERATORS)
def test_operator_has_samples_and_a_docstring(name):
    op = OPERATORS[name]
    assert any(not isinstance(s, ErrorSample) for s in samples_of(op))
    assert op.doc.strip().endswith((".", ")", "`", "]", "…")) or "\n" in op.doc.strip(), op.doc


def test_operators_are_reached_by_their_public_names():
    for name, op in OPERATORS.items():
        if "" in op.home:
            assert getattr(wg, name) is op.function or name == "trace"  # which takes functions, too
    assert wg.trace(wg.eye(3)).item() == 3


class Planted:
    """A declaration with one fault, undone afterwards."""

    def __init__(self, monkeypatch, name):
        self.op, self.monkeypatch = OPERATORS[name], monkeypatch

    def rule(self, argument, change):
        table = self.op.rules
        index = self.op.signature.index[argument]
        rule, slots = table.rules[index]
        self.monkeypatch.setitem(table.rules, index, (change(rule), slots))
        self.monkeypatch.setattr(table, "plans", {})

    def attribute(self, name, value):
        self.monkeypatch.setattr(self.op, name, value)


@pytest.mark.parametrize(
    ("operator", "plant", "found"),
    [
        ("linear", lambda p: p.rule("weight", lambda r: lambda g, *a: 2 * r(g, *a)), "vjp"),
        ("matmul", lambda p: p.rule("other", lambda r: lambda g, *a: -r(g, *a)), "vjp"),
        (
            "matmul",
            lambda p: p.attribute(
                "jvp",
                {"input": lambda t, other: ops.matmul(t, other), "other": lambda t, input: ops.matmul(input, t) * 2},
            ),
            "jvp",
        ),
        ("cumsum", lambda p: p.attribute("spec", lambda input, dim, *, dtype=None: input._replace(shape=(1,))), "spec"),
        (
            "cat",
            lambda p: p.attribute("kernel", lambda tensors, dim=0: tensors[0].__iadd__(1)),
            "aliasing|layouts|spec",
        ),
        ("permute", lambda p: p.attribute("view", False), "aliasing"),
    ],
)
def test_planted_faults_are_found(operator, plant, found, monkeypatch):
    plant(Planted(monkeypatch, operator))
    where = opcheck(operator, raise_exception=False)
    assert any(any(kind in check for kind in found.split("|")) for check in where), where


def test_opcheck_names_what_failed(monkeypatch):
    Planted(monkeypatch, "matmul").rule("input", lambda r: lambda g, *a: 2 * r(g, *a))
    with pytest.raises(Failure, match=r"(?s)matmul.*vjp.*central differences"):
        opcheck("matmul")


def test_every_check_is_known_by_name():
    assert set(CHECKS) == {
        "spec", "determinism", "layouts", "aliasing", "vjp", "jvp", "second order", "forward over reverse", "vmap",
        "precisions", "inplace", "native",
    }  # fmt: skip
