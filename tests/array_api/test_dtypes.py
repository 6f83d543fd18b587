"""Dtypes: the table of promotion, Python numbers beside arrays, casts, kinds and limits."""

import numpy as np
import pytest

import wengert as wg
import wengert.array_api as xp
from tests.array_api import standard

TABLE = standard.promotion()
PAIRS = [(a, b, c) for (a, b), c in TABLE.items()]


@pytest.mark.parametrize(("first", "second", "common"), PAIRS)
@pytest.mark.parametrize("shapes", [((2,), (2,)), ((2,), ()), ((), (2,)), ((), ())], ids=str)
def test_arrays_of_any_dimensions_promote_alike(first, second, common, shapes):
    a, b = (xp.ones(shape, dtype=getattr(xp, name)) for shape, name in zip(shapes, (first, second), strict=True))
    wanted = getattr(xp, common)
    assert xp.result_type(a, b) is xp.result_type(a.dtype, b.dtype) is wanted
    assert xp.where(xp.asarray(True), a, b).dtype is wanted
    assert xp.concat([xp.reshape(a, (-1,)), xp.reshape(b, (-1,))]).dtype is wanted
    if common != "bool":
        assert xp.add(a, b).dtype is xp.multiply(a, b).dtype is wanted
    assert xp.equal(a, b).dtype is xp.bool


@pytest.mark.parametrize(("first", "second", "common"), PAIRS)
def test_what_promotes_to_a_dtype_can_be_cast_to_it(first, second, common):
    assert xp.can_cast(getattr(xp, first), getattr(xp, common))
    assert xp.can_cast(xp.ones(1, dtype=getattr(xp, second)), getattr(xp, common))
    assert xp.can_cast(getattr(xp, common), getattr(xp, first)) == (common == first)


def test_uint64_and_signed_integers_have_nothing_in_common():
    assert not xp.can_cast(xp.int8, xp.uint64)
    with pytest.raises(TypeError, match="uint64"):
        xp.result_type(xp.uint64, xp.int8)


@pytest.mark.parametrize("name", standard.DTYPES[1:])
@pytest.mark.parametrize("shape", [(), (3,)])
@pytest.mark.parametrize("order", ["number first", "number second"])
def test_a_number_takes_the_dtype_of_the_array(name, shape, order):
    dtype = getattr(xp, name)
    numbers = [2] + [2.5] * (name in standard.REAL + standard.COMPLEX) + [2.5j] * (name in standard.COMPLEX)
    for number in numbers:
        args = (
            (number, xp.ones(shape, dtype=dtype)) if order == "number first" else (xp.ones(shape, dtype=dtype), number)
        )
        out = xp.multiply(*args)
        assert out.dtype is xp.result_type(*args) is dtype
        assert out.shape == shape
        np.testing.assert_array_equal(out.numpy(), np.full(shape, number, name))


@pytest.mark.parametrize(("real", "common"), [("float32", "complex64"), ("float64", "complex128")])
def test_a_complex_number_makes_a_real_array_complex_of_the_same_width(real, common):
    assert xp.add(xp.ones(2, dtype=getattr(xp, real)), 1j).dtype is getattr(xp, common)


def test_a_number_keeps_its_digits_beside_float64():
    x = xp.asarray([2.0], dtype=xp.float64)
    assert xp.subtract(1.1, x).item() == 1.1 - 2.0
    assert np.subtract(1.1, x).item() == 1.1 - 2.0
    assert (np.float64(1.1) * x).item() == 1.1 * 2.0


def test_two_numbers_are_no_arrays():
    with pytest.raises(TypeError, match="at least one array"):
        xp.add(1, 2)
    with pytest.raises(ValueError, match="at least one array"):
        xp.result_type(1, 2.0)


@pytest.mark.parametrize("function", [xp.sum, xp.prod, xp.cumulative_sum, xp.cumulative_prod])
@pytest.mark.parametrize("name", standard.DTYPES[1:])
def test_sums_of_integers_have_the_widest_dtype_of_their_sign(function, name):
    wide = "int64" if name in standard.SIGNED else "uint64" if name in standard.UNSIGNED else name
    x = xp.ones(3, dtype=getattr(xp, name))
    assert function(x).dtype is getattr(xp, wide)
    assert function(x, dtype=xp.complex128).dtype is xp.complex128
    assert xp.linalg.trace(xp.ones((2, 2), dtype=x.dtype)).dtype is getattr(xp, wide)


@pytest.mark.parametrize("source", standard.DTYPES)
@pytest.mark.parametrize("target", standard.DTYPES)
def test_astype(source, target):
    x = xp.asarray(np.array([0, 1, 3]).astype(source))
    kind = getattr(xp, target)
    if source in standard.COMPLEX and target not in ("bool", *standard.COMPLEX):
        with pytest.raises(TypeError, match="real"):
            xp.astype(x, kind)
        return
    out = xp.astype(x, kind)
    assert out.dtype is kind
    np.testing.assert_array_equal(out.numpy(), x.numpy().astype(target))
    assert out.data_ptr() != x.data_ptr()
    assert (xp.astype(x, kind, copy=False) is x) == (source == target)


@pytest.mark.parametrize("name", standard.DTYPES)
def test_kinds(name):
    members = {
        "bool": ("bool",), "signed integer": standard.SIGNED, "unsigned integer": standard.UNSIGNED,
        "integral": standard.SIGNED + standard.UNSIGNED, "real floating": standard.REAL,
        "complex floating": standard.COMPLEX, "numeric": standard.DTYPES[1:],
    }  # fmt: skip
    dtype = getattr(xp, name)
    for kind, names in members.items():
        assert xp.isdtype(dtype, kind) == (name in names)
        assert set(xp.__array_namespace_info__().dtypes(kind=kind)) == set(names)
    assert xp.isdtype(dtype, dtype)
    assert xp.isdtype(dtype, ("bool", "numeric"))
    assert not xp.isdtype(dtype, ())


def test_halves_are_real_floating_beside_the_standard():
    assert xp.isdtype(wg.float16, "real floating")
    assert xp.isdtype(wg.bfloat16, ("integral", "real floating"))
    with pytest.raises(ValueError, match="unknown kind"):
        xp.isdtype(xp.int8, "number")


@pytest.mark.parametrize("name", standard.REAL + standard.COMPLEX)
def test_finfo(name):
    dtype, wanted = getattr(xp, name), np.finfo(name)
    for found in (xp.finfo(dtype), xp.finfo(xp.ones(1, dtype=dtype))):
        assert (found.bits, found.eps, found.max, found.min) == (wanted.bits, wanted.eps, wanted.max, wanted.min)
        assert found.smallest_normal == wanted.smallest_normal
        assert found.dtype is getattr(xp, str(wanted.dtype))


@pytest.mark.parametrize("name", standard.SIGNED + standard.UNSIGNED)
def test_iinfo(name):
    dtype, wanted = getattr(xp, name), np.iinfo(name)
    for found in (xp.iinfo(dtype), xp.iinfo(xp.ones(1, dtype=dtype))):
        assert (found.bits, found.max, found.min, found.dtype) == (wanted.bits, wanted.max, wanted.min, dtype)


def test_limits_of_the_wrong_kind_are_refused():
    with pytest.raises(TypeError, match="iinfo"):
        xp.finfo(xp.int8)
    with pytest.raises(TypeError, match="finfo"):
        xp.iinfo(xp.float32)
