"""Hold an operator to PyTorch: every sample of its declaration, run by both, must agree in value, dtype and gradient."""

import dataclasses
import warnings
from typing import Any

import numpy as np
import torch

from wengert.array.dtype import DType
from wengert.array.layout import memory_format
from wengert.core.operator import Op
from wengert.core.registry import operators
from wengert.core.tensor import Tensor, from_array
from wengert.operators.linear_cross_entropy import LinearCrossEntropyOptions
from wengert.tape.api import grad
from wengert.testing.samples import ErrorSample, Sample, samples_of, tensors_in


def _corner(src: Any, index: Any) -> Any:
    return src[tuple(slice(n) for n in index.shape)]


def _powers(count: int, increasing: bool) -> Any:
    powers = torch.arange(count)
    return powers if increasing else powers.flip(0)


# Operators whose public place in PyTorch does not follow from their name, or that it does not have (None).
ELSEWHERE: dict[str, Any] = {
    "cast": lambda input, dtype: input.to(dtype),
    "clone": torch.clone,
    "expand": torch.Tensor.expand,
    "sum_to_size": torch.Tensor.sum_to_size,
    "view_write": None,
    # torch.dropout and its kin are another signature of what nn.functional offers.
    "dropout": torch.nn.functional.dropout,
    "alpha_dropout": torch.nn.functional.alpha_dropout,
    "feature_alpha_dropout": torch.nn.functional.feature_alpha_dropout,
    "feature_dropout": lambda x, p=0.5, training=True: torch.feature_dropout(x, p, training),
    # PyTorch's own backward refuses a src larger than index, and vander at all; its as_strided_scatter has a wrong one.
    "scatter_add": lambda x, dim, index, src: torch.scatter_add(x, dim, index, _corner(src, index)),
    "scatter_reduce": lambda x, dim, index, src, *args, **kwargs: torch.scatter_reduce(
        x, dim, index, _corner(src, index), *args, **kwargs
    ),
    "vander": lambda x, N=None, *, increasing=False: x[:, None] ** _powers(len(x) if N is None else N, increasing),
    "as_strided_scatter": None,
}


def torch_function(op: Op) -> Any:
    """Return PyTorch's function for an operator, or None if PyTorch has none."""
    if op.name in ELSEWHERE:
        return ELSEWHERE[op.name]
    for home in op.home:
        space: Any = torch
        for part in home.split(".") if home else ():
            space = getattr(space, part)
        name = op.name.removeprefix(home + "_") if home in ("linalg", "fft", "special") else op.name
        if hasattr(space, name):
            return getattr(space, name)
    return getattr(torch.Tensor, op.name, None)


def to_torch(value: Any) -> Any:
    """Return arguments with wengert's tensors and dtypes as PyTorch's."""
    if isinstance(value, Tensor):
        array = value.detach().numpy()
        if array.dtype.kind == "V":
            return torch.from_numpy(array.astype(np.float32)).to(torch.bfloat16)
        return torch.from_numpy(np.array(array)).requires_grad_(value.requires_grad)
    if isinstance(value, DType):
        return getattr(torch, value.name)
    if isinstance(value, str) and hasattr(torch, value) and isinstance(getattr(torch, value), torch.dtype):
        return getattr(torch, value)
    if isinstance(value, memory_format):
        return getattr(torch, value.name)
    if isinstance(value, LinearCrossEntropyOptions):
        return torch.nn.LinearCrossEntropyOptions(**dataclasses.asdict(value))
    if isinstance(value, list | tuple):
        return type(value)(to_torch(v) for v in value)
    return value


def _leaves(value: Any, cls: type) -> list[Any]:
    if isinstance(value, cls):
        return [value]
    return [leaf for v in value for leaf in _leaves(v, cls)] if isinstance(value, list | tuple) else []


def _numpy(tensor: Any) -> Any:
    tensor = tensor.detach().resolve_conj().resolve_neg()
    return tensor.float().numpy() if tensor.dtype is torch.bfloat16 else tensor.numpy()


def compare_sample(op: Op, function: Any, sample: Sample, rtol: float = 1e-6, atol: float = 1e-8) -> None:
    """Run one sample on both and compare values, dtypes and gradients.

    Raises:
        AssertionError: naming what differs.
    """

    def leaf(array: Any) -> Any:
        out = from_array(array)
        return out.requires_grad_() if array.dtype.kind in "fc" else out

    args, kwargs = sample.arguments(leaf)
    theirs_args, theirs_kwargs = to_torch(args), {k: to_torch(v) for k, v in kwargs.items()}
    ours = _leaves(op.function(*args, **kwargs), Tensor)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # PyTorch's notes on deprecated and unfinished functions
        theirs = _leaves(function(*theirs_args, **theirs_kwargs), torch.Tensor)
    where = f"{op.name}{sample!r}"
    assert len(ours) == len(theirs), f"{where}: {len(ours)} results, PyTorch gives {len(theirs)}"
    for got, want in zip(ours, theirs, strict=True):
        assert got.dtype.name == str(want.dtype).removeprefix("torch."), (
            f"{where}: dtype {got.dtype}, PyTorch {want.dtype}"
        )
        np.testing.assert_allclose(np.asarray(got._payload, None), _numpy(want), rtol=rtol, atol=atol, err_msg=where)
        assert got.requires_grad == want.requires_grad, (
            f"{where}: requires_grad {got.requires_grad}, PyTorch {want.requires_grad}"
        )
    pairs = [(g, w) for g, w in zip(ours, theirs, strict=True) if w.requires_grad]
    if not pairs:
        return
    inputs = [t for t in tensors_in([*args, *kwargs.values()]) if t.requires_grad]
    theirs_inputs = [t for t in _leaves([theirs_args, list(theirs_kwargs.values())], torch.Tensor) if t.requires_grad]
    rng = np.random.default_rng(0)
    cotangents = [np.asarray(rng.standard_normal(g.shape)).astype(g._payload.dtype) for g, _ in pairs]
    got_grads = grad([g for g, _ in pairs], inputs, [from_array(c) for c in cotangents], materialize_grads=True)
    want_grads = torch.autograd.grad([w for _, w in pairs], theirs_inputs, [torch.from_numpy(np.array(c)) for c in cotangents],
                                     materialize_grads=True)  # fmt: skip
    for got, want in zip(got_grads, want_grads, strict=True):
        np.testing.assert_allclose(got._payload, _numpy(want), rtol=rtol, atol=atol, err_msg=f"gradient of {where}")


def compare(op: Op | str, rtol: float = 1e-6, atol: float = 1e-8) -> list[str]:
    """Compare every sample of an operator with PyTorch; return what differs."""
    declared = operators()[op] if isinstance(op, str) else op
    function = torch_function(declared)
    if function is None:
        return []
    found = []
    for sample in samples_of(declared):
        if isinstance(sample, ErrorSample):
            continue
        try:
            compare_sample(declared, function, sample, rtol, atol)
        except Exception as error:
            found.append(f"{declared.name}{sample!r}: {type(error).__name__}: {error}")
    return found
