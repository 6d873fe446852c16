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

from kilowait.engine import jit_entry
from kilowait.engine.kernels.jit import (
    assume_nonnegative,
    cache_folder,
    is_compiled,
    memmove,
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


@pytest.mark.parametrize(
    ("to", "start", "count"), [(0, 3, 4), (3, 0, 4), (1, 0, 7), (0, 1, 7), (2, 2, 3), (5, 0, 0)]
)
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
        assert jit_entry.compiled(name) is jit_entry.compiled(name)
    with pytest.raises(KeyError):
        jit_entry.compiled("nothing")
    assert is_compiled()


def folder_with(**environment: str) -> str:
    code = "from kilowait.engine.kernels.jit import cache_folder; print(cache_folder())"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **environment},
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
    jit_entry.compiled("run")
    assert before == numba.config.CACHE_DIR
    assert any(cache_folder().rglob("*.nbc"))
