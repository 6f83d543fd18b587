"""Integer reasoning about index expressions: sums of loop variables and sizes, and what their bounds imply.

An expression becomes a :class:`Linear`, a sum of integer multiples of atoms. An atom is a loop variable, a size, or an
operation that is not linear (a minimum, a quotient by a number, a gathered index …), of which facts are noted instead.
``Facts.implies`` decides by Fourier-Motzkin elimination whether a sum is at least 0 wherever the facts hold; sums of integers
are tightened to whole numbers (A. Williams, "Fourier's method of linear programming and its dual", 1986; W. Pugh, "The Omega
test", 1991, for which atoms are eliminated without loss). "No" means "not proven". Index arithmetic is taken not to overflow.
"""

from collections.abc import Hashable, Iterable, Sequence
from itertools import product
from math import gcd
from typing import Final, NamedTuple

from wengert.loops.scalar import DTYPES, Scalar, is_integer

__all__ = ["Facts", "Linear"]

_CASES, _SUMS = 64, 300  # cases that are looked at, and sums in one elimination, from which on a proof is given up
_OPPOSITE: Final = {"lt": "ge", "ge": "lt", "le": "gt", "gt": "le", "eq": "ne", "ne": "eq"}


class Linear:
    """``constant`` + Σ ``terms[atom]`` · atom; coefficients are not 0."""

    __slots__ = ("constant", "terms")

    def __init__(self, constant: int = 0, terms: dict[Hashable, int] | None = None) -> None:
        self.constant = constant
        self.terms = terms or {}

    def plus(self, other: "Linear", factor: int = 1) -> "Linear":
        """Return self + factor · other."""
        terms = dict(self.terms)
        for atom, c in other.terms.items():
            total = terms.get(atom, 0) + factor * c
            if total:
                terms[atom] = total
            else:
                terms.pop(atom, None)
        return Linear(self.constant + factor * other.constant, terms)

    def times(self, factor: int) -> "Linear":
        """Return factor · self."""
        return Linear().plus(self, factor)

    def minus(self, other: "Linear") -> "Linear":
        """Return self - other."""
        return self.plus(other, -1)

    def shifted(self, by: int) -> "Linear":
        """Return self + by."""
        return Linear(self.constant + by, self.terms)


Case = list[Linear]  # sums that are at least 0 together


class Choice(NamedTuple):
    """Cases of which one holds; ``atom``: what they say more about, if it is one atom."""

    cases: list[Case]
    atom: Hashable = None


class Facts:
    """What is known at a place of a kernel: sums that are at least 0, and choices of which one case holds."""

    def __init__(self) -> None:
        self.known: Case = []
        self.choices: list[Choice] = []
        self._linear: dict[Scalar, Linear] = {}

    def linear(self, x: Scalar) -> Linear:
        """Return an i64 expression as a sum, noting facts about the atoms in it."""
        found = self._linear.get(x)
        if found is None:
            found = self._linear[x] = self._sum(x)
        return found

    def _sum(self, x: Scalar) -> Linear:
        if x.op == "const":
            return Linear(int(x.data))
        if x.op in ("add", "sub"):
            return self.linear(x.args[0]).plus(self.linear(x.args[1]), 1 if x.op == "add" else -1)
        if x.op == "neg":
            return self.linear(x.args[0]).times(-1)
        if x.op == "mul":
            a, b = map(self.linear, x.args)
            if not a.terms or not b.terms:
                return b.times(a.constant) if not a.terms else a.times(b.constant)
        atom = Linear(0, {x: 1})
        self._describe(x, atom)
        return atom

    def _describe(self, x: Scalar, atom: Linear) -> None:
        """Note what is known of an expression that is not a sum."""
        if x.op == "size":
            self.known.append(atom)
        elif x.op in ("minimum", "maximum"):
            sign = 1 if x.op == "minimum" else -1
            gaps = [self.linear(a).minus(atom).times(sign) for a in x.args]
            self.known += gaps
            self.choices.append(Choice([[gap.times(-1)] for gap in gaps], x))
        elif x.op in ("quotient", "remainder"):
            self._division(x, atom)
        elif x.op == "mul":
            if all(self.implies(self.linear(a)) for a in x.args):
                self.known.append(atom)
        elif x.op == "select":
            branches = []
            for holds, value in ((True, x.args[1]), (False, x.args[2])):
                gap = self.linear(value).minus(atom)
                branches += [[*case, gap, gap.times(-1)] for case in self._cases(x.args[0], holds)]
            self.choices.append(Choice(branches, x))
        elif x.op == "abs":
            a = self.linear(x.args[0])
            self.known += [atom, atom.minus(a), atom.plus(a)]
        elif x.op == "and":
            self._mask(x, atom)
        elif x.op == "cast" and (is_integer(x.args[0].dtype) or x.args[0].dtype == "bool"):
            self._range(x.args[0].dtype, atom)
            if x.args[0].op == "and":
                self._mask(x.args[0], atom)

    def _division(self, x: Scalar, atom: Linear) -> None:
        a, d = map(self.linear, x.args)
        if x.op == "quotient" and not d.terms and d.constant > 0:
            rest = a.plus(atom, -d.constant)
            self.known += [rest, Linear(d.constant - 1).minus(rest)]
        elif x.op == "remainder":
            positive = [d.shifted(-1), atom, d.minus(atom).shifted(-1)]
            if not d.terms and d.constant > 0:
                self.known += positive
            else:
                self.choices.append(Choice([positive, [d.times(-1)]], x))

    def _mask(self, x: Scalar, atom: Linear) -> None:
        """Note that ``x & 7`` is from 0 to 7."""
        for a in x.args:
            if a.op == "const" and a.data >= 0:
                self.known += [atom, Linear(int(a.data)).minus(atom)]

    def _range(self, dtype: str, atom: Linear) -> None:
        bits = DTYPES[dtype] if dtype != "bool" else 1
        if bits < 64:
            low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if dtype[0] == "i" else (0, (1 << bits) - 1)
            self.known += [atom.shifted(-low), Linear(high).minus(atom)]

    def assume(self, condition: Scalar, holds: bool = True) -> None:
        """Note that a condition holds (or does not)."""
        cases = self._cases(condition, holds)
        if len(cases) == 1:
            self.known += cases[0]
        else:
            self.choices.append(Choice(cases))

    def _cases(self, x: Scalar, holds: bool) -> list[Case]:
        """Return the cases of which one is true where a condition holds (or does not)."""
        if x.op == "not":
            return self._cases(x.args[0], not holds)
        if x.op in ("and", "or"):
            parts = [self._cases(a, holds) for a in x.args]
            if (x.op == "and") == holds:
                return [[*a, *b] for a, b in product(*parts)]
            return [*parts[0], *parts[1]]
        if x.op not in _OPPOSITE or x.args[0].dtype != "i64":
            return [[]]
        a, b = map(self.linear, x.args)
        gap = b.minus(a)
        op = x.op if holds else _OPPOSITE[x.op]
        below, above = gap.shifted(-1), gap.times(-1).shifted(-1)
        return {
            "lt": [[below]], "le": [[gap]], "gt": [[above]], "ge": [[gap.times(-1)]],
            "eq": [[gap, gap.times(-1)]], "ne": [[below], [above]],
        }[op]  # fmt: skip

    def implies(self, goal: Linear) -> bool:
        """Whether a sum is proven to be at least 0."""
        if not goal.terms:
            return goal.constant >= 0 or self.contradictory()
        return self._is_known(goal) or self._refutes([goal.times(-1).shifted(-1)])

    def excludes(self, sums: Sequence[Linear]) -> bool:
        """Whether sums are proven never to be 0 all at once."""
        open_ = [s for s in sums if s.terms]
        if any(s.constant for s in sums if not s.terms):
            return True
        if any(self._is_known(s.shifted(-1)) or self._is_known(s.times(-1).shifted(-1)) for s in open_):
            return True
        zero = [each for s in open_ for each in (s, s.times(-1))]
        return bool(zero and self._refutes(zero)) or self.contradictory()

    def contradictory(self) -> bool:
        """Whether the facts cannot hold together, so that the place is never reached."""
        return _impossible(self.known, None)

    def _is_known(self, goal: Linear) -> bool:
        return any(s.constant <= goal.constant and s.terms == goal.terms for s in self.known)

    def _refutes(self, claims: Case) -> bool:
        """Whether sums cannot be at least 0 together, case by case where choices have to do with them."""
        sums = [[s for case in choice.cases for s in case] for choice in self.choices]
        steps = _distances(claims, [*self.known, *(s for each in sums for s in each)])
        far = len(steps) + 1
        near = [
            steps.get(choice.atom, min((steps.get(a, far) for s in each for a in s.terms), default=far))
            for choice, each in zip(self.choices, sums, strict=True)
        ]
        order = sorted((n for n, d in enumerate(near) if d < far), key=near.__getitem__)
        budget = _CASES

        def refuted(known: Case, waiting: Sequence[int]) -> bool:
            nonlocal budget
            if _impossible([*known, *claims], claims):
                return True
            if not waiting:
                return False
            cases = self.choices[waiting[0]].cases
            budget -= len(cases)
            return budget >= 0 and all(refuted([*known, *case], waiting[1:]) for case in cases)

        return refuted(self.known, order)


def _distances(claims: Case, sums: Sequence[Linear]) -> dict[Hashable, int]:
    """Return how many sums lie between claims and each atom that is tied to theirs by a chain of sums."""
    found: dict[Hashable, int] = dict.fromkeys((a for s in claims for a in s.terms), 0)
    rest, step = [s for s in sums if s.terms], 0
    while True:
        touching = [s for s in rest if not found.keys().isdisjoint(s.terms)]
        if not touching:
            return found
        step += 1
        rest = [s for s in rest if found.keys().isdisjoint(s.terms)]
        for s in touching:
            for atom in s.terms:
                found.setdefault(atom, step)


def _impossible(sums: Sequence[Linear], claims: Case | None) -> bool:
    """Whether no integers make all the sums at least 0; of claims, those that have to do with them are looked at."""
    if claims is not None:
        atoms = _distances(claims, sums).keys()
        sums = [s for s in sums if not s.terms or not atoms.isdisjoint(s.terms)]
    system: System = {}
    if not _enter(sums, system):
        return True
    while True:
        signs: dict[Hashable, _Signs] = {}
        for terms in system:
            for atom, c in terms:
                signs.setdefault(atom, _Signs()).add(c)
        if not signs:
            return False
        free = {atom for atom, sign in signs.items() if not sign.pairs()}  # large or small enough, they make a sum hold
        if free:
            system = {terms: constant for terms, constant in system.items() if free.isdisjoint(a for a, _ in terms)}
            continue
        atom = min(signs, key=lambda a: signs[a].cost())
        if len(system) + signs[atom].pairs() > _SUMS:
            return False
        if not _enter(_without(atom, system), system):
            return True


class _Signs:
    """How an atom counts in the sums of a system: in how many down and up, and by how much at most."""

    __slots__ = ("counts", "largest")

    def __init__(self) -> None:
        self.counts, self.largest = [0, 0], [0, 0]

    def add(self, c: int) -> None:
        """Note a coefficient."""
        up = c > 0
        self.counts[up] += 1
        self.largest[up] = max(self.largest[up], abs(c))

    def pairs(self) -> int:
        """Return how many sums its elimination makes."""
        return self.counts[0] * self.counts[1]

    def cost(self) -> tuple[bool, int]:
        """Return what to eliminate first: atoms that count once up, or once down, with which no whole number is lost."""
        return min(self.largest) > 1, self.pairs()


System = dict[frozenset[tuple[Hashable, int]], int]  # terms → the smallest constant they come with


def _enter(sums: Iterable[Linear], system: System) -> bool:
    """Enter sums in lowest terms, the strongest of those that are alike; False if one is negative."""
    for s in sums:
        if not s.terms:
            if s.constant < 0:
                return False
            continue
        divisor = gcd(*s.terms.values())
        key = frozenset(s.terms.items() if divisor == 1 else ((a, c // divisor) for a, c in s.terms.items()))
        constant = s.constant // divisor
        system[key] = min(system.get(key, constant), constant)
    return True


def _without(atom: Hashable, system: System) -> list[Linear]:
    """Take the sums with an atom out of a system, and return each where it counts up added to each where it counts down."""
    up: list[Linear] = []
    down: list[Linear] = []
    for key in list(system):
        terms = dict(key)
        c = terms.get(atom, 0)
        if c:
            (up if c > 0 else down).append(Linear(system.pop(key), terms))
    return [a.times(-b.terms[atom]).plus(b, a.terms[atom]) for a in up for b in down]
