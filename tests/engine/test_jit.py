"""Cache folder of compiled kernels, and the intrinsics of the engine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from llvmlite.binding import Linkage, parse_assembly
from numba.core.errors import NumbaError
from numba.core.registry import cpu_target

from kilowait.engine import jit_entry
from kilowait.engine.kernels import event_loop
from kilowait.engine.kernels.jit import (
    _EntryLibrary,
    assume_nonnegative,
    cache_folder,
    compile_entry,
    is_compiled,
    maybe_inline,
    memmove,
    specialize,
    without_refcount,
)
from tests.engine.stepwise_policy import INTERPRETED


@numba.njit
def call_move(array: Any, to: int, start: int, count: int) -> None:
    memmove(array, to, start, count)


@numba.njit
def call_natural(number: int) -> int:
    return assume_nonnegative(number)


@numba.njit
def call_lent(array: Any) -> float:
    return without_refcount(array)[1]


@pytest.mark.parametrize(("to", "start", "count"), [(0, 3, 4), (3, 0, 4), (1, 0, 7), (0, 1, 7), (2, 2, 3), (5, 0, 0)])
def test_memmove_handles_overlap(to: int, start: int, count: int) -> None:
    given = np.arange(8.0)
    expected = given.copy()
    expected[to : to + count] = given[start : start + count].copy()
    call_move(given, to, start, count)
    assert given.tolist() == expected.tolist()


def test_assume_nonnegative_and_without_refcount_return_their_argument() -> None:
    assert call_natural(5) == 5
    array = np.array([1.0, 2.5])
    before = sys.getrefcount(array)
    assert call_lent(array) == 2.5
    assert sys.getrefcount(array) == before


def test_every_entry_kernel_compiles() -> None:
    for name in ("run", "advance", "schedule", "begin", "start", "reserve", "hold"):
        assert jit_entry.compiled_kernel(name) is jit_entry.compiled_kernel(name)
    with pytest.raises(KeyError):
        jit_entry.compiled_kernel("nothing")
    assert is_compiled(event_loop.run)


def folder_with(**environment: str) -> str:
    code = "from kilowait.engine.kernels.jit import cache_folder; print(cache_folder())"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={**os.environ, **environment}
    )
    return done.stdout.strip()


def test_cache_folder_depends_on_sources_and_options(tmp_path: Path) -> None:
    here = {"KILOWAIT_CACHE_DIR": str(tmp_path), "NUMBA_BOUNDSCHECK": "0"}
    plain = folder_with(**here)
    assert Path(plain).parent == tmp_path / "kernels"
    assert folder_with(**here) == plain
    assert folder_with(**{**here, "NUMBA_BOUNDSCHECK": "1"}) != plain


@pytest.mark.skipif(INTERPRETED, reason="nothing is compiled")
def test_compiling_an_entry_restores_numba_cache_dir() -> None:
    before = numba.config.CACHE_DIR
    jit_entry.compiled_kernel("run")
    assert before == numba.config.CACHE_DIR
    assert any(cache_folder().rglob("*.nbc"))


# -- the cache on a shared machine -----------------------------------------------------------------

KERNEL = """
import numba, numba.types as t
from kilowait.engine.kernels.jit import compile_entry
def twice(x):
    return 2 * x
print(compile_entry(twice, t.int64(t.int64), announced=("a product", "1 s"))(21))
"""


def compiled_in(folder: Path, program: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a process that compiles one small function with its cache in the folder."""
    program.write_text(KERNEL, encoding="utf-8")
    return subprocess.run(
        [sys.executable, str(program)],
        capture_output=True,
        text=True,
        env={**os.environ, "KILOWAIT_CACHE_DIR": str(folder), **environment},
    )


def works(done: subprocess.CompletedProcess[str]) -> bool:
    return done.returncode == 0 and done.stdout == "42\n" and "Traceback" not in done.stderr


def only_file(folder: Path) -> Path:
    (found,) = folder.rglob("*.nbc")
    return found


COMPILED = pytest.mark.skipif(INTERPRETED, reason="nothing is compiled")


@COMPILED
def test_the_cache_is_private(tmp_path: Path) -> None:
    first = compiled_in(tmp_path / "cache", tmp_path / "p.py")
    assert works(first) and "compiling a product, once, for about 1 s; kept in " in first.stderr
    file = only_file(tmp_path / "cache")
    for place in (file, file.parent.parent, file.parent.parent.parent):
        assert place.stat().st_mode & 0o077 == 0, place
    before = file.stat().st_mtime_ns
    again = compiled_in(tmp_path / "cache", tmp_path / "p.py")
    assert works(again) and again.stderr == "" and only_file(tmp_path / "cache").stat().st_mtime_ns == before


def truncated(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:100])


def emptied(file: Path) -> None:
    file.write_bytes(b"")


def flipped(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def dangling(file: Path) -> None:
    file.unlink()
    file.symlink_to("nowhere")


def a_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


def a_pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def writable_by_others(file: Path) -> None:
    file.chmod(0o666)


@COMPILED
@pytest.mark.parametrize("damage", [truncated, emptied, flipped, dangling, a_folder, a_pipe, writable_by_others])
def test_a_damaged_or_foreign_kernel_is_compiled_again(tmp_path: Path, damage: Any) -> None:
    assert works(compiled_in(tmp_path / "cache", tmp_path / "p.py"))
    damage(only_file(tmp_path / "cache"))
    done = compiled_in(tmp_path / "cache", tmp_path / "p.py")
    assert works(done) and done.stderr.count("\n") <= 2, done.stderr
    assert "compiling again" in done.stderr or damage is dangling


@COMPILED
def test_a_kernel_of_another_user_is_not_loaded(tmp_path: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can give files to another user")
    assert works(compiled_in(tmp_path / "cache", tmp_path / "p.py"))
    os.chown(only_file(tmp_path / "cache"), 12345, 12345)
    done = compiled_in(tmp_path / "cache", tmp_path / "p.py")
    assert works(done) and "compiling again" in done.stderr


@COMPILED
@pytest.mark.parametrize("obstacle", ["file", "link", "foreign", "dangling"])
def test_something_in_the_way_of_the_cache_does_not_stop_a_run(tmp_path: Path, obstacle: str) -> None:
    cache, target = tmp_path / "cache", tmp_path / "elsewhere"
    cache.mkdir()
    target.mkdir()
    if obstacle == "file":
        (cache / "kernels").write_text("in the way")
    elif obstacle == "link":
        (cache / "kernels").symlink_to(target)
    elif obstacle == "dangling":
        (cache / "kernels").symlink_to(tmp_path / "nowhere")
    else:
        if os.getuid() != 0:
            pytest.skip("only root can give folders to another user")
        (cache / "kernels").mkdir()
        os.chown(cache / "kernels", 12345, 12345)
    spare = tmp_path / "spare"
    spare.mkdir()
    done = compiled_in(cache, tmp_path / "p.py", TMPDIR=str(spare))
    assert works(done) and "compiled code cannot be kept" in done.stderr
    assert not list(target.iterdir()) and not list(spare.iterdir()), "nothing is left behind"


@COMPILED
def test_an_own_folder_that_others_may_write_is_closed(tmp_path: Path) -> None:
    kernels = tmp_path / "cache" / "kernels"
    kernels.mkdir(parents=True)
    kernels.chmod(0o777)
    assert works(compiled_in(tmp_path / "cache", tmp_path / "p.py"))
    assert kernels.stat().st_mode & 0o077 == 0


@COMPILED
def test_a_full_disk_does_not_stop_a_run(tmp_path: Path) -> None:
    """A limit on the size of files, as a full disk, ends every write with an error."""
    program = tmp_path / "full.py"
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\n"
    program.write_text(KERNEL.replace("def twice", limit + "def twice"), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(program)],
        capture_output=True,
        text=True,
        env={**os.environ, "KILOWAIT_CACHE_DIR": str(tmp_path / "cache")},
    )
    assert works(done) and "it is compiled again next time" in done.stderr
    assert not [file for file in (tmp_path / "cache").rglob("*") if file.is_file()]


@COMPILED
def test_without_any_folder_nothing_is_kept(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("in the way")
    code = "import tempfile; tempfile.mkdtemp = lambda **_: (_ for _ in ()).throw(OSError('no room'));" + KERNEL
    program = tmp_path / "q.py"
    program.write_text(code, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(program)],
        capture_output=True,
        text=True,
        env={**os.environ, "KILOWAIT_CACHE_DIR": str(tmp_path / "cache")},
    )
    assert works(done) and "compiles anew" in done.stderr


# -- inner kernels ---------------------------------------------------------------------------------


@maybe_inline
def difference(first: int, second: int) -> int:
    if first == second:
        raise ValueError("no difference")
    return first - second


@numba.njit
def call_difference(number: int) -> int:
    return difference(number, 1) + difference(number, np.int32(2))


def new_array(size: int) -> Any:
    return np.zeros(size)


def other_array(size: int) -> Any:
    return np.ones(size)


def test_an_inner_kernel_is_compiled_once_for_all_whole_numbers() -> None:
    assert call_difference(7) == 11
    assert INTERPRETED or len(difference.overloads) == 1  # type: ignore[attr-defined]


def test_an_error_of_an_inner_kernel_reaches_python() -> None:
    with pytest.raises(ValueError, match="no difference"):
        call_difference(2)


def test_inner_kernels_are_internal_to_their_entry() -> None:
    library = _EntryLibrary(cpu_target.target_context.codegen(), "entry")
    library._final_module.link_in(
        parse_assembly(
            "define linkonce_odr i64 @inner(i64 %x) noinline optnone { ret i64 %x }\n"
            "define i64 @entry(i64 %x) { %y = call i64 @inner(i64 %x)\n ret i64 %y }"
        )
    )
    library._optimize_final_module()
    assert {function.name: function.linkage for function in library.get_defined_functions()} == {
        "inner": Linkage.internal,
        "entry": Linkage.external,
    }


@COMPILED
def test_a_kernel_that_makes_arrays_must_say_so() -> None:
    signature = numba.float64[::1](numba.int64)
    with pytest.raises(NumbaError, match="zeros"):
        compile_entry(new_array, signature)
    assert compile_entry(other_array, signature, allocates=True)(3).tolist() == [1, 1, 1]


def test_replaced_calls_must_exist() -> None:
    with pytest.raises(NameError, match="calls no nothing; give replacements of functions that it calls"):
        specialize(difference, nothing=difference)
