"""Every public name says what it is: modules, functions, classes and their methods have docstrings."""

import importlib
import inspect
from types import ModuleType
from typing import Any

import pytest

from tests.architecture.source import modules

NAMES = [module.name for module in modules() if not any(part.startswith("_") for part in module.name.split("."))]


def is_documented(value: Any) -> bool:
    """Whether a function, class or property has a docstring of its own or inherits one."""
    return bool((inspect.getdoc(value) or "").strip())


def public_members(module: ModuleType) -> dict[str, Any]:
    """Return the public functions and classes that a module defines, and the public methods of those classes."""
    members: dict[str, Any] = {}
    for name, value in vars(module).items():
        defined_here = getattr(value, "__module__", None) == module.__name__
        if name.startswith("_") or not defined_here or not (inspect.isclass(value) or inspect.isroutine(value)):
            continue
        members[name] = value
        if inspect.isclass(value):
            for method, function in vars(value).items():
                if not method.startswith("_") and (inspect.isroutine(function) or isinstance(function, property)):
                    members[f"{name}.{method}"] = function
    return members


@pytest.mark.parametrize("name", NAMES)
def test_public_names_have_docstrings(name: str) -> None:
    module = importlib.import_module(name)
    silent = [member for member, value in public_members(module).items() if not is_documented(value)]
    assert is_documented(module), f"{name} does not say what it holds"
    assert not silent, f"without a docstring in {name}: {', '.join(silent)}"


@pytest.mark.parametrize("name", NAMES)
def test_what_a_module_offers_exists(name: str) -> None:
    module = importlib.import_module(name)
    missing = [offered for offered in getattr(module, "__all__", ()) if not hasattr(module, offered)]
    assert not missing, f"{name}.__all__ names what is not there: {', '.join(missing)}"


def test_a_silent_name_would_be_found() -> None:
    module = ModuleType("example")
    exec("class A:\n def told(self):\n  'It.'\n def silent(self): pass\n def _own(self): pass", module.__dict__)
    found = [member for member, value in public_members(module).items() if not is_documented(value)]
    assert found == ["A", "A.silent"]
