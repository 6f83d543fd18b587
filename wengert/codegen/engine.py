"""LLVM IR as text to functions in this process: verify, optimise, make object code, link.

LLVM optimises as for a compiler, but vectorises and unrolls nothing: kernels say what they want. Code that is *direct*, written
as the loops and vectors it is to become, goes through four passes alone, in an eighth of the time.

Threads compile side by side, and none that links object code waits for them. A :class:`Library` is what one text became;
its code is freed with it.
"""

import ctypes
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any, Final

from wengert.codegen.binding import compiling, emit, llvm, lock, optimise
from wengert.codegen.target import host

__all__ = ["Library", "assembly", "compile_object", "load", "optimised"]

# A linker keeps some 9 KB of each library that it ever linked, so another takes its place after so many. What it
# linked lives on without it.
LIBRARIES_PER_LINKER: Final = 64

DIRECT: Final = ("sroa", "instruction_combine", "simplify_cfg", "loop_rotate")

_linkers: list[Any] = []  # the one in use
_names = count()
_own = threading.local()  # a target machine serves one thread


def _machine() -> Any:
    if not hasattr(_own, "machine"):
        target, found = host(), llvm().Target.from_triple(host().triple)
        _own.machine = found.create_target_machine(target.cpu, target.features, opt=3, jit=True, reloc="pic")
    return _own.machine


def _linker() -> tuple[Any, str]:
    """Return a linker, and a name for the library that it is to link.

    Raises:
        OSError: if the operating system lets no memory be executed.
    """
    with lock():
        number = next(_names)
        if not _linkers or number % LIBRARIES_PER_LINKER == 0:
            llvm().check_jit_execution()
            _linkers[:] = [llvm().create_lljit_compiler(_machine(), suppress_errors=True)]
        return _linkers[0], f"wengert{number}"


@contextmanager
def _passes(direct: bool) -> Iterator[tuple[Any, Any]]:
    """Yield the passes that code goes through, and their builder."""
    options = llvm().create_pipeline_tuning_options(speed_level=1)
    options.loop_vectorization = options.slp_vectorization = options.loop_unrolling = False
    manager = llvm().create_new_module_pass_manager
    with (
        llvm().create_pass_builder(_machine(), options) as builder,
        manager() if direct else builder.getModulePassManager() as passes,
    ):
        for name in DIRECT if direct else ():
            getattr(passes, f"add_{name}_pass")()
        yield passes, builder


@contextmanager
def _module(text: str, direct: bool) -> Iterator[Any]:
    """Yield the optimised module of a text, alone in a context, with which its constants die too."""
    with compiling(), llvm().create_context() as context, llvm().parse_assembly(text, context) as module:
        module.triple = host().triple
        module.data_layout = str(_machine().target_data)
        module.verify()
        with _passes(direct) as (passes, builder):
            optimise(module, passes, builder)
        yield module


def optimised(text: str, *, direct: bool = False) -> str:
    """Return the LLVM IR that becomes machine code."""
    with _module(text, direct) as module:
        return str(module)


def assembly(text: str, *, direct: bool = False) -> str:
    """Return the machine code as assembly."""
    with _module(text, direct) as module:
        return emit(module, _machine(), code=False).decode()


def compile_object(text: str, *, direct: bool = False) -> bytes:
    """Return the object code of a module given as LLVM IR.

    Args:
        direct: whether the text is what is wanted, but for temporaries.

    Raises:
        RuntimeError: LLVM's, if the text is not valid.
    """
    with _module(text, direct) as module:
        return emit(module, _machine(), code=True)


class Library:
    """Machine code in this process.

    Args:
        code: object code for this machine. names: the functions in it that are to be called.

    Raises:
        RuntimeError: if the code is not object code, lacks one of the names, or needs a function that is nowhere.

    Example:
        >>> from wengert.codegen.engine import Library, compile_object
        >>> code = compile_object("define i64 @twice(i64 %x) {\\n %y = add i64 %x, %x\\n ret i64 %y\\n}")
        >>> import ctypes
        >>> Library(code, ["twice"]).function("twice", ctypes.c_int64, ctypes.c_int64)(21)
        42
    """

    __slots__ = ("__weakref__", "_tracker", "addresses")

    def __init__(self, code: bytes, names: Sequence[str]) -> None:
        builder = llvm().JITLibraryBuilder().add_object_img(code).add_current_process()
        for name in names:
            builder.export_symbol(name)
        try:
            self._tracker = builder.link(*_linker())
        except RuntimeError as error:
            raise RuntimeError(f"LLVM could not link {', '.join(names)}: {error}") from None
        self.addresses: dict[str, int] = {name: self._tracker[name] for name in names}

    def function(self, name: str, result: Any, *arguments: Any, gil: bool = False) -> Any:
        """Return a function of the library for ctypes; it runs without Python's lock unless ``gil``."""
        make = ctypes.PYFUNCTYPE if gil else ctypes.CFUNCTYPE
        function: Any = make(result, *arguments)(self.addresses[name])
        function.library = self
        return function


def load(text: str, names: Sequence[str]) -> Library:
    """Return the functions ``names`` of a module given as LLVM IR, linked into this process."""
    return Library(compile_object(text), names)
