"""Where an operator differs from PyTorch on purpose: its name, a pattern of the difference, and why."""

import re

UNDEFINED = "PyTorch has no derivative here"
STATISTICS = "in evaluation, differentiable in the running statistics too"
WEIGHTS = "differentiable in the weights too"
LIMITS = "wengert gives the limit where PyTorch gives nan"
NUMBERS = r"must be Tensor, not"
TAKES_NUMBERS = "takes numbers beside tensors too"
DEPRECATED = (r"UserWarning: .* is deprecated", "PyTorch warns that it is deprecated")
TRIANGLE = "only the triangle that is read has a gradient"
SINGULAR = "a singular matrix has its cofactors as gradient; PyTorch gives 0"
PHASE = "a loss that depends on the phase of complex vectors is refused, as in PyTorch"
FRACTIONS = (r"not differentiable with respect to argument|no len\(\)", "the samples given are not differentiated")
WARNED = "PyTorch warns"

DIFFERENT: dict[str, tuple[str, str]] = {
    "abs": (r"gradient of abs\(array\(\[0.0, -0.0, -inf, nan\]\)\)", "the gradient at nan is nan, not 0"),
    "atan2": (NUMBERS, TAKES_NUMBERS),
    "batch_norm": (r"not differentiable with respect to argument", STATISTICS),
    "binary_cross_entropy": (r"not differentiable with respect to argument", WEIGHTS),
    "binary_cross_entropy_with_logits": (r"not differentiable with respect to argument", WEIGHTS),
    "bincount": (r"requires_grad False", "carries no gradient"),
    "celu": (r"gradient of celu\(array\(\[0.0, nan\]\)\)", "the gradient at nan is nan, not passed on"),
    "cholesky": DEPRECATED,
    "cholesky_inverse": (r"gradient of cholesky_inverse", TRIANGLE),
    "cholesky_solve": (r"gradient of cholesky_solve", TRIANGLE),
    "conv1d": (r"padding='same' with even kernel lengths", WARNED),
    "cross": (r"without specifying the dim arg is deprecated", WARNED),
    "cross_entropy": (r"not differentiable with respect to argument", WEIGHTS),
    "ctc_loss": (r"gradient of ctc_loss", "PyTorch's gradient is right only behind log_softmax"),
    "det": (r"gradient of det\(array\(\[\[1.0, 2.0\], \[2.0, 4.0\]\]\)\)", SINGULAR),
    "digamma": (r"gradient of digamma\(array\(\[-1.0, -0.0\]\)\)", "the derivative at a pole is inf, not 1e32"),
    "elu": (r"gradient of elu\(array\(\[0.0, nan\]\)\)", "the gradient at nan is nan, not passed on"),
    "floor_divide": (r"aten::floor_divide is not implemented", UNDEFINED),
    "fmax": (NUMBERS, TAKES_NUMBERS),
    "fmin": (NUMBERS, TAKES_NUMBERS),
    "fractional_max_pool2d": FRACTIONS,
    "fractional_max_pool2d_with_indices": FRACTIONS,
    "fractional_max_pool3d": FRACTIONS,
    "fractional_max_pool3d_with_indices": FRACTIONS,
    "heaviside": (r"requires_grad False|heaviside\(array\(\[-1.0, 0.0, 2.0, nan\]\)", "no gradient; nan stays nan"),
    "geqrf": (r"MissingRuleError", "refuses a gradient early"),
    "hash_tensor": (r"non-zero size", "the hash of nothing is 0"),
    "histogram": (r"requires_grad False", "carries no gradient"),
    "histogramdd": (r"requires_grad False", "carries no gradient"),
    "hypot": (NUMBERS + r"|gradient of hypot\(array\(\[0.0\]\), array\(\[0.0\]\)\)", f"{LIMITS}; {TAKES_NUMBERS}"),
    "i0": (r"array\(\[inf, -inf, nan, -0.0\]\)", LIMITS),
    "igamma": (r"MissingRuleError|igamma_cpu", "refuses a gradient of the first argument early; takes integers"),
    "igammac": (r"MissingRuleError|igammac_cpu", "refuses a gradient of the first argument early; takes integers"),
    "instance_norm": (r"not differentiable with respect to argument", STATISTICS),
    "istft": (r"window was not provided|shorter than the length parameter", WARNED),
    "ldexp": (r"gradient of ldexp", "PyTorch's gradient is 0 for negative integer exponents"),
    "linear_cross_entropy": (r"not differentiable with respect to argument|gradient of .* weight=", WEIGHTS),
    "linalg_cholesky": (r"gradient of linalg_cholesky\(array\(\[\[\(3\+0j", "the gradient is Hermitian"),
    "linalg_cholesky_ex": (r"nan location mismatch", "a matrix without a factor gets nan, not a part of one"),
    "linalg_cond": (r"LinalgInvEx|PyTorch False", "PyTorch's backward fails on its own in-place operation"),
    "linalg_det": (r"gradient of linalg_det\(array\(\[\[1.0, 2.0", SINGULAR),
    "linalg_eig": (r"depends on the phase", PHASE),
    "linalg_eigh": (r"depends on the phase", PHASE),
    "linalg_ldl_factor": (r"is not implemented", UNDEFINED),
    "linalg_ldl_factor_ex": (r"is not implemented", UNDEFINED),
    "linalg_ldl_solve": (r"is not implemented", UNDEFINED),
    "linalg_lu": (r"pivot=False\): RuntimeError", "PyTorch pivots always on the CPU"),
    "linalg_matrix_norm": (r"real\(0, 2\).*PyTorch False", "the norm of nothing has a gradient: nothing"),
    "linalg_qr": (r"mode='(r|complete)' has no derivative", "refused, as in PyTorch"),
    "linalg_slogdet": (r"LinAlgError", "a singular matrix has no gradient; PyTorch gives inf"),
    "linalg_solve_ex": (r"nan location mismatch", "not finite, as in PyTorch, but nan"),
    "linalg_svd": (r"depends on the phase|gradient of|tolerance", "signs differ; every vector has a gradient"),
    "lobpcg": (r"tolerance|B != I yet", "signs differ; PyTorch has no gradient if B is given"),
    "logaddexp": (NUMBERS + r"|gradient of logaddexp\(array\(\[(\(?-inf|\(900)", f"{LIMITS}; {TAKES_NUMBERS}"),
    "logaddexp2": (NUMBERS + r"|gradient of logaddexp2\(array\(\[-inf", f"{LIMITS}; {TAKES_NUMBERS}"),
    "logdet": (r"LinAlgError", "a singular matrix has no gradient; PyTorch gives inf"),
    "logsumexp": (r"gradient of logsumexp\(array\(\[\(-inf", LIMITS),
    "logical_and": (NUMBERS, TAKES_NUMBERS),
    "logical_or": (NUMBERS, TAKES_NUMBERS),
    "logical_xor": (NUMBERS, TAKES_NUMBERS),
    "lu": DEPRECATED,
    "lu_solve": DEPRECATED,
    "maximum": (NUMBERS, TAKES_NUMBERS),
    "minimum": (NUMBERS, TAKES_NUMBERS),
    "multi_margin_loss": (r"not differentiable with respect to argument", WEIGHTS),
    "nan_to_num": (r"does not support automatic differentiation for outputs with complex dtype", UNDEFINED),
    "native_batch_norm": (r"requires_grad True|not differentiable with respect to argument", STATISTICS),
    "native_layer_norm": (r"requires_grad True", "differentiable in the statistics too"),
    "nll_loss": (r"not differentiable with respect to argument", WEIGHTS),
    "ormqr": (r"tau.shape\[-1\] must be equal", "takes fewer reflections than columns"),
    "pixel_shuffle": (r"PixelShuffleBackward0", "PyTorch's backward fails on an empty batch"),
    "polar": (r"gradient of polar", "PyTorch's gradient has the wrong sign for a negative modulus"),
    "polygamma": (r"gradient of polygamma\(1, array\(\[0.0, inf, nan\]\)\)", LIMITS),
    "pow": (r"not implemented for .*Bool", "bool powers are defined: PyTorch has them for numbers only"),
    "qr": DEPRECATED,
    "remainder": (r"aten::remainder is not implemented", UNDEFINED),
    "scatter_add": (
        r"too many indices for tensor of dimension 0|invalid gradient at index 1",
        "PyTorch's backward fails where one tensor has a dimension and another has none",
    ),
    "selu": (r"gradient of selu\(array\(\[0.0, nan\]\)\)", "the gradient at nan is nan, not passed on"),
    "sgn": (r"ZeroTensor|sgn\(array\(\[0.0, -0.0, nan\]\)\)", "nan stays nan; PyTorch's zero gradient cannot be read"),
    "sign": (r"sign\(array\(\[0.0, -0.0, nan\]\)\)", "nan stays nan"),
    "silu": (r"does not support automatic differentiation for outputs with complex dtype", UNDEFINED),
    "sigmoid": (r"nan location mismatch", LIMITS),
    "softsign": (r"gradient of softsign\(array\(\[inf, -inf\]\)\)", LIMITS),
    "special_bessel_j0": (r"PyTorch False|tolerance", "has a derivative, limits, and full precision at zeros"),
    "special_bessel_j1": (r"PyTorch False|array\(\[inf", "has a derivative, and limits at infinity"),
    "special_bessel_y0": (r"PyTorch False|array\(\[0.0, inf", "has a derivative, and limits at infinity"),
    "special_bessel_y1": (r"PyTorch False|array\(\[0.0, inf", "has a derivative, and limits at infinity"),
    "special_i1": (r"array\(\[inf, -inf, nan, -0.0\]\)", LIMITS),
    "special_log_ndtr": (r"gradient of special_log_ndtr\(array\(\[inf, -inf", LIMITS),
    "special_spherical_bessel_j0": (r"PyTorch False", UNDEFINED),
    "special_xlog1py": (r"gradient of special_xlog1py\(array\(\[0.0", LIMITS),
    "special_zeta": (r"MissingRuleError", "refuses a gradient of the first argument early"),
    "stft": DEPRECATED,
    "triangular_solve": DEPRECATED,
    "unique": (r"requires_grad False", "carries no gradient"),
    "unique_consecutive": (r"requires_grad False", "carries no gradient"),
    "upsample": DEPRECATED,
    "upsample_bilinear": DEPRECATED,
    "upsample_nearest": DEPRECATED,
    "view_as_complex": (r"stride 1", "PyTorch refuses some empty tensors"),
    "view_as_real": (r"stride 1", "PyTorch refuses some empty tensors"),
    "xlogy": (r"gradient of xlogy\(array\(\[0.0, 0.0, 0.0, nan\]\)", LIMITS),
}  # fmt: skip


# Functions that PyTorch does not differentiate; their values are compared in test_special.py.
DIFFERENT |= {
    f"special_{name}": (r"PyTorch False|MissingRuleError|\(array\(\[(0.0, )?inf|\bnan, inf\]|0\.3, ", f"{UNDEFINED}; {LIMITS}")
    for name in (
        "airy_ai", "chebyshev_polynomial_t", "chebyshev_polynomial_u", "chebyshev_polynomial_v", "chebyshev_polynomial_w",
        "hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l", "legendre_polynomial_p",
        "modified_bessel_k0", "modified_bessel_k1", "scaled_modified_bessel_k0", "scaled_modified_bessel_k1",
        "shifted_chebyshev_polynomial_t", "shifted_chebyshev_polynomial_u", "shifted_chebyshev_polynomial_v",
        "shifted_chebyshev_polynomial_w",
    )
}  # fmt: skip


def explained(name: str, difference: str) -> bool:
    """True if a difference found by ``compare`` is a known one."""
    return name in DIFFERENT and re.search(DIFFERENT[name][0], difference) is not None
