"""What is said when a checkpointed function does something else the second time."""

import re

import pytest

import wengert as wg
from wengert.utils.checkpoint import CheckpointError, checkpoint, set_checkpoint_debug_enabled


def leaf(*shape):
    return wg.ones(*shape, dtype=wg.float64, requires_grad=True)


def differing(first, second):
    """Return a function that is ``first`` when it is called for the first time, then ``second``."""
    functions = [first, second]

    def changeable(x):
        return (functions.pop(0) if len(functions) > 1 else functions[0])(x)

    return changeable


def message(first, second, **options):
    y = checkpoint(differing(first, second), leaf(3), **options)
    with pytest.raises(CheckpointError) as caught:
        y.sum().backward()
    return str(caught.value)


def several(x):
    for _ in range(6):
        x = x.sin()
    return x.exp().tanh()


def with_cos(x):
    for _ in range(6):
        x = x.sin()
    return x.cos().exp().tanh()


DIFFERENCES = {
    "another operator": (lambda x: x.sin().exp(), lambda x: x.cos().exp(), {},
                         "saved tensor 0 is float64 (3,) saved by sin() in the forward, float64 (3,) saved by cos() when"),
    "another shape": (lambda x: x.sin().exp(), lambda x: x[:2].sin().exp(), {},
                      "saved tensor 0 is float64 (3,) saved by sin() in the forward, float64 (2,) saved by sin() when"),
    "another dtype": (lambda x: x.sin().exp(), lambda x: x.float().sin().exp(), {},
                      "saved tensor 0 is float64 (3,) saved by sin() in the forward, float32 (3,) saved by sin() when"),
    "fewer": (lambda x: x.sin().exp(), lambda x: x.sin(), {}, "saved 2 tensors in the forward and 1 when computed again"),
    "none": (lambda x: x.sin().exp(), lambda x: x.detach().sin(), {}, "saved 2 tensors in the forward and 0 when"),
    "more": (lambda x: x.sin(), lambda x: x.sin().exp(), {"early_stop": False},
             "saved 1 tensors in the forward and 2 when computed again"),
    "fewer, unchecked": (lambda x: x.sin().exp(), lambda x: x.sin(), {"determinism_check": "none"},
                         "saved 2 tensors in the forward and 1 when computed again"),
}  # fmt: skip


@pytest.mark.parametrize(("first", "second", "options", "text"), DIFFERENCES.values(), ids=DIFFERENCES)
def test_a_difference_is_found_and_described(first, second, options, text):
    found = message(first, second, **options)
    assert text in found
    assert re.search(
        r"differing.<locals>.changeable, called at .*test_checkpoint_report.py:\d+ in message: y = checkpoint", found
    )
    assert "must be the same in backward" in found


def test_the_operators_are_aligned_and_the_first_difference_is_marked():
    lines = message(several, with_cos).splitlines()
    start = lines.index("  the first operator that differs is number 6 (- forward only, + computed again only):")
    rows = [
        re.sub(r" {2,}/.*test_checkpoint_report.py:\d+", "", line).split(" in ")[0] for line in lines[start + 1 : -1]
    ]
    assert rows == [
        "        … 3 more before, the same both times",
        "        sin          float64 (3,)",
        "        sin          float64 (3,)",
        "        sin          float64 (3,)",
        "    > + cos          float64 (3,)",
        "        exp          float64 (3,)",
    ]
    assert "return x.cos().exp().tanh()" in lines[start + 5]  # the user's line


def test_debug_shows_every_operator():
    def rows(text):
        return sum(line.lstrip(" >+-").startswith(("sin ", "cos ", "exp ", "tanh ")) for line in text.splitlines())

    def longer(x):
        for _ in range(20):
            x = x.sin()
        return x

    assert rows(message(several, with_cos)) == 5
    assert rows(message(several, with_cos, debug=True)) == 8
    short = message(with_cos, longer, early_stop=False)
    assert rows(short) == 3 + 8
    assert "more; checkpoint(…, debug=True) shows them all" in short
    with set_checkpoint_debug_enabled(True):
        assert rows(message(with_cos, longer, early_stop=False)) == 6 + 3 + 14
    with set_checkpoint_debug_enabled(False):
        assert rows(message(several, with_cos, debug=True)) == 5
    with set_checkpoint_debug_enabled(None):
        assert rows(message(several, with_cos, debug=True)) == 8
    assert rows(message(several, lambda x: x.sin(), determinism_check="none")) == 0
    assert rows(message(several, lambda x: x.sin(), determinism_check="none", debug=True)) == 3 + 7 - 2


def test_a_difference_outside_operators_is_told_apart():
    class Kept(wg.autograd.Function):
        @staticmethod
        def forward(ctx, x, count):
            ctx.save_for_backward(*[x] * count)
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            return g * len(ctx.saved_tensors), None

    found = message(lambda x: Kept.apply(x, 2), lambda x: Kept.apply(x, 1))
    assert "the operators it called are the same both times" in found
    assert "saved 2 tensors in the forward and 1" in found


def test_a_harmless_difference_is_none():
    """What saves nothing may differ: a table that is made the first time and kept."""
    table = []

    def function(x):
        if not table:
            table.append(wg.arange(3).double().cos() * 2)
        return (x * table[0]).exp()

    x = leaf(3)
    checkpoint(function, x).sum().backward()
    assert x.grad is not None


def test_unchecked_only_the_number_counts():
    x = leaf(3)
    y = checkpoint(differing(lambda x: x.sin().exp(), lambda x: x.cos().exp()), x, determinism_check="none")
    y.sum().backward()
