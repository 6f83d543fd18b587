"""A quantum circuit as a differentiable program: the ground state of a chain of spins by the variational method.

The state of n qubits is a tensor of 2ⁿ amplitudes, a gate is arithmetic on it, and the energy of the state is an
ordinary function of the angles of the gates: reverse mode gives its gradient for the price of a few runs, however many
angles there are. On a quantum computer, where nothing can be recorded, the gradient takes two runs for each angle, by
the parameter-shift rule (Schuld and others, Physical Review A 99, 032331, 2019): for a gate exp(-iθP/2) with P² = 1,
∂E/∂θ = (E(θ + π/2) − E(θ − π/2)) / 2, exactly. Both are computed here.

The chain is the Ising model in a transverse field, H = −J Σ ZₖZₖ₊₁ − h Σ Xₖ with open ends; the circuit alternates
rotations by the two kinds of its terms (Wecker, Hastings and Troyer, Physical Review A 92, 042303, 2015).

Run: python examples/quantum_circuit.py [--picture FILE]
"""

import argparse
import math
from typing import Any

import wengert as wg
from wengert.func import grad, vmap

QUBITS, LAYERS = 4, 3
COUPLING, FIELD = 1.0, 1.0
SHAPE = (2,) * QUBITS


def bond_signs() -> wg.Tensor:
    """Return the eigenvalue, 1 or -1, of each ZₖZₖ₊₁ in each basis state: (bonds, 2, ..., 2)."""
    spins = 1 - 2 * wg.stack(wg.meshgrid(*[wg.arange(2, dtype=wg.float64)] * QUBITS, indexing="ij"))
    return spins[:-1] * spins[1:]


BONDS = bond_signs()


def rotate_bonds(state: wg.Tensor, angles: wg.Tensor) -> wg.Tensor:
    """Apply exp(-iθZₖZₖ₊₁/2) to each bond, which is diagonal: a phase for each basis state."""
    phase = wg.tensordot(angles, BONDS, dims=1) / 2
    return state * wg.complex(phase.cos(), -phase.sin())


def rotate_spin(state: wg.Tensor, qubit: int, angle: wg.Tensor) -> wg.Tensor:
    """Apply exp(-iθX/2) = cos(θ/2) − i sin(θ/2) X to one qubit; X exchanges its two basis states."""
    return (angle / 2).cos() * state - 1j * (angle / 2).sin() * state.flip(qubit)


def circuit(angles: wg.Tensor) -> wg.Tensor:
    """Return the state that the circuit makes; ``angles`` are (layers, 2 qubits − 1), those of the bonds first."""
    state = wg.full(SHAPE, 2 ** (-QUBITS / 2), dtype=wg.complex128)  # each spin along the field
    for layer in angles:
        state = rotate_bonds(state, layer[: QUBITS - 1])
        for qubit, angle in enumerate(layer[QUBITS - 1 :]):
            state = rotate_spin(state, qubit, angle)
    return state


def energy(angles: wg.Tensor) -> wg.Tensor:
    """Return the expectation of H in the state that the circuit makes."""
    state = circuit(angles)
    probabilities = state.abs().square()
    along_field = sum((state.conj() * state.flip(qubit)).real.sum() for qubit in range(QUBITS))
    return -COUPLING * (BONDS * probabilities).sum() - FIELD * along_field


def parameter_shift(angles: wg.Tensor) -> wg.Tensor:
    """Return the gradient of the energy from two runs for each angle, all of them as one batch."""
    shifts = math.pi / 2 * wg.eye(angles.numel(), dtype=angles.dtype).reshape(-1, *angles.shape)
    energies = vmap(energy)(wg.cat([angles + shifts, angles - shifts]))
    up, down = energies.chunk(2)
    return ((up - down) / 2).reshape(angles.shape)


def ground_state(angles: wg.Tensor) -> tuple[wg.Tensor, list[float]]:
    """Return the angles for which the energy is least, and the energies on the way there."""
    angles = angles.clone().requires_grad_()
    optimizer = wg.optim.LBFGS([angles], max_iter=40, line_search_fn="strong_wolfe")
    energies = []

    def closure() -> wg.Tensor:
        optimizer.zero_grad()
        loss = energy(angles)
        loss.backward()
        energies.append(loss.item())
        return loss

    optimizer.step(closure)
    return angles.detach(), energies


def main(picture: str | None = None) -> dict[str, Any]:
    """Compare the two gradients, then look for the ground state."""
    wg.manual_seed(0)
    angles = 0.5 * wg.randn(LAYERS, 2 * QUBITS - 1, dtype=wg.float64)
    difference = (grad(energy)(angles) - parameter_shift(angles)).abs().max().item()
    print(
        f"{QUBITS} qubits, {angles.numel()} angles: reverse mode and parameter shifts differ by at most {difference:.1e}"
    )
    best, energies = ground_state(angles)
    print(f"energy of the chain: {energies[0]:.4f} at first, {energy(best).item():.8f} after {len(energies)} gradients")
    if picture:
        draw(energies, picture)
    return {"difference": difference, "energy": energy(best).item(), "state": circuit(best)}


def draw(energies: list[float], picture: str) -> None:
    """Draw how the energy fell."""
    from matplotlib.figure import Figure

    figure = Figure(layout="constrained")
    axis = figure.subplots()
    axis.plot(energies)
    axis.set(xlabel="gradients taken", ylabel="energy")
    figure.savefig(picture)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="The ground state of a chain of spins by a variational circuit.")
    parser.add_argument("--picture", metavar="FILE", help="draw the energy into this file")
    main(parser.parse_args().picture)
