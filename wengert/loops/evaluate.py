"""What a kernel means, in NumPy: loops in order, one iteration after the other.

An innermost loop whose iterations cannot disturb each other is done at once, with an array for its variable. Every index is
compared with its dimension, and every read of an output or a stage with what was written before.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from wengert.errors import KernelError
from wengert.loops.accesses import expressions
from wengert.loops.ir import MONOIDS, Fold, Kernel, Let, Loop, Stage, Statement, Store, Update, walk
from wengert.loops.numerics import OPERATIONS, convert, numpy_dtype, reinterpret
from wengert.loops.scalar import Scalar, index, postorder, var
from wengert.loops.text import line_of

__all__ = ["Machine", "evaluate", "infer_sizes", "iterations"]

State = tuple[Any, ...]


def evaluate(
    kernel: Kernel,
    arrays: Mapping[str, np.ndarray[Any, Any]],
    sizes: Mapping[str, int] | None = None,
    params: Mapping[str, Any] | None = None,
    machine: "type[Machine] | None" = None,
) -> None:
    """Run a kernel on arrays; what it writes is written into them.

    Args:
        arrays: an array per buffer, of its dtype, with any strides. sizes: the sizes; by default those of the arrays' shapes.
        params: a number per param. machine: what runs it, a subclass of :class:`Machine`.

    Raises:
        KernelError: if an array does not fit its buffer, an access is outside, or something is read before it is written.

    Example:
        >>> from wengert.loops.text import parse
        >>> k = parse("kernel double(x: f32[n: 1], out y: f32[n: 1])\\n  for i in 0:n\\n    y[i] = x[i] * 2.0\\n")
        >>> x, y = np.arange(3, dtype=np.float32), np.empty(3, np.float32)
        >>> evaluate(k, {"x": x, "y": y})
        >>> y
        array([0., 2., 4.], dtype=float32)
    """
    known = infer_sizes(kernel, arrays) | dict(sizes or {})
    for b in kernel.buffers:
        shape = tuple(known[d] if isinstance(d, str) else d for d in b.dims)
        array = arrays[b.name]
        if array.shape != shape or array.dtype != numpy_dtype(b.dtype):
            raise KernelError(f"{b.name!r} is {b.dtype}{list(shape)}, got an array {array.dtype}{list(array.shape)}")
    missing = [n for n in kernel.sizes if n not in known] + [
        p.name for p in kernel.params if p.name not in (params or {})
    ]
    if missing:
        raise KernelError(f"no value is given for {', '.join(missing)}")
    (machine or Machine)(kernel, dict(arrays), known, dict(params or {})).run()


def infer_sizes(kernel: Kernel, arrays: Mapping[str, np.ndarray[Any, Any]]) -> dict[str, int]:
    """Return the sizes that the shapes of arrays tell."""
    found: dict[str, int] = {}
    for b in kernel.buffers:
        if b.name not in arrays:
            raise KernelError(f"no array is given for {b.name!r}")
        for dim, n in zip(b.dims, arrays[b.name].shape, strict=False):
            if isinstance(dim, str):
                found.setdefault(dim, n)
    return found


def iterations(kernel: Kernel, sizes: Mapping[str, int], params: Mapping[str, Any] | None = None) -> int:
    """Return how many iterations the parallel loops at the top of a kernel have together; 1 without any.

    It is the range that the kernel's machine code is called over.
    """
    machine = Machine(kernel, {}, dict(sizes), dict(params or {}), outputs=False)
    count, body = 1, kernel.body
    while body and isinstance(body[-1], Loop) and body[-1].parallel:
        loop = body[-1]
        machine.compute(machine.plan(loop))
        count *= len(range(int(machine.values[loop.start]), int(machine.values[loop.stop]), loop.step))
        body = loop.body
    return count


class Machine:
    """The state of a run.

    Attributes:
        values: the latest value of every expression, by its node. states: the folds so far. written: per output and stage,
            which elements have been written. lanes: the variable of the loop that is done at once, as an array.
    """

    def __init__(
        self,
        kernel: Kernel,
        arrays: dict[str, Any],
        sizes: dict[str, int],
        params: dict[str, Any],
        outputs: bool = True,
    ) -> None:
        self.kernel, self.arrays, self.names = kernel, arrays, sizes | params
        self.values: dict[Scalar, Any] = {}
        self.states: dict[str, State] = {}
        self.written = {
            b.name: np.zeros(arrays[b.name].shape, bool) for b in kernel.buffers if outputs and b.role == "out"
        }
        self.lanes: np.ndarray[Any, Any] | None = None
        self.here: Statement | None = None
        self.plans: dict[int, tuple[Statement, Plan]] = {}
        self.whole: dict[int, bool] = {}
        self.folds = {f.name: _Combination(self, f) for s in walk(kernel.body) if isinstance(s, Loop) for f in s.folds}

    def run(self) -> None:
        """Run the kernel."""
        with np.errstate(all="ignore"):
            self.block(self.kernel.body)

    def fail(self, problem: str) -> None:
        """Say what is wrong with the statement that runs."""
        """Raise an error that shows the line at hand."""
        raise KernelError(f"{problem}\n{line_of(self.kernel, self.here)}")

    # ---- statements

    def block(self, body: tuple[Statement, ...]) -> None:
        """Run statements in order."""
        """Run statements in order."""
        values = self.values
        for statement in body:
            self.here = statement
            self.compute(self.plan(statement))
            if isinstance(statement, Loop):
                self.loop(statement, int(values[statement.start]), int(values[statement.stop]))
            elif isinstance(statement, Let):
                values[var(statement.name, statement.value.dtype)] = values[statement.value]
            elif isinstance(statement, Store):
                self.store(statement)
            elif isinstance(statement, Update):
                self.update(statement.name, tuple(values[v] for v in statement.values))
            else:
                self.stage(statement, int(values[statement.size]))

    def loop(self, loop: Loop, start: int, stop: int) -> None:
        """Run a loop; the results of its folds are values after it."""
        """Run the iterations of a loop, and make the results of its folds known."""
        for fold in loop.folds:
            self.states[fold.name] = self.folds[fold.name].identity
        variable = index(loop.variable)
        if self.at_once(loop):
            self.lanes = self.values[variable] = np.arange(start, stop, loop.step)
            if self.lanes.size:
                self.block(loop.body)
            self.lanes = None
        else:
            for i in self.order(loop, range(start, stop, loop.step)):
                self.values[variable] = np.int64(i)
                self.block(loop.body)
        self.here = loop
        for fold in loop.folds:
            self.values.update(zip(self.folds[fold.name].results, self.states[fold.name], strict=True))

    def order(self, loop: Loop, iterations: range) -> range:
        """The order of a loop's iterations; a subclass may change it."""
        return iterations

    def at_once(self, loop: Loop) -> bool:
        """Whether doing each statement for all iterations before the next changes nothing."""
        if id(loop) not in self.whole:
            stored = [s.buffer for s in loop.body if isinstance(s, Store)]
            nodes = postorder(x for s in loop.body for x in expressions(s))
            read = {x.data[0] for x in nodes if x.op in ("load", "var")}
            changed = {*stored, *(s.name for s in loop.body if isinstance(s, Update))}
            nested = any(isinstance(s, Loop | Stage) for s in loop.body)
            self.whole[id(loop)] = not nested and len(stored) == len(set(stored)) and read.isdisjoint(changed)
        return self.whole[id(loop)]

    def stage(self, stage: Stage, size: int) -> None:
        """Make the memory of a stage."""
        """Give this iteration memory of its own, of which nothing is written yet."""
        self.arrays[stage.name] = np.empty(max(size, 0), numpy_dtype(stage.dtype))
        self.written[stage.name] = np.zeros(max(size, 0), bool)

    def store(self, s: Store) -> None:
        """Write elements where the guard holds."""
        """Write an element, or one for each lane; of two writes to one element the later stays."""
        guard = True if s.guard is None else self.values[s.guard]
        lanes = () if self.lanes is None else (self.lanes,)
        every = np.broadcast_arrays(*(self.values[i] for i in s.index), self.values[s.value], guard, *lanes)
        count = len(s.index)
        guard = every[count + 1]
        places, value = tuple(p[guard] for p in every[:count]), every[count][guard]
        if not value.size:
            return
        self.inside(s.buffer, places)
        if s.add:
            self.was_written(s.buffer, places)
            target = self.arrays[s.buffer]
            if places:
                np.add.at(target, places, value)
            else:  # one after the other: a sum of zeros starts at +0, and the sign would be lost
                for v in value.reshape(-1):
                    target[()] += v
        else:
            self.arrays[s.buffer][places] = value if places else value[-1]
        if s.buffer in self.written:
            self.written[s.buffer][places] = True

    def update(self, name: str, values: State) -> None:
        """Fold values into a fold, and let its parts have the values they have then."""
        """Combine values (of every lane) into a fold."""
        fold = self.folds[name]
        if self.lanes is not None:
            values = fold.reduce(tuple(np.broadcast_to(v, self.lanes.shape) for v in values))
        self.states[name] = state = fold.combine(self.states[name], values)
        self.values.update(zip(fold.results, state, strict=True))

    # ---- expressions

    def plan(self, statement: Statement) -> "Plan":
        """The nodes that a statement computes itself, arguments first."""
        found = self.plans.get(id(statement))
        if found is None:
            found = self.plans[id(statement)] = (statement, self.steps(postorder(expressions(statement))))
        return found[1]

    def steps(self, nodes: list[Scalar]) -> "Plan":
        """How to compute nodes; the values of numbers that never change are taken note of here."""
        found: Plan = []
        for x in nodes:
            if x.op == "const":
                self.values[x] = np.asarray(x.data).astype(numpy_dtype(x.dtype))[()]
            elif x.op in ("size", "param"):
                self.values[x] = numpy_dtype(x.dtype).type(self.names[x.data])
            elif x.op in ("cast", "bits"):
                found.append((x, partial(convert if x.op == "cast" else reinterpret, dtype=x.dtype), x.args))
            elif x.op in ("load", "lookup"):
                found.append((x, partial(self.load if x.op == "load" else self.lookup, x), x.args))
            elif x.args:
                found.append((x, OPERATIONS[x.op], x.args))
        return found

    def compute(self, plan: "Plan") -> None:
        """Compute nodes."""
        """Compute the nodes of a plan."""
        values = self.values
        for x, operation, args in plan:
            values[x] = operation(*[values[a] for a in args])

    def lookup(self, x: Scalar, i: Any) -> Any:
        """Return an element of a constant table."""
        """Read a constant table."""
        self.within("the table", i, len(x.data), 0)
        return np.array(x.data).astype(numpy_dtype(x.dtype))[i]

    def load(self, x: Scalar, *args: Any) -> Any:
        """Return elements of a buffer, 0 where the guard does not hold."""
        """Read a buffer; 0 where the guard does not hold."""
        name, guarded = x.data
        array = self.arrays[name]
        if not guarded:
            self.inside(name, args)
            self.was_written(name, args)
            return array[args]
        every = np.broadcast_arrays(*args)
        guard = every[-1]
        places = tuple(p[guard] for p in every[:-1])
        self.inside(name, places)
        self.was_written(name, places)
        found = np.zeros(guard.shape, array.dtype)
        found[guard] = array[places] if places else array
        return found[()]

    def inside(self, name: str, places: State) -> None:
        """Check that places are inside a buffer."""
        """Fail if an index is outside its dimension."""
        for axis, (i, n) in enumerate(zip(places, self.arrays[name].shape, strict=True)):
            self.within(name, i, n, axis)

    def within(self, name: str, i: Any, n: int, axis: int) -> None:
        """Check that indices are inside a dimension."""
        """Fail if an index is not from 0 to n - 1."""
        outside = (i < 0) | (i >= n)
        if outside.any():
            at = int(np.extract(outside, i)[0])
            self.fail(f"index {at} is outside of dimension {axis} of {name}, which has {n} elements")

    def was_written(self, name: str, places: State) -> None:
        """Check that what is read of an output or a stage has been written."""
        """Fail if an element of an output or stage is read that has not been written."""
        written = self.written.get(name)
        if written is not None and not written[places].all():
            self.fail(f"{name!r} is read where nothing has been written")


Plan = list[tuple[Scalar, Callable[..., Any], tuple[Scalar, ...]]]


class _Combination:
    """How the states of one fold are combined."""

    def __init__(self, machine: Machine, fold: Fold) -> None:
        kind = MONOIDS[fold.monoid]
        sides = [[var(f"{side} of {fold.name}", x.dtype, x.data[1]) for x in fold.results] for side in "ab"]
        self.machine, self.fold, self.results, self.names = machine, fold, fold.results, (*sides[0], *sides[1])
        self.outputs = kind.combine(tuple(sides[0]), tuple(sides[1]))
        self.plan = machine.steps(postorder(self.outputs))
        identity = kind.identity(fold.dtype)
        machine.steps(postorder(identity))
        self.identity: State = tuple(machine.values[x] for x in identity)

    def combine(self, a: State, b: State) -> State:
        values = self.machine.values
        values.update(zip(self.names, (*a, *b), strict=True))
        self.machine.compute(self.plan)
        return tuple(values[x] for x in self.outputs)

    def reduce(self, values: State) -> State:
        """Combine neighbours until one state is left."""
        while values[0].size > 1:
            n = values[0].size
            pairs = self.combine(tuple(v[: n - n % 2 : 2] for v in values), tuple(v[1::2] for v in values))
            values = tuple(np.concatenate([p, v[n - n % 2 :]]) for p, v in zip(pairs, values, strict=True))
        return tuple(v[0] for v in values)
