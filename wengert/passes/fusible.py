"""Which nodes a kernel can compute element by element."""

from typing import Final

from wengert.array.dtype import BOOL, COMPLEX, INTEGER
from wengert.core.apply import common_dtype
from wengert.core.operator import Op
from wengert.graph.ir import Node, Value

__all__ = ["CHEAP", "FREE", "fusible"]

# Element-wise operators whose kernels look at whole arrays, or use functions that native kernels do not have.
WHOLE: Final = frozenset({
    "airy_ai_prime", "binary_loss", "complex", "gcd", "gegenbauer", "i0", "igamma", "igammac", "laguerre", "lcm",
    "linalg_solve_triangular", "nan_to_num", "nextafter", "polar", "polygamma", "round", "solve_matrices", "special_airy_ai",
    "special_bessel_j0", "special_bessel_j1", "special_bessel_y0", "special_bessel_y1", "special_chebyshev_polynomial_t",
    "special_chebyshev_polynomial_u", "special_chebyshev_polynomial_v", "special_chebyshev_polynomial_w", "special_erfcx",
    "special_hermite_polynomial_h", "special_hermite_polynomial_he", "special_i0e", "special_i1", "special_i1e",
    "special_laguerre_polynomial_l", "special_legendre_polynomial_p", "special_log_ndtr", "special_modified_bessel_k0",
    "special_modified_bessel_k1", "special_ndtri", "special_scaled_modified_bessel_k0", "special_scaled_modified_bessel_k1",
    "special_shifted_chebyshev_polynomial_t", "special_shifted_chebyshev_polynomial_u",
    "special_shifted_chebyshev_polynomial_v", "special_shifted_chebyshev_polynomial_w", "special_zeta",
})  # fmt: skip
# Operators that complain about integers such as a divisor of zero, or are computed otherwise for them.
FLOATS_ONLY: Final = frozenset({
    "addcdiv", "floor_divide", "fmod", "isneginf", "isposinf", "pow", "reciprocal", "remainder", "rsqrt", "trunc_divide",
})  # fmt: skip
TRUTHS: Final = frozenset({  # operators that take truth values
    "add", "bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor", "eq", "ge", "gt", "le", "logical_and", "logical_not",
    "logical_or", "logical_xor", "lt", "maximum", "minimum", "mul", "ne",
})  # fmt: skip
COPIES: Final = frozenset({"cast", "clone"})  # computed element by element, though declared otherwise
FREE: Final = frozenset({"expand"})  # views that broadcast: in a kernel, another way to read
CHEAP: Final = COPIES | frozenset({
    "abs", "add", "addcmul", "bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor", "ceil", "choose", "clamp", "eq",
    "floor", "ge", "gt", "isfinite", "isinf", "isnan", "le", "leaky_relu", "logical_and", "logical_not", "logical_or",
    "logical_xor", "lt", "maximum", "minimum", "mul", "ne", "neg", "reciprocal", "relu", "relu6", "sign", "square", "sub",
    "threshold", "true_divide", "trunc",
})  # fmt: skip


def fusible(node: Node) -> bool:
    """Return whether a node is computed element by element in dtypes that kernels have.

    Whoever lowers kernels may know better; :func:`wengert.passes.pipeline.optimise` takes another predicate.
    """
    op = node.op
    if not isinstance(op, Op) or not op.single:
        return False
    elementwise = op.batch == "broadcast" and op.family != "operator" and op.name not in WHOLE
    if not elementwise and op.name not in COPIES:
        return False
    dtypes = [v.dtype for v in (*node.inputs, *node.results)]
    if any(d.category >= COMPLEX for d in dtypes) or not node.inputs:
        return False
    if op.promote is None:
        return True
    common = common_dtype(op, [a.spec if isinstance(a, Value) else a for a in node.arguments])
    if common.is_half and any(d is not common and d.category > INTEGER for d in (v.dtype for v in node.inputs)):
        return False  # computed in float32 from what the arguments are, which no cast to halves says
    if common.category == BOOL:
        return op.name in TRUTHS
    return common.category > INTEGER or op.name not in FLOATS_ONLY
