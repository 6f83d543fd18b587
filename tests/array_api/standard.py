"""What the Python array API standard, version 2025.12, lists: signatures of functions and methods, dtypes, promotion."""

import inspect

# One line per function. Argument names before a bare `/` mean nothing; the others, their kinds and defaults do.
MAIN = """
arange(start, /, stop=None, step=1, *, dtype=None, device=None)
asarray(obj, /, *, dtype=None, device=None, copy=None)
empty(shape, *, dtype=None, device=None)
empty_like(x, /, *, dtype=None, device=None)
eye(n_rows, n_cols=None, /, *, k=0, dtype=None, device=None)
from_dlpack(x, /, *, device=None, copy=None)
full(shape, fill_value, *, dtype=None, device=None)
full_like(x, /, fill_value, *, dtype=None, device=None)
linspace(start, stop, /, num, *, dtype=None, device=None, endpoint=True)
meshgrid(*arrays, indexing='xy')
ones(shape, *, dtype=None, device=None)
ones_like(x, /, *, dtype=None, device=None)
tril(x, /, *, k=0)
triu(x, /, *, k=0)
zeros(shape, *, dtype=None, device=None)
zeros_like(x, /, *, dtype=None, device=None)
astype(x, dtype, /, *, copy=True, device=None)
can_cast(from_, to, /)
finfo(type, /)
iinfo(type, /)
isdtype(dtype, kind)
result_type(*arrays_and_dtypes)
clip(x, /, min=None, max=None)
take(x, indices, /, *, axis=None)
take_along_axis(x, indices, /, *, axis=-1)
__array_namespace_info__()
matmul(x1, x2, /)
matrix_transpose(x, /)
tensordot(x1, x2, /, *, axes=2)
vecdot(x1, x2, /, *, axis=-1)
broadcast_arrays(*arrays)
broadcast_shapes(*shapes)
broadcast_to(x, /, shape)
concat(arrays, /, *, axis=0)
expand_dims(x, /, axis)
flip(x, /, *, axis=None)
moveaxis(x, source, destination, /)
permute_dims(x, /, axes)
repeat(x, repeats, /, *, axis=None)
reshape(x, /, shape, *, copy=None)
roll(x, /, shift, *, axis=None)
squeeze(x, /, axis)
stack(arrays, /, *, axis=0)
tile(x, repetitions, /)
unstack(x, /, *, axis=0)
argmax(x, /, *, axis=None, keepdims=False)
argmin(x, /, *, axis=None, keepdims=False)
count_nonzero(x, /, *, axis=None, keepdims=False)
nonzero(x, /)
searchsorted(x1, x2, /, *, side='left', sorter=None)
where(condition, x1, x2, /)
isin(x1, x2, /, *, invert=False)
unique_all(x, /)
unique_counts(x, /)
unique_inverse(x, /)
unique_values(x, /)
argsort(x, /, *, axis=-1, descending=False, stable=True)
sort(x, /, *, axis=-1, descending=False, stable=True)
cumulative_sum(x, /, *, axis=None, dtype=None, include_initial=False)
cumulative_prod(x, /, *, axis=None, dtype=None, include_initial=False)
max(x, /, *, axis=None, keepdims=False)
mean(x, /, *, axis=None, keepdims=False)
min(x, /, *, axis=None, keepdims=False)
prod(x, /, *, axis=None, dtype=None, keepdims=False)
std(x, /, *, axis=None, correction=0.0, keepdims=False)
sum(x, /, *, axis=None, dtype=None, keepdims=False)
var(x, /, *, axis=None, correction=0.0, keepdims=False)
all(x, /, *, axis=None, keepdims=False)
any(x, /, *, axis=None, keepdims=False)
diff(x, /, *, axis=-1, n=1, prepend=None, append=None)
"""

UNARY = [
    "abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "bitwise_invert", "ceil", "conj", "cos", "cosh",
    "exp", "expm1", "floor", "imag", "isfinite", "isinf", "isnan", "log", "log10", "log1p", "log2", "logical_not",
    "negative", "positive", "real", "reciprocal", "round", "sign", "signbit", "sin", "sinh", "sqrt", "square",
    "tan", "tanh", "trunc",
]  # fmt: skip
BINARY = [
    "add", "atan2", "bitwise_and", "bitwise_left_shift", "bitwise_or", "bitwise_right_shift", "bitwise_xor",
    "copysign", "divide", "equal", "floor_divide", "greater", "greater_equal", "hypot", "less", "less_equal",
    "logaddexp", "logical_and", "logical_or", "logical_xor", "maximum", "minimum", "multiply", "nextafter",
    "not_equal", "pow", "remainder", "subtract",
]  # fmt: skip

LINALG = """
cholesky(x, /, *, upper=False)
cross(x1, x2, /, *, axis=-1)
det(x, /)
diagonal(x, /, *, offset=0)
eig(x, /)
eigh(x, /)
eigvals(x, /)
eigvalsh(x, /)
inv(x, /)
matmul(x1, x2, /)
matrix_norm(x, /, *, keepdims=False, ord='fro')
matrix_power(x, n, /)
matrix_rank(x, /, *, rtol=None)
matrix_transpose(x, /)
outer(x1, x2, /)
pinv(x, /, *, rtol=None)
qr(x, /, *, mode='reduced')
slogdet(x, /)
solve(x1, x2, /)
svd(x, /, *, full_matrices=True)
svdvals(x, /)
tensordot(x1, x2, /, *, axes=2)
trace(x, /, *, offset=0, dtype=None)
vecdot(x1, x2, /, *, axis=-1)
vector_norm(x, /, *, axis=None, keepdims=False, ord=2)
"""

FFT = "\n".join(
    [f"{name}(x, /, *, n=None, axis=-1, norm='backward')" for name in ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"]]
    + [f"{name}(x, /, *, s=None, axes=None, norm='backward')" for name in ["fftn", "ifftn", "rfftn", "irfftn"]]
    + [f"{name}(n, /, *, d=1.0, dtype=None, device=None)" for name in ["fftfreq", "rfftfreq"]]
    + [f"{name}(x, /, *, axes=None)" for name in ["fftshift", "ifftshift"]]
)

INFO = """
capabilities()
default_device()
default_dtypes(*, device=None)
devices()
dtypes(*, device=None, kind=None)
"""

ATTRIBUTES = ["dtype", "device", "mT", "ndim", "shape", "T"]  # and size, a method as in PyTorch
METHODS = [
    "__abs__", "__add__", "__and__", "__array_namespace__", "__bool__", "__complex__", "__dlpack__",
    "__dlpack_device__", "__eq__", "__float__", "__floordiv__", "__ge__", "__getitem__", "__gt__", "__iadd__",
    "__iand__", "__ifloordiv__", "__ilshift__", "__imod__", "__imul__", "__index__", "__int__", "__invert__",
    "__ior__", "__ipow__", "__irshift__", "__isub__", "__itruediv__", "__ixor__", "__le__", "__lshift__", "__lt__",
    "__matmul__", "__mod__", "__mul__", "__ne__", "__neg__", "__or__", "__pos__", "__pow__", "__radd__", "__rand__",
    "__rfloordiv__", "__rlshift__", "__rmatmul__", "__rmod__", "__rmul__", "__ror__", "__rpow__", "__rrshift__",
    "__rshift__", "__rsub__", "__rtruediv__", "__rxor__", "__setitem__", "__sub__", "__truediv__", "__xor__",
    "to_device",
]  # fmt: skip

SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
REAL = ("float32", "float64")
COMPLEX = ("complex64", "complex128")
DTYPES = ("bool", *SIGNED, *UNSIGNED, *REAL, *COMPLEX)


def signatures(text: str) -> dict[str, inspect.Signature]:
    """Return the signatures that lines of text show, by name."""
    found: dict[str, inspect.Signature] = {}
    for line in text.split("\n"):
        if line:
            name, _, arguments = line.partition("(")
            found[name] = inspect.signature(eval(f"lambda {arguments[:-1]}: None"))
    return found


def elementwise() -> dict[str, inspect.Signature]:
    """Return the signatures of the element-wise functions but clip."""
    lines = [f"{name}(x, /)" for name in UNARY] + [f"{name}(x1, x2, /)" for name in BINARY]
    return signatures("\n".join(lines))


def promotion() -> dict[tuple[str, str], str]:
    """Return the standard's table of promotion: what two dtypes of one kind, or of related kinds, become."""
    table = {("bool", "bool"): "bool"}
    bits = (8, 16, 32, 64)
    for a in bits:
        for b in bits:
            table[f"int{a}", f"int{b}"] = f"int{max(a, b)}"
            table[f"uint{a}", f"uint{b}"] = f"uint{max(a, b)}"
            if b < 64:  # a signed integer with uint64 has no common dtype
                table[f"int{a}", f"uint{b}"] = table[f"uint{b}", f"int{a}"] = f"int{max(a, 2 * b)}"
    for a, parts_a in (("float32", 32), ("float64", 64), ("complex64", 32), ("complex128", 64)):
        for b, parts_b in (("float32", 32), ("float64", 64), ("complex64", 32), ("complex128", 64)):
            wide = max(parts_a, parts_b)
            is_complex = "complex" in a or "complex" in b
            table[a, b] = f"complex{2 * wide}" if is_complex else f"float{wide}"
    return table
