"""The circuit against exact diagonalisation and matrices of the gates."""

from functools import reduce

import numpy as np
import pytest

from examples.quantum_circuit import COUPLING, FIELD, QUBITS, main

X, Z, ONE = np.array([[0, 1], [1, 0]]), np.diag([1, -1]), np.eye(2)


def on(paulis: dict[int, np.ndarray]) -> np.ndarray:
    """Return the matrix that acts as ``paulis`` on some qubits and as nothing on the others."""
    return reduce(np.kron, [paulis.get(qubit, ONE) for qubit in range(QUBITS)])


def test_gradients_agree_and_the_ground_state_is_found() -> None:
    found = main()
    assert found["difference"] < 1e-12
    hamiltonian = -COUPLING * sum(on({k: Z, k + 1: Z}) for k in range(QUBITS - 1))
    hamiltonian = hamiltonian - FIELD * sum(on({k: X}) for k in range(QUBITS))
    energies, states = np.linalg.eigh(hamiltonian)
    assert found["energy"] == pytest.approx(energies[0], rel=1e-7)
    state = found["state"].numpy().ravel()
    assert np.vdot(state, hamiltonian @ state).real == pytest.approx(energies[0], rel=1e-7)
    assert abs(np.vdot(states[:, 0], state)) ** 2 > 1 - 1e-5
