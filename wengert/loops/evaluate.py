"""What a kernel means, in NumPy: loops in order, one iteration after the other.

An innermost loop whose iterations cannot disturb each other is done at once, with an array for its variable. Every index is
compared with its dimension, and every read of an output or a stage with what was written before.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from wengert.errors import KernelError
from wengert.loops.accesses import expressions
from wengert.loops.ir import MONOIDS, Fold, Kernel, Let, Loop, Stage, Statement, Store, Update
from wengert.loops.numerics import OPERATIONS, convert, numpy_dtype, reinterpret
from wengert.loops.scalar import Scalar, index, postorder, var
from wengert.loops.text import line_of

__all__ = ["evaluate", "infer_sizes"]

State = tuple[Any, ...]


def evaluate(
    kernel: Kernel,
    arrays: Mapping[str, np.ndarray[Any, Any]],
    sizes: Mapping[str, int] | None = None,
    params: Mapping[str, Any] | None = None,
) -> None:
    """Run a kernel on arrays; what it writes is written into them.

    Args:
        arrays: an array per buffer, of its dtype, with any strides. sizes: the sizes; by default those of the arrays' shapes.
        params: a number per param.

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
    machine = _Machine(kernel, dict(arrays), known, dict(params or {}))
    with np.errstate(all="ignore"):
        machine.block(kernel.body)


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


class _Machine:
    """The state of a run.

    Attributes:
        values: what sizes, params, loop variables and named values are, by their nodes. states: the folds so far.
        written: per output and stage, which elements have been written. known: what the current statement has computed.
    """

    def __init__(self, kernel: Kernel, arrays: dict[str, Any], sizes: dict[str, int], params: dict[str, Any]) -> None:
        self.kernel, self.arrays, self.names = kernel, arrays, sizes | params
        self.values: dict[Scalar, Any] = {}
        self.states: dict[str, State] = {}
        self.folds: dict[str, Fold] = {}
        self.written = {b.name: np.zeros(arrays[b.name].shape, bool) for b in kernel.buffers if b.role == "out"}
        self.here: Statement | None = None
        self.plans: dict[int, tuple[Any, list[Scalar]]] = {}
        self.combinations: dict[str, tuple[tuple[Scalar, ...], tuple[Scalar, ...], list[Scalar]]] = {}

    def fail(self, problem: str) -> None:
        raise KernelError(f"{problem}\n{line_of(self.kernel, self.here)}")

    # ---- statements

    def block(self, body: tuple[Statement, ...]) -> None:
        for statement in body:
            self.here = statement
            known = self.compute(statement)
            if isinstance(statement, Loop):
                self.loop(statement, int(known[statement.start]), int(known[statement.stop]))
            elif isinstance(statement, Let):
                self.values[var(statement.name, statement.value.dtype)] = known[statement.value]
            elif isinstance(statement, Store):
                self.store(statement, known)
            elif isinstance(statement, Update):
                self.update(statement.name, tuple(known[v] for v in statement.values))
            else:
                self.stage(statement, int(known[statement.size]))

    def loop(self, loop: Loop, start: int, stop: int) -> None:
        for fold in loop.folds:
            self.folds[fold.name] = fold
            self.states[fold.name] = tuple(_constant(x) for x in MONOIDS[fold.monoid].identity(fold.dtype))
        variable = index(loop.variable)
        if self.at_once(loop):
            steps = np.arange(start, stop, loop.step)
            if steps.size:
                self.values[variable] = steps
                self.block(loop.body)
        else:
            for i in range(start, stop, loop.step):
                self.values[variable] = np.int64(i)
                self.block(loop.body)
        self.values.pop(variable, None)
        self.here = loop
        for fold in loop.folds:
            self.values.update(zip(fold.results, self.states[fold.name], strict=True))

    def at_once(self, loop: Loop) -> bool:
        """Whether doing each statement for all iterations before the next changes nothing."""
        if any(isinstance(s, Loop | Stage) for s in loop.body):
            return False
        stored = [s.buffer for s in loop.body if isinstance(s, Store)]
        if len(stored) != len(set(stored)):
            return False
        read = {x.data[0] for s in loop.body for x in self.plan(s) if x.op in ("load", "var")}
        return read.isdisjoint(stored) and read.isdisjoint(s.name for s in loop.body if isinstance(s, Update))

    def stage(self, stage: Stage, size: int) -> None:
        self.arrays[stage.name] = np.empty(max(size, 0), numpy_dtype(stage.dtype))
        self.written[stage.name] = np.zeros(max(size, 0), bool)

    def store(self, s: Store, known: dict[Scalar, Any]) -> None:
        guard = True if s.guard is None else known[s.guard]
        places, value = tuple(known[i] for i in s.index), known[s.value]
        every = np.broadcast_arrays(*places, value, guard, *self.lanes(places, value, guard))
        guard = every[len(places) + 1]
        places, value = tuple(p[guard] for p in every[: len(places)]), every[len(places)][guard]
        self.inside(s.buffer, places)
        if s.add:
            self.was_written(s.buffer, places)
            np.add.at(self.arrays[s.buffer], places, value if places else value.sum(dtype=value.dtype))
        elif value.size:
            self.arrays[s.buffer][places] = value if places else value[-1]
        if s.buffer in self.written and value.size:
            self.written[s.buffer][places] = True

    def lanes(self, *values: Any) -> list[Any]:
        """The variable of the loop done at once, if no operand varies with it: the store happens once per iteration."""
        running = [v for x, v in self.values.items() if x.op == "index" and np.ndim(v)]
        return running[:1]

    def update(self, name: str, values: State) -> None:
        lanes = self.lanes()
        if lanes:
            values = tuple(np.broadcast_to(v, lanes[0].shape) for v in values)
            values = self.reduce(self.folds[name], values)
        self.states[name] = state = self.combine(self.folds[name], self.states[name], values)
        self.values.update(zip(self.folds[name].results, state, strict=True))

    def reduce(self, fold: Fold, values: State) -> State:
        """Combine neighbours until one state is left."""
        while values[0].size > 1:
            n = values[0].size
            pairs = self.combine(fold, tuple(v[: n - n % 2 : 2] for v in values), tuple(v[1::2] for v in values))
            values = tuple(np.concatenate([p, v[n - n % 2 :]]) for p, v in zip(pairs, values, strict=True))
        return tuple(v[0] for v in values)

    def combine(self, fold: Fold, a: State, b: State) -> State:
        kind = MONOIDS[fold.monoid]
        if fold.name not in self.combinations:
            dtypes = kind.dtypes(fold.dtype)
            names = tuple(var(f"{side} of {fold.name}", d, part) for side in "ab" for part, d in enumerate(dtypes))
            results = kind.combine(names[: kind.parts], names[kind.parts :])
            self.combinations[fold.name] = names, results, postorder(results)
        names, results, nodes = self.combinations[fold.name]
        known = self.run(nodes, dict(zip(names, (*a, *b), strict=True)))
        return tuple(known[r] for r in results)

    # ---- expressions

    def plan(self, statement: Statement) -> list[Scalar]:
        """The nodes of a statement's own expressions, arguments first."""
        found = self.plans.get(id(statement))
        if found is None:
            found = self.plans[id(statement)] = (statement, postorder(expressions(statement)))
        return found[1]

    def compute(self, statement: Statement) -> dict[Scalar, Any]:
        return self.run(self.plan(statement), {})

    def run(self, nodes: list[Scalar], known: dict[Scalar, Any]) -> dict[Scalar, Any]:
        for x in nodes:
            if x not in known:
                operation = OPERATIONS.get(x.op)
                known[x] = operation(*[known[a] for a in x.args]) if operation is not None else self.other(x, known)
        return known

    def other(self, x: Scalar, known: dict[Scalar, Any]) -> Any:
        if x.op == "const":
            return _constant(x)
        if x.op in ("var", "index"):
            return self.values[x]
        if x.op in ("size", "param"):
            return numpy_dtype(x.dtype).type(self.names[x.data])
        if x.op == "cast":
            return convert(known[x.args[0]], x.dtype)
        if x.op == "bits":
            return reinterpret(known[x.args[0]], x.dtype)
        args = [known[a] for a in x.args]
        if x.op == "lookup":
            self.within("the table", args[0], len(x.data), 0)
            return np.array([convert(np.asarray(v), x.dtype) for v in x.data], numpy_dtype(x.dtype))[args[0]]
        return self.load(x, args)

    def load(self, x: Scalar, args: list[Any]) -> Any:
        name, guarded = x.data
        if not guarded:
            self.inside(name, tuple(args))
            self.was_written(name, tuple(args))
            return self.arrays[name][tuple(args)]
        every = np.broadcast_arrays(*args)
        guard = every[-1]
        places = tuple(p[guard] for p in every[:-1])
        self.inside(name, places)
        self.was_written(name, places)
        found = np.zeros(guard.shape, self.arrays[name].dtype)
        found[guard] = self.arrays[name][places] if places else self.arrays[name]
        return found

    def inside(self, name: str, places: State) -> None:
        for axis, (i, n) in enumerate(zip(places, self.arrays[name].shape, strict=True)):
            self.within(repr(name), i, n, axis)

    def within(self, name: str, i: Any, n: int, axis: int) -> None:
        i = np.asarray(i)
        outside = (i < 0) | (i >= n)
        if outside.any():
            at = int(np.extract(outside, i)[0])
            self.fail(f"index {at} is outside of dimension {axis} of {name}, which has {n} elements")

    def was_written(self, name: str, places: State) -> None:
        written = self.written.get(name)
        if written is not None and not np.all(written[places]):
            self.fail(f"{name!r} is read where nothing has been written")


def _constant(x: Scalar) -> Any:
    return np.asarray(x.data).astype(numpy_dtype(x.dtype))[()]
