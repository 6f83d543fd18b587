"""A room imports only from the rooms before it, and nothing is imported inside a function."""

from tests.architecture.source import PACKAGE, Module, modules

# In the order in which data passes. `wengert` is the public face, `wengert/__init__.py`: the rooms before it make it
# up, those behind it may be written on it.
ROOMS = (
    "errors", "environment", "extras", "atomic", "tree", "array", "settings", "kernels", "core", "operators", "sparse", "tape",
    "transforms", "legacy", "autograd", "func", "array_api", "masked", "signal", "fft", "linalg", "random", "special",
    "introspection", "cuda", "backends", "graph", "passes", "loops", "codegen", "runtime", "cpu", "compiling",
    "serialization", "wengert", "nn", "optim", "metrics", "amp", "data", "utils", "distributed", "export", "inspect",
    "testing", "library", "cli", "__main__",
)  # fmt: skip

# Optional or heavy third parties, which may be imported inside the function that needs them.
LAZY = {
    "llvmlite", "matplotlib", "ml_dtypes", "mpi4py", "onnx", "onnxruntime", "pyarrow", "safetensors", "scipy",
    "sklearn", "sympy", "tensorboard", "tqdm",
}  # fmt: skip

# Never imported by the package: it runs without them, and is only compared with them.
PEERS = {"autograd", "jax", "tensorflow", "tinygrad", "torch"}

MODULES = modules()


def room(name: str) -> str:
    """Return the room of a module: the first part of its name below the package."""
    parts = name.split(".")
    return parts[1] if len(parts) > 1 else PACKAGE


def wrong_imports(module: Module) -> list[str]:
    """Return a line for each import that goes to a room behind the module's own."""
    behind = ROOMS[ROOMS.index(room(module.name)) + 1 :] if room(module.name) in ROOMS else ()
    return [
        f"{module.file}:{item.line}: {room(module.name)} imports {item.module}"
        for item in module.imports
        if item.module.partition(".")[0] == PACKAGE and room(item.module) in behind
    ]


def hidden_imports(module: Module) -> list[str]:
    """Return a line for each import inside a function that is not of a lazily imported third party."""
    return [
        f"{module.file}:{item.line}: {item.function}() imports {item.module}"
        for item in module.imports
        if item.function is not None and item.module.partition(".")[0] not in LAZY
    ]


def test_every_room_is_in_the_table() -> None:
    homeless = sorted({room(module.name) for module in MODULES} - set(ROOMS))
    assert not homeless, f"put these in their places in ROOMS: {', '.join(homeless)}"


def test_rooms_import_only_from_the_rooms_before_them() -> None:
    wrong = [line for module in MODULES for line in wrong_imports(module)]
    assert not wrong, "\n".join(["A room may import only from the rooms before it:", *wrong])


def test_nothing_is_imported_inside_a_function() -> None:
    hidden = [line for module in MODULES for line in hidden_imports(module)]
    assert not hidden, "\n".join(["Imports belong at the top of the file:", *hidden])


def test_no_other_framework_is_imported() -> None:
    found = [
        f"{module.file}:{item.line}: {item.module}"
        for module in MODULES
        for item in module.imports
        if item.module.partition(".")[0] in PEERS
    ]
    assert not found, "\n".join(["wengert runs without other frameworks:", *found])


def test_a_wrong_import_would_be_found(tmp_path, monkeypatch) -> None:
    """The checks themselves: a module of an early room that imports a later one, inside a function."""
    monkeypatch.setattr("tests.architecture.source.ROOT", tmp_path)
    folder = tmp_path / PACKAGE / "array"
    folder.mkdir(parents=True)
    for package in (folder.parent, folder, folder.parent / "tape"):
        package.mkdir(exist_ok=True)
        (package / "__init__.py").touch()
    (folder / "shape.py").write_text("import numpy\ndef f():\n    from .. import tape\n    import tqdm\n")
    module = Module(folder / "shape.py")
    assert module.name == "wengert.array.shape"
    assert wrong_imports(module) == ["wengert/array/shape.py:3: array imports wengert.tape"]
    assert hidden_imports(module) == ["wengert/array/shape.py:3: f() imports wengert.tape"]
