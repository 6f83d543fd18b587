"""What a failed gradient check tells: the place, both values, the difference quotients, and a verdict."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

__all__ = ["Finding", "GradcheckError", "GradcheckReport", "Quotient", "Verdict"]


class Verdict(StrEnum):
    """The likely cause of a failed gradient check."""

    FORMULA = "wrong formula"
    FACTOR = "wrong by a constant factor"
    SIGN = "wrong sign"
    SWAPPED = "swapped arguments"
    TRANSPOSED = "transposed"
    CONJUGATED = "wrong complex conjugate"
    ACCUMULATION = "assignment instead of accumulation"
    MISSING = "gradient missing"
    IGNORED = "incoming gradient ignored"
    NOT_FINITE = "not finite"
    KINK = "non-differentiable point"
    PRECISION = "precision too low"
    STEP = "eps too large"
    NONDETERMINISTIC = "not deterministic"
    UNDEFINED = "undefined gradients mishandled"
    DTYPE = "gradient of the wrong dtype or shape"
    BATCHED = "wrong under vmap"


ADVICE = {
    Verdict.BATCHED: "write forward and backward with operators on whole tensors; look for item() and in-place writes",
    Verdict.FORMULA: "derive the backward formula again; start with the element above",
    Verdict.FACTOR: "look for this factor in the backward formula",
    Verdict.SIGN: "flip the sign in the backward formula",
    Verdict.SWAPPED: "return the gradients in the order of the inputs",
    Verdict.TRANSPOSED: "transpose the gradient, or the factor it was multiplied with",
    Verdict.CONJUGATED: "multiply the incoming gradient with the conjugate of the holomorphic derivative",
    Verdict.ACCUMULATION: "add to the gradient of an element at each of its uses (+=, index_add, sum); do not set it",
    Verdict.MISSING: "look for detach(), no_grad(), item(), numpy() or a None returned by backward for this input",
    Verdict.IGNORED: "multiply the local derivative with the gradient that backward receives",
    Verdict.NOT_FINITE: "look for 0 * inf, inf - inf or 0 / 0 in the backward formula at these inputs",
    Verdict.KINK: "check at inputs farther than a few eps from kinks, jumps, ties and ends of the domain",
    Verdict.PRECISION: "use float64 inputs (or double=True) and compute in float64 throughout; or a larger eps",
    Verdict.STEP: "use a smaller eps",
    Verdict.NONDETERMINISTIC: "fix the seed inside the function, or allow the difference with nondet_tol",
    Verdict.UNDEFINED: "treat a missing incoming gradient (None) as zeros",
    Verdict.DTYPE: "return from backward a gradient with the dtype and shape of the input",
}


@dataclass(frozen=True)
class Quotient:
    """The difference quotients with one step: central, to the left and to the right."""

    eps: float
    central: float
    left: float
    right: float


@dataclass(frozen=True)
class Finding:
    """A structure found in a wrong Jacobian: the verdict, one sentence, and the factor where there is one."""

    verdict: Verdict
    text: str
    factor: complex | None = None


@dataclass(frozen=True)
class GradcheckReport:
    """What a failed check found; ``print(report)`` shows it.

    Attributes:
        verdict: the likely cause, with ``explanation`` in a sentence; ``alternatives``: other causes that fit as well.
        mode: which derivative was checked: "reverse mode", "forward mode", "reverse over reverse mode", ...
        input, output: places among the inputs and outputs of the function; ``input_name``, ``output_name`` say the same
            in words. None where the failure has no such place.
        input_index, output_index: the worst element.
        component: "real" or "imaginary", the part of a complex output; empty for a real one.
        numerical, analytical: both values there; ``allowed``: the largest accepted difference; ``eps``: the step of the
            differences (larger than the one asked for where rounding noise made that useless).
        factor: analytical / numerical, for the verdict "wrong by a constant factor".
        blocks: for each wrong (output, input): number of wrong entries, number of entries.
        sweep: difference quotients at this element for many steps; ``limit``: the value they approach, or None.
    """

    verdict: Verdict
    explanation: str
    alternatives: tuple[Finding, ...] = ()
    mode: str = "reverse mode"
    input: int | None = None
    output: int | None = None
    input_name: str = ""
    output_name: str = ""
    input_index: tuple[int, ...] = ()
    output_index: tuple[int, ...] = ()
    component: str = ""
    eps: float | None = None
    numerical: complex | None = None
    analytical: complex | None = None
    allowed: float | None = None
    factor: complex | None = None
    blocks: tuple[tuple[str, str, int, int], ...] = ()
    sweep: tuple[Quotient, ...] = field(default=(), repr=False)
    limit: float | None = None

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield f"gradcheck ({self.mode}) failed: {self.verdict}"
        yield f"  cause       {self.explanation}"
        for other in self.alternatives:
            yield f"  or          {other.verdict}: {other.text}"
        yield f"  try         {ADVICE[self.verdict]}"
        if self.output is not None:
            part = f" ({self.component} part)" if self.component else ""
            by = f" with respect to {self.input_name}{_subscript(self.input_index)}" if self.input is not None else ""
            yield f"  where       {self.output_name}{_subscript(self.output_index)}{part}{by}"
        if self.numerical is not None and self.analytical is not None:
            yield f"  numerical   {self.numerical:.10g}" + ("" if self.eps is None else f"  (eps {self.eps:.1g})")
            yield f"  analytical  {self.analytical:.10g}"
        if self.allowed is not None and self.numerical is not None and self.analytical is not None:
            yield f"  difference  {abs(self.analytical - self.numerical):.3g}, allowed {self.allowed:.3g}"
        for output, input_, wrong, total in self.blocks:
            yield f"  wrong       {wrong} of {total} entries of d({output})/d({input_})"
        if self.sweep:
            yield "  eps sweep   " + ("no limit" if self.limit is None else f"approaches {self.limit:.10g}")
            yield f"    {'eps':>8} {'central':>18} {'left':>18} {'right':>18}"
            for q in self.sweep:
                yield f"    {q.eps:>8.0e} {q.central:>18.10g} {q.left:>18.10g} {q.right:>18.10g}"


class GradcheckError(RuntimeError):
    """Raised by :func:`gradcheck` and :func:`gradgradcheck`; ``error.report`` is a :class:`GradcheckReport`."""

    def __init__(self, report: GradcheckReport) -> None:
        super().__init__(report)
        self.report = report


def _subscript(index: tuple[int, ...]) -> str:
    return f"[{', '.join(map(str, index))}]" if index else ""
