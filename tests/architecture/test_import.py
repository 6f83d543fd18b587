"""``import wengert`` brings NumPy and the standard library, nothing else."""

import json
import subprocess
import sys

PROBE = """
import json, sys
import numpy
before = {name.partition(".")[0] for name in sys.modules}
import wengert
after = {name.partition(".")[0] for name in sys.modules}
print(json.dumps(sorted(after - before - sys.stdlib_module_names - {"wengert"})))
"""


def test_import_brings_only_numpy_and_the_standard_library() -> None:
    run = subprocess.run([sys.executable, "-W", "error", "-c", PROBE], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout) == []
