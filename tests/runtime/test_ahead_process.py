"""A process that ends while kernels are being made in the background."""

import os
import subprocess
import sys

PROGRAM = """
import wengert.runtime.ahead  # before LLVM
import wengert as wg

def function(k):
    return lambda x: (x * (k + 0.5)).sin().tanh() + x.exp() * k

wg.compile(function(20))(wg.ones(10))  # LLVM is there from here on
for k in range(20):
    wg.compile(function(k), background=True)(wg.ones(10))
raise SystemExit(3)
"""


def test_the_end_does_not_wait_for_ever(tmp_path) -> None:
    environment = os.environ | {"WENGERT_CACHE_DIR": str(tmp_path), "WENGERT_NATIVE": "auto"}
    assert subprocess.run([sys.executable, "-c", PROGRAM], env=environment, timeout=60, check=False).returncode == 3
