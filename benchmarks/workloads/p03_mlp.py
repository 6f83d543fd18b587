"""P3: training steps of larger perceptrons, compiled: matrix products with little beside them."""

from benchmarks.workload import Case, Workload
from benchmarks.workloads import p02_mlp

CASES = [
    Case("784-256-256-10, batch 64", must=0.9, aim=0.6, parameters={"sizes": (784, 256, 256, 10), "batch": 64}),
    Case("784-1024-1024-10, batch 256", must=1.0, aim=0.9, parameters={"sizes": (784, 1024, 1024, 10), "batch": 256}),
]

WORKLOAD = Workload("P3", "mlp", p02_mlp.TITLE, CASES, p02_mlp.data, steps=3, tolerance=0.02)
WORKLOAD.builders.update(p02_mlp.WORKLOAD.builders)
