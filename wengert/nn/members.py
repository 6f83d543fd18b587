"""What a module owns: parameters, buffers and children, registered by assignment.

They are ordinary attributes, so reading ``self.weight`` costs what any attribute costs. Three tables hold only the
*names*, in the order of registration; the values stand in one place, the instance dictionary.
"""

from collections.abc import Callable, Iterator
from typing import Any, Self

from wengert.core.structure import structure
from wengert.core.tensor import Tensor
from wengert.nn.parameter import Buffer, Parameter

__all__ = ["Derived", "Members"]


class Derived:
    """An attribute of a module that is computed whenever it is read: a weight that is normalised, pruned, ..."""

    def read(self, module: Any) -> Any:
        """Return the value."""
        raise NotImplementedError

    def write(self, module: Any, value: Any) -> None:
        """Take a value that is assigned, or refuse it."""
        raise AttributeError(f"the attribute is computed by {type(self).__name__}, so it cannot be assigned")


def _told(value: Any) -> Any:
    """Return an attribute as it is compared: plain values as they are, tables by what they hold, the rest by identity."""
    if value is None or isinstance(value, bool | int | float | str):
        return type(value), value or repr(value)  # 1, 1.0 and True are three, and 0.0 and -0.0 two
    if hasattr(value, "told"):
        return value.told()
    if isinstance(value, dict | list | tuple):
        return type(value), tuple(map(_told, value.items() if isinstance(value, dict) else value))
    return id(value)


class Members:
    """Registration, lookup and traversal of parameters, buffers and child modules."""

    _parameter_names: dict[str, None]
    _buffer_names: dict[str, bool]  # name -> whether state_dict holds it
    _child_names: dict[str, None]
    _derived: dict[str, Derived]  # only where there is one

    def __init__(self) -> None:
        own = self.__dict__
        own["_parameter_names"], own["_buffer_names"], own["_child_names"] = {}, {}, {}

    # ---- registration ----------------------------------------------------------------

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Register ``param`` as attribute ``name``; None registers an absent parameter (a layer without bias).

        Raises:
            AttributeError: before ``Module.__init__()`` was called.
            KeyError: if the name is empty, holds a dot or is taken by another attribute.
            TypeError: if ``param`` is not a Parameter. ValueError: if it has a history.
        """
        self._check_name(name, self.__dict__.get("_parameter_names"), "parameter")
        if param is not None and not isinstance(param, Parameter):
            raise TypeError(
                f"cannot register a {type(param).__name__} as parameter '{name}' "
                "(expected a wengert.nn.Parameter or None)"
            )
        if param is not None and param.grad_fn is not None:
            raise ValueError(
                f"cannot register parameter '{name}': it is the result of {param.grad_fn.name()}; "
                "a parameter must be a leaf, so compute the value in forward() or detach it"
            )
        self._parameter_names[name] = None
        self.__dict__[name] = param
        structure.changes += 1

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Register ``tensor`` as attribute ``name``; ``state_dict`` holds it if ``persistent``.

        Raises:
            AttributeError, KeyError: as for parameters. TypeError: if ``tensor`` is not a Tensor.
        """
        self._check_name(name, self.__dict__.get("_buffer_names"), "buffer")
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(f"cannot register a {type(tensor).__name__} as buffer '{name}'; expected a Tensor or None")
        self._buffer_names[name] = persistent
        self.__dict__[name] = tensor
        structure.changes += 1

    def register_module(self, name: str, module: "Self | None") -> None:
        """Register ``module`` as child ``name``; the same as :meth:`add_module`."""
        self.add_module(name, module)

    def add_module(self, name: str, module: "Members | None") -> None:
        """Register ``module`` as child ``name``.

        Raises:
            AttributeError, KeyError: as for parameters. TypeError: if ``module`` is not a Module.
        """
        self._check_name(name, self.__dict__.get("_child_names"), "module")
        if module is not None and not isinstance(module, Members):
            raise TypeError(f"cannot register a {type(module).__name__} as module '{name}'; expected a Module or None")
        self._child_names[name] = None
        self.__dict__[name] = module
        structure.changes += 1

    def _check_name(self, name: Any, table: dict[str, Any] | None, kind: str) -> None:
        if table is None:
            raise AttributeError(
                f"cannot assign {kind} '{name}' before Module.__init__() was called; "
                "begin __init__ with super().__init__()"
            )
        if not isinstance(name, str):
            raise TypeError(f"a {kind} name must be a string, got {type(name).__name__}")
        if not name or "." in name:
            raise KeyError(f"a {kind} name must be non-empty and without dots, got '{name}'")
        if name not in table and hasattr(self, name):
            raise KeyError(f"cannot register {kind} '{name}': {type(self).__name__} has an attribute of that name")

    def derive(self, name: str, how: Derived) -> None:
        """Let attribute ``name``, which there is none of, be computed whenever it is read."""
        self.__dict__.setdefault("_derived", {})[name] = how
        structure.changes += 1

    def underive(self, name: str) -> Derived:
        """Let attribute ``name`` be computed no longer, and return what computed it."""
        derived = self.__dict__["_derived"]
        how: Derived = derived.pop(name)
        if not derived:
            del self.__dict__["_derived"]
        structure.changes += 1
        return how

    def __getattr__(self, name: str) -> Any:
        """Compute a derived attribute: this is only called where there is no other of that name."""
        how = self.__dict__.get("_derived", {}).get(name)
        if how is None:
            text = f"'{type(self).__name__}' object has no attribute '{name}'"
            raise AttributeError(text, name=name, obj=self)
        return how.read(self)

    def snapshot(self) -> tuple[Any, ...]:
        """Return what of the module decides how it computes, for comparison: members by identity, options by value."""
        return tuple((name, _told(value)) for name, value in self.__dict__.items())

    def __setattr__(self, name: str, value: Any) -> None:
        own = self.__dict__
        structure.changes += 1
        if "_derived" in own and name in own["_derived"]:
            own["_derived"][name].write(self, value)
        elif isinstance(value, (Parameter, Buffer, Members)):
            if "_child_names" not in own:
                self._check_name(name, None, type(value).__name__.lower())
            self._register(name, value)
        elif "_child_names" in own and (
            name in own["_parameter_names"] or name in own["_child_names"] or name in own["_buffer_names"]
        ):
            self._replace(name, value)
        else:
            object.__setattr__(self, name, value)

    def _register(self, name: str, value: Any) -> None:
        """Register a parameter, buffer or module; whatever had the name before is forgotten."""
        if isinstance(value, Parameter):
            table: dict[str, Any] = self._parameter_names
            register: Callable[[str, Any], None] = self.register_parameter
        elif isinstance(value, Buffer):
            if name in self._parameter_names:
                raise TypeError(f"cannot assign a Buffer as parameter '{name}' (expected a Parameter or None)")
            table, register = self._buffer_names, lambda n, v: self.register_buffer(n, v, v.persistent)
        else:
            table, register = self._child_names, self.add_module
        if name not in table:
            self._forget(name)
        register(name, value)

    def _replace(self, name: str, value: Any) -> None:
        """Give a registered name another value of its kind, or None."""
        if value is not None and name in self._parameter_names:
            raise TypeError(
                f"cannot assign a {type(value).__name__} as parameter '{name}' (expected a wengert.nn.Parameter or "
                f"None); to change its values use: with wengert.no_grad(): module.{name}.copy_(value)"
            )
        if value is not None and name in self._child_names:
            raise TypeError(f"cannot assign a {type(value).__name__} as child '{name}' (expected a Module or None)")
        if value is not None and not isinstance(value, Tensor):
            raise TypeError(f"cannot assign a {type(value).__name__} as buffer '{name}' (expected a Tensor or None)")
        self.__dict__[name] = value

    def _forget(self, name: str) -> None:
        for table in (self._parameter_names, self._buffer_names, self._child_names):
            table.pop(name, None)  # type: ignore[attr-defined, unused-ignore]
        self.__dict__.pop(name, None)

    def __delattr__(self, name: str) -> None:
        own = self.__dict__
        structure.changes += 1
        if name in own.get("_parameter_names", ()) or name in own["_buffer_names"] or name in own["_child_names"]:
            self._forget(name)
        else:
            object.__delattr__(self, name)

    # ---- lookup ----------------------------------------------------------------------

    def get_submodule(self, target: str) -> Any:
        """Return the module at a dotted path, ``"encoder.layers.0"``; ``""`` is the module itself.

        Raises:
            AttributeError: naming the first part of the path that does not exist or is no module.
        """
        module: Any = self
        for part in target.split(".") if target else ():
            if not hasattr(module, part):
                raise AttributeError(f"{type(module).__name__} has no attribute '{part}' (looking for '{target}')")
            module = getattr(module, part)
            if not isinstance(module, Members):
                raise AttributeError(f"'{part}' is a {type(module).__name__}, not a Module (looking for '{target}')")
        return module

    def set_submodule(self, target: str, module: Any, strict: bool = False) -> None:
        """Put ``module`` at a dotted path; with ``strict`` the path must already lead to a module.

        Raises:
            ValueError: if ``target`` is empty or ``module`` is no Module. AttributeError: if the path does not exist.
        """
        if not target:
            raise ValueError("set_submodule() cannot replace the module itself; give a non-empty path")
        if not isinstance(module, Members):
            raise ValueError(f"set_submodule() takes a Module, got {type(module).__name__}")
        path, _, name = target.rpartition(".")
        parent = self.get_submodule(path)
        if strict or hasattr(parent, name):
            parent.get_submodule(name)
        setattr(parent, name, module)

    def get_parameter(self, target: str) -> Parameter:
        """Return the parameter at a dotted path. AttributeError if there is none."""
        found = self._get(target, "_parameter_names", "parameter")
        assert isinstance(found, Parameter)
        return found

    def get_buffer(self, target: str) -> Tensor:
        """Return the buffer at a dotted path. AttributeError if there is none."""
        found = self._get(target, "_buffer_names", "buffer")
        assert isinstance(found, Tensor)
        return found

    def _get(self, target: str, table: str, kind: str) -> Any:
        path, _, name = target.rpartition(".")
        module = self.get_submodule(path)
        if name not in getattr(module, table) or module.__dict__[name] is None:
            raise AttributeError(f"{type(module).__name__} has no {kind} '{name}' (looking for '{target}')")
        return module.__dict__[name]

    # ---- traversal -------------------------------------------------------------------

    def named_modules(
        self, memo: set[Any] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Any]]:
        """Yield (path, module) for this module and all below it, parents first.

        Args:
            memo: modules already seen, which are left out. prefix: put before every path.
            remove_duplicate: whether a module reached along two paths is yielded once.
        """
        seen = set() if memo is None else memo
        if self in seen:
            return
        if remove_duplicate:
            seen.add(self)
        yield prefix, self
        for name in self._child_names:
            child = self.__dict__[name]
            if child is not None:
                yield from child.named_modules(seen, f"{prefix}.{name}" if prefix else name, remove_duplicate)

    def modules(self, remove_duplicate: bool = True) -> Iterator[Any]:
        """Yield this module and all below it, each once (``remove_duplicate=False``: once for each path to it)."""
        for _, module in self.named_modules(remove_duplicate=remove_duplicate):
            yield module

    def named_children(self) -> Iterator[tuple[str, Any]]:
        """Yield (name, module) for the direct children, each module once."""
        seen = set()
        for name in self._child_names:
            child = self.__dict__[name]
            if child is not None and child not in seen:
                seen.add(child)
                yield name, child

    def children(self) -> Iterator[Any]:
        """Yield the direct children, each once."""
        for _, child in self.named_children():
            yield child

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """Yield (path, parameter), of this module only or of all below it; a shared parameter comes once."""
        return self._named("_parameter_names", prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """Yield the parameters, each once.

        Example:
            >>> import wengert as wg
            >>> [tuple(p.shape) for p in wg.nn.Linear(3, 2).parameters()]
            [(2, 3), (2,)]
        """
        for _, value in self._named("_parameter_names", "", recurse, True):
            yield value

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """Yield (path, buffer), of this module only or of all below it; a shared buffer comes once."""
        return self._named("_buffer_names", prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """Yield the buffers, each once."""
        for _, value in self._named("_buffer_names", "", recurse, True):
            yield value

    def _named(self, table: str, prefix: str, recurse: bool, remove_duplicate: bool) -> Iterator[tuple[str, Any]]:
        seen: set[int] = set()
        owners = self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate) if recurse else [(prefix, self)]
        for path, module in owners:
            own = module.__dict__
            for name in own[table]:
                value = own[name]
                if value is None or id(value) in seen:
                    continue
                if remove_duplicate:
                    seen.add(id(value))
                yield f"{path}.{name}" if path else name, value
