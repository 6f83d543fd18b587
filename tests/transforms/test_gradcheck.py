"""gradcheck and gradgradcheck: right functions pass, and each planted mistake is found and named."""

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert.transforms.diagnosis import factor_name
from wengert.transforms.differences import Probe, analytical_jacobian, numerical_jacobian
from wengert.transforms.gradcheck import GradcheckError, GradcheckReport, Verdict, gradcheck, gradgradcheck


def leaf(*shape: int, seed: int = 0, dtype: Any = np.float64, low: float = -1.0, high: float = 1.0) -> Any:
    """A tensor of random numbers that requires grad."""
    rng = np.random.default_rng(seed)
    values = rng.uniform(low, high, shape)
    if np.issubdtype(dtype, np.complexfloating):
        values = values + 1j * rng.uniform(low, high, shape)
    return wg.from_numpy(np.asarray(values).astype(dtype)).requires_grad_()


def at(*values: Any, dtype: Any = np.float64) -> Any:
    """A tensor of the given numbers that requires grad."""
    return wg.from_numpy(np.array(values, dtype=dtype)).requires_grad_()


def planted(forward: Callable[..., Any], backward: Callable[..., Any]) -> Any:
    """An operator whose value is ``forward(*inputs)`` and whose gradients are ``backward(gradient, *inputs)``."""

    class Planted(wg.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *inputs: Any) -> Any:
            ctx.save_for_backward(*inputs)
            return forward(*inputs)

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            return backward(gradient, *ctx.saved_tensors)

    return Planted.apply


def failure(func: Any, inputs: Any, check: Any = gradcheck, **options: Any) -> GradcheckReport:
    """The report of a check that must fail."""
    with pytest.raises(GradcheckError) as caught:
        check(func, inputs, **options)
    assert check(func, inputs, raise_exception=False, **options) is False
    return caught.value.report


# ---- right functions pass

C = np.complex128
INDEX = [0, 2, 2, 1, 2]

RIGHT = {
    "sine": (lambda x: x.sin(), lambda: (leaf(3),)),
    "product": (lambda a, b: a * b, lambda: (leaf(2, 3), leaf(2, 3, seed=1))),
    "broadcast": (lambda a, b: a / b, lambda: (leaf(2, 3), leaf(3, seed=1, low=1, high=2))),
    "matmul": (lambda a, b: a @ b, lambda: (leaf(2, 3), leaf(3, 4, seed=1))),
    "zero dimensions": (lambda x: x.exp(), lambda: (leaf(),)),
    "no elements": (lambda x: x.exp(), lambda: (leaf(0, 3),)),
    "no elements in the output": (lambda x: x[:0].exp(), lambda: (leaf(3),)),
    "reduction": (lambda x: x.exp().sum(), lambda: (leaf(3, 2),)),
    "softmax": (lambda x: x.softmax(-1), lambda: (leaf(2, 4),)),
    "repeated index": (lambda x: x[wg.tensor(INDEX)] ** 2, lambda: (leaf(3),)),
    "several outputs": (lambda a, b: (a * b, a.sin(), b.sum()), lambda: (leaf(3), leaf(3, seed=1))),
    "list of outputs": (lambda x: [x.sin(), x.cos()], lambda: (leaf(3),)),
    "output without grad": (lambda x: (x * 2, x.detach() * 3, x > 0), lambda: (leaf(3),)),
    "other things among the inputs": (lambda x, n, s, k: x**n if s == "pow" else k, lambda: (leaf(3), 3, "pow", None)),
    "input without grad": (lambda x, c: x * c, lambda: (leaf(3), leaf(3, seed=1).detach())),
    "unused input": (lambda a, b: a * 2, lambda: (leaf(3), leaf(3, seed=1))),
    "returns its input": (lambda x: x, lambda: (leaf(3),)),
    "returns its input and more": (lambda x: (x, x * 2), lambda: (leaf(3),)),
    "view": (lambda x: x.reshape(3, 2).transpose(0, 1)[:, 1:], lambda: (leaf(2, 3),)),
    "in-place on a copy": (lambda x: x.clone().mul_(x).add_(1), lambda: (leaf(3),)),
    "non-contiguous input": (lambda x: x.sin(), lambda: (leaf(3, 4).detach()[:, ::2].requires_grad_(),)),
    "transposed input": (lambda x: x.cumsum(0), lambda: (leaf(3, 4).detach().transpose(0, 1).requires_grad_(),)),
    "expanded input": (lambda x: x.sin(), lambda: (leaf(3, 1).detach().expand(3, 2).requires_grad_(),)),
    "computed input": (lambda x: x.sin(), lambda: (leaf(3) * 2,)),
    "one tensor, not in a tuple": (lambda x: x.sin(), lambda: leaf(3)),
    "same tensor twice": (lambda a, b: a * b, lambda: (leaf(3),) * 2),
    "detached as it should be": (lambda x: x.round(), lambda: (at(0.3, 1.4),)),
    "complex to complex": (lambda z: z * z, lambda: (leaf(3, dtype=C),)),
    "complex, not holomorphic": (lambda z: z * z.conj() + z.conj(), lambda: (leaf(3, dtype=C),)),
    "complex to real": (lambda z: z.abs(), lambda: (leaf(3, dtype=C, low=0.5),)),
    "real to complex": (lambda x: x * 1j + x, lambda: (leaf(3),)),
    "real and complex": (lambda x, z: (x * z, x + z.real), lambda: (leaf(3), leaf(3, seed=1, dtype=C))),
}


@pytest.mark.parametrize("fast", [False, True], ids=["slow", "fast"])
@pytest.mark.parametrize(("func", "inputs"), RIGHT.values(), ids=RIGHT.keys())
def test_right_gradients_pass(func: Any, inputs: Any, fast: bool) -> None:
    assert gradcheck(func, inputs(), fast_mode=fast) is True


@pytest.mark.parametrize("fast", [False, True], ids=["slow", "fast"])
@pytest.mark.parametrize("apart", [False, True], ids=["contiguous", "apart"])
@pytest.mark.parametrize("name", sorted(RIGHT.keys() - {"detached as it should be"}))
def test_right_second_derivatives_pass(name: str, apart: bool, fast: bool) -> None:
    func, inputs = RIGHT[name]
    assert gradgradcheck(func, inputs(), gen_non_contig_grad_outputs=apart, fast_mode=fast) is True


@pytest.mark.parametrize("name", RIGHT)
def test_inputs_are_put_back_bit_for_bit(name: str) -> None:
    func, inputs = RIGHT[name]
    given = inputs()
    tensors = [x for x in (given if isinstance(given, tuple) else (given,)) if isinstance(x, wg.Tensor)]
    before = [x.detach().numpy().copy() for x in tensors]
    gradcheck(func, given)
    for x, values in zip(tensors, before, strict=True):
        np.testing.assert_array_equal(x.detach().numpy(), values)


def test_a_closure_over_the_input_is_checked() -> None:
    weight = leaf(3)
    assert gradcheck(lambda *_: weight.sin() * 2, (weight,))


def test_given_grad_outputs() -> None:
    assert gradgradcheck(lambda x: (x.sin(), x**2), (leaf(3),), (leaf(3, seed=1), leaf(3, seed=2).detach()))


# ---- planted mistakes are found and named


def set_not_added(g: Any, x: Any) -> Any:
    gradient = wg.zeros_like(x)
    gradient[wg.tensor(INDEX)] = g
    return gradient


class Noise:
    """Adds other random numbers at each call."""

    def __init__(self, scale: float) -> None:
        self.scale, self.rng = scale, np.random.default_rng(0)

    def __call__(self, x: Any) -> Any:
        return x + wg.from_numpy(self.scale * self.rng.standard_normal(tuple(x.shape)))


noise = Noise(1e-3)

WRONG = {
    "wrong formula": (planted(lambda x: x.sin(), lambda g, x: g * x.sin()), lambda: (leaf(3),), Verdict.FORMULA),
    "wrong formula, one element": (planted(lambda x: x.sin(), lambda g, x: g * x), lambda: (at(0.7),), Verdict.FORMULA),
    "missing term": (
        planted(lambda x: x * x.sin(), lambda g, x: g * x.sin()),
        lambda: (leaf(4),),
        Verdict.FORMULA,
    ),
    "missing factor": (planted(lambda x: x**2, lambda g, x: g * x), lambda: (leaf(3),), Verdict.FACTOR),
    "missing factor, one element": (planted(lambda x: x**2, lambda g, x: g * x), lambda: (at(0.7),), Verdict.FACTOR),
    "mean without division": (
        planted(lambda x: x.mean(), lambda g, x: g * wg.ones_like(x)),
        lambda: (leaf(7),),
        Verdict.FACTOR,
    ),
    "wrong sign": (planted(lambda x: x.cos(), lambda g, x: g * x.sin()), lambda: (leaf(3),), Verdict.SIGN),
    "wrong sign of one input": (
        planted(lambda a, b: a - b, lambda g, a, b: (g, g)),
        lambda: (leaf(3), leaf(3, seed=1)),
        Verdict.SIGN,
    ),
    "swapped": (
        planted(lambda a, b: a * b, lambda g, a, b: (g * a, g * b)),
        lambda: (leaf(3), leaf(3, seed=1)),
        Verdict.SWAPPED,
    ),
    "same gradient for both": (
        planted(lambda a, b: a * b, lambda g, a, b: (g * b, g * b)),
        lambda: (leaf(3), leaf(3, seed=1)),
        Verdict.SWAPPED,
    ),
    "transposed": (
        planted(lambda a, b: a @ b, lambda g, a, b: ((g @ b.transpose(0, 1)).transpose(0, 1), a.transpose(0, 1) @ g)),
        lambda: (leaf(3, 3), leaf(3, 3, seed=1)),
        Verdict.TRANSPOSED,
    ),
    "set, not added": (planted(lambda x: x[wg.tensor(INDEX)], set_not_added), lambda: (leaf(3),), Verdict.ACCUMULATION),
    "set, not added, one output": (
        planted(lambda x: x[wg.tensor(INDEX)].sum(), set_not_added),
        lambda: (leaf(4),),
        Verdict.ACCUMULATION,
    ),
    "first row instead of the sum": (
        planted(lambda x: x.expand(2, 3) * 3.0, lambda g, x: g[0] * 3.0),
        lambda: (leaf(3),),
        Verdict.ACCUMULATION,
    ),
    "detached": (lambda x: x + x.detach() ** 2 - x, lambda: (leaf(3),), Verdict.MISSING),
    "detached altogether": (lambda x: x.detach() ** 2, lambda: (leaf(3),), Verdict.MISSING),
    "returns None": (
        planted(lambda a, b: a * b, lambda g, a, b: (g * b, None)),
        lambda: (leaf(3), leaf(3, seed=1)),
        Verdict.MISSING,
    ),
    "reaches some elements": (
        planted(lambda x: x * 2, lambda g, x: g * wg.tensor([2.0, 0.0, 2.0], dtype=wg.float64)),
        lambda: (leaf(3),),
        Verdict.MISSING,
    ),
    "ignores the incoming gradient": (planted(lambda x: x**2, lambda g, x: 2 * x), lambda: (leaf(3),), Verdict.IGNORED),
    "ignores the incoming gradient, one output": (
        planted(lambda x: (x**2).sum(), lambda g, x: 2 * x),
        lambda: (leaf(3),),
        Verdict.IGNORED,
    ),
    "gradient NaN": (
        lambda x: wg.where(x > 0, x, x.detach() * 0 + (x * 0).sqrt() + x),
        lambda: (at(0.5, 0.7),),
        Verdict.NOT_FINITE,
    ),
    "value infinite": (lambda x: 1 / x, lambda: (at(0.5, 0.0),), Verdict.NOT_FINITE),
    "overflow": (lambda x: x.exp(), lambda: (at(0.5, 800.0),), Verdict.NOT_FINITE),
    "value NaN": (lambda x: x.log(), lambda: (at(0.5, -0.7),), Verdict.NOT_FINITE),
    "kink": (lambda x: x.relu(), lambda: (at(0.5, 0.0),), Verdict.KINK),
    "kink nearby": (lambda x: x.abs(), lambda: (at(0.5, 3e-7),), Verdict.KINK),
    "tie": (lambda x: x.max(0).values, lambda: (at(1.0, 1.0),), Verdict.KINK),
    "jump": (lambda x: x.floor() + x, lambda: (at(0.5, 1.0),), Verdict.KINK),
    "infinite slope": (lambda x: x.abs().sqrt(), lambda: (at(0.0),), Verdict.KINK),
    "end of the domain": (lambda x: x.sqrt(), lambda: (at(0.5, 0.0),), Verdict.KINK),
    "computed in float32": (lambda x: x.float().exp().double(), lambda: (leaf(3),), Verdict.PRECISION),
    "small change of a large value": (lambda x: x.sin() + 1e9, lambda: (leaf(3),), Verdict.PRECISION),
    "random value": (lambda x: noise(x).sin(), lambda: (leaf(3),), Verdict.NONDETERMINISTIC),
    "random gradient": (
        planted(lambda x: x * 2, lambda g, x: noise(g * 2)),
        lambda: (leaf(3),),
        Verdict.NONDETERMINISTIC,
    ),
    "conjugate missing": (
        planted(lambda z: z * z, lambda g, z: g * 2 * z),
        lambda: (leaf(3, dtype=C),),
        Verdict.CONJUGATED,
    ),
    "complex factor": (
        planted(lambda z: z * z, lambda g, z: g * (2 * z).conj() * 3j),
        lambda: (leaf(3, dtype=C),),
        Verdict.FACTOR,
    ),
}


@pytest.mark.parametrize("fast", [False, True], ids=["slow", "fast"])
@pytest.mark.parametrize(("func", "inputs", "verdict"), WRONG.values(), ids=WRONG.keys())
def test_planted_mistakes_are_named(func: Any, inputs: Any, verdict: Verdict, fast: bool) -> None:
    report = failure(func, inputs(), fast_mode=fast)
    assert report.verdict is verdict, f"{report}"
    assert str(verdict) in str(report)


@pytest.mark.parametrize("dtype", [np.float32, np.complex64, np.float16], ids=str)
def test_low_precision_is_warned_about_and_named(dtype: Any) -> None:
    x = leaf(3, dtype=dtype)
    with pytest.warns(UserWarning, match="double precision"):
        report = failure(lambda x: x * x * 3 + 100, (x,))
    assert report.verdict is Verdict.PRECISION, f"{report}"
    with pytest.warns(UserWarning, match="double precision"):
        assert gradcheck(lambda x: x * x * 3 + 100, (x,), eps=1e-1, atol=1.0)
    assert gradcheck(lambda x: x * x * 3 + 100, (x,), double=True)


@pytest.mark.filterwarnings("ignore:.*double precision")
def test_bfloat16_is_named() -> None:
    x = leaf(3).detach().to(wg.bfloat16).requires_grad_()
    report = failure(lambda x: x * x * 3, (x,))
    assert report.verdict is Verdict.PRECISION, f"{report}"
    assert failure(planted(lambda x: x * x, lambda g, x: -2 * g * x), (x,)).verdict is Verdict.SIGN


@pytest.mark.filterwarnings("ignore:.*double precision")
@pytest.mark.parametrize(
    ("backward", "verdict"),
    [
        (lambda g, x: -2 * g * x, Verdict.SIGN),
        (lambda g, x: g * x, Verdict.FACTOR),
        (lambda g, x: 2 * g * x.sin().cos(), Verdict.FORMULA),
    ],
    ids=["sign", "factor", "formula"],
)
def test_mistakes_are_named_in_float32_too(backward: Any, verdict: Verdict) -> None:
    report = failure(planted(lambda x: x * x, backward), (leaf(4, dtype=np.float32, low=0.5, high=2.0),))
    assert report.verdict is verdict, f"{report}"


def test_eps_too_large_is_named() -> None:
    report = failure(lambda x: (20 * x).sin(), (at(0.3),), eps=1e-2)
    assert report.verdict is Verdict.STEP
    assert report.limit == pytest.approx(20 * np.cos(6.0), rel=1e-5)


# ---- second derivatives


def test_a_wrong_second_derivative_is_found_and_located() -> None:
    cube = planted(lambda x: x**3, lambda g, x: g * 3 * x * x.detach())
    x = leaf(3)
    assert gradcheck(cube, (x,))
    report = failure(cube, (x,), check=gradgradcheck)
    assert (report.verdict, report.factor) == (Verdict.FACTOR, pytest.approx(0.5))
    assert (report.input_name, report.output_name) == ("input 0", "gradient of input 0")
    assert str(report).startswith("gradcheck (reverse over reverse mode) failed: wrong by a constant factor\n")


def test_a_detached_second_derivative_is_found() -> None:
    def backward(g: Any, x: Any) -> Any:
        return g * 2 * x.detach()

    assert gradcheck(planted(lambda x: x * x, backward), (leaf(3),))
    assert failure(planted(lambda x: x * x, backward), (leaf(3),), check=gradgradcheck).verdict is Verdict.MISSING


def test_the_derivative_by_the_incoming_gradient_is_checked() -> None:
    def backward(g: Any, x: Any) -> Any:
        return g.detach() * x.cos() + (g - g.detach()) * 2 * x.cos()

    report = failure(planted(lambda x: x.sin(), backward), (leaf(3),), check=gradgradcheck)
    assert (report.verdict, report.input_name) == (Verdict.FACTOR, "grad_output 0")


def test_gradients_are_named_by_the_input_they_belong_to() -> None:
    square = planted(lambda x: x**3, lambda g, x: g * 3 * x * x.detach())
    report = failure(lambda unused, n, x: square(x), (leaf(2, seed=1), 5, leaf(3)), check=gradgradcheck)
    assert report.output_name == "gradient of input 2"
    assert (report.input, report.input_name) == (2, "input 2")


# ---- outputs left undefined


def two_outputs(backward: Callable[..., Any]) -> Any:
    """``x -> (2 x, 3 x)`` that sees missing incoming gradients as None."""

    class Two(wg.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.set_materialize_grads(False)
            return x * 2, x * 3

        @staticmethod
        def backward(ctx: Any, g: Any, h: Any) -> Any:
            return backward(g, h)

    return Two.apply


def or_zero(gradient: Any, factor: float) -> Any:
    return 0.0 if gradient is None else gradient * factor


def test_undefined_gradients_handled_as_zeros_pass() -> None:
    assert gradcheck(two_outputs(lambda g, h: or_zero(g, 2.0) + or_zero(h, 3.0)), (leaf(3),))


@pytest.mark.parametrize(
    "backward",
    [lambda g, h: g * 2 + h * 3, lambda g, h: None if h is None else or_zero(g, 2.0) + h * 3],
    ids=["raises", "loses"],
)
@pytest.mark.parametrize("fast", [False, True], ids=["slow", "fast"])
def test_undefined_gradients_mishandled_are_named(backward: Any, fast: bool) -> None:
    report = failure(two_outputs(backward), (leaf(3),), fast_mode=fast)
    assert (report.verdict, report.output) == (Verdict.UNDEFINED, 0)


# ---- what is reported


def test_the_report_names_place_and_values() -> None:
    def backward(g: Any, x: Any) -> Any:
        return g * x.cos() * wg.tensor([[1.0, 1.0, 1.0], [1.0, 1.0, 4.0]], dtype=wg.float64)

    func = planted(lambda x: x.sin(), backward)
    x = leaf(2, 3)
    report = failure(lambda n, x: (x.detach(), x * n, func(x)), (2, x))
    slope = np.cos(x.detach().numpy()[1, 2])
    assert (report.input, report.input_index, report.output, report.output_index) == (1, (1, 2), 2, (1, 2))
    assert report.numerical == pytest.approx(slope, rel=1e-6)
    assert report.analytical == pytest.approx(4 * slope, rel=1e-12)
    assert report.allowed == pytest.approx(1e-5 + 1e-3 * abs(slope), rel=1e-6)
    assert report.blocks == (("output 2", "input 1", 1, 36),)
    assert report.limit == pytest.approx(slope, rel=1e-6)
    assert {q.eps for q in report.sweep} >= {1e-3, 1e-6, 1e-9}
    for word in ("output 2[1, 2]", "input 1[1, 2]", "numerical", "analytical", "1 of 36", "eps sweep"):
        assert word in str(report)


def test_the_worst_element_is_reported() -> None:
    scale = wg.tensor([1.0, 1.5, 9.0, 2.0], dtype=wg.float64)
    report = failure(planted(lambda x: x * 1, lambda g, x: g * scale), (leaf(4),))
    assert (report.input_index, report.output_index, report.analytical) == ((2,), (2,), 9.0)


def test_complex_places_name_the_part() -> None:
    func = planted(lambda z: z * (1 + 2j), lambda g, z: g * wg.tensor([1 - 2j, 1 - 2j, 5 - 2j], dtype=wg.complex128))
    report = failure(func, (leaf(3, dtype=C),))
    assert (report.input_index, report.output_index) == ((2,), (2,))
    assert report.component in ("real", "imaginary")
    assert isinstance(report.numerical, complex)


@pytest.mark.parametrize(
    ("factor", "name"),
    [
        (0.5, "0.5 = 1/2"),
        (3.0, "3"),
        (-2.0, "-2"),
        (2 / 3, "0.666667 = 2/3"),
        (1 / 1000, "0.001 = 1/1000"),
        (np.pi, "3.14159 = pi"),
        (-1 / np.log(2), "-1.4427 = -1/(ln 2)"),
        (0.1234567, "0.123457"),
        (2j, "0+2j"),
    ],
)
def test_factors_are_named(factor: complex, name: str) -> None:
    assert factor_name(factor) == name


def test_a_factor_that_depends_on_the_point_is_no_constant() -> None:
    func = planted(lambda x: x**3, lambda g, x: g * 3 * x**2 * x.exp())
    assert failure(func, (at(0.5, 0.5, 0.5),)).verdict is Verdict.FORMULA


def test_one_of_two_uses_is_offered_as_an_alternative() -> None:
    report = failure(planted(lambda x: x * x, lambda g, x: g * x), (leaf(3),))
    assert [f.verdict for f in report.alternatives] == [Verdict.ACCUMULATION]
    assert "one of 2 uses" in str(report)


def test_the_error_survives_pickling() -> None:
    with pytest.raises(GradcheckError) as caught:
        gradcheck(lambda x: x.detach() * 2, (leaf(3),))
    again = pickle.loads(pickle.dumps(caught.value))
    assert again.report == caught.value.report
    assert str(again) == str(caught.value)


def test_nondeterminism_within_nondet_tol_passes() -> None:
    faint = Noise(1e-9)
    shaky = planted(lambda x: x * 2, lambda g, x: faint(g * 2))
    assert failure(shaky, (leaf(3),)).verdict is Verdict.NONDETERMINISTIC
    assert gradcheck(shaky, (leaf(3),), nondet_tol=1e-7)


# ---- fast mode


def test_fast_mode_runs_the_function_a_few_times() -> None:
    calls = []

    def func(x: Any) -> Any:
        calls.append(1)
        return x.sin()

    assert gradcheck(func, (leaf(100),), fast_mode=True)
    assert len(calls) < 10
    calls.clear()
    assert gradcheck(func, (leaf(100),))
    assert len(calls) >= 200


# ---- what is refused


def sharing() -> Any:
    whole = leaf(4)
    return whole, whole.detach()[1:3]


IDENTITY = planted(lambda x: x * 1, lambda g, x: g)
ALONE = {"check_batched_grad": True, "check_backward_ad": False, "check_forward_ad": True}

REFUSED = {
    "nothing requires grad": (lambda: gradcheck(IDENTITY, (leaf(3).detach(),)), ValueError, "requires grad"),
    "no tensor": (lambda: gradcheck(IDENTITY, (wg.tensor([1, 2]), 3.0)), ValueError, "requires grad"),
    "shared memory": (lambda: gradcheck(lambda a, b: a[1:3] * b, sharing()), ValueError, "inputs 0 and 1 share memory"),
    "returns a number": (lambda: gradcheck(lambda x: 1.0, (leaf(3),)), TypeError, "returned: float"),
    "returns nothing": (lambda: gradcheck(lambda x: (), (leaf(3),)), TypeError, "returned: nothing"),
    "no check": (lambda: gradcheck(IDENTITY, (leaf(3),), check_backward_ad=False), ValueError, "must be True"),
    "batched alone": (lambda: gradcheck(IDENTITY, (leaf(3),), **ALONE), ValueError, "needs check_backward_ad"),
    "batched forward alone": (
        lambda: gradcheck(IDENTITY, (leaf(3),), check_batched_forward_grad=True),
        ValueError,
        "needs check_forward_ad",
    ),
    "no second check": (
        lambda: gradgradcheck(IDENTITY, (leaf(3),), check_rev_over_rev=False),
        ValueError,
        "must be True",
    ),
    "no output requires grad": (
        lambda: gradgradcheck(lambda x: x.detach(), (leaf(3),)),
        ValueError,
        "output that requires grad",
    ),
    "no input is reached": (
        lambda: gradgradcheck(lambda x: leaf(3) * 2, (leaf(3),)),
        ValueError,
        "no output that depends",
    ),
    "shape changes": (
        lambda: gradcheck(lambda x: x[: 1 + int(x[0] > x[1])], (at(1.0, 1.0),)),
        ValueError,
        "keep its shape",
    ),
    "number of outputs changes": (
        lambda: gradcheck(lambda x: (x,) * (1 + int(x[0] > x[1])), (at(1.0, 1.0),)),
        ValueError,
        "returned 1 outputs, but 2",
    ),
}


@pytest.mark.parametrize(("call", "kind", "text"), REFUSED.values(), ids=REFUSED.keys())
def test_bad_requests_are_refused(call: Callable[[], Any], kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text):
        call()


def test_errors_of_the_function_itself_pass_through() -> None:
    def broken(x: Any) -> Any:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        gradcheck(broken, (leaf(3),), raise_exception=False)


def test_inputs_are_put_back_when_the_function_raises() -> None:
    x = at(1.0, 2.0)

    def picky(x: Any) -> Any:
        if float(x.detach()[1]) > 2:
            raise ArithmeticError("too large")
        return x * 2

    with pytest.raises(ArithmeticError):
        gradcheck(picky, (x,))
    np.testing.assert_array_equal(x.detach().numpy(), [1.0, 2.0])


# ---- the numerical helpers


def test_jacobians_agree_with_the_formula() -> None:
    x = leaf(4)
    probe = Probe(lambda x: (x.sin(), (x * x).sum()), (x,))
    values = x.detach().numpy()
    for blocks, tolerance in ((numerical_jacobian(probe), 1e-8), (analytical_jacobian(probe), 1e-14)):
        np.testing.assert_allclose(blocks[0][0], np.diag(np.cos(values)), atol=tolerance)
        np.testing.assert_allclose(blocks[1][0], 2 * values[None], atol=tolerance)


def test_complex_jacobians_follow_the_convention() -> None:
    z = leaf(3, dtype=C)
    probe = Probe(lambda z: (z * z).conj(), (z,))
    slope = 2 * z.detach().numpy()  # w = conj(f), f' = slope: dRe w/dx = Re f', dRe w/dy = -Im f'
    expected = np.zeros((6, 3), C)
    expected[[0, 2, 4], range(3)] = slope.conj()
    expected[[1, 3, 5], range(3)] = -1j * slope.conj()
    for blocks, tolerance in ((numerical_jacobian(probe), 1e-8), (analytical_jacobian(probe), 1e-14)):
        np.testing.assert_allclose(blocks[0][0], expected, atol=tolerance)
