"""``wengert.trace``: a function as a graph that can be read, checked, changed, run and saved."""

import copy
import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from wengert import tree
from wengert.compiling.apart import Apart
from wengert.compiling.capturing import capture
from wengert.compiling.decisions import Decision, Different
from wengert.compiling.program import Program
from wengert.compiling.results import Result
from wengert.compiling.sources import Argument, Gradient, Held, Source
from wengert.core.interpret import Payload
from wengert.core.place import describe
from wengert.core.registry import ops
from wengert.core.state import thread
from wengert.core.tensor import Tensor, from_array
from wengert.errors import GraphError, TransformError
from wengert.graph.edit import apply
from wengert.graph.files import Content, Path, packed, read, write
from wengert.graph.ir import Graph
from wengert.graph.outside import Host
from wengert.graph.parser import parse, parse_literal
from wengert.graph.text import literal

__all__ = ["TracedProgram", "load_traced", "trace"]


def trace(target: Any) -> Any:
    """Return a function that writes down what ``target`` does; of a matrix, return the trace.

    ``trace(fn)(*args, **kwargs)`` runs a function once without computing anything, and returns a :class:`TracedProgram`.
    Whatever is no function, a module or another callable is a matrix, and :func:`wengert.ops.trace` returns the sum of its
    diagonal, as ``torch.trace`` does.

    The arguments are nested containers of tensors and other values. Only tensors are inputs of the graph; other values stand in
    it as they are. Where Python asks for a value of a tensor, the graph is of the way that was taken, and evaluating it on
    tensors that would take another one is an error. Tensors that the function holds are inputs, too; what it writes into
    them or into arguments, and into ``.grad``, it does when the program is evaluated.

    Raises:
        TransformError: from the call, if the function needs many values of a tensor or does something else that no graph can
            say; and what the function itself raises.

    Example:
        >>> import wengert as wg
        >>> from wengert.compiling.trace import trace
        >>> program = trace(lambda x, scale: (x * scale).sum())(wg.ones(2, 3), scale=2.0)
        >>> print(program.graph.text(places=False))
        graph {
          in %in1: float32[2, 3]
          %2: float32[2, 3] = mul(%in1, 2.0)
          %3: float32[] = sum(%2, dim=(0, 1))
          return %3
        }
        >>> program.evaluate(wg.full((2, 3), 4.0), scale=2.0)
        tensor(48.)
        >>> trace(wg.eye(3))
        tensor(3.)
    """
    if isinstance(target, Tensor) or not callable(target):
        return ops.trace(target)

    def traced(*args: Any, **kwargs: Any) -> TracedProgram:
        leaves, structure = tree.flatten((args, kwargs))
        if thread.state.levels or any(_transformed(leaf) for leaf in leaves):
            raise TransformError(
                "trace() inside a transform or a compiled function; trace the whole of it from outside"
            )
        program = capture(target, leaves, structure)
        return TracedProgram(program, structure, [_Form(leaf, leaves) for leaf in leaves], _title(target))

    return traced


def _title(target: Any) -> str:
    return str(getattr(target, "__qualname__", type(target).__qualname__))


def _transformed(leaf: Any) -> bool:
    return isinstance(leaf, Tensor) and isinstance(leaf._payload, Payload)


class _Form:
    """What an argument must be: a tensor of some shape and dtype (the same as an earlier one, if it was), or a value."""

    __slots__ = ("dtype", "first", "shape", "value")

    dtype: Any
    shape: tuple[int, ...] | None

    def __init__(self, leaf: Any, leaves: Sequence[Any] = ()) -> None:
        self.value, self.shape, self.dtype, self.first = leaf, None, None, -1
        if isinstance(leaf, Tensor):
            self.value, self.shape, self.dtype = None, tuple(leaf.shape), leaf.dtype
            self.first = next(i for i, other in enumerate(leaves) if other is leaf)

    def __str__(self) -> str:
        return repr(self.value) if self.shape is None else f"a tensor {self.dtype.name}{list(self.shape)}"

    def fits(self, leaf: Any) -> bool:
        """Whether an argument is one."""
        if self.shape is None:
            same = self.value is leaf or (type(self.value) is type(leaf) and self.value == leaf)
            return bool(same) and not isinstance(leaf, Tensor)
        return isinstance(leaf, Tensor) and tuple(leaf.shape) == self.shape and leaf.dtype is self.dtype


class TracedProgram:
    """A function that was captured: see :func:`trace`.

    Attributes:
        graph: what it computes. name: of the function.
    """

    def __init__(self, program: Program, structure: Any, forms: list[_Form], name: str) -> None:
        self.name, self._program, self._structure, self._forms = name, program, structure, forms
        program.outward = None  # results have no history
        program.prepare("reference")

    @property
    def graph(self) -> Graph:
        """The graph; changes of it are in force at once. :meth:`apply` makes another program."""
        return self._program.graph

    def __str__(self) -> str:
        return str(self.graph)

    def __repr__(self) -> str:
        return f"<traced {self.name}: {len(self.graph.inputs)} inputs, {len(self.graph)} operators>"

    def verify(self) -> None:
        """Check the graph. Raises GraphError: see :func:`wengert.graph.verify.verify`."""
        self.graph.verify()

    def evaluate(self, *args: Any, **kwargs: Any) -> Any:
        """Run the graph, operator by operator in NumPy, and return what the function returns, without history.

        What the function writes into its arguments, into tensors that it holds and into ``.grad`` is written.

        Raises:
            TypeError, ValueError: for arguments of another structure, shape, dtype or value than those it was traced with.
            TransformError: if something that the trace depends on has changed, or inside a transform.
        """
        leaves, structure = tree.flatten((args, kwargs))
        if structure != self._structure:
            raise TypeError(f"{self.name} was traced with arguments {self._structure}, got {structure}")
        for i, (form, leaf) in enumerate(zip(self._forms, leaves, strict=True)):
            if not form.fits(leaf):
                got = _Form(leaf, leaves) if isinstance(leaf, Tensor) else repr(leaf)
                raise ValueError(
                    f"{self.name}: argument {i} was {form} when it was traced, now it is {got}; trace it again"
                )
        if thread.state.levels or any(_transformed(leaf) for leaf in leaves):
            raise TransformError("a traced program is evaluated on plain tensors, outside of transforms")
        self._check_identities(leaves)
        broken = self._program.guards.broken(leaves)
        if broken is not None:
            raise TransformError(f"{self.name}: {broken} since it was traced; trace it again")
        try:
            return self._program(leaves)
        except Different as way:
            asked = self._program.decisions[way.number]
            raise TransformError(
                f"{self.name}: what {describe(asked.place)} asks for was {asked.answer} when it was traced, and is "
                f"{way.answer} now; the graph is of the way that was taken then: trace it again"
            ) from None

    def _check_identities(self, leaves: Sequence[Any]) -> None:
        """Refuse tensors that are one where they were two, or share memory that is written."""
        for i, form in enumerate(self._forms):
            if form.shape is not None and next(k for k, leaf in enumerate(leaves) if leaf is leaves[i]) != form.first:
                raise ValueError(
                    f"{self.name}: argument {i} is the same tensor as another one, or no longer; trace it again"
                )
        tensors = list({id(t): t for s in self._program.sources if s is not None for t in [s.tensor(leaves)]}.values())
        for source, _ in self._program.writes:
            target = source.tensor(leaves)
            if any(t is not target and np.may_share_memory(t._payload, target._payload) for t in tensors):
                raise ValueError(f"{self.name} writes into {source!r}, whose memory another of its tensors shares")

    def apply(self, *passes: Callable[[Graph], Graph]) -> "TracedProgram":
        """Return the program with another graph: what passes make of it, verified after each.

        Errors as for :func:`wengert.graph.edit.apply`.
        """
        old = self._program
        return TracedProgram(_with_graph(old, apply(old.graph, *passes)), self._structure, self._forms, self.name)

    def report(self) -> str:
        """Return a table of the kernels that the graph becomes: see :func:`wengert.compiling.report.report_of`."""
        return self.graph.report()

    def save(self, path: Path) -> None:
        """Write the program to a file with the tensors that it holds; :func:`load_traced` reads it.

        Raises:
            GraphError: if it holds what no file can: a random generator, an optimiser, an object of Python that it takes or
                returns.
        """
        write(path, _Saving(self._program).content(self._structure, self._forms, self.name))


def _with_graph(old: Program, graph: Graph) -> Program:
    """Return a program with another graph, whose outputs and writes stand in the same order."""
    new, inputs = copy.copy(old), dict(zip(old.graph.inputs, graph.inputs, strict=True))
    new.graph = graph
    new.hosts = [Host(h.do, tuple(inputs[v] for v in h.values)) for h in old.hosts]
    return new


# ---- files ---------------------------------------------------------------------------


def _same_memory(program: Program) -> list[Any]:
    """Return the pairs of tensors that lie in the same memory, but for those that the function holds both."""
    pairs = [] if program.guards.apart is None else program.guards.apart.same
    return [pair for pair in pairs if not (isinstance(pair[0], Held) and isinstance(pair[1], Held))]


class _Saving:
    """Turns a program into what a file holds; tensors that the function holds go beside the graph's constants."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.held: list[Any] = []

    def content(self, structure: Any, forms: list[_Form], name: str) -> Content:
        program = self.program
        if program.hosts or program.effects:
            raise GraphError(
                f"{name} calls Python at each call (for an optimiser or a scheduler), which no file can hold"
            )
        if program.sparse:
            raise GraphError(f"{name} makes sparse gradients, which no file of a program can hold")
        content = packed(program.graph)
        told = {
            "name": name,
            "arguments": _structure_told(structure),
            "forms": [_form_told(f) for f in forms],
            "structure": _structure_told(program.structure),
            "sources": [self.source(s) for s in program.sources],
            "results": [self.result(r) for r in program.results],
            "writes": [[self.source(s), at] for s, at in program.writes],
            "gradients": [[self.source(s), at] for s, at in program.gradients],
            "decisions": [[d.position, describe(d.place)] for d in program.decisions],
            "guards": [[self.source(s), present] for s, present in program.guards.grads],
            "memory": [[self.source(a), self.source(b), n] for a, b, n in _same_memory(program)],
        }
        content.texts["program"] = json.dumps(told)
        for i, decision in enumerate(program.decisions):
            content.arrays[f"decision.{i}"] = decision.answer
        for i, tensor in enumerate(self.held):
            content.arrays[f"held.{i}"] = tensor._payload
            if tensor._grad is not None:
                content.arrays[f"held.{i}.grad"] = tensor._grad._payload
        return content

    def source(self, source: Source | None) -> Any:
        if isinstance(source, Argument):
            return {"argument": source.index}
        if isinstance(source, Gradient):
            return {"gradient": self.source(source.of)}
        assert source is not None
        found = next((i for i, t in enumerate(self.held) if t is source.held), None)
        if found is None:
            found = len(self.held)
            self.held.append(source.held)
        return {"held": found}

    def result(self, result: Result) -> Any:
        if result.kind == "value":
            return {"value": result.item}
        if result.kind == "same":
            return {"same": _told(result.item)}
        of = self.result(result.item) if result.kind == "view" else self.source(result.item)
        return {result.kind: of, "chain": _told(result.chain), "detached": result.detached}


def _told(value: Any) -> str:
    """Return a value as text. GraphError for one that text cannot say."""
    text = literal(value)
    parse_literal(text)
    return text


def _structure_told(spec: Any) -> Any:
    """Return the structure of nested containers for JSON."""
    if spec.kind is None:
        return None
    inside = [_structure_told(child) for child in spec.children]
    if spec.kind in (list, tuple):
        return [spec.kind.__name__, inside]
    if spec.kind is dict:
        return ["dict", inside, _told(spec.context)]
    raise GraphError(f"a file holds lists, tuples and dictionaries of tensors, not {spec.kind.__name__}")


def _form_told(form: _Form) -> Any:
    if form.shape is None:
        return [_told(form.value)]
    return [form.dtype.name, list(form.shape), form.first]


def load_traced(path: Path) -> TracedProgram:
    """Read a program that :meth:`TracedProgram.save` has written. It holds tensors of its own, with the values of then.

    Raises:
        FileNotFoundError: if there is no such file. GraphError: if it is damaged, or holds a graph alone.
    """
    content = read(path)
    graph = parse(content.texts["graph"], content.arrays)
    if "program" not in content.texts:
        raise GraphError(f"{path} holds a graph alone; wengert.graph.files.load() reads it")
    try:
        return _Loading(graph, content.arrays).traced(json.loads(content.texts["program"]))
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise GraphError(f"{path} holds no program that goes with its graph: {error!r}") from error


class _Loading:
    """Turns what a file holds into a program."""

    def __init__(self, graph: Graph, arrays: dict[str, Any]) -> None:
        self.program, self.arrays = Program(graph), arrays
        self.results: dict[str, Result] = {}
        self.held = {name: from_array(array) for name, array in arrays.items() if name.startswith("held.")}
        for name, tensor in self.held.items():
            if name.endswith(".grad"):
                self.held[name.removesuffix(".grad")]._grad = tensor

    def traced(self, told: Any) -> TracedProgram:
        program, graph = self.program, self.program.graph
        arguments, forms = _structure(told["arguments"]), [_form(f) for f in told["forms"]]
        program.structure = _structure(told["structure"])
        program.sources = [self.source(s) for s in told["sources"]]
        program.results = [self.result(r) for r in told["results"]]
        program.writes = [(self.source(s), self.position(at)) for s, at in told["writes"]]
        program.gradients = [(self.source(s), None if at is None else self.position(at)) for s, at in told["gradients"]]
        program.decisions = [
            Decision(self.position(at), self.arrays[f"decision.{i}"], place)
            for i, (at, place) in enumerate(told["decisions"])
        ]
        program.guards.grads = [(self.source(s), bool(present)) for s, present in told["guards"]]
        same = [(self.source(a), self.source(b), int(n)) for a, b, n in told["memory"]]
        program.guards.apart = Apart(
            [s for s in program.sources if s is not None], [s for s, _ in program.writes], same
        )
        counts = (arguments.count, program.structure.count, len(graph.inputs))
        if counts != (len(forms), len(program.results), len(program.sources)):
            raise ValueError("the counts of arguments, results or inputs do not agree")
        self.check(forms)
        return TracedProgram(program, arguments, forms, str(told["name"]))

    def check(self, forms: list[_Form]) -> None:
        """Refuse sources that are not of the shape and dtype of their inputs."""
        for value, source in zip(self.program.graph.inputs, self.program.sources, strict=True):
            if isinstance(source, Argument):
                shape, dtype = forms[source.index].shape, forms[source.index].dtype
            else:
                assert source is not None
                tensor = source.tensor([None] * len(forms)) if isinstance(source, Held) else None
                shape, dtype = (value.shape, value.dtype) if tensor is None else (tuple(tensor.shape), tensor.dtype)
            if (shape, dtype) != (value.shape, value.dtype):
                raise ValueError(f"{source!r} is no {value!r}")

    def source(self, told: Any) -> Source:
        ((kind, item),) = told.items()
        if kind == "argument":
            return Argument(int(item))
        return Gradient(self.source(item)) if kind == "gradient" else Held(self.held[f"held.{int(item)}"])

    def position(self, told: Any) -> int:
        """Return the number of a result of the graph."""
        if not 0 <= int(told) < len(self.program.graph.results):
            raise ValueError(f"the graph has no result {told}")
        return int(told)

    def result(self, told: Any) -> Result:
        """Return a result; the same one for the same text, so that what was one object is one again."""
        return self.results.setdefault(json.dumps(told), self._result(told))

    def _result(self, told: Any) -> Result:
        if "value" in told:
            return Result("value", self.position(told["value"]))
        if "same" in told:
            return Result("same", parse_literal(told["same"]))
        kind = next(kind for kind in ("source", "gradient", "view") if kind in told)
        of = self.result(told[kind]) if kind == "view" else self.source(told[kind])
        return Result(kind, of, parse_literal(told["chain"]), bool(told["detached"]))


def _structure(told: Any) -> Any:
    if told is None:
        return tree.structure(0)
    kind = {"list": list, "tuple": tuple, "dict": dict}[told[0]]
    children = tuple(_structure(child) for child in told[1])
    context = parse_literal(told[2]) if kind is dict else None
    return tree.Spec(kind, context, children)


def _form(told: Any) -> _Form:
    if len(told) == 1:
        return _Form(parse_literal(told[0]))
    name, shape, first = told
    form = _Form(None)
    form.shape, form.dtype, form.first = tuple(shape), parse_literal(name), int(first)
    return form
