"""Mutation testing: damage each rule of a declaration in turn, and see whether ``opcheck`` notices.

Every built-in operator has its vjp and jvp rules, batching rule, shape and dtype rule, kernel, view flag and in-place twin
damaged, one at a time; ``opcheck`` has to fail. What it does not notice is a gap of the checks or of the samples, unless
the damage changes nothing: a factor before a derivative that is zero, a missing conjugate of a real number.

    python -m wengert.testing.mutation [NAME ...]
"""

import argparse
import random
import sys
from collections import Counter
from dataclasses import dataclass, field

from wengert.core.registry import operators
from wengert.testing.case import Case
from wengert.testing.damage import Mutation, mutations
from wengert.testing.opcheck import CHECKS, checks_of, opcheck
from wengert.testing.samples import samples_of

__all__ = ["Report", "notices", "run"]

FIRST = {
    "vjp": ("vjp", "jvp", "second order", "vmap"), "jvp": ("jvp",), "batch": ("vmap",), "spec": ("spec",),
    "kernel": ("vjp", "vmap", "jvp", "inplace", "precisions"), "view": ("aliasing",), "inplace": ("inplace",),
}  # fmt: skip


def notices(mutation: Mutation) -> tuple[str | None, bool]:
    """Damage, check until something fails, and repair; return (the check that failed or None, whether that is a gap).

    It is none where the damaged rule was run and its results were what they would have been.
    """
    first = FIRST[mutation.kind]
    order = [*first, *(name for name in CHECKS if name not in first), "error"]
    with mutation.damage() as effect:
        cases = [(Case(mutation.op, s), checks_of(s)) for s in samples_of(mutation.op)]
        for name in order:
            for case, checks in cases:
                if name in checks:
                    try:
                        checks[name](case)
                    except Exception:
                        return name, True
        return None, effect.seen or not effect.ran


@dataclass
class Report:
    """What a run found.

    Attributes:
        caught: number of damages noticed, by kind. by_check: by the check that failed first.
        survivors: the damages that were not noticed. idle: those without any effect on a sample (not counted as damage).
        broken: operators that fail undamaged, which were left out.
    """

    caught: Counter[str] = field(default_factory=Counter)
    by_check: Counter[str] = field(default_factory=Counter)
    survivors: list[Mutation] = field(default_factory=list)
    idle: list[Mutation] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)

    @property
    def share(self) -> float:
        """The part of the damages that was noticed."""
        caught = self.caught.total()
        return caught / max(1, caught + len(self.survivors))

    def add(self, mutation: Mutation) -> None:
        """Try one damage."""
        check, gap = notices(mutation)
        if check is not None:
            self.caught[mutation.kind] += 1
            self.by_check[check] += 1
        else:
            (self.survivors if gap else self.idle).append(mutation)

    def __str__(self) -> str:
        lost = Counter(m.kind for m in self.survivors)
        lines = [f"{kind:8s} {self.caught[kind]:6d} of {self.caught[kind] + lost[kind]:6d}" for kind in FIRST]
        lines += [f"survived: {m}" for m in self.survivors]
        lines += [f"without effect: {m}" for m in self.idle]
        lines += [f"left out, it fails undamaged: {name}" for name in self.broken]
        caught, total = self.caught.total(), self.caught.total() + len(self.survivors)
        return "\n".join(
            [*lines, f"{caught} of {total} damages noticed ({self.share:.2%}), {len(self.idle)} without effect"]
        )


def run(names: list[str] | None = None, count: int | None = None, seed: int = 0, baseline: bool = True) -> Report:
    """Try the damages of some operators (all of them if None), or ``count`` damages chosen at random among these.

    Args:
        baseline: check each operator undamaged first, and leave it out if it fails.
    """
    known, report = operators(), Report()
    chosen = [known[n] for n in (known if names is None else names)]
    if baseline:
        report.broken = [op.name for op in chosen if not op.composite and opcheck(op, raise_exception=False)]
    tried = [m for op in chosen if op.name not in report.broken for m in mutations(op)]
    for mutation in tried if count is None else random.Random(seed).sample(tried, count):
        report.add(mutation)
    return report


def main() -> int:
    """Run for the operators named on the command line (all of them without a name); return 0 if 98 % are noticed."""
    parser = argparse.ArgumentParser(description="damage the rules of operators and see whether opcheck notices")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--count", type=int, help="only so many damages, chosen at random")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    report = run(options.names or None, options.count, options.seed)
    print(report)
    return 0 if report.share >= 0.98 else 1


if __name__ == "__main__":
    sys.exit(main())
