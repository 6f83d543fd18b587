"""Optimised graphs mean what the graphs they were made from mean, bit by bit."""

import itertools

import numpy as np
import pytest

import wengert as wg
from tests.passes.captured import captured, outcome, same
from tests.passes.random_programs import inputs, program
from wengert.core.registry import operators
from wengert.errors import MissingRuleError, TransformError
from wengert.graph.refusals import NeedsValues
from wengert.testing.samples import ErrorSample, samples_of, tensors_in

SPECIAL = [0.0, -0.0, 1.0, -1.0, np.nan, np.inf, -np.inf, 1e-40, 3e38]


@pytest.mark.parametrize("seed", range(60))
def test_random_programs(seed):
    with np.errstate(all="ignore"):
        graph, arrays = captured(program(seed, 15 + seed % 30), *inputs(seed))
        same(graph, arrays)


NAMES = [name for name, op in operators().items() if op.function is not None]


@pytest.mark.parametrize("part", range(8))
def test_operators_and_their_gradients(part):
    """The first sample of each operator, with the gradient where it has one."""
    done = 0
    for name in NAMES[part::8]:
        op = operators()[name]
        sample = next((s for s in samples_of(op) if not isinstance(s, ErrorSample)), None)
        if sample is None:
            continue
        args, options = sample.arguments(wg.tensor)
        wanted = [t for t in tensors_in([*args, *options.values()]) if t.is_floating_point() or t.is_complex()]
        for tensor in wanted if op.rules is not None or op.composite else ():
            tensor.requires_grad_()

        def run(args, options, op=op, wanted=wanted):
            found = op.function(*args, **options)
            results = [f for f in (found if isinstance(found, tuple | list) else [found]) if isinstance(f, wg.Tensor)]
            ends = [r for r in results if r.requires_grad]
            if not ends:
                return results
            seeds = [e.detach() * 2 + 1 for e in ends]
            return results, [g for g in wg.autograd.grad(ends, wanted, seeds, allow_unused=True) if g is not None]

        try:
            graph, arrays = captured(run, args, options)
        except (MissingRuleError, NeedsValues, TransformError):
            continue
        same(graph, arrays)
        done += 1
    assert done > 40


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * 1, lambda x: 1.0 * x, lambda x: x + 0.0, lambda x: x + -0.0, lambda x: -0.0 + x, lambda x: x - 0.0,
        lambda x: x - -0.0, lambda x: 0.0 + x, lambda x: x / 1, lambda x: x**1, lambda x: x.neg().neg(), lambda x: x.clone(),
        lambda x: x + 0, lambda x: x - 0, lambda x: x * True, lambda x: wg.add(x, 0, alpha=2), lambda x: x.conj(),
        lambda x: x.expand(x.shape), lambda x: x.double().float(), lambda x: x.half().float(), lambda x: x.bool().float(),
        lambda x: x.int().float(), lambda x: x.double().half(), lambda x: x.bfloat16().double().bfloat16(),
        lambda x: x.bool().int().bool(), lambda x: wg.full_like(x, 2).fill_(3), lambda x: x.masked_fill(x > 0, 7),
        lambda x: x.relu().relu(), lambda x: x.sum_to_size(x.shape), lambda x: x.permute(0).permute(0),
    ],
)  # fmt: skip
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16", "int64", "uint8", "bool"])
def test_special_numbers(function, dtype):
    with np.errstate(all="ignore"):
        array = (
            np.nan_to_num(np.array(SPECIAL), nan=3, posinf=5, neginf=0).clip(0, 100) if dtype[0] in "iub" else SPECIAL
        )
        x = wg.tensor(np.asarray(array)).type(getattr(wg, dtype))
        try:
            eager = function(x)
        except (RuntimeError, TypeError):
            pytest.skip("not of this dtype")
        graph, arrays = captured(function, x)
        found = same(graph, arrays)
        for value in outcome(found, arrays):  # none for what returns its argument
            assert value.dtype == eager._payload.dtype


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), ()])
def test_empty_and_single_tensors(shape):
    x = wg.zeros(*shape)
    graph, arrays = captured(lambda x: ((x + 1).exp().sum(), (x * 2).relu() - x, x.clone().double() * 0), x)
    same(graph, arrays)


def test_draws_stay_in_order():
    """The first draw waits for more than the second does; both come from one generator."""

    def function(x):
        late = wg.bernoulli(((x @ x.t()).sigmoid().sum(0) / 10).clamp(0, 1))
        return late, wg.rand(3), nn_dropout(x)

    def nn_dropout(x):
        return wg.nn.functional.dropout(x, 0.5)

    graph, arrays = captured(function, wg.ones(4, 3))
    same(graph, arrays)


def test_outputs_that_become_one_value_stay_apart():
    graph, arrays = captured(lambda x: (x.exp(), x.exp(), x.exp().clone()), wg.ones(3))
    found = same(graph, arrays)
    assert len(set(found.outputs)) == 3
    results = outcome(found, arrays)
    assert not any(np.may_share_memory(a, b) for a, b in itertools.pairwise(results))


def test_outputs_that_become_constants_have_memory_of_their_own():
    graph, arrays = captured(lambda x: (wg.zeros_like(x).fill_(2), x.clone().zero_()), wg.ones(3))
    found = same(graph, arrays)
    for value in outcome(found, arrays):
        value[...] = 5
    assert [v.tolist() for v in outcome(found, arrays)] == [[2.0] * 3, [0.0] * 3]


def test_writes_keep_their_targets():
    def swap(a, b):
        kept = a.clone()
        a.copy_(b)
        b.copy_(kept)
        b.add_(a)

    graph, arrays = captured(swap, wg.ones(3), wg.zeros(3))
    found = same(graph, arrays)
    assert [t for t, _ in found.writes] == graph.inputs
