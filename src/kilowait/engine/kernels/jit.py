"""Numba compilation of kernels.

Numba's cache checks the date of one file only: a caller keeps a stale copy of a callee edited in another file, and code
compiled with bounds checks is taken for code without. So the name of the cache folder is a hash of all sources, options
and versions.
"""

from __future__ import annotations

import hashlib
import sys
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any, TypeVar

import numba
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.extending import intrinsic
from numba.np.arrayobj import make_array

from kilowait.engine.kernels.cache import KernelCache, usable_folder

__all__ = [
    "noinline",
    "cache_folder",
    "is_compiled",
    "cache_location_text",
    "kernel",
    "without_refcount",
    "memmove",
    "assume_nonnegative",
    "maybe_inline",
    "specialize",
    "compile_entry",
]

F = TypeVar("F", bound=Callable[..., Any])

_SOURCES = Path(__file__).resolve().parent.parent.parent


@cache
def cache_folder(package: str = "engine") -> Path | None:
    """Cache folder of a package's compiled kernels; it depends on sources, options and versions. None: there is none.

    Kernels of `envs` contain inlined engine kernels, so their hash covers both.
    """
    digest = hashlib.sha256()
    for pattern in (
        "engine/kernels/*.py",
        "engine/interface.py",
        "engine/*entry.py",
        "engine/gpu/*.py",
        "policies/*.py",
        *(["envs/**/*.py"] if package == "envs" else []),
    ):
        for source in sorted(_SOURCES.glob(pattern)):
            digest.update(source.read_bytes())
    digest.update(f"{numba.__version__} {sys.version} {numba.config.BOUNDSCHECK} {numba.config.OPT}".encode())
    return usable_folder(digest.hexdigest()[:16])


def is_compiled(function: Any) -> bool:
    """Whether an entry function can be used without compiling it first: the cache of the engine holds it."""
    source = Path(function.__code__.co_filename)
    kernels = cache_folder()
    pattern = f"{source.parent.name}_*/{source.stem}.{function.__name__}-*.nbc"
    return bool(numba.config.DISABLE_JIT) or (kernels is not None and any(kernels.glob(pattern)))


def cache_location_text() -> str:
    """Where compiled kernels are kept, as the end of a message; empty without a cache."""
    folder = cache_folder()
    return "" if folder is None else f"; kept in {folder}"


_COMPILING = threading.Lock()  # the cache folder is a setting of the whole process
_INNER = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}  # never called from Python: halves the compile time


def kernel(function: F) -> F:
    """A kernel called by other kernels and inlined there, so that passing the state costs nothing."""
    return numba.njit(error_model="numpy", forceinline=True, **_INNER)(function)


def maybe_inline(function: F) -> F:
    """A kernel called rarely by other kernels; the compiler decides whether to inline it."""
    return numba.njit(error_model="numpy", **_INNER)(function)


def noinline(function: F) -> F:
    """A kernel that is called and never inlined; without the option it inherits inlining from its callers."""
    return numba.njit(error_model="numpy", forceinline=False, **_INNER)(function)


def specialize(function: F, inlined: bool = True, **replacements: Any) -> F:
    """A copy of a kernel that calls the given functions in place of its own ones of these names.

    Runs with power controls use the same passes with their own start and reserve functions.
    """
    plain = getattr(function, "py_func", function)
    unused = sorted(set(replacements) - set(plain.__code__.co_names))
    if unused:
        raise NameError(
            f"{plain.__qualname__} calls no {', '.join(unused)}; give replacements of functions that it calls"
        )
    copy = FunctionType(plain.__code__, {**plain.__globals__, **replacements}, plain.__name__)
    copy.__qualname__ = f"{plain.__qualname__}_over"
    return kernel(copy) if inlined else maybe_inline(copy)  # type: ignore[return-value]


def compile_entry(function: F, signature: Any, package: str = "engine") -> F:
    """A kernel called from Python, compiled (or taken from the cache) at once for one signature."""
    compiled: Any = numba.njit(nogil=True, error_model="numpy")(function)
    if numba.config.DISABLE_JIT:
        return compiled
    with _COMPILING:
        before, folder = numba.config.CACHE_DIR, cache_folder(package)
        try:
            if folder is not None:
                numba.config.CACHE_DIR = str(folder)
                compiled._cache = KernelCache(function, folder)
            compiled.compile(signature)
        finally:
            numba.config.CACHE_DIR = before
    compiled.disable_compile()
    return compiled


def _identity(array: Any) -> Any:
    return array


def _move(array: Any, to: int, start: int, count: int) -> None:
    array[to : to + count] = array[start : start + count].copy()


if numba.config.DISABLE_JIT:
    without_refcount, memmove, assume_nonnegative = _identity, _move, _identity
else:

    @intrinsic
    def assume_nonnegative(typing: Any, number: Any) -> Any:
        """The number, declared non-negative to the compiler: avoids the wrap-around of negative indices."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            builder.assume(builder.icmp_signed(">=", arguments[0], arguments[0].type(0)))
            return arguments[0]

        return number(number), generate

    @intrinsic
    def without_refcount(typing: Any, array: Any) -> Any:
        """The same array without its reference count.

        The caller of a run holds all arrays; counting references to them at every use would cost more than the
        simulation itself.
        """

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            copy = make_array(signature.args[0])(context, builder, value=arguments[0])
            copy.meminfo = copy.meminfo.type(None)
            copy.parent = copy.parent.type(None)
            return copy._getvalue()

        return array(array), generate

    @intrinsic
    def memmove(typing: Any, array: Any, to: Any, start: Any, count: Any) -> Any:
        """Copy `count` entries of a one-dimensional array from `start` to `to`; the two may overlap."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            view = make_array(signature.args[0])(context, builder, value=arguments[0])
            size = context.get_constant(types.intp, context.get_abi_sizeof(context.get_data_type(array.dtype)))
            data = builder.bitcast(view.data, ir.IntType(8).as_pointer())
            target, origin = (builder.gep(data, [builder.mul(index, size)]) for index in arguments[1:3])
            cgutils.raw_memmove(builder, target, origin, arguments[3], size, align=1)
            return context.get_dummy_value()

        return types.void(array, types.intp, types.intp, types.intp), generate
