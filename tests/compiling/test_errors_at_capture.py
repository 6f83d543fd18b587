"""What a plain call refuses for its shapes, dtypes and options is refused when it is captured, in the same words.

Only what depends on the values of tensors waits until the program runs.
"""

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import wengert as wg
from tests.compiling.promised import outcome
from wengert import tree
from wengert.compiling.capturing import capture
from wengert.compiling.function import Compiled
from wengert.core.registry import operators
from wengert.errors import CaptureError
from wengert.testing.samples import ErrorSample, Sample, samples_of, tensors_in

NAMES = sorted(operators())
GROUPS = 8
# Messages about values of tensors: no program knows these before it runs.
OF_VALUES = (IndexError, wg.linalg.LinAlgError, ZeroDivisionError)
OF_VALUES_TOO = {
    "binary_loss": "must be probabilities", "histc": "to inf is not finite", "one_hot": "is out of range",
    "one_hot_rows": "is out of range", "phase_free": "depends on the phase",
}  # fmt: skip
# Arguments that are free text: names for messages.
TEXTS = {
    ("bounded_index", "name"), ("phase_free", "owner"), ("refuse_failures", "owner"), ("refuse_failures", "why"),
}  # fmt: skip

Make = Callable[[], tuple[list[Any], dict[str, Any]]]


def captured(name: str, make: Make) -> Exception | None:
    """Return what capturing a call raises, with its tensors as arguments; they hold afterwards what they held."""
    args, kwargs = make()
    function = operators()[name].function
    leaves, structure = tree.flatten((tuple(args), kwargs))
    before = [(t._payload, t._payload.copy(), t._version) for t in tensors_in(leaves)]
    error = outcome(lambda: capture(lambda *args, **kwargs: function(*args, **kwargs), leaves, structure))
    for t, (array, values, version) in zip(tensors_in(leaves), before, strict=True):
        assert (t._payload is array, t._version) == (True, version), "capturing it has written"
        np.testing.assert_array_equal(array, values)
    return error


def check(name: str, make: Make, what: str) -> bool:
    """Hold what capturing a call raises against what the plain call raises; return whether that raises anything."""

    def plain() -> None:
        args, kwargs = make()
        operators()[name].function(*args, **kwargs)

    wanted, found = outcome(plain), captured(name, make)
    late = isinstance(wanted, OF_VALUES) or (name in OF_VALUES_TOO and OF_VALUES_TOO[name] in str(wanted))
    if wanted is not None and not isinstance(found, CaptureError) and not (late and found is None):
        assert (type(found), str(found)) == (type(wanted), str(wanted)), what
    return wanted is not None


def drawn(sample: Sample) -> Make:
    return lambda: sample.arguments(lambda array: wg.from_numpy(array.copy()))


@pytest.mark.parametrize("group", range(GROUPS))
def test_error_samples_are_refused_at_capture(group: int) -> None:
    checked = 0
    for name in NAMES[group::GROUPS]:
        for sample in samples_of(operators()[name]):
            if isinstance(sample, ErrorSample):
                assert check(name, drawn(sample), f"{name}{sample!r}")
                checked += 1
    assert checked > 50


def options(name: str) -> list[str]:
    """Return the parameters of an operator that take words: by their annotations, defaults and samples."""
    op = operators()[name]
    parameters = inspect.signature(op.kernel).parameters
    found = {n for n, p in parameters.items() if isinstance(p.default, str) or "str" in str(p.annotation)}
    for sample in samples_of(op):
        given = {**dict(zip(parameters, sample.args, strict=False)), **sample.kwargs}
        found |= {n for n, v in given.items() if isinstance(v, str)}
    return sorted(n for n in found if (name, n) not in TEXTS and parameters[n].kind.name != "VAR_POSITIONAL")


def replaced(sample: Sample, name: str, option: str) -> Make:
    """Return what makes the arguments of a sample, with a word that means nothing for an option."""
    parameters = list(inspect.signature(operators()[name].kernel).parameters)

    def make() -> tuple[list[Any], dict[str, Any]]:
        args, kwargs = drawn(sample)()
        place = parameters.index(option)
        if place < len(args):
            return [*args[:place], "nonsense", *args[place + 1 :]], kwargs
        return args, {**kwargs, option: "nonsense"}

    return make


WITH_OPTIONS = [(name, option) for name in NAMES for option in options(name)]


@pytest.mark.parametrize(("name", "option"), WITH_OPTIONS)
def test_words_that_mean_nothing_are_refused_at_capture(name: str, option: str) -> None:
    refused = 0
    samples = [s for s in samples_of(operators()[name]) if not isinstance(s, ErrorSample)]
    for sample in samples:
        refused += check(name, replaced(sample, name, option), f"{name}{sample!r} with {option}='nonsense'")
    assert refused == len(samples) or (name, option) == ("stft", "pad_mode")  # which means nothing without center


def test_what_only_some_values_raise_is_no_error_of_capture() -> None:
    x, index = wg.ones(1, requires_grad=True), wg.zeros(1, dtype=wg.int64)  # where 1 is no index

    def function(x: Any, index: Any) -> Any:
        return wg.autograd.grad(x.scatter(0, index, x * 3).sum() + x.scatter(0, index, 2.0).sum(), x)[0]

    run = Compiled(function, fullgraph=True, backend="native")
    assert run(x, index).tolist() == function(x, index).tolist() == [3]


F = wg.nn.functional
x, image = wg.ones(2, 3), wg.ones(1, 2, 4, 4)
CALLS = {
    "avg_pool, divisor": lambda x, i: F.avg_pool2d(i, 2, divisor_override=0),
    "avg_pool, stride": lambda x, i: F.avg_pool2d(i, 2, stride=-1),
    "clone": lambda x, i: x.clone(memory_format=wg.channels_last),
    "conv, groups": lambda x, i: F.conv2d(i, i, groups=True),
    "conv, kernel": lambda x, i: F.conv2d(i, i[:, :, :0]),
    "fill": lambda x, i: wg.fill(x, wg.sum(x) * 1j),
    "fractional_max_pool": lambda x, i: F.fractional_max_pool2d(i, 0, 2),
    "grid_sample, batch": lambda x, i: F.grid_sample(i, wg.zeros(2, 1, 1, 2), align_corners=False),
    "histc": lambda x, i: wg.histc(x, 4, 0.0, float("nan")),
    "interpolate, dtype": lambda x, i: F.interpolate(i.long(), 3, mode="bilinear"),
    "interpolate, size": lambda x, i: F.interpolate(i, 0),
    "lu_solve": lambda x, i: wg.linalg.lu_solve(wg.eye(2), wg.ones(3, dtype=wg.int32), wg.ones(2, 1)),
    "max_pool, padding": lambda x, i: F.max_pool2d(i, 2, padding=2),
    "max_unpool": lambda x, i: F.max_unpool2d(i, i[0].long(), 2),
    "nan_to_num": lambda x, i: wg.nan_to_num(x, nan="zero"),
    "nll_loss": lambda x, i: F.nll_loss(x, wg.zeros(2).long(), ignore_index="none"),
    "one_hot": lambda x, i: F.one_hot(x.long(), -5),
    "pad": lambda x, i: F.pad(i, (9, 0), mode="reflect"),
    "searchsorted": lambda x, i: wg.searchsorted(wg.sum(x), x),
    "stft": lambda x, i: wg.stft(x, 100, window=wg.ones(100), return_complex=True),
    "var": lambda x, i: wg.var(x, correction="one"),
}


@pytest.mark.parametrize("name", CALLS)
def test_calls_that_make_no_sense_are_refused_at_capture(name: str) -> None:
    call, written = CALLS[name], wg.zeros(2)

    def function(x: Any, image: Any) -> Any:
        written.add_(1)
        return call(x, image)

    wanted = outcome(lambda: call(x, image))
    assert wanted is not None
    for run in (lambda: capture(function, *tree.flatten(((x, image), {}))), lambda: wg.trace(function)(x, image)):
        found = outcome(run)
        assert (type(found), str(found)) == (type(wanted), str(wanted))
        assert written.tolist() == [0, 0]
