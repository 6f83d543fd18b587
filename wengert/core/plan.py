"""Which derivative rules a call needs, and which of its values they need: worked out once per operator.

A rule is a plain function whose parameter names say what it uses::

    lambda g, other: g * other          # the cotangent, then the operator's own argument `other`
    lambda g, out: g * (1 - out * out)  # ... or its result
    lambda g, input_shape: ...          # ... or only the shape (or dtype) of an argument

Only the named values are kept for backward; a value that no needed rule names is not kept.
"""

from collections.abc import Callable, Sequence
from types import CodeType
from typing import Any

from wengert.core.registry import ops
from wengert.errors import DeclarationError

__all__ = ["Plan", "Rules", "argument_names"]

Rule = Callable[..., Any]


def argument_names(rule: Rule) -> tuple[str, ...]:
    """Return the names of a rule's parameters after the first (the cotangent or tangent)."""
    code = rule.__code__
    return tuple(code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount])


class Plan:
    """What one call keeps and runs, for one set of inputs that need gradients.

    Attributes:
        rules: (input numbers served, rule, slots of its arguments, whether it is arithmetic); a joint rule serves several
            inputs at once. An arithmetic rule uses nothing but Python operators on its arguments, so that it means the same
            on NumPy arrays of one dtype as on tensors.
        keep_inputs, keep_outputs, keep_shapes, keep_dtypes: what to save, as (slot, source) pairs.
        keeps_tensors: whether there is anything to free. many: some argument is a sequence of tensors;
            grouped: or one rule serves several arguments.
        simple: one result, one rule per argument. width: the number of slots. op: the operator.
    """

    __slots__ = (
        "grouped",
        "keep_dtypes",
        "keep_inputs",
        "keep_outputs",
        "keep_params",
        "keep_shapes",
        "keeps_tensors",
        "many",
        "op",
        "rules",
        "simple",
        "width",
    )

    def __init__(self, rules: Any, wanted: set[int], table: "Rules") -> None:
        self.op = table.op
        self.rules = rules
        self.width = table.width
        self.keep_inputs = tuple(i for i in table.inputs if i in wanted)
        self.keep_params = tuple(i for i in table.params if i in wanted)
        self.keep_outputs = tuple((s, k) for s, k in table.outputs if s in wanted)
        self.keeps_tensors = bool(self.keep_inputs or self.keep_outputs)
        self.many = table.many
        self.grouped = table.many or table.joint is not None
        self.simple = (
            not table.many
            and table.joint is None
            and len(table.outputs) == 1
            and not (table.op.variable or table.op.places)
        )
        self.keep_shapes = tuple((s, i) for s, i in table.shapes if s in wanted)
        self.keep_dtypes = tuple((s, i) for s, i in table.dtypes if s in wanted)


class Rules:
    """The reverse-mode rules of one operator with the names in them resolved to slots.

    Slots are numbered: the arguments in order, then the results, then shapes and dtypes of tensor arguments.

    Args:
        owner: the operator's name.
        names: argument names. inputs: indices of the tensor arguments. outputs: names of the results.
        rules: one rule per differentiable argument name, or a single joint rule that takes ``needs`` (a tuple of
            booleans, one per tensor argument) and returns one cotangent, or None, per tensor argument.
        holomorphic: the rules are complex derivatives: of complex values they are applied as conj(rule(conj(g))).
    """

    __slots__ = (
        "dtypes",
        "holomorphic",
        "inputs",
        "joint",
        "many",
        "op",
        "outputs",
        "owner",
        "params",
        "plans",
        "rules",
        "shapes",
        "slot",
        "width",
        "without",
    )

    def __init__(
        self,
        owner: str,
        names: Sequence[str],
        inputs: Sequence[int],
        outputs: Sequence[str],
        rules: dict[str, Rule] | Rule,
        holomorphic: bool = False,
        many: bool = False,
    ) -> None:
        self.owner = owner
        self.op: Any = None  # the operator itself, set when it is made
        self.holomorphic, self.many = holomorphic, many
        self.inputs = tuple(inputs)
        self.params = tuple(i for i in range(len(names)) if i not in self.inputs)
        self.slot = {name: i for i, name in enumerate(names)}
        count = len(names)
        self.outputs = tuple((count + k, k) for k in range(len(outputs)))
        self.slot.update({name: count + k for k, name in enumerate(outputs)})
        count += len(outputs)
        self.shapes = tuple((count + 2 * k, i) for k, i in enumerate(self.inputs))
        self.dtypes = tuple((count + 2 * k + 1, i) for k, i in enumerate(self.inputs))
        self.slot.update({f"{names[i]}_shape": s for s, i in self.shapes})
        self.slot.update({f"{names[i]}_dtype": s for s, i in self.dtypes})
        self.width = count + 2 * len(self.inputs)
        self.joint = None if isinstance(rules, dict) else (rules, self._slots(rules))
        self.rules = (
            {self._index(name): (rule, self._slots(rule)) for name, rule in rules.items()}
            if isinstance(rules, dict)
            else {}
        )
        self.without = sum(
            1 << k for k, i in enumerate(self.inputs) if self.missing(i)
        )  # bits of arguments without a rule
        self.plans: dict[int, Plan] = {}

    def _index(self, name: str) -> int:
        if self.slot.get(name) not in self.inputs:
            raise DeclarationError(f"operator '{self.owner}' has a rule for '{name}', which is not a tensor argument")
        return self.slot[name]

    def _slots(self, rule: Rule) -> tuple[int, ...]:
        found = []
        for name in argument_names(rule):
            if name == "needs":
                found.append(-1)
            elif name not in self.slot:
                known = ", ".join(self.slot)
                raise DeclarationError(f"a rule of operator '{self.owner}' names '{name}'; it may name: g, {known}")
            else:
                found.append(self.slot[name])
        return tuple(found)

    def uses_output(self) -> bool:
        """True if some rule names a result."""
        outputs = {slot for slot, _ in self.outputs}
        rules = [self.joint] if self.joint is not None else self.rules.values()
        return any(outputs & set(slots) for _, slots in rules)

    def missing(self, index: int) -> bool:
        """True if there is no rule for the tensor argument with this index."""
        return self.joint is None and index not in self.rules

    def plan(self, mask: int, of_complex: bool = False) -> Plan:
        """Return the plan for the inputs whose bits are set in ``mask`` (bit k: the k-th tensor argument)."""
        conjugate = of_complex and self.holomorphic
        key = mask << 1 | conjugate
        found = self.plans.get(key)
        if found is None:
            found = self.plans[key] = self.make(mask, conjugate)
        return found

    def make(self, mask: int, conjugate: bool) -> Plan:
        """Return the plan that :meth:`plan` keeps, made anew from the rules as they are."""
        chosen = [(k, i) for k, i in enumerate(self.inputs) if mask >> k & 1 and not self.missing(i)]
        if self.joint is not None:
            rule, slots = self.joint
            return Plan(((tuple(range(len(self.inputs))), rule, slots, False),), set(slots), self)
        rules = []
        for k, i in chosen:
            rule, slots = self.rules[i]
            chosen_rule = conjugated(rule) if conjugate else rule
            rules.append((k, chosen_rule, slots, arithmetic(chosen_rule, slots)))
        return Plan(tuple(rules), {s for _, _, slots, _ in rules for s in slots}, self)


def arithmetic(rule: Rule, slots: tuple[int, ...]) -> str:
    """Return "identity" for a rule that hands the cotangent on, "arithmetic" for Python operators only, else ""."""
    code = rule.__code__
    if code.co_names or code.co_freevars or any(isinstance(c, CodeType) for c in code.co_consts):
        return ""
    if not slots and rule.__code__.co_code == _identity.__code__.co_code:
        return "identity"
    return "arithmetic"


def _identity(g: Any) -> Any:
    return g


def conjugated(rule: Rule) -> Rule:
    """Return the vjp of a holomorphic operator from its derivative rule, which is linear in g: conj(rule(conj(g)))."""
    return lambda g, *args: ops.conj(rule(ops.conj(g), *args))
