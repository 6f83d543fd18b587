"""Where an operator differs from PyTorch on purpose: its name, a pattern of the difference, and why."""

import re

UNDEFINED = "PyTorch has no derivative here"
STATISTICS = "in evaluation, differentiable in the running statistics too"
WEIGHTS = "differentiable in the weights too"
LIMITS = "wengert gives the limit where PyTorch gives nan"
NUMBERS = r"must be Tensor, not"
TAKES_NUMBERS = "takes numbers beside tensors too"

DIFFERENT: dict[str, tuple[str, str]] = {
    "abs": (r"gradient of abs\(array\(\[0.0, -0.0, -inf, nan\]\)\)", "the gradient at nan is nan, not 0"),
    "atan2": (NUMBERS, TAKES_NUMBERS),
    "batch_norm": (r"not differentiable with respect to argument", STATISTICS),
    "binary_cross_entropy": (r"not differentiable with respect to argument", WEIGHTS),
    "binary_cross_entropy_with_logits": (r"not differentiable with respect to argument", WEIGHTS),
    "bincount": (r"requires_grad False", "carries no gradient"),
    "celu": (r"gradient of celu\(array\(\[0.0, nan\]\)\)", "the gradient at nan is nan, not passed on"),
    "cross_entropy": (r"not differentiable with respect to argument", WEIGHTS),
    "ctc_loss": (r"gradient of ctc_loss", "PyTorch's gradient is right only behind log_softmax"),
    "digamma": (r"gradient of digamma\(array\(\[-1.0, -0.0\]\)\)", "the derivative at a pole is inf, not 1e32"),
    "elu": (r"gradient of elu\(array\(\[0.0, nan\]\)\)", "the gradient at nan is nan, not passed on"),
    "floor_divide": (r"aten::floor_divide is not implemented", UNDEFINED),
    "fmax": (NUMBERS, TAKES_NUMBERS),
    "fmin": (NUMBERS, TAKES_NUMBERS),
    "heaviside": (r"requires_grad False|heaviside\(array\(\[-1.0, 0.0, 2.0, nan\]\)", "no gradient; nan stays nan"),
    "histogram": (r"requires_grad False", "carries no gradient"),
    "hypot": (NUMBERS + r"|gradient of hypot\(array\(\[0.0\]\), array\(\[0.0\]\)\)", f"{LIMITS}; {TAKES_NUMBERS}"),
    "i0": (r"array\(\[inf, -inf, nan, -0.0\]\)", LIMITS),
    "igamma": (r"MissingRuleError|igamma_cpu", "refuses a gradient of the first argument early; takes integers"),
    "igammac": (r"MissingRuleError|igammac_cpu", "refuses a gradient of the first argument early; takes integers"),
    "instance_norm": (r"not differentiable with respect to argument", STATISTICS),
    "ldexp": (r"gradient of ldexp", "PyTorch's gradient is 0 for negative integer exponents"),
    "logaddexp": (NUMBERS + r"|gradient of logaddexp\(array\(\[-inf", f"{LIMITS}; {TAKES_NUMBERS}"),
    "logaddexp2": (NUMBERS + r"|gradient of logaddexp2\(array\(\[-inf", f"{LIMITS}; {TAKES_NUMBERS}"),
    "logical_and": (NUMBERS, TAKES_NUMBERS),
    "logical_or": (NUMBERS, TAKES_NUMBERS),
    "logical_xor": (NUMBERS, TAKES_NUMBERS),
    "maximum": (NUMBERS, TAKES_NUMBERS),
    "minimum": (NUMBERS, TAKES_NUMBERS),
    "multi_margin_loss": (r"not differentiable with respect to argument", WEIGHTS),
    "nan_to_num": (r"does not support automatic differentiation for outputs with complex dtype", UNDEFINED),
    "nextafter": (r"requires_grad False", "carries no gradient"),
    "nll_loss": (r"not differentiable with respect to argument", WEIGHTS),
    "polar": (r"gradient of polar", "PyTorch's gradient has the wrong sign for a negative modulus"),
    "polygamma": (r"gradient of polygamma\(1, array\(\[0.0, inf, nan\]\)\)", LIMITS),
    "remainder": (r"aten::remainder is not implemented", UNDEFINED),
    "selu": (r"gradient of selu\(array\(\[0.0, nan\]\)\)", "the gradient at nan is nan, not passed on"),
    "sgn": (r"ZeroTensor|sgn\(array\(\[0.0, -0.0, nan\]\)\)", "nan stays nan; PyTorch's zero gradient cannot be read"),
    "sign": (r"sign\(array\(\[0.0, -0.0, nan\]\)\)", "nan stays nan"),
    "silu": (r"does not support automatic differentiation for outputs with complex dtype", UNDEFINED),
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
    "unique": (r"requires_grad False", "carries no gradient"),
    "unique_consecutive": (r"requires_grad False", "carries no gradient"),
    "view_as_complex": (r"stride 1", "PyTorch refuses some empty tensors"),
    "view_as_real": (r"stride 1", "PyTorch refuses some empty tensors"),
    "xlogy": (r"gradient of xlogy\(array\(\[0.0, 0.0, 0.0, nan\]\)", LIMITS),
}  # fmt: skip


def explained(name: str, difference: str) -> bool:
    """True if a difference found by ``compare`` is a known one."""
    return name in DIFFERENT and re.search(DIFFERENT[name][0], difference) is not None
