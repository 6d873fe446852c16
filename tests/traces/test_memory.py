"""Peak memory of reading and describing a large log."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROWS = 300_000
BYTES_PER_ROW = 450
"""The text of a row has 76 bytes and its columns in the table about as many; the rest is for temporary arrays."""

CHILD = """
import re, sys
from pathlib import Path
from kilowait.traces import describe, read_trace_with_report

def peak():  # not ru_maxrss, which includes the parent's memory before exec
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text()).group(1)) * 1024

describe(*read_trace_with_report(sys.argv[1]))  # imports
before = peak()
facts = describe(*read_trace_with_report(sys.argv[2]))
print(facts["jobs"], facts["users"], peak() - before)
"""


def write_log(path: Path, rows: int) -> None:
    rng = np.random.default_rng(1)
    columns = np.full((rows, 18), -1, np.int64)
    columns[:, 0] = np.arange(1, rows + 1)
    columns[:, 1] = np.cumsum(rng.integers(0, 20, rows))
    columns[:, 2] = rng.integers(0, 50_000, rows)
    columns[:, 3] = rng.integers(1, 90_000, rows)
    columns[:, [4, 7]] = 2 ** rng.integers(0, 9, (rows, 1))
    columns[:, 5] = columns[:, 3] // 2
    columns[:, 8] = columns[:, 3] * 2
    columns[:, [6, 9]] = rng.integers(1000, 4_000_000, (rows, 2))
    columns[:, 10] = rng.choice([0, 1, 5], rows)
    columns[:, 11:16] = rng.integers(1, [2000, 120, 5000, 12, 4], (rows, 5))
    path.write_text("; MaxProcs: 16384\n" + "".join(" ".join(map(str, row)) + "\n" for row in columns.tolist()))


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from Linux's /proc")
def test_memory_is_bounded_by_the_number_of_rows(tmp_path: Path) -> None:
    write_log(tmp_path / "small.swf", 100)
    write_log(tmp_path / "large.swf", ROWS)
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(tmp_path / "small.swf"), str(tmp_path / "large.swf")],
        capture_output=True,
        text=True,
        check=True,
    )
    jobs, users, peak = map(int, done.stdout.split())
    assert (jobs, users) == (ROWS, 1999)
    assert peak < BYTES_PER_ROW * ROWS, f"{peak / ROWS:.0f} bytes per row"
