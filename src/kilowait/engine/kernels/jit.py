"""Numba compilation of kernels.

Three things keep compiling short. Kernels do not count references: the caller of an entry kernel holds all arrays, and
counting references to them at every use would also cost more than the simulation itself. Kernels that only other
kernels call are neither optimized nor translated to machine code by themselves, but only as parts of the entry kernels
that contain them. And they have no wrappers to be called from Python.

Numba's cache checks the date of one file only: a caller keeps a stale copy of a callee edited in another file, and code
compiled with bounds checks is taken for code without. So the name of the cache folder is a hash of all sources, options
and versions.
"""

from __future__ import annotations

import hashlib
import logging
import sys
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any, TypeVar

import numba
from llvmlite import ir
from llvmlite.binding import Linkage
from numba import types
from numba.core import cgutils
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.extending import intrinsic
from numba.np.arrayobj import make_array, populate_array

from kilowait.engine.kernels.cache import KernelCache, usable_folder

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
        "engine/settings.py",
        "engine/*entry.py",
        "engine/gpu/*.py",
        "policies/*.py",
        *(["envs/**/*.py"] if package == "envs" else []),
    ):
        for source in sorted(_SOURCES.glob(pattern)):
            digest.update(source.read_bytes())
    digest.update(f"{numba.__version__} {sys.version} {numba.config.BOUNDSCHECK} {numba.config.OPT}".encode())
    return usable_folder(digest.hexdigest()[:16])


def is_compiled(function: Any, package: str = "engine") -> bool:
    """Whether an entry function can be used without compiling it first: the cache of the package holds it."""
    source = Path(function.__code__.co_filename)
    kernels = cache_folder(package)
    pattern = f"{source.parent.name}_*/{source.stem}.{function.__qualname__}-*.nbc"
    return bool(numba.config.DISABLE_JIT) or (kernels is not None and any(kernels.glob(pattern)))


def _announce(what: str, time: str, package: str = "engine") -> None:
    """Log what is about to be compiled, for how long, and where it is kept: nothing else is printed meanwhile."""
    folder = cache_folder(package)
    where = "" if folder is None else f"; kept in {folder}"
    logging.getLogger("kilowait").warning("compiling %s, once, for about %s%s", what, time, where)


_COMPILING = threading.Lock()  # the cache folder is a setting of the whole process


class _InnerLibrary(JITCodeLibrary):  # type: ignore[misc]
    """Code of an inner kernel: linked into that of its callers as it is, without machine code of its own."""

    def finalize(self) -> None:
        for library in dict.fromkeys(self._linking_libraries):
            if hasattr(library, "_reload_init"):  # Numba 0.61 has none
                self._reload_init.update(library._reload_init)
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        return 0

    @property
    def codegen(self) -> Any:
        return self

    def set_env(self, name: str, environment: Any) -> None:
        """Numba calls `library.codegen.set_env` for functions called from Python; an inner kernel has no address."""


class _InnerCompiler(Compiler):  # type: ignore[misc]
    def define_pipelines(self) -> Any:
        self.state.library = _InnerLibrary(self.state.targetctx.codegen(), self.state.func_id.func_qualname)
        return super().define_pipelines()


class _EntryLibrary(JITCodeLibrary):  # type: ignore[misc]
    """Code of an entry kernel and of its inner kernels.

    Only the entry kernel can be called from outside. So the inner ones are made internal: the compiler then removes
    their unused arguments (a state is passed as a few hundred numbers) and inlines those that are called once.
    """

    def _optimize_final_module(self) -> None:
        for function in self._final_module.functions:
            if function.linkage == Linkage.linkonce_odr and not function.is_declaration:
                function.linkage = Linkage.internal
        super()._optimize_final_module()


class _EntryCompiler(Compiler):  # type: ignore[misc]
    def define_pipelines(self) -> Any:
        self.state.library = _EntryLibrary(self.state.targetctx.codegen(), self.state.func_id.func_qualname)
        self.state.library.enable_object_caching()  # as Numba does where it makes the library itself
        return super().define_pipelines()


_INNER = {
    "error_model": "numpy",
    "_nrt": False,
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
    "pipeline_class": _InnerCompiler,
}


def _inner(function: F, **options: Any) -> F:
    """The function, compiled once for all whole numbers; Numba compiles it again for every constant and width."""
    compiled: Any = numba.njit(**_INNER, **options)(function)
    if not numba.config.DISABLE_JIT:
        resolve = compiled.get_call_template
        compiled.get_call_template = lambda args, keywords: resolve([_widened(arg) for arg in args], keywords)
    return compiled


def _widened(kind: Any) -> Any:
    """The type of an argument, without its value; 64 bits for whole numbers."""
    kind = types.unliteral(kind)
    return types.int64 if isinstance(kind, types.Integer) and kind.signed else kind


def kernel(function: F) -> F:
    """A kernel called by other kernels and inlined there, so that passing the state costs nothing."""
    return _inner(function, forceinline=True)


def maybe_inline(function: F) -> F:
    """A kernel called rarely by other kernels; the compiler decides whether to inline it."""
    return _inner(function)


def noinline(function: F) -> F:
    """A kernel that is called and never inlined; without the option it inherits inlining from its callers."""
    return _inner(function, forceinline=False)


def specialize(function: F, inlined: bool = True, **replacements: Any) -> F:
    """A copy of a kernel that calls the given functions in place of its own ones of these names.

    Runs with power controls use the same event loop and passes with their own functions where they differ.
    """
    copy = replace_calls(function, **replacements)
    return kernel(copy) if inlined else maybe_inline(copy)


def replace_calls(function: F, **replacements: Any) -> F:
    """`specialize` of a function that is compiled as an entry."""
    plain: Any = getattr(function, "py_func", function)
    unused = sorted(set(replacements) - set(plain.__code__.co_names))
    if unused:
        raise NameError(
            f"{plain.__qualname__} calls no {', '.join(unused)}; give replacements of functions that it calls"
        )
    copy = FunctionType(plain.__code__, {**plain.__globals__, **replacements}, plain.__name__)
    copy.__qualname__ = f"{plain.__qualname__}_over"
    return copy  # type: ignore[return-value]


def compile_entry(
    function: F,
    signature: Any,
    package: str = "engine",
    *,
    allocates: bool = False,
    announced: tuple[str, str] | None = None,
) -> F:
    """A kernel called from Python, compiled (or taken from the cache) at once for one signature.

    `allocates` says whether it makes arrays, for which it must count references. If the kernel is not in the cache,
    `announced` is logged before: what is compiled, and for how long.
    """
    function = getattr(function, "py_func", function)
    if announced is not None and not is_compiled(function, package):
        _announce(*announced, package)
    compiled: Any = numba.njit(nogil=True, error_model="numpy", _nrt=allocates, pipeline_class=_EntryCompiler)(function)
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


def _row(stack: Any, number: int) -> Any:
    return type(stack)(*(array[number if number < len(array) else 0] for array in stack))


def _move(array: Any, to: int, start: int, count: int) -> None:
    array[to : to + count] = array[start : start + count].copy()


if numba.config.DISABLE_JIT:
    without_refcount, nth_row, memmove, assume_nonnegative = _identity, _row, _move, _identity
else:

    @intrinsic
    def assume_nonnegative(typing: Any, number: Any) -> Any:
        """The number, declared non-negative to the compiler: avoids the wrap-around of negative indices."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            builder.assume(builder.icmp_signed(">=", arguments[0], arguments[0].type(0)))
            return arguments[0]

        return number(number), generate

    def _stripped(context: Any, builder: Any, kind: Any, value: Any) -> Any:
        if isinstance(kind, types.Array):
            copy = make_array(kind)(context, builder, value=value)
            copy.meminfo = copy.meminfo.type(None)
            copy.parent = copy.parent.type(None)
            return copy._getvalue()
        for index, field in enumerate(kind if isinstance(kind, types.BaseTuple) else ()):
            part = _stripped(context, builder, field, builder.extract_value(value, index))
            value = builder.insert_value(value, part, index)
        return value

    @intrinsic
    def without_refcount(typing: Any, arrays: Any) -> Any:
        """The same array, or tuple of arrays and of such tuples, without reference counts.

        The caller of a run holds all arrays; counting references to them at every use would cost more than the
        simulation itself.
        """

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return _stripped(context, builder, signature.args[0], arguments[0])

        return arrays(arrays), generate

    @intrinsic
    def nth_row(typing: Any, stack: Any, number: Any) -> Any:
        """Row `number` of every array of a named tuple, without reference counts; the only row of arrays with one."""
        kinds = [kind.copy(ndim=kind.ndim - 1) for kind in stack]
        row = types.NamedTuple(kinds, stack.instance_class)

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            result = cgutils.get_null_value(context.get_value_type(row))
            for index, (kind, row_kind) in enumerate(zip(signature.args[0], kinds, strict=True)):
                array = make_array(kind)(context, builder, value=builder.extract_value(arguments[0], index))
                shape, strides = (cgutils.unpack_tuple(builder, each) for each in (array.shape, array.strides))
                at = builder.select(
                    builder.icmp_signed("<", arguments[1], shape[0]), arguments[1], context.get_constant(types.intp, 0)
                )
                part = make_array(row_kind)(context, builder)
                populate_array(
                    part,
                    data=cgutils.pointer_add(builder, array.data, builder.mul(at, strides[0])),
                    shape=shape[1:],
                    strides=strides[1:],
                    itemsize=array.itemsize,
                    meminfo=None,
                )
                result = builder.insert_value(result, part._getvalue(), index)
            return result

        return row(stack, types.intp), generate

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
