"""Every public name has a docstring, most an example in it, and all are in the reference."""

import importlib
import inspect
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import wengert as wg
from wengert.core.registry import operators

REFERENCE = (Path(__file__).parents[2] / "docs" / "reference.md").read_text(encoding="utf-8")
MODULES = set(re.findall(r"^\.\. automodule:: (\S+)", REFERENCE, re.MULTILINE))
SINGLE = set(re.findall(r"^\.\. auto(?:class|function):: (\S+)", REFERENCE, re.MULTILINE))

PUBLIC = [
    "wengert", "wengert.amp", "wengert.autograd", "wengert.autograd.forward_ad", "wengert.autograd.functional",
    "wengert.autograd.graph", "wengert.backends", "wengert.cpu", "wengert.cuda", "wengert.data",
    "wengert.data.transforms", "wengert.errors", "wengert.func", "wengert.library", "wengert.metrics", "wengert.nn",
    "wengert.nn.functional", "wengert.nn.init", "wengert.nn.utils", "wengert.nn.utils.parametrizations",
    "wengert.nn.utils.parametrize", "wengert.nn.utils.prune", "wengert.nn.utils.rnn", "wengert.optim",
    "wengert.optim.lr_scheduler", "wengert.optim.multitask", "wengert.optim.swa_utils", "wengert.random",
    "wengert.serialization", "wengert.signal.windows", "wengert.tree", "wengert.utils", "wengert.utils.checkpoint",
]  # fmt: skip

# Modules whose names are operators, or names of other libraries for them, and those for the command line and the checks.
OF_OPERATORS = {
    "array_api", "cli", "fft", "linalg", "masked", "operators", "signal", "sparse", "special", "testing",
}  # fmt: skip

# Where each name has an example too, and those that need none: what others are made of, and what only carries values.
SHOWN = [m for m in PUBLIC if re.match(r"wengert\.(amp|data|func|metrics|nn|optim|random|tree|utils)\b", m)]
NOT_SHOWN = {
    "BasePruningMethod", "CheckpointError", "CheckpointPolicy", "DenseSolution", "EventSolution",
    "LinearCrossEntropyOptions", "RNNBase", "RNNCellBase", "SelectiveCheckpointContext", "WorkerInfo", "get_rng_state",
    "initial_seed", "is_recomputing", "noop_context_fn", "seed", "set_checkpoint_debug_enabled",
    "set_checkpoint_early_stop",
}  # fmt: skip


def public(module: str) -> dict[str, Any]:
    """Return the public classes and functions of a module that are no operators, nor their in-place twins."""
    found, known = importlib.import_module(module), operators()
    names = dir(found) if module == "wengert" else getattr(found, "__all__", None) or dir(found)
    values = {n: getattr(found, n) for n in sorted(names) if not n.startswith("_")}
    own = {n for n, v in values.items() if (inspect.isclass(v) or inspect.isroutine(v)) and not hasattr(v, "op")}
    twins = {f"{n}_" for n in values.keys() - own} | {f"{n}_" for n in known}
    return {n: values[n] for n in sorted(own - twins - known.keys())}


def listed(module: str) -> set[int]:
    """Return the identities of what a module lists as its own, which is what the reference shows of it."""
    found = importlib.import_module(module)
    return {id(getattr(found, name)) for name in getattr(found, "__all__", ())}


IN_REFERENCE = {
    id(getattr(importlib.import_module(path), name)) for path, _, name in (n.rpartition(".") for n in SINGLE)
}
IN_REFERENCE = IN_REFERENCE.union(*map(listed, MODULES))


def documentation(value: Any) -> str:
    """Return the docstring that a class or function has itself."""
    return (vars(value).get("__doc__") if inspect.isclass(value) else value.__doc__) or ""


@pytest.mark.parametrize("module", PUBLIC)
def test_public_names_have_docstrings(module: str) -> None:
    assert not [name for name, value in public(module).items() if len(documentation(value).split()) < 2]


@pytest.mark.parametrize("module", PUBLIC)
def test_public_names_are_in_the_reference(module: str) -> None:
    assert not [name for name, value in public(module).items() if id(value) not in IN_REFERENCE]


@pytest.mark.parametrize("module", SHOWN)
def test_public_names_have_examples(module: str) -> None:
    found = public(module)
    assert not [name for name in found.keys() - NOT_SHOWN if ">>>" not in documentation(found[name])]


def test_the_tables_hold_what_there_is() -> None:
    assert not NOT_SHOWN.difference(*map(public, SHOWN))
    modules = {name for name in dir(wg) if isinstance(getattr(wg, name), ModuleType)}
    assert modules <= OF_OPERATORS | {module.split(".")[1] for module in PUBLIC if "." in module}


def test_what_is_missing_would_be_found() -> None:
    class Undocumented:
        pass

    assert documentation(Undocumented) == ""
    assert id(Undocumented) not in IN_REFERENCE
    assert {"Linear", "Sequential"} <= public("wengert.nn").keys()
    assert {"tensor", "randn", "compile"} <= public("wengert").keys()
