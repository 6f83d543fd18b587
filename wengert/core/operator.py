"""The declaration of an operator: one value from which everything else about it is derived."""

from collections import namedtuple
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from wengert.array.dtype import DType
from wengert.core.plan import Rules
from wengert.core.signature import Signature
from wengert.errors import DeclarationError

__all__ = ["Op", "Spec"]


BATCH_WORDS = ("broadcast", "front", "loop", "refuse")
PREFIXES = ("linalg", "fft", "special")


class Spec(NamedTuple):
    """What is known of a tensor before it is computed."""

    shape: tuple[int, ...]
    dtype: DType

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)


class Op:
    """One operator.

    Attributes:
        name: PyTorch's name. family: which family derived its rules.
        kernel: the NumPy function that computes it; ``positional`` arguments go by position, the rest by keyword.
        ufunc: the NumPy ufunc the fast lanes call for float32 and float64, or None.
        signature: its arguments. outputs: the names of its results; ``variable``: it returns a list of any length.
        promote: None, ``"same"`` (tensor arguments are cast to their common dtype) or ``"float"`` (and integers
            to the default float dtype).
        result: how the result dtype follows: ``"same"``, ``"bool"``, ``"real"`` (of a complex) or ``"kernel"``.
        widen: compute float16 and bfloat16 in float32.
        rules: reverse-mode rules, or None if it has no derivative. jvp: forward-mode rules by argument name (each
            maps a tangent to its contribution), or one joint rule.
        batch: how it runs on a batch of examples: one of ``BATCH_WORDS``, a Body, or a rule (see ``core.batch``); None
            for a composite. view: the result may share the first argument's memory.
        spec: the shape and dtype rule: called like the kernel with a Spec for each tensor.
        cost: called like ``spec``; returns floating-point operations. samples: makes the calls that checks run.
        lowering: of an element-wise operator whose NumPy kernel cannot be traced: the name of what it is in scalar expressions
            (``"erf"``), or a function from its arguments that are no tensors to that name. None: the kernel is traced.
        places: it puts whole tensors beside one another (cat, writes through views), so that a gradient part of nothing but
            zeros means that the tensor was not looked at: such a part is passed on as a zero that no rule multiplies.
        result_type: the named tuple of several results: ``values, indices = x.sort()``.
        home: the namespaces it is public in: "" (the package), "nn.functional", "linalg", "fft", "special", or () for none.
        composite: a function of other operators; its derivative comes from its body.
    """

    __slots__ = (
        "batch", "composite", "cost", "doc", "family", "function", "home", "jvp", "kernel", "keywords",
        "lowering", "name", "outputs", "places", "promote", "result", "result_type", "rules", "samples", "signature",
        "single", "spec", "ufunc", "variable", "view", "widen",
    )  # fmt: skip

    def __init__(
        self, kernel: Callable[..., Any], family: str, *, name: str | None = None, ufunc: Any = None,
        outputs: Sequence[str] = ("out",), variable: bool = False, promote: str | None = None, result: str = "kernel",
        widen: bool = True, vjp: dict[str, Callable[..., Any]] | Callable[..., Any] | None = None, jvp: Any = None,
        batch: Any = None, view: bool = False, spec: Any = None, cost: Any = None, samples: Any = None,
        lowering: Any = None, composite: bool = False, holomorphic: bool = False, places: bool = False,
        home: str | tuple[str, ...] | None = None,
    ) -> None:  # fmt: skip
        self.name = name or kernel.__name__
        self.kernel, self.family, self.ufunc, self.doc = kernel, family, ufunc, kernel.__doc__ or ""
        self.signature = Signature(kernel, self.name)
        self.outputs, self.variable = tuple(outputs), variable
        self.single = len(self.outputs) == 1 and not variable
        self.promote, self.result, self.widen, self.view = promote, result, widen, view
        signature = self.signature
        self.rules = (
            None
            if vjp is None
            else Rules(self.name, signature.names, signature.inputs, self.outputs, vjp, holomorphic, signature.many)
        )
        self.jvp, self.batch, self.spec, self.cost, self.samples = jvp, batch, spec, cost, samples
        self.lowering, self.composite, self.places = lowering, composite, places
        self.home = _home(self.name) if home is None else (home,) if isinstance(home, str) else home
        self.result_type: Any = None if self.single or variable else namedtuple(self.name, self.outputs)
        self.keywords = signature.names[signature.positional :]
        self.function: Any = None
        if self.rules is not None:
            self.rules.op = self
        self._check()

    def _check(self) -> None:
        if not self.doc.strip():
            raise DeclarationError(f"operator '{self.name}' has no docstring")
        if self.samples is None:
            raise DeclarationError(f"operator '{self.name}' does not say: samples")
        if self.rules is not None and self.jvp is None:
            raise DeclarationError(f"operator '{self.name}' does not say: jvp")
        if self.spec is None and not self.composite:
            raise DeclarationError(f"operator '{self.name}' does not say: spec (its shape and dtype rule)")
        if self.batch is None and not self.composite:
            raise DeclarationError(
                f"operator '{self.name}' does not say: batch, which is how it runs on many examples at once: 'broadcast' "
                "(element by element), 'front' (a dimension in front changes nothing), Body(function of other operators), "
                "'loop' (one example after the other), 'refuse', or a rule of its own"
            )
        if isinstance(self.batch, str) and self.batch not in BATCH_WORDS:
            raise DeclarationError(
                f"operator '{self.name}': there is no batching rule '{self.batch}'; there are {', '.join(BATCH_WORDS)}"
            )
        if self.view and self.rules is not None and self.rules.uses_output():
            raise DeclarationError(f"the view operator '{self.name}' must not name its result in a rule")

    def call_kernel(self, values: Sequence[Any]) -> Any:
        """Run the kernel on arrays and normalised arguments."""
        return _call(self, self.kernel, values)

    def infer(self, values: Sequence[Any]) -> Any:
        """Return the Spec of the result (a tuple of them for several) from Specs and normalised arguments."""
        return _call(self, self.spec, values)

    @property
    def devices(self) -> tuple[str, ...]:
        """The devices it has a kernel for."""
        return ("cpu",)

    @property
    def dtype_rule(self) -> str:
        """How the result dtype follows from the arguments', in words."""
        start = {"same": "common dtype of the tensors", "float": "common dtype, integers become the default float"}
        end = {"bool": "bool", "real": "its real dtype", "same": "", "kernel": ""}[self.result]
        return "; ".join(part for part in (start.get(self.promote or "", ""), end) if part) or "given by its spec"

    def __repr__(self) -> str:
        return f"<operator {self.signature}>"


def _home(name: str) -> tuple[str, ...]:
    """Return the namespaces an operator is public in, from PyTorch's prefixes: ``linalg_norm`` is ``linalg.norm``."""
    prefix = name.partition("_")[0]
    return (prefix,) if prefix in PREFIXES and "_" in name else ("",)


def _call(op: Op, function: Callable[..., Any], values: Sequence[Any]) -> Any:
    positional, names = op.signature.positional, op.signature.names
    if positional == len(names):
        return function(*values)
    return function(*values[:positional], **dict(zip(names[positional:], values[positional:], strict=True)))
