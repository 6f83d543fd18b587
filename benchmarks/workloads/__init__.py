"""The workloads: one file each, named after the promise it measures, with a :data:`WORKLOAD`."""
