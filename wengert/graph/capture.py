"""Running a function to write down what it does: every operator call becomes a node of a graph.

:class:`Capture` is the level of the interpreter stack at the bottom: operators on tensors of the program, and on plain ones
from outside, are entered in the graph instead of being run. Everything else is the same program as ever: the tape
records, backward walks, hooks run, optimisers step.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from wengert.array.device import devices, index_of, placed, unplaced
from wengert.array.dtype import dtype_of
from wengert.core.devices import common_device
from wengert.core.explain import FAILURES
from wengert.core.interpret import Level, Payload
from wengert.core.operator import Op, Spec
from wengert.core.place import Place, here
from wengert.core.registry import operators
from wengert.core.state import thread
from wengert.core.tensor import INFERENCE, Tensor, from_array, node_of, version_of
from wengert.errors import TransformError
from wengert.graph.bodies import Regions
from wengert.graph.branching import branches, loop
from wengert.graph.formulas import enter_formula
from wengert.graph.history import History
from wengert.graph.inferring import inferred, refusal
from wengert.graph.ir import Graph, Value
from wengert.graph.lent import Lent
from wengert.graph.modules import Modules
from wengert.graph.operations import Draw, Formula
from wengert.graph.outside import Host, outside
from wengert.graph.provided import Passing, Provided
from wengert.graph.refusals import NeedsValues, NotCapturable, NotYet
from wengert.graph.storage import Storage, Traced, array_of, has_history, located, stand_in

__all__ = ["Capture"]


class Capture(Level):
    """One run of a function that is being written down.

    Attributes:
        graph: what was written so far.
        sources: for each input of the graph, where its array is found at a call: a tensor from outside, or a host input.
        inside: arrays that the function made itself and knows the values of; they become constants.
        grads: tensors from outside whose ``.grad`` was looked at or set, what it was before, and whether that was looked at.
        hosts: what Python does at each call before the graph runs, in order: numbers for inputs, and effects.
        guards: questions to Python objects, with the answers that the graph is made for. containers: see :meth:`keeps`.
        arguments: the tensors that come with each call, by identity; views among them are memory of their own.
        modules: those that are used. devices: of inputs and constants, where there are several: their numbers.
        decisions: values that the function asked for, what they were, and the line.
        same: pairs of tensors from outside on the same memory, the second one so many bytes behind the first.
        history: what was recorded before. provided: writes under a condition. passing: what objects know during a call.
        regions: branches and loops. lent: arrays that nothing may write by NumPy.
        entries: the nodes of tensors from outside, through which gradients leave, and the tensors.

    Args:
        called: is told of modules that are called, and of hooks.
    """

    title, error, takes_plain = "a function that is being compiled", NotCapturable, True

    def __init__(
        self,
        decide: Callable[["Capture", Value, str], Any] | None = None,
        arguments: Sequence[Any] = (),
        called: Callable[[Any], None] = lambda function: None,
    ) -> None:
        super().__init__()
        self.graph = Graph()
        self.sources: dict[Value, Any] = {}
        self.inside: dict[int, Any] = {}
        self.grads: dict[int, tuple[Any, Any, bool]] = {}
        self.hosts: list[Host] = []
        self.guards: list[tuple[Callable[[], Any], Any]] = []
        self.containers: list[tuple[Any, Sequence[Any] | None]] = []
        self.devices: dict[Value, int] = {}
        self.modules, self._called, self.lent = Modules(called), called, Lent()
        self.arguments = {id(t): t for t in arguments}
        self.entries: dict[Any, Any] = {}
        self._decide, self.decisions = decide, list[tuple[Value, Any, Place]]()
        self.same: list[tuple[Any, Any, int]] = []
        self._storages: dict[Any, Storage] = {}
        self._held: list[Any] = []  # tensors whose identity is a key here
        self._adopted: list[tuple[Any, Any, Any]] = []
        self.history = History(self._is_outer)
        self._before = [(t, t._payload, t._node, t._view) for t in arguments]
        self._wrote: dict[int, Storage] = {}
        self._versions: dict[int, tuple[Any, int, Any]] = {}
        self.provided, self.passing, self.regions = Provided(self), Passing(self), Regions(self)

    # ---- operators -------------------------------------------------------------------

    def run(self, op: Op, values: list[Any]) -> tuple[Any, ...]:
        inputs = op.signature.inputs
        arguments = tuple(self._argument(v) if i in inputs else v for i, v in enumerate(values))
        place = common_device(op, values) if devices.several else None
        try:
            found = self._view(op, values, arguments) if op.view else None
            found = found or self.call(op, arguments, inferred(op, values), here(1))
        except FAILURES as error:
            raise refusal(op, values, error) from error
        return located(found, place)

    def call(self, op: Any, arguments: tuple[Any, ...], specs: Any, place: Place) -> tuple[Any, ...]:
        """Enter a node, and return its results as tensors with memory of their own."""
        if getattr(op, "effect", False):
            self.regions.check(op.name)
        arrays = [stand_in(s.shape, s.dtype.numpy, order) for s, order in specs]
        pairs = [(s, a.strides) for (s, _), a in zip(specs, arrays, strict=True)]
        node = self.graph.call(op, arguments, pairs, place)
        return tuple(self.tensor(Storage(v), (), v, a) for v, a in zip(node.results, arrays, strict=True))

    def tensor(self, storage: Storage, chain: tuple[Any, ...], value: Value, array: Any) -> Any:
        """Return a new tensor of the program."""
        return from_array(Traced(self, storage, chain, value, array))

    def _argument(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            return self.value_of(value)
        if isinstance(value, tuple):
            return tuple(self._argument(v) for v in value)
        return value

    def value_of(self, tensor: Any) -> Value:
        """Return the value that a tensor, of the program or plain, holds now."""
        held = tensor._payload
        if not isinstance(held, Traced):
            held = self.lift(tensor)._payload
        if held.seen is not held.storage.value or held.value in self.regions.cut:
            held.value, held.seen = self._replayed(held), held.storage.value
        return held.value

    def _replayed(self, held: Traced) -> Value:
        """Return what a tensor holds after its memory was written through another one."""
        value = held.storage.value
        if value in self.regions.cut:
            raise NotCapturable("a tensor that a branch or loop has made is used outside of it; return it")
        for op, values, number in held.chain:
            arguments = (value, *values[1:])
            inferred = op.infer([value.spec, *values[1:]])
            specs = (inferred,) if op.single else tuple(inferred)
            arrays = [stand_in(s.shape, s.dtype.numpy) for s in specs]
            node = self.graph.call(op, arguments, [(s, a.strides) for s, a in zip(specs, arrays, strict=True)], here(1))
            value = node.results[number or 0]
        return value

    def _view(self, op: Op, values: list[Any], arguments: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """Return the results of an operator that share its first argument's memory; None if they do not."""
        source = values[op.signature.inputs[0]]
        if isinstance(source, tuple):
            return None
        held = source._payload
        found = thread.state.run(op.call_kernel, [array_of(v) for v in values])  # of any numbers: without warnings
        arrays = [found] if op.single else list(found)
        if not all(np.may_share_memory(a, held.array) or not a.size for a in arrays):
            return None
        pairs = [(Spec(a.shape, dtype_of(a.dtype)), a.strides) for a in arrays]
        node = self.graph.call(op, arguments, pairs, here(1))
        tensors = []
        for k, (value, array) in enumerate(zip(node.results, arrays, strict=True)):
            step = (op, [None, *values[1:]], None if op.single else k)
            out = self.tensor(held.storage, (*held.chain, step), value, array)
            out._cell = version_of(source)
            tensors.append(out)
        return tuple(tensors)

    # ---- tensors from outside --------------------------------------------------------

    def lift(self, tensor: Any) -> Any:
        if self.known(tensor._payload) and tensor._view is None:  # views of it must find it when they give it a history
            self._adopted.append((tensor, tensor._payload, tensor._node))
            tensor._payload = self._lifted(tensor)._payload
            return tensor
        out = self._lifted(tensor)
        out._node, out._cell = node_of(tensor), version_of(tensor)
        if out._node is not None and type(tensor._payload) is np.ndarray:
            self.entries.setdefault(out._node, tensor)
            if out._node.extra is not None:
                for hook in out._node.extra.hooks():
                    self._called(hook)
        return out

    def lift_all(self, arguments: Sequence[Any]) -> None:
        """Take note of the tensors that a user's operation is given: a gradient may go to those that it does not look at."""
        for argument in arguments:
            if isinstance(argument, Tensor) and type(argument._payload) is np.ndarray:
                self.lift(argument)

    def payload_of(self, tensor: Any) -> Any:
        """Return the payload of another tensor on the memory of one: what is written through either is seen by both."""
        held = tensor._payload
        take = self.lift if self.known(held) else self._lifted  # what was made inside is to see the writes too
        return held if isinstance(held, Payload) else take(tensor)._payload

    def _lifted(self, tensor: Any) -> Any:
        array = tensor._payload
        if isinstance(array, Payload):
            raise NotCapturable(f"a tensor of {array.level.title} is used by a function that is compiled below it")
        view = tensor._view
        base = None if view is None else view.base
        if (
            base is not None
            and (id(tensor) not in self.arguments or id(base) in self.arguments)
            and self._lies_in(array, base)
        ):
            self._are_same(base, tensor, array)
            held = base._payload if isinstance(base._payload, Traced) else self._lifted(base)._payload
            made = Traced(self, held.storage, view.chain, held.storage.value, array)
            made.seen = None  # type: ignore[assignment]
            out = from_array(made)
            self.value_of(out)
            return out
        storage = self._storage_of(tensor)
        return self.tensor(storage, (), storage.value, array)

    def _storage_of(self, tensor: Any) -> Storage:
        """Return the storage of a plain tensor that is no view: one for all tensors on the same memory."""
        array = tensor._payload
        key = (array.__array_interface__["data"][0], array.shape, array.strides, array.dtype)
        found = self._storages.get(key)
        if found is not None:
            if found.source is not None:
                self._are_same(found.source, tensor, array)
            return found
        spec = Spec(array.shape, dtype_of(array.dtype))
        if id(array) in self.inside:
            value = self.graph.constant(spec, self.lent.lend(unplaced(array)))
            storage = self.lent.storage(tensor, array, Storage(value))
        else:
            value = self.graph.input(spec, array.strides)
            source = next((t for t in self.arguments.values() if t._payload is array), tensor)  # of x.detach(): x
            self.sources[value] = source
            storage = self.lent.storage(source, array, Storage(value, source))
        if devices.several and (index := index_of(array.dtype)) is not None:
            self.devices[value] = index
        self._storages[key] = storage
        self._held.append((tensor, array))
        return storage

    def _lies_in(self, array: Any, base: Any) -> bool:
        """Whether a view looks at its base's memory; ``.data`` may have been set to another array."""
        return bool(np.may_share_memory(self.array(base), array))

    def _are_same(self, one: Any, other: Any, array: Any) -> None:
        """Take note of two tensors on the same memory."""
        if other is not one:
            starts = [a.__array_interface__["data"][0] for a in (self.array(one), array)]
            self.same.append((one, other, starts[1] - starts[0]))

    def born(self, tensor: Any) -> None:
        """Take note of a plain tensor that was made while the function ran."""
        array = tensor._payload
        if type(array) is np.ndarray and not any(array is t._payload for t in self.arguments.values()):
            owner = array
            while type(owner.base) is np.ndarray:
                owner = owner.base
            if array.base is None or id(owner) in self.inside or owner is not array:
                self.inside[id(array)] = array

    def known(self, array: Any) -> bool:
        """Whether the function made an array itself, so that its values are the same each time."""
        return id(array) in self.inside

    # ---- writing ---------------------------------------------------------------------

    def admit(self, name: str, tensor: Any, source: Any) -> None:
        array = tensor._payload
        if not array.flags.writeable:
            raise NotCapturable(f"{name}(): the tensor lies in read-only memory; clone() it first")
        lifted = self.lift(tensor)
        self._adopted.append((tensor, array, tensor._node))
        tensor._payload = lifted._payload

    def write(self, name: str, tensor: Any, result: Any) -> None:
        held = tensor._payload
        self.regions.check_write(held.storage)
        self.lent.check_write(name, held.storage)
        if held.storage.source is not None and thread.state.grad and (has_history(result) or has_history(tensor)):
            raise NotCapturable(
                f"{name}() writes what requires grad into a tensor from outside, which would get a history; write under "
                "no_grad(), or return the result"
            )
        value = self.value_of(result)
        if value.spec.dtype is not dtype_of(held.dtype):
            value = self.apply("cast", value, dtype_of(held.dtype))
        storage = held.storage
        if held.chain:
            whole = self.apply("view_write", storage.value, value, held.chain)
        else:
            whole = value
        if devices.several:
            self.devices.setdefault(whole, index_of(held.dtype) or 0)
        self.provided.note(storage)
        storage.value = whole
        held.value, held.seen = value, whole
        if storage.source is not None:
            self._wrote[id(storage)] = storage
        if (cell := version_of(tensor)) is not INFERENCE:
            self._versions.setdefault(id(cell), (cell, cell.count, cell.writes))
            cell.bump(name, here(1))

    def apply(self, name: str, *arguments: Any) -> Value:
        """Enter a node of one result, and return its value."""
        op = operators()[name]
        spec = op.infer([a.spec if isinstance(a, Value) else a for a in arguments])
        array = stand_in(spec.shape, spec.dtype.numpy)
        return self.graph.call(op, arguments, [(spec, array.strides)], here(1)).results[0]

    def enclose(self, tensor: Any) -> None:
        """A tensor from outside becomes a leaf: it stays itself."""

    def keep(self, gradient: Any, leaf: Any) -> None:
        """The gradient of a leaf from outside is noted by :meth:`touched`."""

    def owned(self, tensor: Any, source: Any) -> Any:
        return tensor

    def array(self, tensor: Any) -> Any:
        """Return the array of a tensor from outside, also where it was written to."""
        held = tensor._payload
        return held.array if isinstance(held, Traced) else held

    def original(self, tensor: Any) -> Any:
        """Return a tensor from outside as it was before."""
        for adopted, array, node in self._adopted:
            if adopted is tensor:
                out = from_array(array)
                out._node, out._view = node, tensor._view
                return out
        return tensor

    def module(self, module: Any) -> None:
        """Take note of a module that the function uses, and of those below it."""
        self.modules.use(module)

    def written(self) -> Iterator[tuple[Any, Value]]:
        """Yield each tensor from outside whose memory was written, and what it is to hold."""
        for storage in self._wrote.values():
            yield storage.source, storage.value

    # ---- values ----------------------------------------------------------------------

    def values(self, held: Any, what: str) -> Any:
        """Return the array of a tensor of the program, or of a plain one from outside.

        Raises:
            NeedsValues: where they cannot be had.
        """
        tensor = held if isinstance(held, Tensor) else from_array(held)
        array = tensor._payload
        if type(array) is np.ndarray and self.known(array):
            return array
        value = self.value_of(tensor)
        if value in self.graph.constants:
            return self.graph.constants[value]
        self.regions.check(what)
        found = None if self._decide is None else self._decide(self, value, what)
        if found is None:
            raise NeedsValues(self.refusal(what), here(1))
        self.lent.lend(found)
        return placed(found, index_of(array.dtype)) if devices.several else found

    def constant(self, tensor: Any) -> Any:
        """Return the array of a tensor whose values are the same at each call; None for any other."""
        array = tensor._payload
        if type(array) is np.ndarray:
            return array if self.known(array) else None
        return self.graph.constants.get(self.value_of(tensor))

    def refusal(self, what: str) -> str:
        return (
            f"{what} needs the values of a tensor while the function is captured, before anything is computed; use where(), "
            "cond() or while_loop() of wengert, or leave this part out of the compiled function"
        )

    def call_function(self, function: Any, args: tuple[Any, ...]) -> Any:
        return NotImplemented

    # ---- random numbers --------------------------------------------------------------

    def sampled(self, name: str, generator: Any, sampler: Any, shape: tuple[int, ...], parameters: Any) -> Any:
        """Enter a draw from a generator, and return its result.

        Its shape and dtype are learnt from a draw that leaves the generator where it is.
        """
        like = [np.ones(p._payload.shape, p._payload.dtype) if isinstance(p, Tensor) else p for p in parameters]
        found = sampler(generator.key, generator.offset, shape, *like)[0]
        spec = Spec(found.shape, dtype_of(found.dtype))
        arguments = tuple(self._argument(p) for p in parameters)
        drawn = self.call(Draw(name, generator, sampler, shape), arguments, [(spec, None)], here(1))
        indices = (index_of(p._payload.dtype) for p in parameters if isinstance(p, Tensor))
        return (located(drawn, next((i for i in indices if i is not None), None)) if devices.several else drawn)[0]

    # ---- what Python does at each call -----------------------------------------------

    def touched(self, tensor: Any, read: bool = True) -> None:
        """Take note of ``.grad`` of a tensor from outside: it is about to be set, or (``read``) something depends on it."""
        self.regions.check("looking at .grad")
        if type(tensor._payload) is np.ndarray or tensor._payload.storage.source is not None:
            self.grads.setdefault(id(tensor), (tensor, tensor._grad, read))

    def guard(self, ask: Callable[[], Any]) -> None:
        """The graph is right only as long as ``ask()`` gives what it gives now."""
        self.guards.append((ask, ask()))

    def keeps(self, container: Any, names: Sequence[Any] | None = None) -> None:
        """The graph is right only as long as a container holds the same objects (under some names), or equal plain values."""
        self.containers.append((container, names))

    def host(self, numbers: Any, dtype: Any) -> list[Value]:
        """Return inputs of the graph for numbers that Python computes at each call.

        Args:
            numbers: a function that returns a tuple; its ``peek()`` returns the same, and changes nothing.
        """
        self.regions.check("an optimiser's step")
        spec = Spec((), dtype_of(dtype))
        try:
            with outside():
                found = tuple(numbers.peek())
        except TransformError as error:
            raise NotCapturable("an optimiser steps twice in one call, and reads the number of its step") from error
        values = [self.graph.input(spec, (), self.graph.fresh("host")) for _ in found]
        self.hosts.append(Host(numbers, tuple(values), found))
        return values

    def hosted(self, numbers: Any, dtype: Any) -> list[Any]:
        """Return the values of :meth:`host` as tensors."""
        return [self.tensor(Storage(v), (), v, stand_in((), dtype)) for v in self.host(numbers, dtype)]

    def _is_outer(self, tensor: Any) -> bool:
        held = None if tensor is None else tensor._payload
        return self.is_adopted(tensor) or (type(held) is np.ndarray and not self.known(held))

    def is_adopted(self, tensor: Any) -> bool:
        """Whether a tensor of the program is one from outside, that was written."""
        return any(t is tensor for t, _, _ in self._adopted)

    def refuse(self, what: str) -> None:
        """Raise NotCapturable: no graph can say this."""
        raise NotCapturable(f"{what} cannot be captured")

    def postpone(self, why: str) -> None:
        """Raise NotYet: the program is to run once as it is."""
        raise NotYet(why)

    outside = staticmethod(outside)
    branches, loop = branches, loop

    def effect(self, do: Callable[[], Any]) -> None:
        """Call ``do()`` at each call, after the host numbers that were asked for before."""
        self.regions.check("what Python does")
        self.hosts.append(Host(do, ()))

    def formulas(self, name: str, key: Any, function: Any, apply: Any, moments: int) -> Callable[..., None]:
        """Return a function of (tensors, numbers) that enters an optimiser's formula; see :class:`Formula`."""
        return partial(enter_formula, self, Formula(name, key, function, apply, moments))

    # ---- the end ---------------------------------------------------------------------

    def gradients(self) -> Iterator[tuple[Any, Any]]:
        """Yield each tensor from outside whose ``.grad`` was set, and what it is now (a tensor, or None)."""
        for tensor, before, read in self.grads.values():
            grad = tensor._grad
            if grad is before and (read or grad is not None):
                continue
            if grad is not None and self._is_outer(grad):
                raise NotCapturable("it makes a tensor from outside the .grad of another")
            yield tensor, grad

    def end(self) -> None:
        """Give tensors from outside back what they had: whatever the graph does is done when it runs."""
        for tensor, array, node in reversed(self._adopted):
            tensor._payload, tensor._node = array, node
        for tensor, before, _ in self.grads.values():
            tensor._grad = before
        for tensor, array, node, view in self._before:
            tensor._payload, tensor._node, tensor._view = array, node, view
        for cell, count, writes in self._versions.values():
            cell.count, cell.writes = count, writes
        self.history.restore()
        self._adopted.clear()
        self.passing.restore()

    def check_arguments(self) -> None:
        """Refuse a program that gives an argument another shape or memory, or leaves a hook on a tensor from outside.

        Raises:
            NotCapturable: if it does.
        """
        self.history.check_hooks()
        self.passing.check()
        self.lent.check()
        known = [*(before[:3] for before in self._before), *self._adopted]
        if any(t._node is not node or (t._payload is not array and not self.is_adopted(t)) for t, array, node in known):
            raise NotCapturable("it gives a tensor from outside another shape, memory or history")
