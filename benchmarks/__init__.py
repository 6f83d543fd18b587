"""wengert timed beside other frameworks: run ``make bench``, or ``python -m benchmarks --help``."""
