"""What the library says of itself, where arrays live, and how they are handed on."""

import numpy as np
import pytest

import wengert as wg
import wengert.array_api as xp
from tests.array_api import standard

INFO = xp.__array_namespace_info__()


def test_what_is_said_to_be_possible_is():
    found = INFO.capabilities()
    assert found == {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}
    assert xp.zeros((1,) * found["max dimensions"]).ndim == 64
    assert xp.arange(3)[xp.asarray([True, False, True])].shape == (2,)
    with pytest.raises(ValueError, match="64"):
        xp.zeros((1,) * 65)


def test_devices():
    assert INFO.devices() == (INFO.default_device(),)
    for device in INFO.devices():
        x = xp.ones(2, device=device)
        assert x.device == device
        assert x.to_device(device) is x
    with pytest.raises(RuntimeError, match="not available"):
        xp.ones(2).to_device("cuda")
    with pytest.raises(ValueError, match="stream"):
        xp.ones(2).to_device("cpu", stream=1)


def test_default_dtypes_follow_the_setting():
    assert INFO.default_dtypes() == {
        "real floating": xp.float32, "complex floating": xp.complex64, "integral": xp.int64, "indexing": xp.int64,
    }  # fmt: skip
    wg.set_default_dtype(wg.float64)
    try:
        found = INFO.default_dtypes(device="cpu")
        assert (found["real floating"], found["complex floating"]) == (xp.float64, xp.complex128)
        assert xp.asarray(1.0).dtype is found["real floating"]
        assert xp.asarray(1j).dtype is found["complex floating"]
    finally:
        wg.set_default_dtype(wg.float32)


def test_dtypes():
    assert {name: getattr(xp, name) for name in standard.DTYPES} == INFO.dtypes()
    assert set(INFO.dtypes(kind=("bool", "complex floating"))) == {"bool", *standard.COMPLEX}
    with pytest.raises(ValueError, match="unknown kind"):
        INFO.dtypes(kind="real")
    with pytest.raises(RuntimeError, match="not available"):
        INFO.dtypes(device="cuda")


@pytest.mark.parametrize("name", standard.DTYPES)
@pytest.mark.parametrize("copy", [None, False, True])
def test_dlpack_goes_round(name, copy):
    x = xp.asarray(np.arange(6).reshape(2, 3).astype(name))
    y = xp.from_dlpack(x, copy=copy)
    assert y.dtype is x.dtype
    np.testing.assert_array_equal(y.numpy(), x.numpy())
    assert (y.data_ptr() == x.data_ptr()) == (not copy)
    assert x.__dlpack_device__() == (1, 0)
    z = xp.from_dlpack(x.numpy(), device=xp.__array_namespace_info__().default_device())
    np.testing.assert_array_equal(z.numpy(), x.numpy())


def test_dlpack_refuses_to_lose_a_gradient():
    with pytest.raises(RuntimeError, match="requires grad"):
        xp.from_dlpack(wg.ones(2, requires_grad=True))
    with pytest.raises(TypeError, match="__dlpack__"):
        xp.from_dlpack([1.0])
