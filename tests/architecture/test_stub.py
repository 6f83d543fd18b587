"""The stub of tensor methods is what the registry attaches."""

import subprocess
import sys

from wengert.testing.stubs import PATH


def test_the_stub_is_fresh() -> None:
    # In a process of its own: other tests may have declared operators of theirs in this one.
    code = "import sys; from wengert.testing.stubs import stub; sys.stdout.write(stub())"
    written = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8", check=True).stdout
    assert PATH.read_text(encoding="utf-8") == written, "run: python -m wengert.testing.stubs"
