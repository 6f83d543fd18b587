"""What becomes of the sums of a contraction before they are stored, and functions that compute it on vectors."""

from typing import Any, Final, NamedTuple

from llvmlite import ir

from wengert.codegen.build import VOID
from wengert.codegen.expressions import Expressions
from wengert.codegen.lanes import Lanes, Value
from wengert.loops.ir import Kernel
from wengert.loops.scalar import Scalar, cast, make, postorder, select, var

__all__ = ["ACTIVATIONS", "Epilogue", "Function"]

ACTIVATIONS: Final = ("relu", "sigmoid", "tanh", "gelu", "gelu_tanh", "silu", "softplus")


class Epilogue(NamedTuple):
    """What becomes of a sum: ``activation(alpha * sum + beta * addend + bias)``, rounded to ``dtype``.

    Attributes:
        dtype: of the result and of the addend. addend: whether there is one. bias: "" (none), "column" (an element per
            column) or "row", in the dtype of the sums. activation: "" or one of ``ACTIVATIONS``.
    """

    dtype: str
    addend: bool = False
    bias: str = ""
    activation: str = ""

    def formula(self, total: str) -> Scalar:
        """Return the result as an expression of the variables sum, alpha, beta, addend and bias."""
        value = var("sum", total) * var("alpha", total)
        if self.addend:
            value = value + var("beta", total) * cast(var("addend", self.dtype), total)
        if self.bias:
            value = value + var("bias", total)
        if self.activation == "relu":
            value = select(value.lt(0), 0, value)  # a NaN stays one
        elif self.activation:
            value = make(self.activation, (value,))
        return cast(value, self.dtype)

    @property
    def long(self) -> bool:
        """Whether it is so many instructions that they are emitted once for all tiles."""
        return self.activation not in ("", "relu")


class Function:
    """A function that evaluates scalar expressions of vectors."""

    def __init__(self, module: Any, name: str, arguments: list[Any]) -> None:
        made = ir.Function(module, ir.FunctionType(VOID, arguments), name)
        for attribute in ("nounwind", "noinline"):
            made.attributes.add(attribute)
        made.linkage = "internal"
        self._expressions = Expressions(Kernel(name, (), (), ()), module, made)
        self.builder = self._expressions.builder
        self.arguments = list(made.args)

    def value(self, formula: Scalar, known: dict[str, Value], lanes: int) -> Any:
        """Return a formula as a vector, given its variables."""
        x = self._expressions
        x.lanes = Lanes("", lanes, None)
        variables = [node for node in postorder([formula]) if node.op == "var"]
        x.memo.append({node: known[node.data[0]] for node in variables})
        found = x.spread(x.value(formula))
        x.memo.pop()
        return found

    def close(self) -> Any:
        """End the function, and return it."""
        self.builder.ret_void()
        with self.builder.goto_block(self._expressions.entry):
            self.builder.branch(self._expressions.start)
        return self.builder.function
