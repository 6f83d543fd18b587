"""The exponential of matrices, by scaling and squaring.

Higham, "The scaling and squaring method for the matrix exponential revisited", 2005: algorithm 2.3 with the approximant
of degree 13 for every norm.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["matrix_exp"]

Array = NDArray[Any]

# Coefficients of the Padé approximant of degree 13, and the 1-norm up to which it is exact to double precision.
_PADE = (
    64764752532480000, 32382376266240000, 7771770303897600, 1187353796428800, 129060195264000, 10559470521600,
    670442572800, 33522128640, 1323241920, 40840800, 960960, 16380, 182, 1,
)  # fmt: skip
_THETA = 5.371920351148152


def matrix_exp(a: Array) -> Array:
    """Return the exponential of each matrix of an array of shape ``(*batch, n, n)``.

    A matrix with infinities or NaN gives NaN.

    Example:
        >>> matrix_exp(np.array([[0.0, 1.0], [0.0, 0.0]]))
        array([[1., 1.],
               [0., 1.]])
    """
    if not a.size:
        return a.copy()
    flat = a.reshape(-1, *a.shape[-2:])
    norms = np.abs(flat).sum(-2).max(-1)
    finite = np.isfinite(norms)
    halvings = np.where(finite & (norms > _THETA), np.ceil(np.log2(np.where(finite, norms, 1) / _THETA)), 0).astype(int)
    scale = np.exp2(-halvings).astype(norms.dtype)[:, np.newaxis, np.newaxis]
    out = _approximant(np.where(finite[:, np.newaxis, np.newaxis], flat, 0) * scale)
    for done in range(int(halvings.max())):
        left = halvings > done
        out[left] = out[left] @ out[left]
    out[~finite] = np.nan
    return np.asarray(out.reshape(a.shape))


def _approximant(a: Array) -> Array:
    """Return the Padé approximant (V - U)⁻¹ (V + U): U holds the odd powers, V the even ones."""
    b = [a.dtype.type(c) for c in _PADE]
    eye = np.eye(a.shape[-1], dtype=a.dtype)
    a2 = a @ a
    a4 = a2 @ a2
    a6 = a4 @ a2
    u = a @ (a6 @ (b[13] * a6 + b[11] * a4 + b[9] * a2) + b[7] * a6 + b[5] * a4 + b[3] * a2 + b[1] * eye)
    v = a6 @ (b[12] * a6 + b[10] * a4 + b[8] * a2) + b[6] * a6 + b[4] * a4 + b[2] * a2 + b[0] * eye
    return np.asarray(np.linalg.solve(v - u, v + u))
