"""How kernels are compiled, and where the compiled code is kept.

Numba's cache looks at one file's date only: a caller keeps a stale copy of a callee edited in another file, and
code compiled with bounds checks passes for code without. So the cache folder is named by everything that matters.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numba
from numba.core.extending import intrinsic
from numba.np.arrayobj import make_array
from platformdirs import user_cache_path

__all__ = ["cache_folder", "is_compiled", "kernel", "signed_kernel"]

F = TypeVar("F", bound=Callable[..., Any])

_SOURCES = Path(__file__).resolve().parent.parent


@cache
def cache_folder() -> Path:
    """Folder for compiled kernels: other sources, options or versions mean another folder."""
    what = hashlib.sha256()
    for room in ("engine", "policies", "envs"):
        for source in sorted((_SOURCES / room).glob("*.py")):
            what.update(source.read_bytes())
    what.update(f"{numba.__version__} {sys.version} {numba.config.BOUNDSCHECK} {numba.config.OPT}".encode())
    root = os.environ.get("KILOWAIT_CACHE_DIR")
    base = Path(root) if root else user_cache_path("kilowait", appauthor=False)
    return base / "kernels" / what.hexdigest()[:16]


def is_compiled() -> bool:
    """Whether a simulation can start without compiling first."""
    return bool(numba.config.DISABLE_JIT) or any(cache_folder().rglob("*.nbc"))


def _jit(function: Callable[..., Any], *signature: Any, **options: Any) -> Any:
    before = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = str(cache_folder())
    try:
        return numba.njit(*signature, cache=True, nogil=True, error_model="numpy", **options)(function)
    finally:
        numba.config.CACHE_DIR = before


def kernel(function: F) -> F:
    """A kernel called by other kernels: inlined there, so that passing the state costs nothing."""
    return _jit(function, forceinline=True)  # type: ignore[no-any-return]


def signed_kernel(function: F, signature: Any) -> F:
    """A kernel called from Python, compiled (or taken from the cache) at once for one signature."""
    return _jit(function, signature)  # type: ignore[no-any-return]



@intrinsic
def lent(typing: Any, array: Any) -> Any:
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
