"""Sample files: complete after a crash, never overwritten."""

from __future__ import annotations

import math
import resource
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from kilowait.errors import InputError, LockError, MeterError, UnknownNameError
from kilowait.telemetry.recorder import open_recorder
from kilowait.telemetry.sample_reader import _batches

COLUMNS = ("time", "monotonic_s", "host", "meter", "power_w")
NOON = datetime(2026, 11, 18, 12, tzinfo=UTC).timestamp()
DAY_S = 86400.0


def row(at_s: float, power: float = 50.0) -> tuple[float, float, str, str, float]:
    return (NOON + at_s, 100.0 + at_s, "n1", "gpu0", power)


def record(path: Path, *rows: tuple[object, ...], columns: tuple[str, ...] = COLUMNS) -> None:
    recorder = open_recorder(path, columns)
    recorder.write(rows)
    recorder.close()


def crash(path: Path, *rows: tuple[object, ...]) -> None:
    """Leave files as after SIGKILL: closed by the system, not converted."""
    recorder = open_recorder(path, COLUMNS)
    recorder.write(rows)
    file = recorder._day_file if path.suffix == ".parquet" else recorder
    file.close()
    recorder._open.close()


# -- CSV -------------------------------------------------------------------------------------------


def test_csv_is_appended_by_a_second_run(tmp_path):
    path = tmp_path / "n1.csv"
    record(path, row(0), row(1, math.nan))
    record(path, row(2, 1 / 3))
    assert path.read_text().splitlines() == [
        "time,monotonic_s,host,meter,power_w",
        "2026-11-18T12:00:00.000000Z,100,n1,gpu0,50",
        "2026-11-18T12:00:01.000000Z,101,n1,gpu0,",
        "2026-11-18T12:00:02.000000Z,102,n1,gpu0,0.333333",
    ]


def test_names_that_are_formulas_are_guarded_and_read_back(tmp_path):
    names = ["=1+1", "'=1", "-n1", "n,1"]
    rows = [(NOON + at, 100.0, name, "@gpu", 5.0) for at, name in enumerate(names)]
    record(tmp_path / "n.csv", *rows)
    lines = (tmp_path / "n.csv").read_text().splitlines()[1:]
    assert [line.partition(",100,")[2] for line in lines] == [
        "'=1+1,'@gpu,5", "''=1,'@gpu,5", "'-n1,'@gpu,5", "\"n,1\",'@gpu,5"
    ]  # fmt: skip
    record(tmp_path / "n.parquet", *rows)
    table = pq.read_table(next((tmp_path / "n.parquet").glob("*.parquet")))
    assert table["host"].to_pylist() == names
    assert set(table["meter"].to_pylist()) == {"@gpu"}
    batch = next(_batches(tmp_path / "n.csv", Counter()))
    assert batch.column("host").to_pylist() == names


@pytest.mark.parametrize("incomplete", ["2026-11-18T12:00:01.0", "2026", "x" * 9000])
def test_incomplete_line_is_removed_before_appending(tmp_path, incomplete):
    path = tmp_path / "n1.csv"
    record(path, row(0))
    with path.open("a") as file:
        file.write(incomplete)
    record(path, row(2))
    assert [line[:19] for line in path.read_text().splitlines()[1:]] == ["2026-11-18T12:00:00", "2026-11-18T12:00:02"]


def test_incomplete_header_is_rewritten(tmp_path):
    path = tmp_path / "n1.csv"
    path.write_text("time,mono")
    record(path, row(0))
    assert path.read_text().startswith("time,monotonic_s,host,meter,power_w\n2026")


@pytest.mark.parametrize(
    "text", ["time,host\n", "my only copy\n", "precious", "time,monotonic_s,host,meter,power_w,more\n"]
)
def test_file_with_other_columns_is_not_changed(tmp_path, text):
    path = tmp_path / "n1.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=r"n1\.csv has other columns \(.*\); it was not changed"):
        record(path, row(0))
    assert path.read_text() == text


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_second_process_cannot_write_to_the_same_file(tmp_path, suffix):
    path = tmp_path / f"n1{suffix}"
    first = open_recorder(path, COLUMNS)
    with pytest.raises(LockError, match="is being written by another part of this process"):
        open_recorder(path, COLUMNS)
    first.close()
    record(path, row(0))


def test_unwritable_paths_are_errors(tmp_path):
    with pytest.raises(UnknownNameError, match=r"unknown suffix of a sample file '\.txt'.*\.csv, \.parquet"):
        open_recorder(tmp_path / "x.txt", COLUMNS)
    open_recorder(tmp_path / "new" / "x.csv", COLUMNS).close()
    with pytest.raises(MeterError, match=r"cannot write to .*x.csv is a file, not a folder; choose another --out"):
        open_recorder(tmp_path / "new" / "x.csv" / "x.csv", COLUMNS)
    with pytest.raises(InputError, match="is a folder; give the name of a CSV file"):
        (tmp_path / "d.csv").mkdir()
        open_recorder(tmp_path / "d.csv", COLUMNS)


def test_samples_remain_after_a_full_disk(tmp_path):
    path = tmp_path / "n1.csv"
    recorder = open_recorder(path, COLUMNS)
    recorder.write([row(0)])
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 10, limits[1]))
    try:
        with pytest.raises(MeterError, match=r"cannot write to .*n1\.csv any more: File too large; the samples so far"):
            recorder.write([row(1)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        recorder.close()
    record(path, row(2))
    assert [line[17:19] for line in path.read_text().splitlines()[1:]] == ["00", "02"]


# -- Parquet ---------------------------------------------------------------------------------------


def names(path: Path) -> list[str]:
    return sorted(file.name for file in path.iterdir() if file.name != ".kilowait-lock")


def times(path: Path) -> list[float]:
    return sorted(at.timestamp() - NOON for at in pq.read_table(path).column("time").to_pylist())


def test_one_file_per_day_and_run(tmp_path):
    path = tmp_path / "n1.parquet"
    recorder = open_recorder(path, COLUMNS)
    recorder.write([row(0)])
    recorder.write([row(1, math.nan)])
    assert names(path) == ["_2026-11-18.csv"]
    recorder.write([row(DAY_S)])
    assert names(path) == ["2026-11-18.parquet", "_2026-11-19.csv"]
    recorder.write([row(2)])  # the clock was set back
    recorder.close()
    record(path, row(3))
    assert names(path) == [f"{day}.parquet" for day in ("2026-11-18-2", "2026-11-18-3", "2026-11-18", "2026-11-19")]
    table = pq.read_table(path)
    assert times(path) == [0.0, 1.0, 2.0, 3.0, DAY_S]
    assert str(table.schema.field("time").type) == "timestamp[us, tz=UTC]"
    assert table.column("power_w").null_count == 1


def test_file_of_a_crashed_run_is_converted_by_the_next_run(tmp_path):
    path = tmp_path / "n1.parquet"
    crash(path, row(0), row(1))
    with (path / "_2026-11-18.csv").open("a") as file:
        file.write("2026-11-18T12:00:02.000000Z,102,n1,gpu0,5")  # half of 50
    lines = (path / "_2026-11-18.csv").read_bytes().split(b"\n")
    (path / "_2026-11-18.csv").write_bytes(b"\n".join((*lines[:2], b"\0" * 40, *lines[2:])))
    (path / ".2026-11-18.parquet.77-0123456789ab.part").write_bytes(b"PAR1half")
    record(path, row(9))
    assert times(path) == [0.0, 1.0, 9.0]
    assert [name for name in names(path) if name[0] == "_"] == []


def test_crash_after_conversion_duplicates_no_samples(tmp_path):
    path = tmp_path / "n1.parquet"
    crash(path, row(0))
    csv_text = (path / "_2026-11-18.csv").read_text()
    record(path, row(1))
    (path / "_2026-11-18.csv").write_text(csv_text)
    record(path, row(2))
    assert times(path) == [0.0, 1.0, 2.0]


def test_run_without_rows_leaves_no_file(tmp_path):
    open_recorder(tmp_path / "n1.parquet", COLUMNS).close()
    assert names(tmp_path / "n1.parquet") == []


def test_other_files_and_folders_are_not_changed(tmp_path):
    single = tmp_path / "old.parquet"
    single.write_bytes(b"PAR1")
    with pytest.raises(InputError, match="is a file, but samples need a folder of that name; it was not changed"):
        record(single, row(0))
    folder = tmp_path / "n1.parquet"
    record(folder, row(0))
    with pytest.raises(InputError, match=r"has other columns \(time, monotonic_s, host, .*write to another folder"):
        record(folder, (NOON, "n1", 5.0), columns=("time", "host", "power_w"))
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match=r"contains notes\.txt, which is not a sample file; choose another folder"):
        record(folder, row(1))
    assert times(folder / "2026-11-18.parquet") == [0.0]
