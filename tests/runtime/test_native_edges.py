"""What once went wrong on the way to native code: numbers at the ends of their dtypes, one channel, a fork while loading."""

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert.core.native import OFF
from wengert.runtime.launch import number_bits
from wengert.testing.opcheck_native import natively

F = wg.nn.functional
FORK = """
import importlib, os, signal, threading, types
import wengert as wg
from wengert.core import native as door

begun, gone = threading.Event(), threading.Event()
def slowly(name):
    begun.set()
    gone.wait()
    return importlib.import_module(name)
door.importlib = types.SimpleNamespace(import_module=slowly)
thread = threading.Thread(target=door.load)
thread.start()
begun.wait()
child = os.fork()
if not child:
    signal.alarm(30)
    os._exit(0 if (wg.ones(20_000) * 2).sum().item() == 40_000 and wg.backends.native.mode == "off" else 1)
status = os.waitpid(child, 0)[1]
gone.set()
thread.join()
assert status == 0, status
assert (wg.ones(20_000) * 2).sum().item() == 40_000 and wg.backends.native.mode == "wait"
"""


def ramp(*shape: int) -> Any:
    """Return different numbers around zero."""
    return wg.linspace(-3, 3, int(np.prod(shape)), dtype=wg.float64).reshape(*shape)


@pytest.mark.parametrize("number", [0.5, -2.75, 300, 1e300, float("nan"), float("-inf"), -0.0])
@pytest.mark.parametrize("dtype", [wg.float16, wg.bfloat16, wg.float32])
def test_a_number_beside_an_array_keeps_its_bits(dtype: Any, number: float) -> None:
    x = wg.arange(40).to(dtype)
    with np.errstate(all="ignore"):
        scalar = wg.from_numpy(np.asarray(number).astype(dtype.numpy))
    with natively(OFF):
        want = wg.where(x > 20, x, scalar)
    with natively():
        got = wg.where(x > 20, x, scalar)
    np.testing.assert_array_equal(got.view(wg.int16 if dtype.itemsize == 2 else wg.int32).numpy(),
                                  want.view(wg.int16 if dtype.itemsize == 2 else wg.int32).numpy())  # fmt: skip


def test_a_number_too_large_for_the_array_is_infinite_in_place() -> None:
    with natively():
        assert wg.ones(100).mul_(-1e300).eq(-float("inf")).all()


def test_large_unsigned_numbers() -> None:
    x = wg.from_numpy(np.arange(40, dtype=np.uint64))
    with natively():
        np.testing.assert_array_equal(
            (x + (2**64 - 50)).numpy(), np.arange(40, dtype=np.uint64) + np.uint64(2**64 - 50)
        )


@pytest.mark.parametrize(("number", "dtype", "bits"), [
    (1.0, "f16", 0x3C00), (1.0, "bf16", 0x3F80), (-2.0, "f16", 0xC000 - 0x10000), (1e300, "f32", 0x7F800000),
    (10**39, "f32", 0x7F800000), (2**63, "u64", -(2**63)), (-1, "i64", -1), (True, "bool", 1), (200, "u8", 200),
])  # fmt: skip
def test_bits_of_numbers(number: Any, dtype: str, bits: int) -> None:
    assert number_bits(number, dtype) == bits


def test_constants_that_are_zeros_of_both_signs() -> None:
    x = wg.ones(100)
    with natively():
        for value in (0.0, -0.0, 0.0):
            found = F.threshold(x, 2.0, value).numpy()
            assert (np.signbit(found) == np.signbit(value)).all()


NORMS: dict[str, Any] = {
    "layer": lambda x, w, b: F.layer_norm(x.reshape(-1, 1), (1,), w, b, eps=0.1),
    "layers": lambda x, w, b: F.layer_norm(x.reshape(-1, 5, 1), (1,), w, b, eps=0.1),
    "group": lambda x, w, b: F.group_norm(x.reshape(-1, 1, 10), 1, w, b),
    "instance": lambda x, w, b: F.instance_norm(x.reshape(-1, 1, 5, 2), None, None, w, b),
    "batch": lambda x, w, b: F.batch_norm(x.reshape(-1, 1), None, None, w, b, training=True),
    "batch of lines": lambda x, w, b: F.batch_norm(x.reshape(-1, 1, 10), None, None, w, b, training=True),
    "batch of points": lambda x, w, b: F.batch_norm(x.reshape(-1, 1, 1), None, None, w, b, training=True),
}


@pytest.mark.parametrize("samples", [2, 37])
@pytest.mark.parametrize("name", NORMS)
def test_normalisation_of_one_channel(name: str, samples: int) -> None:
    def computed() -> list[Any]:
        x, w, b = ramp(samples * 10).requires_grad_(), (ramp(1) + 5).requires_grad_(), ramp(1).requires_grad_()
        out = NORMS[name](x, w, b)
        (out * wg.cos(7 * ramp(*out.shape))).sum().backward()
        return [t.detach().numpy() for t in (out, x.grad, w.grad, b.grad)]

    with natively(OFF):
        want = computed()
    with natively():
        got = computed()
    for g, w in zip(got, want, strict=True):
        np.testing.assert_allclose(g, w, rtol=1e-9, atol=1e-12)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_child_forked_while_the_runtime_is_loaded_does_not_wait_for_it() -> None:
    environment = {**os.environ, "WENGERT_NATIVE": "wait"}
    found = subprocess.run([sys.executable, "-c", FORK], env=environment, capture_output=True, text=True, timeout=120)
    assert (found.returncode, found.stderr) == (0, "")
