"""What all optimisers share: parameter groups, state, hooks, saving and loading. The layout is PyTorch's."""

import copy
import functools
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from typing import Any

from wengert.core.state import thread
from wengert.core.tensor import Tensor
from wengert.tape.accumulate import reset
from wengert.tape.hooks import RemovableHandle, add_hook
from wengert.tape.modes import enable_grad, no_grad

__all__ = [
    "Optimizer", "refuse_unsupported", "register_optimizer_step_post_hook", "register_optimizer_step_pre_hook",
]  # fmt: skip

Group = dict[str, Any]
Hook = Callable[..., Any]

_before_every_step: dict[int, Hook] = OrderedDict()
_after_every_step: dict[int, Hook] = OrderedDict()


def register_optimizer_step_pre_hook(hook: Hook) -> RemovableHandle:
    """Call ``hook(optimizer, args, kwargs)`` before the step of every optimiser; it may return (args, kwargs).

    Example:
        >>> import wengert as wg
        >>> seen = []
        >>> def note(optimizer, args, kwargs):
        ...     seen.append(type(optimizer).__name__)
        >>> handle = wg.optim.register_optimizer_step_pre_hook(note)
        >>> wg.optim.SGD([wg.ones(1, requires_grad=True)], lr=0.1).step()
        >>> handle.remove()
        >>> seen
        ['SGD']
    """
    return add_hook(_before_every_step, hook)


def register_optimizer_step_post_hook(hook: Hook) -> RemovableHandle:
    """Call ``hook(optimizer, args, kwargs)`` after the step of every optimiser.

    Example:
        >>> import wengert as wg
        >>> seen = []
        >>> def note(optimizer, args, kwargs):
        ...     seen.append(type(optimizer).__name__)
        >>> handle = wg.optim.register_optimizer_step_post_hook(note)
        >>> wg.optim.SGD([wg.ones(1, requires_grad=True)], lr=0.1).step()
        >>> handle.remove()
        >>> seen
        ['SGD']
    """
    return add_hook(_after_every_step, hook)


def _with_hooks(step: Callable[..., Any]) -> Callable[..., Any]:
    """Run the step hooks around a ``step`` method."""

    @functools.wraps(step)
    def hooked(self: "Optimizer", *args: Any, **kwargs: Any) -> Any:
        self.has_stepped = True
        if not (self._step_pre or self._step_post or _before_every_step or _after_every_step):
            return step(self, *args, **kwargs)
        captures = thread.state.captures
        if captures is not None:
            captures.refuse("step hooks of an optimiser, which Python runs,")
        for hook in (*_before_every_step.values(), *self._step_pre.values()):
            new = hook(self, args, kwargs)
            if new is None:
                continue
            if not isinstance(new, tuple) or len(new) != 2:
                raise RuntimeError(f"a step pre-hook must return None or (args, kwargs), got {new!r}")
            args, kwargs = new
        result = step(self, *args, **kwargs)
        for hook in (*self._step_post.values(), *_after_every_step.values()):
            hook(self, args, kwargs)
        return result

    return hooked


class Optimizer:
    """Base class of optimisers.

    A subclass calls ``super().__init__(params, defaults)`` and defines :meth:`update`, which changes the parameters of
    one group from their gradients (or, like a PyTorch optimiser, :meth:`step` itself).

    Args:
        params: tensors, (name, tensor) pairs, or dictionaries ``{"params": ..., option: value}``, one per group.
        defaults: the options of groups that do not give their own.

    Attributes:
        param_groups: a list of dictionaries: "params" and the options. state: by parameter, a dictionary.
        has_stepped: whether :meth:`step` was ever called.

    Raises:
        TypeError: for a single tensor, a set, or values that are no tensors.
        ValueError: for no parameters, one that is no leaf, or one that comes twice.

    Example:
        >>> import wengert as wg
        >>> class Descent(wg.optim.Optimizer):
        ...     def update(self, group):
        ...         for p in group["params"]:
        ...             p.sub_(group["lr"] * p.grad)
        >>> p = wg.nn.Parameter(wg.tensor([1.0]))
        >>> p.grad = wg.tensor([2.0])
        >>> Descent([p], {"lr": 0.25}).step()
        >>> p.item()
        0.5
    """

    scalars: tuple[str, ...] = ("step",)  # state that is one number, whatever the parameter's shape and dtype

    def __init__(self, params: Iterable[Any], defaults: dict[str, Any]) -> None:
        if isinstance(params, Tensor):
            raise TypeError("an optimizer takes several parameters, got a single Tensor; put it in a list")
        self.defaults = defaults
        self.has_stepped = False
        self.state: defaultdict[Tensor, dict[str, Any]] = defaultdict(dict)
        self.param_groups: list[Group] = []
        self._step_pre: dict[int, Hook] = OrderedDict()
        self._step_post: dict[int, Hook] = OrderedDict()
        self._save_pre: dict[int, Hook] = OrderedDict()
        self._save_post: dict[int, Hook] = OrderedDict()
        self._load_pre: dict[int, Hook] = OrderedDict()
        self._load_post: dict[int, Hook] = OrderedDict()
        if not isinstance(params, Iterable) or isinstance(params, str | bytes):
            raise TypeError(f"an optimizer takes parameters, or dictionaries of them, in a list; got {params!r}")
        groups = list(params)
        if not groups:
            raise ValueError("the optimizer got an empty parameter list")
        if not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        for group in groups:
            self.add_param_group(group)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "step" in cls.__dict__:
            cls.step = _with_hooks(cls.__dict__["step"])  # type: ignore[method-assign]

    # ---- groups ----------------------------------------------------------------------

    def add_param_group(self, param_group: Group) -> None:
        """Add a group of parameters, for instance of a layer that is unfrozen during training.

        Raises:
            TypeError, ValueError: as for the constructor; ValueError too if a required option is missing.
        """
        if not isinstance(param_group, dict):
            raise TypeError(f"a parameter group must be a dictionary, got {type(param_group).__name__}")
        group = dict(param_group)
        given = group.get("params")
        if not isinstance(given, Iterable):
            raise TypeError(f"a parameter group must hold parameters under 'params', got {given!r} there")
        if isinstance(given, set):
            raise TypeError("parameters need an order, which a set does not have; give a list")
        listed = [given] if isinstance(given, Tensor) else list(given)
        named = bool(listed) and isinstance(listed[0], tuple)
        if any(isinstance(item, tuple) != named for item in listed):
            raise ValueError("either all parameters of a group come with names, as (name, tensor), or none of them")
        if named:
            if any(len(pair) != 2 for pair in listed):
                raise ValueError("a parameter with a name is a pair (name, tensor), as named_parameters() gives them")
            group["param_names"] = [name for name, _ in listed]
            listed = [param for _, param in listed]
        if self.param_groups and named != ("param_names" in self.param_groups[0]):
            raise ValueError("either all parameter groups must have names or none of them")
        group["params"] = listed
        self._check_params(listed)
        for option, default in self.defaults.items():
            group.setdefault(option, default)
        rate = group.get("lr")
        if isinstance(rate, Tensor) and rate.numel() != 1:
            raise ValueError(f"a learning rate is one number, got a tensor of shape {tuple(rate.shape)}")
        self.param_groups.append(group)

    def _check_params(self, params: list[Any]) -> None:
        taken = {id(param) for group in self.param_groups for param in group["params"]}
        for param in params:
            if not isinstance(param, Tensor):
                raise TypeError(f"an optimizer takes Tensors, got {type(param).__name__}")
            if not (param.is_leaf or param.retains_grad):
                raise ValueError(
                    f"cannot optimize a tensor of shape {tuple(param.shape)} that is no leaf: it is the result of "
                    f"{param.grad_fn.name()}, so optimize the parameters it was computed from"
                )
            if id(param) in taken:
                raise ValueError(
                    f"a parameter of shape {tuple(param.shape)} comes twice; each may be updated only once"
                )
            taken.add(id(param))

    # ---- stepping --------------------------------------------------------------------

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the gradients of all parameters, or (``set_to_none=False``) fill them with zeros."""
        for group in self.param_groups:
            for param in group["params"]:
                reset(param, set_to_none)

    @_with_hooks
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every parameter that has a gradient.

        Args:
            closure: called first, with gradients enabled, to compute and return the loss.

        Returns:
            What the closure returned, or None.
        """
        loss = None
        if closure is not None:
            if not callable(closure):
                raise TypeError(f"step() takes a function that returns the loss, got {closure!r}")
            with enable_grad():
                loss = closure()
        with no_grad():
            for group in self.param_groups:
                self.update(group)
        return loss

    def moments(self, group: Group) -> tuple[str, ...]:
        """The names of the tensors in the state of a parameter of the group that have its shape; a state that is loaded is
        held to them.
        """
        return ()

    def update(self, group: Group) -> None:
        """Change the parameters of one group; called without recording."""
        raise NotImplementedError(f"{type(self).__name__} defines neither update() nor step()")

    # ---- hooks -----------------------------------------------------------------------

    def register_step_pre_hook(self, hook: Hook) -> RemovableHandle:
        """Call ``hook(optimizer, args, kwargs)`` before each step; it may return (args, kwargs)."""
        return add_hook(self._step_pre, hook)

    def register_step_post_hook(self, hook: Hook) -> RemovableHandle:
        """Call ``hook(optimizer, args, kwargs)`` after each step."""
        return add_hook(self._step_post, hook)

    def register_state_dict_pre_hook(self, hook: Hook, prepend: bool = False) -> RemovableHandle:
        """Call ``hook(optimizer)`` before the state is collected."""
        return add_hook(self._save_pre, hook, prepend)

    def register_state_dict_post_hook(self, hook: Hook, prepend: bool = False) -> RemovableHandle:
        """Call ``hook(optimizer, state_dict)`` on the state; it may return another one."""
        return add_hook(self._save_post, hook, prepend)

    def register_load_state_dict_pre_hook(self, hook: Hook, prepend: bool = False) -> RemovableHandle:
        """Call ``hook(optimizer, state_dict)`` before a state is loaded; it may return another one."""
        return add_hook(self._load_pre, hook, prepend)

    def register_load_state_dict_post_hook(self, hook: Hook, prepend: bool = False) -> RemovableHandle:
        """Call ``hook(optimizer)`` after a state was loaded."""
        return add_hook(self._load_post, hook, prepend)

    # ---- saving and loading ----------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return ``{"state": {number: {name: value}}, "param_groups": [...]}``, parameters replaced by numbers.

        The tensors are the optimiser's own, not copies.
        """
        for hook in self._save_pre.values():
            hook(self)
        numbers = {id(param): i for i, param in enumerate(self._params())}
        state = {numbers[id(param)]: dict(values) for param, values in self.state.items() if values}
        groups = [{**group, "params": [numbers[id(param)] for param in group["params"]]} for group in self.param_groups]
        packed: dict[str, Any] = {"state": state, "param_groups": groups}
        for hook in self._save_post.values():
            new = hook(self, packed)
            packed = packed if new is None else new
        return packed

    def _params(self) -> Iterable[Tensor]:
        return chain.from_iterable(group["params"] for group in self.param_groups)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over options and state, matched by position; tensors are copied, moments in the parameter's dtype.

        Options that the state lacks, as that of an older version does, keep their values.

        Raises:
            ValueError: if the numbers of groups, or of parameters in a group, differ; if a parameter's state is that of another
                optimiser, or of a parameter of another shape.
        """
        if not isinstance(state_dict, Mapping):
            raise TypeError(f"load_state_dict() takes a dictionary, got {type(state_dict).__name__}")
        packed = dict(state_dict)
        for hook in self._load_pre.values():
            new = hook(self, packed)
            packed = packed if new is None else new
        missing = [name for name in ("state", "param_groups") if name not in packed]
        if missing:
            raise ValueError(f"load_state_dict() takes what state_dict() returned; this misses {', '.join(missing)}")
        saved = copy.deepcopy(packed["param_groups"])
        if len(saved) != len(self.param_groups):
            raise ValueError(f"the state has {len(saved)} parameter groups, the optimizer has {len(self.param_groups)}")
        for i, (old, new) in enumerate(zip(saved, self.param_groups, strict=True)):
            if len(old["params"]) != len(new["params"]):
                raise ValueError(
                    f"group {i} of the state has {len(old['params'])} parameters, that of the optimizer has "
                    f"{len(new['params'])}"
                )
        by_number = dict(zip(chain.from_iterable(group["params"] for group in saved), self._params(), strict=True))
        groups = [
            {**old, **{option: new[option] for option in self.defaults if option not in old}, "params": new["params"]}
            for old, new in zip(saved, self.param_groups, strict=True)
        ]
        for old, group in zip(saved, groups, strict=True):
            self._check_state(packed["state"], old["params"], group)
        self.state = defaultdict(dict)
        for number, values in packed["state"].items():
            param = by_number.get(number)
            key: Any = number if param is None else param
            self.state[key] = {n: _restored(v, None if n in self.scalars else param) for n, v in values.items()}
        self.param_groups = groups
        for hook in self._load_post.values():
            hook(self)

    def _check_state(self, state: Mapping[Any, Any], numbers: list[Any], group: Group) -> None:
        """Raise ValueError for a saved state that does not fit the parameters of a group."""
        for number, param in zip(numbers, group["params"], strict=True):
            values = state.get(number) or {}
            for name in self.moments(group) if values else ():
                moment = values.get(name)
                if not isinstance(moment, Tensor):
                    raise ValueError(
                        f"the state of parameter {number} is no state of {type(self).__name__}, which has {name!r} there: "
                        f"it has {', '.join(map(repr, values))}"
                    )
                if tuple(moment.shape) != tuple(param.shape):
                    raise ValueError(
                        f"the state of parameter {number} is that of another one: its {name!r} has shape "
                        f"{tuple(moment.shape)}, the parameter {tuple(param.shape)}; give the parameters in "
                        "the order in which they were saved"
                    )

    def __repr__(self) -> str:
        text = f"{type(self).__name__} ("
        for i, group in enumerate(self.param_groups):
            text += f"\nParameter Group {i}\n"
            text += "".join(f"    {option}: {group[option]}\n" for option in sorted(group) if option != "params")
        return text + ")"


def _restored(value: Any, param: Tensor | None) -> Any:
    """A copy of a saved value; a tensor shaped like the parameter takes its dtype."""
    if not isinstance(value, Tensor):
        return copy.deepcopy(value)
    copied = value.detach().clone()
    return copied if param is None or value.shape != param.shape else copied.to(param.dtype)


def refuse_unsupported(name: str, options: dict[str, Any]) -> None:
    """Refuse what this package does not do: steps that are differentiated, steps captured by a GPU graph.

    Raises:
        NotImplementedError: naming the option. RuntimeError: if both ``foreach`` and ``fused`` are asked for.
    """
    for option in ("differentiable", "capturable", "maximize", "foreach", "fused", "amsgrad", "centered", "nesterov"):
        value = options.get(option)
        unset = value is None and (option not in options or option in ("foreach", "fused"))
        if not unset and not isinstance(value, bool):
            raise TypeError(f"{name}: {option} must be True or False, got {value!r}")
    for option in ("differentiable", "capturable"):
        if options.get(option):
            raise NotImplementedError(
                f"{name}({option}=True) is not supported: a step changes the parameters outside the tape; "
                "write the update with operators to differentiate it"
            )
    if options.get("foreach") and options.get("fused"):
        raise RuntimeError(f"{name}: foreach and fused cannot both be True")
