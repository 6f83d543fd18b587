"""How many of the operators in PyTorch's own sample database exist here and agree with it."""

from types import SimpleNamespace

import pytest
import torch

from tests.peers import op_db
from tests.peers.differences_op_db import DIFFERENT

LEAST = 99.5  # percent


@pytest.fixture(scope="module")
def found():
    return list(op_db.outcomes())


def test_operators_of_pytorch_exist_and_agree(found, capsys):
    with capsys.disabled():
        print(f"\n{op_db.summary(found)}")
    assert op_db.share(found) >= LEAST, op_db.report(found)


def test_explained_differences_name_entries(found):
    unknown = set(DIFFERENT) - {outcome.name for outcome in found}
    assert not unknown, f"no entry of the database is called {', '.join(sorted(unknown))}"


def entry(function, *inputs, name="add", **options):
    """Return what stands for an entry of the database."""
    samples = [torch.testing._internal.opinfo.core.SampleInput(x) for x in inputs]
    given = {"variant_test_name": "", "dtypes": {torch.float64}, "supports_autograd": True}
    return SimpleNamespace(
        name=name, op=function, sample_inputs=lambda *args, **kwargs: iter(samples),
        gradcheck_wrapper=lambda f, *args, **kwargs: f(*args, **kwargs), **{**given, **options},
    )  # fmt: skip


X = torch.tensor([0.5, -1.5], dtype=torch.float64)


@pytest.mark.parametrize(
    ("function", "name", "kind"),
    [
        (torch.cos, "sin", "value"), (lambda x: torch.sin(x).float(), "sin", "dtype"), (torch.sum, "sin", "shape"),
        (lambda x: (torch.sin(x), x), "sin", "results"), (lambda x: torch.sin(x) + (x - x.detach()), "sin", "gradient"),
        (torch.sin, "det", "error"),
    ],
)  # fmt: skip
def test_each_kind_of_difference_would_be_found(function, name, kind):
    outcome = op_db.check(entry(function, X.clone().requires_grad_(), name=name))
    assert outcome.status == "differs"
    assert outcome.differences[0].startswith(kind)


def test_a_missing_name_would_be_found():
    assert op_db.check(entry(torch.sin, X, name="no_such_operator")).status == "missing"
    assert op_db.check(entry(torch.sin, X, name="linalg.no_such_operator")).status == "missing"
    assert op_db.check(entry(torch.sin, X, name="nowhere.sin")).status == "missing"


def test_what_cannot_be_meant_is_skipped_and_does_not_count():
    skipped = op_db.check(entry(torch.sin, X, name="sparse.mm"))
    assert (skipped.status, skipped.why) == ("skipped", "sparse layouts")
    agrees = op_db.check(entry(torch.sin, X, name="sin"))
    missing = op_db.check(entry(torch.sin, X, name="no_such_operator"))
    assert op_db.share([skipped, agrees]) == 100
    assert op_db.share([skipped, agrees, missing]) == 50


def test_a_report_names_what_is_missing_and_what_differs():
    found = [
        op_db.Outcome("a", "missing"), op_db.Outcome("b", "differs", differences=["value: 1, PyTorch 2"]),
        op_db.Outcome("c", "skipped", "why"), op_db.Outcome("d"),
    ]  # fmt: skip
    text = op_db.report(found)
    assert "missing  a" in text
    assert "differs  b: 1 times, value: 1, PyTorch 2" in text
    assert "33.3 %" in text
