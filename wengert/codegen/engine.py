"""LLVM IR as text to functions in this process: verify, optimise, make object code, link.

One linker (LLVM's ORC) serves the whole process. A :class:`Library` is what one text became; its code is freed with it.
"""

import ctypes
import threading
from collections.abc import Sequence
from functools import lru_cache
from itertools import count
from typing import Any

import llvmlite.binding as llvm

from wengert.codegen.target import host

__all__ = ["Library", "assembly", "compile_object", "load", "optimised"]

_lock = threading.Lock()
_names = count()


@lru_cache(maxsize=1)
def _machine() -> Any:
    target = host()
    return llvm.Target.from_triple(target.triple).create_target_machine(
        cpu=target.cpu, features=target.features, opt=3, jit=True, reloc="pic"
    )


@lru_cache(maxsize=1)
def _linker() -> Any:
    return llvm.create_lljit_compiler(_machine())


def _module(text: str) -> Any:
    module = llvm.parse_assembly(text)
    module.triple = host().triple
    module.data_layout = str(_machine().target_data)
    module.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    options.loop_vectorization = options.slp_vectorization = options.loop_unrolling = False  # kernels say what they want
    builder = llvm.create_pass_builder(_machine(), options)
    builder.getModulePassManager().run(module, builder)
    return module


def optimised(text: str) -> str:
    """Return the LLVM IR that becomes machine code."""
    with _lock:
        return str(_module(text))


def assembly(text: str) -> str:
    """Return the machine code as assembly."""
    with _lock:
        return str(_machine().emit_assembly(_module(text)))


def compile_object(text: str) -> bytes:
    """Return the object code of a module given as LLVM IR.

    Raises:
        RuntimeError: LLVM's, if the text is not valid.
    """
    with _lock:
        return bytes(_machine().emit_object(_module(text)))


class Library:
    """Machine code in this process.

    Example:
        >>> from wengert.codegen.engine import Library, compile_object
        >>> code = compile_object("define i64 @twice(i64 %x) {\\n %y = add i64 %x, %x\\n ret i64 %y\\n}")
        >>> import ctypes
        >>> Library(code, ["twice"]).function("twice", ctypes.c_int64, ctypes.c_int64)(21)
        42
    """

    __slots__ = ("_tracker", "addresses")

    def __init__(self, code: bytes, names: Sequence[str]) -> None:
        builder = llvm.JITLibraryBuilder().add_object_img(code).add_current_process()
        for name in names:
            builder = builder.export_symbol(name)
        with _lock:
            self._tracker = builder.link(_linker(), f"wengert{next(_names)}")
            self.addresses: dict[str, int] = {name: self._tracker[name] for name in names}

    def function(self, name: str, result: Any, *arguments: Any, gil: bool = False) -> Any:
        """Return a function of the library for ctypes; it runs without Python's lock unless ``gil``."""
        make = ctypes.PYFUNCTYPE if gil else ctypes.CFUNCTYPE
        function = make(result, *arguments)(self.addresses[name])
        function.library = self
        return function


def load(text: str, names: Sequence[str]) -> Library:
    """Return the functions ``names`` of a module given as LLVM IR, linked into this process."""
    return Library(compile_object(text), names)
