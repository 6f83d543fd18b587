"""Every declared operator that PyTorch has too: same values, dtypes and gradients on its own samples."""

import pytest

from tests.peers.compare import compare, torch_function
from tests.peers.differences import explained
from wengert.core.registry import operators

OPERATORS = {name: op for name, op in operators().items() if torch_function(op) is not None}


@pytest.mark.parametrize("name", OPERATORS)
def test_operator_agrees_with_pytorch(name):
    differences = [found for found in compare(name) if not explained(name, found)]
    assert not differences, "\n".join(differences)


def test_most_operators_have_a_peer():
    assert len(OPERATORS) > 0.8 * len(operators())
