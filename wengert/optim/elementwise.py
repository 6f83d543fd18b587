"""Optimisers whose update is the same formula for every element: how a formula runs on parameters.

A formula is written once, with Python operators and NumPy functions, on arrays of any length: the parameter, its
gradient and the moments that belong to it. Large parameters are walked in blocks that stay in the cache, so the
temporaries of a formula cost no memory traffic; halves are computed in float32; complex numbers are two real ones.
"""

from collections.abc import Callable, Iterator, Sequence
from operator import is_
from typing import Any

import numpy as np

from wengert.core.native import native
from wengert.core.place import here
from wengert.core.registry import ops
from wengert.core.state import thread
from wengert.core.tensor import Tensor, raw, version_of
from wengert.optim.optimizer import Group, Optimizer, refuse_unsupported
from wengert.settings import get_default_dtype
from wengert.sparse.captured import index_of
from wengert.sparse.payload import is_sparse
from wengert.sparse.rows import CapturedRows, distinct, put_into, rows_of

__all__ = ["Elementwise", "check_pair", "check_range", "number"]

BLOCK = 16384  # elements; a few float32 blocks fit in a second-level cache

Array = Any
Formula = Callable[..., None]


class Elementwise(Optimizer):
    """An optimiser with one formula per element. A subclass says which moments it keeps and what the formula is.

    Attributes:
        counts: whether the state holds the number of steps.
        per_parameter: whether :meth:`numbers` depends on more than the group and the number of steps.
        takes_dense, takes_sparse: of which layouts gradients may be. A step with a sparse one changes the parameter, and the
            moments, in those rows alone that the gradient has.
    """

    counts = True
    per_parameter = False
    takes_dense, takes_sparse = True, False

    def __init__(self, params: Any, defaults: dict[str, Any]) -> None:
        refuse_unsupported(type(self).__name__, defaults)
        super().__init__(params, defaults)

    # ---- what a subclass says --------------------------------------------------------

    def moments(self, group: Group) -> tuple[str, ...]:
        """The names of the tensors, shaped like the parameter, that the formula reads and writes."""
        raise NotImplementedError

    def start(self, name: str, param: Tensor, group: Group) -> Tensor:
        """The value of a moment before the first step."""
        return ops.zeros_like(param)

    def begin(self, state: dict[str, Any], group: Group) -> None:
        """Put numbers besides the step count into a new state."""

    def numbers(self, group: Group, state: dict[str, Any], step: float) -> tuple[float, ...]:
        """The numbers that the formula uses in this step. The first step is 1; without counting, all others are 2."""
        raise NotImplementedError

    def formula(self, group: Group) -> Formula:
        """The formula: a function of (parameter, gradient, *moments, *numbers) that writes into its arguments."""
        raise NotImplementedError

    # ---- running it ------------------------------------------------------------------

    def update(self, group: Group) -> None:
        """Apply the formula to every parameter of the group that has a gradient."""
        captures = thread.state.captures
        if captures is not None:
            self._enter(captures, group)
            return
        run, state_of = thread.state.run, self.state
        names, own = self.moments(group), self.formula(group)
        formula, key = _prepared(own, group), _key(own, group)
        place, name = here(1), f"{type(self).__name__}.step"
        seen: tuple[Any, ...] = ()
        constants: tuple[Array, ...] = ()
        for param in group["params"]:
            grad = param.grad
            if grad is None:
                continue
            sparse = is_sparse(grad)
            if sparse or not self.takes_dense:
                self._check_layout(grad, group)
            state = state_of[param]
            step = 2.0
            if not state:
                step = 1.0
                self._begin(state, param, group, names)
            if self.counts:
                step = _advance(state["step"])
            array = raw(param)
            if self.per_parameter or seen != (step, array.dtype):
                dtype = _real_dtype(array.dtype)
                values = (*_common(group), *self.numbers(group, state, step))
                seen, constants = (step, array.dtype), tuple(np.asarray(value, dtype) for value in values)
            if sparse:
                self.update_rows(param, grad, state, group, constants)
                version_of(param).bump(name, place)
                continue
            arrays = (array, raw(grad), *(raw(state[m], f"the {m} of sparse gradients") for m in names))
            if array.size < native.smallest or not _native(key, formula, arrays, constants):
                run(_apply, formula, arrays, constants)
            version_of(param).bump(name, place)

    def update_rows(
        self, param: Tensor, grad: Tensor, state: dict[str, Any], group: Group, constants: tuple[Array, ...]
    ) -> None:
        """Apply the formula to the rows that a sparse gradient has."""
        own = self.formula(group)
        keys, values = distinct(grad)
        held = [raw(param), *(raw(state[m]) for m in self.moments(group))]
        tables = [array.reshape(grad._payload.pattern.places, values.shape[1]) for array in held]
        rows = [rows_of(table, keys) for table in tables]
        arrays, formula = (rows[0], values, *rows[1:]), _prepared(own, group)
        if rows[0].size < native.smallest or not _native(_key(own, group), formula, arrays, constants):
            thread.state.run(_apply, formula, arrays, constants)
        for array, table, changed in zip(held, tables, rows, strict=True):
            put_into(table, keys, changed)
            if not np.may_share_memory(table, array):  # it does not lie in rows
                array[...] = table.reshape(array.shape)

    def _check_layout(self, grad: Tensor, group: Group) -> None:
        """Refuse a gradient of a layout that the optimiser does not take.

        Raises:
            RuntimeError: naming the optimiser, and one that does.
        """
        name = type(self).__name__
        if not is_sparse(grad):
            raise RuntimeError(f"{name} does not support dense gradients, please consider Adam instead")
        if not self.takes_sparse:
            raise RuntimeError(
                f"{name} does not support sparse gradients, please consider SparseAdam, Adagrad or SGD instead"
            )
        if group.get("weight_decay"):
            raise RuntimeError(f"{name}: the weight_decay option is not compatible with sparse gradients")

    def _enter(self, captures: Any, group: Group) -> None:
        """Enter the update of a group into a program that is being captured.

        The numbers of each step are computed by Python at every call, so a rate that changes needs no other program.
        """
        names, own = self.moments(group), self.formula(group)
        entered = captures.formulas(
            f"{type(self).__name__}.step", _key(own, group), _prepared(own, group), _apply, len(names)
        )
        captures.keeps(vars(self), ("state", "param_groups"))
        for container in (self.param_groups, self._step_pre, self._step_post, group["params"]):
            captures.keeps(container)
        captures.keeps(group, ("params",))
        captures.guard(_Form(group))
        alike: dict[Any, list[Any]] = {}
        for param in group["params"]:
            captures.touched(param)
            if param.grad is None:
                continue
            if is_sparse(param.grad) or not self.takes_dense:
                self._check_layout(param.grad, group)
                if index_of(param.grad) is None:
                    captures.refuse(
                        f"{type(self).__name__}.step() with a sparse gradient that the program did not make"
                    )
            state = self.state[param]
            if not state and (names or self.counts):
                captures.postpone(f"{type(self).__name__} makes its state in the first step")
            with captures.outside():
                step = state["step"].item() if self.counts else 0.0
            alike.setdefault((step, id(param) if self.per_parameter else 0, param.dtype), []).append((param, state))
        for (_, _, dtype), members in alike.items():
            counters = [state["step"] for _, state in members] if self.counts else []
            for param, state in members:
                captures.keeps(self.state, (param,))
                captures.keeps(state, [name for name, value in state.items() if isinstance(value, Tensor)])
            source = _Numbers(self, group, members[0][1], counters)
            if len(counters) > 1:
                captures.guard(_Alike(counters))
            numbers = captures.hosted(source, _real_dtype(dtype.numpy))
            scalars = [(state[name], _Moved(source, name)) for _, state in members for name in self._own_scalars(state)]
            moved = [captures.hosted(after, scalar.dtype.numpy)[0] for scalar, after in scalars]
            for (scalar, _), after in zip(scalars, moved, strict=True):
                ops.copy_(scalar, after)
            for param, state in members:
                if self.counts:
                    ops.add_(state["step"], 1)
                if is_sparse(param.grad):
                    self.enter_rows(captures, entered, param, state, group, numbers)
                else:
                    tensors = [param, param.grad, *(state[m] for m in names)]
                    entered(tensors, [captures.value_of(number) for number in numbers])

    def enter_rows(
        self, captures: Any, entered: Formula, param: Tensor, state: dict[str, Any], group: Group, numbers: list[Tensor]
    ) -> None:
        """Enter :meth:`update_rows` in a program that is being captured."""
        found, held = CapturedRows(param.grad), [param, *(state[m] for m in self.moments(group))]
        first, *moments = changed = [found.of(tensor) for tensor in held]
        entered([first, found.values, *moments], [captures.value_of(number) for number in numbers])
        for tensor, rows in zip(held, changed, strict=True):
            found.put(f"{type(self).__name__}.step", tensor, rows)

    def _own_scalars(self, state: dict[str, Any]) -> list[str]:
        """The names of the numbers in a state that :meth:`numbers` moves on."""
        return [name for name in self.scalars if name != "step" and name in state]

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over options and state; a step count that is a number, as old files have it, becomes a tensor."""
        super().load_state_dict(state_dict)
        for state in self.state.values():
            if isinstance(state.get("step"), int | float):
                state["step"] = ops.tensor(float(state["step"]), dtype=get_default_dtype())

    def _begin(self, state: dict[str, Any], param: Tensor, group: Group, names: Sequence[str]) -> None:
        if self.counts:
            state["step"] = ops.tensor(0.0, dtype=get_default_dtype())
        self.begin(state, group)
        for name in names:
            state[name] = self.start(name, param, group)


class _Numbers:
    """The numbers of one step for parameters that have made equally many. The state is left as it is."""

    def __init__(self, owner: Elementwise, group: Group, state: dict[str, Any], counters: list[Tensor]) -> None:
        self.owner, self.group, self.state, self.counters = owner, group, state, counters
        self._scalars = owner._own_scalars(state)

    def __call__(self) -> tuple[float, ...]:
        return self._of(self.copied())

    peek = __call__

    def copied(self) -> dict[str, Any]:
        """Return the state with scalars that may be written."""
        if not self._scalars:
            return self.state
        return {**self.state, **{name: self.state[name].detach().clone() for name in self._scalars}}

    def _of(self, state: dict[str, Any]) -> tuple[float, ...]:
        step = self.counters[0]._payload.item() + 1.0 if self.counters else 2.0
        return (*_common(self.group), *self.owner.numbers(self.group, state, step))


class _Moved:
    """What one of the numbers in a state is after the step."""

    def __init__(self, source: _Numbers, name: str) -> None:
        self.source, self.name = source, name

    def __call__(self) -> tuple[float, ...]:
        state = self.source.copied()
        self.source._of(state)
        return (state[self.name]._payload.item(),)

    peek = __call__


class _Alike:
    """Tells whether parameters have made equally many steps."""

    def __init__(self, counters: list[Tensor]) -> None:
        self.counters = counters

    def __call__(self) -> bool:
        return len({counter._payload.item() for counter in self.counters}) <= 1

    def conditions(self, name: Callable[[Any], str]) -> Iterator[str]:
        """Yield, as Python, that it is so; ``name`` gives objects their names there."""
        yield " == ".join(f"{name(counter)}._payload.item()" for counter in self.counters)


class _Form:
    """Tells what shapes the formula of a group: its options, but for numbers, which are read at each step."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self._options: tuple[Any, ...] = ()
        self._form: tuple[Any, ...] = ()

    def __call__(self) -> tuple[Any, ...]:
        options = tuple(self.group.values())
        if len(options) != len(self._options) or not all(map(is_, options, self._options)):
            self._options = options
            self._form = tuple(
                bool(v) if k == "weight_decay" else v if isinstance(v, bool | None) else type(v)
                for k, v in self.group.items() if k != "params"
            )  # fmt: skip
        return self._form

    def conditions(self, name: Callable[[Any], str]) -> Iterator[str]:
        """Yield, as Python, that it is what it was at the last call; ``name`` gives objects their names there."""
        group = name(self.group)
        yield f"len({group}) == {len(self.group)}"
        for key, value in self.group.items():
            option = f"{group}[{key!r}]"
            if key == "weight_decay":
                yield f"{'' if value else 'not '}{option}"
            elif isinstance(value, bool | None):
                yield f"{option} is {value}"
            elif key != "params":
                yield f"type({option}) is {name(type(value))}"


def _advance(counter: Tensor) -> float:
    array = raw(counter)
    step = array.item() + 1.0
    array[()] = step
    return step


def _common(group: Group) -> tuple[float, float]:
    """The factor that decoupled weight decay gives the parameter, and the L2 penalty added to the gradient."""
    decay = group.get("weight_decay", 0)
    if group.get("decoupled_weight_decay"):
        return 1.0 - number(group["lr"]) * decay, 0.0
    return 1.0, decay


def _prepared(formula: Formula, group: Group) -> Formula:
    """The formula with the sign of the gradient and the weight decay before it."""
    maximize = group.get("maximize", False)
    decays, decoupled = bool(group.get("weight_decay", 0)), bool(group.get("decoupled_weight_decay"))

    def prepared(p: Array, g: Array, moments: Sequence[Array], shrink: Array, penalty: Array, *rest: Array) -> None:
        if maximize:
            g = -g
        if decays and decoupled:
            p *= shrink
        elif decays:
            g = g + p * penalty
        formula(p, g, *moments, *rest)

    return prepared


def _key(formula: Formula, group: Group) -> Any:
    """What two formulas must share to be the same function: their code, and the options that chose their form."""
    cells = tuple(cell.cell_contents for cell in formula.__closure__ or ())
    return (
        formula.__code__,
        cells,
        group.get("maximize"),
        bool(group.get("weight_decay")),
        group.get("decoupled_weight_decay"),
    )


def _native(key: Any, formula: Formula, arrays: tuple[Array, ...], constants: tuple[Array, ...]) -> bool:
    """Run a formula as one native loop over all its arrays; False where NumPy must do it."""
    array = arrays[0]
    if array.dtype.kind != "f" or any(a.dtype != array.dtype or a.shape != array.shape for a in arrays):
        return False
    count = len(arrays)

    def flat(*arguments: Array) -> None:
        formula(arguments[0], arguments[1], arguments[2:count], *arguments[count:])

    return native.update(key, flat, (*arrays, *constants))


def _apply(formula: Formula, arrays: tuple[Array, ...], constants: tuple[Array, ...]) -> None:
    """Run a formula on whole arrays or, if they are large, block by block."""
    array = arrays[0]
    kind = array.dtype.kind
    if kind == "c":
        _apply(formula, tuple(a.real for a in arrays), constants)
        _apply(formula, tuple(a.imag for a in arrays), constants)
    elif array.size <= BLOCK or not all(a.flags.c_contiguous for a in arrays):
        _run(formula, arrays, constants)
    else:
        flat = [a.reshape(-1) for a in arrays]
        for start in range(0, array.size, BLOCK):
            _run(formula, [a[start : start + BLOCK] for a in flat], constants)


def _run(formula: Formula, arrays: Sequence[Array], constants: tuple[Array, ...]) -> None:
    p, g, *moments = arrays
    if p.dtype.itemsize > 2:
        formula(p, g, moments, *constants)
        return
    wide, *wide_moments = (a.astype(np.float32) for a in (p, *moments))
    formula(wide, g.astype(np.float32), wide_moments, *constants)
    p[...] = wide
    for narrow, moment in zip(moments, wide_moments, strict=True):
        narrow[...] = moment


def _real_dtype(dtype: Any) -> Any:
    """The dtype in which the formula computes."""
    if dtype.itemsize == 2:
        return np.dtype(np.float32)
    return np.dtype(f"f{dtype.itemsize // 2}") if dtype.kind == "c" else dtype


def number(value: Any) -> float:
    """An option as a Python number; a learning rate may be a tensor."""
    if type(value) is float:
        return value
    return float(value.item()) if isinstance(value, Tensor) else float(value)


def check_pair(owner: str, name: str, value: Any) -> None:
    """Refuse an option that is not two numbers. TypeError names the optimiser, the option and the value."""
    pair = isinstance(value, tuple | list) and len(value) == 2
    if not pair or not all(isinstance(v, int | float | np.integer | np.floating | Tensor) for v in value):
        raise TypeError(f"{owner}: {name} must be two numbers, got {value!r}")


def check_range(owner: str, **options: tuple[Any, float, float | None]) -> None:
    """Check options given as name=(value, least, limit): least ≤ value, and value < limit unless that is None.

    Raises:
        ValueError: naming the optimiser, the option, the value and the range. TypeError: if it is no number.
    """
    for name, (value, least, limit) in options.items():
        if not isinstance(value, int | float | np.integer | np.floating | Tensor):
            raise TypeError(f"{owner}: {name} must be a number, got {value!r}")
        if isinstance(value, Tensor) and value.numel() != 1:
            raise ValueError(f"{owner}: {name} must be one number, got a tensor of shape {tuple(value.shape)}")
        given = number(value)
        if not (given >= least and (limit is None or given < limit)):
            wanted = f"at least {least:g}" if limit is None else f"at least {least:g} and below {limit:g}"
            raise ValueError(f"{owner}: {name} must be {wanted}, got {value}")
