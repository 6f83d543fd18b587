"""Why a gradient check failed: an inference from outside, from three kinds of evidence.

The Jacobians themselves (is one the negative, a multiple, a part of the other?), the function along one line through
the worst element (do the difference quotients converge, and where?), and a second point nearby (does the relation
persist?). A verdict is right for the mistakes it knows when they come alone; a mixture is called a wrong formula.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np

from wengert.transforms.differences import (
    Array,
    Blocks,
    Probe,
    analytical_jacobian,
    array_of,
    numerical_jacobian,
    widened,
)
from wengert.transforms.gradcheck_report import Finding, GradcheckReport, Quotient, Verdict

__all__ = ["Evidence", "Place", "Tolerance", "diagnose", "ignoring", "located", "structure"]

STEPS = frozenset((1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9))
NAMED_FACTORS = {
    "pi": math.pi,
    "2 pi": 2 * math.pi,
    "sqrt(2)": math.sqrt(2),
    "sqrt(pi)": math.sqrt(math.pi),
    "sqrt(2 pi)": math.sqrt(2 * math.pi),
    "ln 2": math.log(2),
    "ln 10": math.log(10),
    "e": math.e,
}


@dataclass(frozen=True)
class Tolerance:
    """The numbers of a check: the step, and when two values count as equal (``|a - n| <= atol + rtol |n|``)."""

    eps: float
    atol: float
    rtol: float
    nondet: float

    def close(self, analytical: Any, numerical: Any) -> Any:
        """Return, element by element, whether the two agree."""
        return np.isclose(analytical, numerical, rtol=self.rtol, atol=self.atol)


@dataclass(frozen=True)
class Place:
    """One entry of the Jacobians: ``blocks[output][input][row, column]``."""

    output: int
    input: int
    row: int
    column: int


@dataclass(frozen=True)
class Evidence:
    """The Jacobians measured with a tolerance, by output and then by input."""

    numerical: Blocks
    analytical: Blocks
    tol: Tolerance

    def pairs(self) -> Iterator[tuple[int, int, Array, Array]]:
        """Yield output, input, numerical and analytical block."""
        for k, rows in enumerate(zip(self.numerical, self.analytical, strict=True)):
            for p, (n, a) in enumerate(zip(*rows, strict=True)):
                yield k, p, n, a

    def agree(self) -> bool:
        """Return whether every entry is within the tolerance."""
        return all(self.tol.close(a, n).all() for _, _, n, a in self.pairs())

    def wrong(self, probe: Probe) -> tuple[tuple[str, str, int, int], ...]:
        """Return, for each block with wrong entries: both names, how many are wrong, how many there are."""
        counts = [(k, p, int((~self.tol.close(a, n)).sum()), n.size) for k, p, n, a in self.pairs()]
        return tuple(
            (probe.output_name(probe.kept[k]), probe.input_name(probe.wrt[p]), wrong, total)
            for k, p, wrong, total in counts
            if wrong
        )

    def worst(self) -> Place:
        """Return the entry that exceeds the tolerance most; what is not finite exceeds everything."""
        found, largest = Place(0, 0, 0, 0), -1.0
        for k, p, n, a in self.pairs():
            if not n.size:
                continue
            with np.errstate(invalid="ignore"):
                excess = np.abs(a - n) / (self.tol.atol + self.tol.rtol * np.abs(n) + np.finfo(float).tiny)
            excess = np.where(np.isfinite(a), excess, 1e300)
            excess = np.where(self.tol.close(a, n), 0.0, np.where(np.isfinite(n), excess, np.inf))
            row, column = np.unravel_index(np.argmax(excess), excess.shape)
            if excess[row, column] > largest:
                found, largest = Place(k, p, int(row), int(column)), excess[row, column]
        return found

    def at(self, place: Place) -> tuple[Any, Any]:
        """Return the numerical and the analytical value at a place."""
        n, a = (
            blocks[place.output][place.input][place.row, place.column] for blocks in (self.numerical, self.analytical)
        )
        return n.item(), a.item()

    def remeasured(self, probe: Probe, noise: float) -> "Evidence":
        """Measure again with the step and the tolerance that suit values with so much rounding noise.

        The error of a central difference, ``noise / eps + eps**2 * |f'''| / 6``, is least near ``eps = noise**(1/3)``.
        """
        eps = min(0.1, max(self.tol.eps, noise ** (1 / 3)))
        numerical = numerical_jacobian(probe, eps)
        slack = min(0.1, 100 * eps**2)
        largest = max((float(np.abs(b[np.isfinite(b)]).max(initial=0)) for row in numerical for b in row), default=0.0)
        tol = replace(self.tol, eps=eps, rtol=max(self.tol.rtol, slack), atol=max(self.tol.atol, slack * largest))
        return Evidence(numerical, self.analytical, tol)


def located(probe: Probe, place: Place) -> dict[str, Any]:
    """Return the fields of a report that say where ``place`` is."""
    i, k = probe.wrt[place.input], probe.kept[place.output]
    out = probe.outputs[place.output]
    element, part = divmod(place.row, 2) if out.is_complex() else (place.row, 0)
    return {
        "mode": probe.mode,
        "input": i,
        "output": k,
        "input_name": probe.input_name(i),
        "output_name": probe.output_name(k),
        "input_index": tuple(int(n) for n in np.unravel_index(place.column, probe.memory[i].shape)),
        "output_index": tuple(int(n) for n in np.unravel_index(element, tuple(out.shape))),
        "component": ("real", "imaginary")[part] if out.is_complex() else "",
    }


@np.errstate(all="ignore")  # a diagnosis looks outside the domain on purpose
def diagnose(probe: Probe, evidence: Evidence) -> GradcheckReport:
    """Explain why the Jacobians differ; ``probe`` must stand where they were taken."""
    line, findings = Line(probe, evidence), unsteady(probe, evidence.tol)
    noise = max(line.noise, coarseness(probe))
    tol = evidence.tol
    if not findings and noise / tol.eps > 0.1 * (tol.atol + tol.rtol * abs(line.numerical)):
        again = evidence.remeasured(probe, noise)
        if again.agree():
            findings = [imprecise(probe, line, again.tol.eps)]
        else:
            evidence, line = again, Line(probe, again)
    findings = findings or along(line, evidence.tol)
    if not findings and line.place.input in ignoring(probe, line.place.output, tol.nondet):
        findings = [Finding(Verdict.IGNORED, "backward returns a gradient even when the one it receives is zero")]
    findings = findings or confirmed(probe, evidence, line.place)
    first, *others = findings or [Finding(Verdict.FORMULA, "no simple relation to the numerical gradient was found")]
    limit, error = settled(line.sweep, line.noise)
    return GradcheckReport(
        verdict=first.verdict,
        explanation=first.text,
        alternatives=tuple(others),
        factor=first.factor,
        eps=evidence.tol.eps,
        numerical=line.numerical,
        analytical=line.analytical,
        allowed=evidence.tol.atol + evidence.tol.rtol * abs(line.numerical),
        blocks=evidence.wrong(probe),
        sweep=line.sweep,
        limit=limit if error <= 10 * (evidence.tol.atol + evidence.tol.rtol * abs(limit)) else None,
        **located(probe, line.place),
    )


def coarseness(probe: Probe) -> float:
    """Return the relative rounding error of the coarsest dtype that takes part, or 0 if all are double."""
    arrays = [*probe.memory.values(), *map(array_of, probe.outputs)]
    roundoff = max(float(np.spacing(np.ones((), array.dtype).real)) for array in arrays)
    return roundoff if roundoff > np.finfo(float).eps else 0.0


def imprecise(probe: Probe, line: "Line", eps: float) -> Finding:
    """Return the finding that a better step confirms the analytical gradient."""
    moved = line.noise / line.tol.eps
    text = (
        f"input {probe.memory[line.input].dtype}: values with rounding noise of about {line.noise:.1e} make the "
        f"quotient with eps {line.tol.eps:g} uncertain by {moved:.1e}; with eps {eps:.1g} it confirms the gradient"
    )
    return Finding(Verdict.PRECISION, text)


# ---- along one line


class Line:
    """One real component of one output while one element of one input moves in one direction.

    The line goes through the worst entry. For a complex input the direction is the one, 1 or 1j, in which the Jacobians
    differ more.
    """

    def __init__(self, probe: Probe, evidence: Evidence) -> None:
        self.probe, self.place, self.tol = probe, evidence.worst(), evidence.tol
        self.numerical, self.analytical = evidence.at(self.place)
        self.input = probe.wrt[self.place.input]
        self.index = np.unravel_index(self.place.column, probe.memory[self.input].shape)
        difference = self.analytical - self.numerical
        self.unit = 1j if abs(difference.imag) > abs(difference.real) else 1.0
        self.here = self.at(0.0)[1]
        self.noise = self.rounding_noise()
        self.sweep = tuple(self.quotient(eps) for eps in sorted(STEPS | {self.tol.eps}, reverse=True))

    def part(self, value: complex) -> float:
        """Return the part of an entry of the Jacobian that belongs to this direction."""
        return value.imag if self.unit == 1j else value.real

    def at(self, t: float) -> tuple[float, float]:
        """Return what rounding left of the displacement ``t``, and the value there; NaN where the function raises."""
        with self.probe.displaced(self.input, self.index, t * self.unit) as moved:
            try:
                value = float(self.probe.values()[self.place.output][self.place.row])
            except Exception:  # outside the domain; a diagnosis must not hide the failure it explains
                value = math.nan
        return float((moved / self.unit).real), value

    def quotient(self, eps: float) -> Quotient:
        """Return the difference quotients with step ``eps``; NaN where rounding lost the step."""
        (ahead, plus), (behind, minus) = self.at(eps), self.at(-eps)
        central = ratio(plus - minus, ahead - behind)
        return Quotient(eps, central, ratio(self.here - minus, -behind), ratio(plus - self.here, ahead))

    def rounding_noise(self) -> float:
        """Estimate the rounding error of one value: what its dtype makes likely, or more if more is seen.

        Sixth differences of a smooth function on a fine grid are nothing but noise (J. Moré and S. Wild, Estimating
        Computational Noise, SIAM J. Sci. Comput. 33, 2011). The grids begin a little off the point and the quieter side
        counts, so a kink or a pole at the point does not pass for noise.
        """
        sides = []
        for spacing in (max(self.tol.eps, 1e-4), -max(self.tol.eps, 1e-4)):
            sixth = np.diff([self.at(j * spacing)[1] for j in range(4, 13)], 6)
            sides.append(math.sqrt(float(np.mean(sixth**2)) / 924))  # 924 = 12! / (6!)^2, the variance noise gains
        likely = 0.3 * max(coarseness(self.probe), np.finfo(float).eps) * abs(self.here)
        return max([min((s for s in sides if math.isfinite(s)), default=0.0), likely if math.isfinite(likely) else 0.0])


def ratio(rise: float, run: float) -> float:
    """Divide, giving NaN for a run of zero."""
    return rise / run if run else math.nan


def settled(sweep: Sequence[Quotient], noise: float) -> tuple[float, float]:
    """Return the value at which the central quotients settle, and the error of that value."""
    best = (math.nan, math.inf)
    for coarse, fine in pairwise(sweep):
        error = abs(coarse.central - fine.central) + noise / fine.eps
        if error < best[1]:
            best = (fine.central, error)
    return best


def along(line: Line, tol: Tolerance) -> list[Finding]:
    """Judge by the function on the line: not finite, not smooth, or smooth but measured with too large a step."""
    if not math.isfinite(line.here):
        return [Finding(Verdict.NOT_FINITE, f"the function itself is {line.here} at this point")]
    outside = [side for side, t in (("below", -tol.eps), ("above", tol.eps)) if not math.isfinite(line.at(t)[1])]
    if outside:
        return [Finding(Verdict.KINK, f"the function has no finite value just {outside[0]} this point")]
    near, far = line.quotient(tol.eps), line.quotient(10 * tol.eps)
    gap, wider = abs(near.right - near.left), abs(far.right - far.left)
    allowed = tol.atol + tol.rtol * max(abs(near.left), abs(near.right))
    if gap > allowed + 10 * line.noise / tol.eps and gap > 0.3 * wider:  # a smooth function's gap shrinks like eps
        text = f"the slope is {near.left:.6g} to the left of this point and {near.right:.6g} to the right of it"
        return [Finding(Verdict.KINK, text)]
    analytical = line.part(line.analytical)
    if not math.isfinite(analytical):
        return [Finding(Verdict.NOT_FINITE, f"the analytical gradient is {analytical} where the function is smooth")]
    limit, error = settled(line.sweep, line.noise)
    if abs(limit - analytical) <= tol.atol + tol.rtol * abs(limit) + 2 * error:
        text = f"with eps {tol.eps:.1g} the quotient is {near.central:.6g}; it approaches {limit:.6g}"
        return [Finding(Verdict.PRECISION if coarseness(line.probe) else Verdict.STEP, text)]
    return []


def unsteady(probe: Probe, tol: Tolerance) -> list[Finding]:
    """Judge by repetition: does the function return the same values when nothing moves?"""
    first = probe.values()
    for _ in range(3):
        for k, (once, again) in enumerate(zip(first, probe.values(), strict=True)):
            if not once.size or np.array_equal(once, again, equal_nan=True):
                continue
            spread = float(np.nanmax(np.abs(once - again)))
            if spread > tol.nondet and spread / tol.eps > tol.atol:
                name = probe.output_name(probe.kept[k])
                text = f"the function was run twice on the same inputs and {name} differed by up to {spread:.3g}"
                return [Finding(Verdict.NONDETERMINISTIC, text)]
    return []


# ---- structure of a wrong Jacobian


def ignoring(probe: Probe, output: int, slack: float) -> list[int]:
    """Return the inputs that get a gradient beyond ``slack`` even if the incoming gradient of ``output`` is zero."""
    zero = np.zeros(probe.zeros()[output][0].shape[0])
    found = probe.pullback({output: zero})
    return [p for p, g in enumerate(found) if g is not None and np.any(np.abs(g[np.isfinite(g)]) > slack)]


def confirmed(probe: Probe, evidence: Evidence, place: Place) -> list[Finding]:
    """Return the structure of the wrong block, as far as it persists at a second point."""
    names = [probe.input_name(i) for i in probe.wrt]
    shape = probe.memory[probe.wrt[place.input]].shape
    findings = structure(evidence, place, names, shape)
    elsewhere = second_point(probe, evidence.tol) if findings else None
    if elsewhere is None:
        return findings
    again = {f.verdict: f.factor for f in structure(elsewhere, place, names, shape)}
    return [
        f
        for f in findings
        if f.verdict in again and (f.factor is None or abs(f.factor - (again[f.verdict] or 0)) <= 1e-2 * abs(f.factor))
    ]


def second_point(probe: Probe, tol: Tolerance) -> Evidence | None:
    """Return both Jacobians at a point some percent away, or None if they do not exist there."""
    rng = np.random.default_rng(0)
    with ExitStack() as stack:
        for i in probe.wrt:
            memory = widened(probe.memory[i])
            stack.enter_context(
                probe.displaced(i, ..., 0.05 * (np.abs(memory) + 0.1) * rng.uniform(-1, 1, memory.shape))
            )
        try:
            other = Probe(probe.func, probe.args)
            found = Evidence(numerical_jacobian(other, tol.eps), analytical_jacobian(other), tol)
        except Exception:  # no second point in the domain; a diagnosis must not hide the failure it explains
            return None
    finite = all(np.isfinite(block).all() for _, _, *blocks in found.pairs() for block in blocks)
    return found if finite and other.kept == probe.kept else None


def structure(evidence: Evidence, place: Place, names: Sequence[str], shape: tuple[int, ...]) -> list[Finding]:
    """Return what relates a wrong block to the right one, likeliest first; empty if nothing simple does.

    Args:
        place: an entry of the block. names: of the differentiated inputs. shape: of the input of the block.
    """
    numerical, analytical, tol = evidence.numerical, evidence.analytical, evidence.tol
    right, wrong = numerical[place.output][place.input], analytical[place.output][place.input]
    if tol.close(wrong, 0).all():
        return [Finding(Verdict.MISSING, "no gradient reaches this input, though the output depends on it")]
    exchanged, copied = swaps(numerical[place.output], analytical[place.output], place.input, tol, names)
    found = exchanged + list(multiples(right, wrong, tol))
    if np.iscomplexobj(right) and conjugated(right, wrong, tol):
        found.append(Finding(Verdict.CONJUGATED, "the analytical gradient is the conjugate of the numerical one"))
    found += copied
    if len(shape) >= 2 and shape[-1] == shape[-2]:
        turned = right.reshape(-1, *shape).swapaxes(-1, -2).reshape(right.shape)
        if tol.close(wrong, turned).all() and not tol.close(right, turned).all():
            found.append(
                Finding(Verdict.TRANSPOSED, "the gradient of this input has its last two dimensions exchanged")
            )
    return found + list(parts(right, wrong, tol))


def swaps(
    right: list[Array], wrong: list[Array], i: int, tol: Tolerance, names: Sequence[str]
) -> tuple[list[Finding], list[Finding]]:
    """Return the inputs whose gradient was exchanged with that of input ``i``, and those whose gradient it repeats."""
    exchanged, copied = [], []
    for j, name in enumerate(names):
        if (
            right[j].shape != right[i].shape
            or tol.close(right[i], right[j]).all()
            or not tol.close(wrong[i], right[j]).all()
        ):
            continue
        if tol.close(wrong[j], right[i]).all():
            exchanged.append(Finding(Verdict.SWAPPED, f"the gradients of {names[i]} and {name} are exchanged"))
        else:
            copied.append(Finding(Verdict.SWAPPED, f"the gradient of {names[i]} is that of {name}"))
    return exchanged, copied


def conjugated(right: Array, wrong: Array, tol: Tolerance) -> bool:
    """Whether a conjugate is missing: of the whole gradient, or of the factor that multiplies the incoming one."""
    whole = right.conj()
    factor = whole.copy()
    factor[1::2] *= -1  # the rows of imaginary parts come from an incoming gradient of 1j
    return bool(tol.close(wrong, whole).all() or tol.close(wrong, factor).all())


def multiples(right: Array, wrong: Array, tol: Tolerance) -> Iterator[Finding]:
    """Yield the constant by which the wrong block is the right one, if there is one."""
    square = np.vdot(right, right).real
    if not square:
        return
    factor = complex(np.vdot(right, wrong) / square)
    scale = max(abs(factor), 1e-300)
    if abs(factor - 1) < tol.rtol or not tol.close(wrong / scale, factor / scale * right).all():
        return
    if abs(factor + 1) < tol.rtol:
        yield Finding(Verdict.SIGN, "the analytical gradient is the negative of the numerical one", -1.0)
        return
    name = factor_name(factor)
    yield Finding(Verdict.FACTOR, f"the analytical gradient is {name} times the numerical one", simplified(factor))
    uses = (1 / factor).real
    if uses > 1.5 and abs(1 / factor - round(uses)) < 1e-3:
        yield Finding(
            Verdict.ACCUMULATION, f"it would also fit if only one of {round(uses)} uses of this input counted"
        )


def parts(right: Array, wrong: Array, tol: Tolerance) -> Iterator[Finding]:
    """Yield signs of a gradient that was set where it should have been added to.

    How often an element is used cannot be seen from outside. What can be seen: entries of an element are missing while
    others of the same element are right; or some elements are right and the others too small by whole factors.
    """
    good, empty = tol.close(wrong, right), tol.close(wrong, 0)
    missing = empty & ~good
    if missing.any() and (good | missing).all():
        kept = (good & ~empty).any(axis=0)
        text = "elements used several times get the gradient of one use only; the rest is missing"
        if kept[missing.any(axis=0)].all():
            yield Finding(Verdict.ACCUMULATION, text)
        elif not kept[missing.any(axis=0)].any():
            yield Finding(Verdict.MISSING, "no gradient reaches some elements of this input; the others are right")
        return
    with np.errstate(divide="ignore", invalid="ignore"):
        uses = np.where(good, 1.0, right / wrong)
    whole = np.isclose(uses, np.round(uses.real), rtol=1e-3, atol=0) & (uses.real > 0.5)
    if whole.all() and (good & ~empty).any():
        most = round(float(uses.real.max()))
        text = f"some elements are right, the others too small by whole factors up to {most}: one of their uses counts"
        yield Finding(Verdict.ACCUMULATION, text)


def simplified(factor: complex) -> complex:
    """Return a factor as a real number if its imaginary part is rounding."""
    return factor.real if abs(factor.imag) < 1e-6 * abs(factor) else factor


def factor_name(factor: complex) -> str:
    """Return a factor as text, with its closed form if it has a familiar one.

    Example:
        >>> factor_name(0.5), factor_name(3.0), factor_name(0.1234)
        ('0.5 = 1/2', '3', '0.1234')
    """
    if simplified(factor).imag:
        return f"{factor:.6g}"
    value = factor.real
    shown = f"{value:.6g}"
    close_to = Fraction(value).limit_denominator(16)
    one_over = Fraction(1, round(1 / value)) if abs(value) < 1 else close_to
    for fraction in (close_to, one_over):
        if abs(float(fraction) - value) < 1e-6 * abs(value):
            return shown if fraction.denominator == 1 else f"{shown} = {fraction}"
    for name, constant in NAMED_FACTORS.items():
        for text, exact in ((name, constant), (f"1/({name})", 1 / constant)):
            if abs(abs(value) - exact) < 1e-6 * exact:
                return f"{shown} = {'-' if value < 0 else ''}{text}"
    return shown
