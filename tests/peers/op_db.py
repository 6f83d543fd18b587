"""How much of PyTorch there is: every entry of PyTorch's own database of operator samples, run by both.

Each entry (an ``OpInfo``) names one operator and makes its sample inputs. An entry agrees if the name exists in
wengert under the same path and every sample gives the same structure, shapes, dtypes, values and gradients.

    python -m tests.peers.op_db                  what is missing or differs, and the percentage
    python -m tests.peers.op_db cumsum masked.   only entries whose name is, or starts with, one of these, in full
    python -m tests.peers.op_db --dtype int64    other sample dtypes than float64 and complex128
"""

import argparse
import dataclasses
import importlib
import itertools
import sys
import traceback
import types
import warnings
from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import torch
from torch.testing._internal.common_methods_invocations import op_db

import wengert as wg
import wengert.array.layout
from tests.peers.differences_op_db import explanation
from wengert.core.tensor import Tensor, from_array
from wengert.operators.linear_cross_entropy import LinearCrossEntropyOptions

# Entries that a dense numeric framework on the CPU cannot mean: what their names start with, and why they are skipped.
SKIPPED = {
    "_": "private names",
    "torch.": "private names",
    "sparse.": "sparse layouts",
    "to_sparse": "sparse layouts",
    "jiterator_": "CUDA source code compiled at run time",
    "bmm/triton_optimized": "CUDA only",
    "slice/": "torch.ops.aten internals: no public name",
    "max_pool2d_with_indices_backward/": "torch.ops.aten internals: no public name",
    "native_dropout_backward/": "torch.ops.aten internals: no public name",
    "chalf/": "complex numbers of two half-precision floats",
}

# Entries whose results are random or uninitialised: only structure, shape, dtype and range are compared.
RANDOM = {
    "bernoulli", "cauchy", "empty", "empty_like", "empty_permuted", "empty_strided", "exponential", "geometric",
    "log_normal", "multinomial", "new_empty", "new_empty_strided", "nn.functional.alpha_dropout", "nn.functional.dropout",
    "nn.functional.dropout2d", "nn.functional.dropout3d", "nn.functional.feature_alpha_dropout/with_train",
    "nn.functional.fractional_max_pool2d", "nn.functional.fractional_max_pool3d",
    "nn.functional.multi_head_attention_forward", "nn.functional.rrelu", "normal", "pca_lowrank", "rand_like", "randint",
    "randint_like", "randn", "randn_like", "svd_lowrank", "uniform",
}  # fmt: skip
POSITIVE = {"bernoulli", "exponential", "geometric", "multinomial"}

DTYPES = (torch.float64, torch.complex128)
FALLBACKS = (torch.int64, torch.bool, torch.float32, torch.complex64)
SAMPLES, CONSIDERED = 8, 100


@dataclasses.dataclass
class Outcome:
    """What became of one entry.

    Attributes:
        status: "agrees", "missing", "differs" or "skipped". why: the reason for a skip. differences: what differs.
        explained: differences that are known and explained.
    """

    name: str
    status: str = "agrees"
    why: str = ""
    differences: list[str] = dataclasses.field(default_factory=list)
    explained: list[str] = dataclasses.field(default_factory=list)


def full_name(entry: Any) -> str:
    """Return the name of an entry with its variant: ``max/binary``."""
    return f"{entry.name}/{entry.variant_test_name}"


def reason_to_skip(entry: Any) -> str | None:
    """Return why an entry is skipped, or None."""
    return next((why for start, why in SKIPPED.items() if full_name(entry).startswith(start)), None)


def public(name: str) -> Any:
    """Return what wengert offers under a dotted name of PyTorch: a function, or else a method of its tensors."""
    *path, last = name.split(".")
    space: Any = wg
    for depth in range(len(path)):
        try:
            space = importlib.import_module(".".join(["wengert", *path[: depth + 1]]))
        except ModuleNotFoundError:
            return None
    for place, found in itertools.product((space, Tensor) if not path else (space,), (last, last + "_")):
        value = getattr(place, found, None)
        if value is not None and not isinstance(value, wg.dtype):  # Tensor.cdouble, not the dtype
            return value
    return None


@cache
def translated(function: Any) -> Any:
    """Return a Python function of PyTorch's test code that does the same with wengert in place of ``torch``."""
    if not isinstance(function, types.FunctionType) or not function.__module__.startswith("torch.testing"):
        return function
    code, scope = function.__code__, dict(function.__globals__)
    scope.update(torch=wg, wrapper_set_seed=lambda f, *args, **kwargs: f(*args, **kwargs))
    for name in names_in(code):
        if (
            name != "wrapper_set_seed"
            and isinstance(scope.get(name), types.FunctionType)
            and scope[name] is not function
        ):
            scope[name] = translated(scope[name])
    made = types.FunctionType(code, scope, function.__name__, function.__defaults__, function.__closure__)
    made.__kwdefaults__ = function.__kwdefaults__
    return made


def names_in(code: types.CodeType) -> set[str]:
    """Return the global names a function and the functions inside it use."""
    inner = [c for c in code.co_consts if isinstance(c, types.CodeType)]
    return set(code.co_names).union(*map(names_in, inner))


def ours(value: Any) -> Any:
    """Return an argument of PyTorch as one of wengert: tensors copied, dtypes and functions by name."""
    if isinstance(value, torch.Tensor):
        copied = with_memory(value)
        return copied.requires_grad_() if value.requires_grad else copied
    if isinstance(value, torch.dtype | torch.memory_format | torch.layout):
        name = str(value).removeprefix("torch.")
        return getattr(wg, name) if isinstance(value, torch.dtype) else getattr(wengert.array.layout, name)
    if isinstance(value, torch.device):
        return wg.device(str(value))
    if isinstance(value, torch.nn.LinearCrossEntropyOptions):
        return LinearCrossEntropyOptions(**dataclasses.asdict(value))
    if isinstance(value, torch.nn.Module):
        return getattr(wg.nn, type(value).__name__)()
    if isinstance(value, list | tuple):
        found = [ours(v) for v in value]
        return found if isinstance(value, list) else tuple(found)
    if isinstance(value, dict):
        return {k: ours(v) for k, v in value.items()}
    if callable(value) and getattr(value, "__module__", "") == "torch.nn.functional":
        return getattr(wg.nn.functional, value.__name__)
    return translated(value) if callable(value) else value


def with_memory(value: Any) -> Any:
    """Return a tensor of PyTorch as one of wengert, a view into a copy of the memory it is a view of."""
    if value.dtype is torch.bfloat16:
        return wg.tensor(array_of(value), dtype=wg.bfloat16)
    value = value.detach().resolve_conj().resolve_neg()
    memory = torch.empty(0, dtype=value.dtype).set_(value.untyped_storage())
    if value.numel() and memory.numel() > value.numel():
        whole = from_array(memory.numpy().copy())
        return wg.as_strided(whole, tuple(value.shape), value.stride(), value.storage_offset())
    return from_array(np.array(value.numpy(), order="K"))


def own_leaves(value: Any) -> Any:
    """Return a sample's tensor as a leaf of its own: some are views that no gradient reaches."""
    return value.detach().requires_grad_() if isinstance(value, torch.Tensor) and value.requires_grad else value


def leaves(value: Any) -> list[Any]:
    """Return the tensors and numbers of a nested result or argument list, in order."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return [leaf for v in value for leaf in leaves(v)]
    return [] if value is None else [value]


def array_of(value: Any) -> Any:
    """Return a result of either framework as a NumPy array; bfloat16 as float32."""
    if isinstance(value, torch.Tensor):
        value = value.detach().resolve_conj().resolve_neg()
        return value.float().numpy() if value.dtype is torch.bfloat16 else value.numpy(force=True)
    if isinstance(value, Tensor):
        array = value.detach().numpy()
        return array.astype(np.float32) if array.dtype.kind == "V" else array
    return np.asarray(value)


def dtype_name(value: Any) -> str:
    """Return the name of a tensor's dtype, or of a number's type."""
    return str(value.dtype).rpartition(".")[2] if isinstance(value, Tensor | torch.Tensor) else type(value).__name__


def require(condition: bool, kind: str, message: str) -> None:
    """Raise AssertionError that starts with the kind of difference."""
    if not condition:
        raise AssertionError(f"{kind}: {message}")


def compare_arrays(got: Any, want: Any, what: str, single: bool) -> None:
    """Require equal shapes and close elements."""
    require(got.shape == want.shape, "shape", f"{what} {got.shape}, PyTorch {want.shape}")
    rtol, atol = (2e-3, 2e-4) if single else (1e-6, 1e-8)
    if got.dtype.kind in "fc" or want.dtype.kind in "fc":
        same = np.allclose(got, want, rtol=rtol, atol=atol, equal_nan=True)
    else:
        same = np.array_equal(got, want)
    require(same, what, f"{got.ravel()[:6]}, PyTorch {want.ravel()[:6]}")


def compare_results(got: list[Any], want: list[Any], random: bool, name: str) -> None:
    """Require the same number of results, shapes, dtypes and values (of random ones the range)."""
    require(len(got) == len(want), "results", f"{len(got)}, PyTorch {len(want)}")
    for g, w in zip(got, want, strict=True):
        require(dtype_name(g) == dtype_name(w), "dtype", f"{dtype_name(g)}, PyTorch {dtype_name(w)}")
        if random:
            require(
                array_of(g).shape == array_of(w).shape, "shape", f"{array_of(g).shape}, PyTorch {array_of(w).shape}"
            )
            if name in POSITIVE and array_of(w).size and array_of(w).dtype.kind == "f":
                require(array_of(g).min() >= 0, "range", f"{array_of(g).min()} where PyTorch is not negative")
        else:
            compare_arrays(
                array_of(g), array_of(w), "value", dtype_name(w) in ("float32", "complex64", "float16", "bfloat16")
            )


def wrapper_of(entry: Any) -> Any:
    """Return what PyTorch's checks call an entry through; those that hide what a mask leaves undefined are left out."""
    found = entry.gradcheck_wrapper
    return (lambda f, *args, **kwargs: f(*args, **kwargs)) if "masked" in found.__name__ else found


def run_theirs(entry: Any, sample: Any) -> tuple[list[Any], list[Any], list[Any] | None]:
    """Return PyTorch's results, the cotangents for them and its gradients (None: it has none)."""
    tensors = [t for t in leaves([sample.input, sample.args, sample.kwargs]) if isinstance(t, torch.Tensor)]
    inputs = [t for t in tensors if t.requires_grad]
    raw = wrapper_of(entry)(entry.op, sample.input, *sample.args, **sample.kwargs)
    results = leaves(sample.output_process_fn_grad(raw))
    smooth = [r for r in results if isinstance(r, torch.Tensor) and r.requires_grad]
    if not smooth or not inputs:
        return results, [], None
    rng = np.random.default_rng(0)
    draws = [torch.from_numpy(np.asarray(rng.standard_normal(r.shape))).to(r.dtype) for r in smooth]
    try:
        found = torch.autograd.grad(smooth, inputs, draws, materialize_grads=True)
    except (RuntimeError, NotImplementedError):  # it has no derivative, or one that fails
        return results, [], None
    return results, draws, list(found)


def compare_sample(entry: Any, sample: Any) -> None:
    """Run one sample on both.

    Raises:
        AssertionError: naming the kind of difference first.
    """
    arguments = ours([sample.input, sample.args, sample.kwargs])
    function = entry.op if translated(entry.op) is not entry.op else public(entry.name)
    random = bool({entry.name, full_name(entry)} & RANDOM) or sample.kwargs.get("dropout_p", 0) > 0
    want, draws, want_grads = run_theirs(entry, sample)
    wrapper, process = translated(wrapper_of(entry)), translated(sample.output_process_fn_grad)
    got = leaves(process(wrapper(translated(function), arguments[0], *arguments[1], **arguments[2])))
    compare_results(got, want, random, entry.name)
    if want_grads is None:
        return
    smooth = [g for g, w in zip(got, want, strict=True) if isinstance(w, torch.Tensor) and w.requires_grad]
    require(all(g.requires_grad for g in smooth), "gradient", "a result does not require one")
    inputs = [t for t in leaves(arguments) if isinstance(t, Tensor) and t.requires_grad]
    got_grads = wg.autograd.grad(smooth, inputs, [ours(d) for d in draws], materialize_grads=True)
    for g, w in zip(got_grads, want_grads, strict=True):
        if random:
            require(g.shape == tuple(w.shape), "gradient", f"of shape {g.shape}, PyTorch {w.shape}")
        else:
            compare_arrays(array_of(g), array_of(w), "gradient", dtype_name(w) in ("float32", "complex64"))


def samples_of(entry: Any, dtype: Any, count: int) -> list[Any]:
    """Return ``count`` samples, evenly spread over those the entry makes."""
    smooth = entry.supports_autograd and (dtype.is_floating_point or dtype.is_complex)
    torch.manual_seed(0)
    found = list(itertools.islice(entry.sample_inputs("cpu", dtype, requires_grad=smooth), CONSIDERED))
    step = max(1.0, len(found) / count)
    return [found[int(i * step)].transform(own_leaves) for i in range(min(count, len(found)))]


def dtypes_of(entry: Any, wanted: tuple[Any, ...]) -> list[Any]:
    """Return the dtypes to try: the wanted ones it supports, else the first supported of a few others."""
    supported = [d for d in wanted if d in entry.dtypes]
    return supported or [d for d in FALLBACKS if d in entry.dtypes][:1]


def check(entry: Any, dtypes: tuple[Any, ...] = DTYPES, count: int = SAMPLES) -> Outcome:
    """Run the samples of an entry on both frameworks."""
    name = full_name(entry).removesuffix("/")
    why = reason_to_skip(entry)
    if why is not None:
        return Outcome(name, "skipped", why)
    if public(entry.name) is None:
        return Outcome(name, "missing")
    outcome = Outcome(name)
    for dtype in dtypes_of(entry, dtypes):
        for sample in samples_of(entry, dtype, count):
            try:
                compare_sample(entry, sample)
            except Exception as error:
                text = f"{error}" if isinstance(error, AssertionError) else f"error: {type(error).__name__}: {error}"
                found = f"{text.strip()} [{described(sample)}]"
                known = explanation(name, found) is not None
                (outcome.explained if known else outcome.differences).append(found)
    if outcome.differences:
        outcome.status = "differs"
    return outcome


def described(sample: Any) -> str:
    """Return a sample's arguments in short."""

    def show(value: Any) -> str:
        if isinstance(value, torch.Tensor):
            return f"{dtype_name(value)}{tuple(value.shape)}"
        if isinstance(value, list | tuple):
            return f"({', '.join(map(show, value))})"
        return repr(value)

    return ", ".join(
        [show(sample.input), *map(show, sample.args), *(f"{k}={show(v)}" for k, v in sample.kwargs.items())]
    )


def outcomes(
    names: list[str] | None = None, dtypes: tuple[Any, ...] = DTYPES, count: int = SAMPLES
) -> Iterator[Outcome]:
    """Yield the outcome of every entry, or of those whose name is, or starts with, one of ``names``."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for entry in op_db:
            if not names or any(entry.name == n or (n[-1] in "._/" and full_name(entry).startswith(n)) for n in names):
                with warnings.catch_warnings(), np.errstate(all="ignore"):
                    warnings.simplefilter("ignore")
                    yield check(entry, dtypes, count)
    finally:
        torch.set_num_threads(threads)


def share(found: list[Outcome]) -> float:
    """Return the percentage of the entries, without the skipped ones, that agree."""
    status = Counter(outcome.status for outcome in found)
    counted = len(found) - status["skipped"]
    return 100 * status["agrees"] / counted if counted else 100.0


def report(found: list[Outcome], full: bool = False) -> str:
    """Return what is skipped, missing and different, and the summary line."""
    lines = [f"skipped  {n:3} {why}" for why, n in Counter(o.why for o in found if o.status == "skipped").items()]
    lines += [f"missing  {o.name}" for o in found if o.status == "missing"]
    for o in found:
        if o.status == "differs":
            lines.append(
                f"differs  {o.name}: {len(o.differences)} times" + ("" if full else f", {shortened(o.differences[0])}")
            )
            lines += [f"    {difference}" for difference in o.differences if full]
    return "\n".join([*lines, summary(found)])


def shortened(text: str) -> str:
    """Return the first line of a difference, cut to a readable length."""
    first = " ".join(text.split())
    return first if len(first) <= 240 else first[:237] + "..."


def summary(found: list[Outcome]) -> str:
    """Return the line that counts."""
    status = Counter(outcome.status for outcome in found)
    known = sum(o.status == "agrees" and bool(o.explained) for o in found)
    return (
        f"op_db: {status['agrees']} of {len(found) - status['skipped']} entries agree with PyTorch ({share(found):.1f} %; "
        f"{known} of them but for explained differences), {status['differs']} differ, {status['missing']} are missing, "
        f"{status['skipped']} skipped"
    )


def main() -> int:
    """Print the outcome of the entries named on the command line, or of all."""
    parser = argparse.ArgumentParser(description="compare wengert with PyTorch's database of operator samples")
    parser.add_argument("names", nargs="*", help="entries, or what their names start with ('masked.')")
    parser.add_argument("--samples", type=int, default=SAMPLES, help="samples per entry and dtype")
    parser.add_argument("--dtype", action="append", help="sample dtypes instead of float64 and complex128")
    parser.add_argument("--traceback", action="store_true", help="stop at the first error and show where it comes from")
    options = parser.parse_args()
    dtypes = tuple(getattr(torch, name) for name in options.dtype) if options.dtype else DTYPES
    if options.traceback:
        return trace(options.names, dtypes, options.samples)
    print(report(list(outcomes(options.names, dtypes, options.samples)), full=bool(options.names)))
    return 0


def trace(names: list[str], dtypes: tuple[Any, ...], count: int) -> int:
    """Print the traceback of the first sample that fails."""
    for entry in op_db:
        if entry.name in names:
            for sample in (s for d in dtypes_of(entry, dtypes) for s in samples_of(entry, d, count)):
                try:
                    compare_sample(entry, sample)
                except Exception:
                    print(described(sample))
                    traceback.print_exc()
                    return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
