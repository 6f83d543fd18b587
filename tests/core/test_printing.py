"""How tensors print; the expected texts are PyTorch's own."""

import pytest

import wengert as wg

TEXTS = [
    (lambda: wg.tensor([1.0, float("nan")]), "tensor([1., nan])"),
    (lambda: wg.tensor([1.23456, -2.0]), "tensor([ 1.2346, -2.0000])"),
    (lambda: wg.tensor([1e10, 1.0]), "tensor([1.0000e+10, 1.0000e+00])"),
    (lambda: wg.tensor([1 + 2j]), "tensor([1.+2.j])"),
    (lambda: wg.tensor([[1, 20], [3, 4]]), "tensor([[ 1, 20],\n        [ 3,  4]])"),
    (lambda: wg.tensor(True), "tensor(True)"),
    (lambda: wg.zeros(0, 3), "tensor([], size=(0, 3))"),
    (lambda: wg.zeros(0, dtype=wg.int64), "tensor([], dtype=wengert.int64)"),
    (lambda: wg.ones(2, dtype=wg.bfloat16), "tensor([1., 1.], dtype=wengert.bfloat16)"),
    (lambda: wg.ones(1, requires_grad=True), "tensor([1.], requires_grad=True)"),
    (lambda: wg.ones(1, requires_grad=True) * 2, "tensor([2.], grad_fn=<MulBackward0>)"),
    (lambda: wg.nn.Parameter(wg.ones(1)), "Parameter containing:\ntensor([1.], requires_grad=True)"),
]


@pytest.mark.parametrize(("make", "text"), TEXTS, ids=[text for _, text in TEXTS])
def test_a_tensor_prints_as_in_pytorch(make, text):
    assert repr(make()) == text


def test_a_summary_is_as_wide_as_what_it_shows():
    assert repr(wg.arange(2000)).split() == ["tensor([", "0,", "1,", "2,", "...,", "1997,", "1998,", "1999])"]
    hidden = wg.zeros(2000)
    hidden[1000] = 123456.0
    assert repr(hidden) == "tensor([0., 0., 0.,  ..., 0., 0., 0.])"


def test_the_default_dtype_goes_without_saying():
    wg.set_default_dtype(wg.float64)
    try:
        assert repr(wg.tensor([1.0])) == "tensor([1.])"
        assert repr(wg.tensor([1.0], dtype=wg.float32)) == "tensor([1.], dtype=wengert.float32)"
    finally:
        wg.set_default_dtype(wg.float32)


def test_options_hold_until_a_profile_resets_them():
    x = wg.tensor([0.123456])
    try:
        wg.set_printoptions(precision=2)
        assert repr(x) == "tensor([0.12])"
        wg.set_printoptions(sci_mode=True)
        assert repr(x) == "tensor([1.23e-01])"
    finally:
        wg.set_printoptions(profile="default")
    assert repr(x) == "tensor([0.1235])"
    with pytest.raises(ValueError, match="'default', 'short' or 'full'"):
        wg.set_printoptions(profile="long")
