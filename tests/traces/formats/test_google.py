"""Google event files, and task intervals against a plain reference."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kilowait.errors import TraceError
from kilowait.traces import read_trace, read_trace_with_report
from kilowait.traces.formats.google import END, SCHEDULE, SUBMIT, UPDATE, task_intervals
from tests.traces.formats import sample_files

from .conftest import Read, entry_count


def test_tasks_of_2011(read: Read) -> None:
    jobs, ledger = read(sample_files.GOOGLE_TASKS)
    assert jobs["account"].tolist() == [3418309, 88, 77]
    assert jobs["submit_s"].tolist() == [600, 600, 601]
    assert jobs["runtime_s"].tolist() == [70, 25, 10 + 30]
    assert np.isnan(jobs["wait_s"][:2]).all()
    assert jobs["wait_s"][2] == 2
    assert jobs["status"].tolist() == [-1, 1, 1]
    assert jobs["cpu_milli"].tolist() == [125_000, 62_500, 62_500]
    assert jobs["memory_mb"][0] == pytest.approx(74460)
    assert jobs["priority"].tolist() == [9, 2, 2]
    assert jobs.meta["largest_machine"] == {"cores": 1000, "memory_mb": 1_000_000}
    assert (ledger.rows_read, ledger.jobs, ledger.dropped, ledger.folded) == (13, 3, 2, 8)
    assert entry_count(ledger, "waiting when the files end") == 1
    assert entry_count(ledger, "ended while it waited") == 1
    assert entry_count(ledger, "submitted before the files begin: cut at 600 s") == 2
    assert entry_count(ledger, "running when the files end: cut at 670 s") == 1
    assert entry_count(ledger, "ran several times") == 1
    with_never_ran, _ = read(sample_files.GOOGLE_TASKS, never_ran="keep")
    assert sorted(with_never_ran["cancel_s"][with_never_ran["runtime_s"] == 0].tolist()) == [602, 670]


def test_jobs_of_2011(read: Read) -> None:
    jobs, ledger = read(sample_files.GOOGLE_JOBS)
    assert jobs["job_id"].tolist() == [3418309, 77]
    assert jobs["runtime_s"].tolist() == [53, 50]
    assert jobs["nodes"].tolist() == [1, 1]
    assert entry_count(ledger, "do not say how large a job is") == 0


def test_folder_of_parts(tmp_path: Path) -> None:
    lines = sample_files.GOOGLE_TASKS.splitlines(keepends=True)
    for folder, texts in {
        "task_events": ["".join(lines[:6]), "".join(lines[6:])],
        "job_events": [sample_files.GOOGLE_JOBS],
    }.items():
        (tmp_path / folder).mkdir()
        for part, text in enumerate(texts):
            (tmp_path / folder / f"part-0000{part}-of-00500.csv").write_text(text)
    whole = tmp_path / "whole.csv"
    whole.write_text(sample_files.GOOGLE_TASKS)
    expected = read_trace(whole)
    whole.unlink()
    jobs, ledger = read_trace_with_report(tmp_path)
    assert jobs["runtime_s"].tolist() == expected["runtime_s"].tolist()
    assert entry_count(ledger, "1 files of other events left out") == 0
    assert len(read_trace(tmp_path / "job_events")) == 2


def test_broken_events_are_dropped(read: Read) -> None:
    text = sample_files.GOOGLE_JOBS + "x,,77,4,u2=,0,n,l\n700000000,,78,9,u2=,0,n,l\n700000000,,78\n"
    jobs, ledger = read(text)
    assert len(jobs) == 2
    assert ledger.dropped == 3
    with pytest.raises(TraceError, match="no valid events"):
        read("x,,77,4,u2=,0,n,l\n", format="google2011")


def test_instances_of_2019(read: Read) -> None:
    jobs, ledger = read(sample_files.GOOGLE_2019)
    assert jobs["submit_s"].tolist() == [700, 710]
    assert jobs["runtime_s"].tolist() == [60, 45]
    assert jobs["wait_s"].tolist() == [5, 10]
    assert jobs["cpu_milli"].tolist() == [6250, 6250]
    assert jobs["memory_mb"].tolist() == [7800, 7800]
    assert jobs["status"].tolist() == [1, -1]
    assert jobs["priority"].tolist() == [103, 103]
    assert entry_count(ledger, "an alloc set") == 1
    assert entry_count(ledger, "running when the files end: cut at 765 s") == 2  # The alloc set among them.


def test_collections_of_2019_as_csv(read: Read) -> None:
    jobs, _ = read(sample_files.GOOGLE_2019_CSV)
    assert jobs["job_id"].tolist() == [394594644502]
    assert jobs["runtime_s"].tolist() == [60]
    assert jobs["status"].tolist() == [5]
    assert jobs.labels["name"] == ("job=",)


def test_instances_of_2019_as_csv_with_any_request_columns(read: Read) -> None:
    for name in ("resource_request.cpus", "resource_request_cpus", "cpus"):
        text = f"time,type,collection_id,instance_index,{name}\n7,0,5,1,0.25\n9,3,5,1,0.25\n12,6,5,1,0.25\n"
        jobs, _ = read(text)
        assert (jobs["cpu_milli"].tolist(), jobs["runtime_s"].tolist()) == ([250_000], [3e-6])


@given(
    st.lists(
        st.tuples(
            st.integers(0, 3), st.integers(0, 1), st.integers(0, 40), st.sampled_from([SUBMIT, SCHEDULE, END, UPDATE])
        ),
        min_size=1,
        max_size=30,
    )
)
def test_task_intervals_against_a_reference(events: list[tuple[int, int, int, int]]) -> None:
    """The reference processes one event after the other."""
    events = sorted(events, key=lambda event: event[2])
    keys = np.array([[event[0] for event in events], [event[1] for event in events]], np.float64)
    times, kinds = (np.array([event[column] for event in events]) for column in (2, 3))
    intervals = task_intervals(keys, times.astype(np.float64), kinds, kinds, 20.0)
    timed = [time for time in times.tolist() if time > 0]
    begin = min(timed) if timed else 20
    if 0 in times and begin >= 20:
        begin = 20
    end = max([begin, *times.tolist()])
    tasks = list(dict.fromkeys((job, task) for job, task, _, _ in events))
    for row, task_key in enumerate(tasks):
        task_events = [(time, kind) for job, task, time, kind in events if (job, task) == task_key and kind != UPDATE]
        runtime_s, runs, last_s = 0, 0, begin
        running = bool(task_events) and task_events[0][1] == END
        runs += running
        for time, kind in task_events:
            now_s = max(time, begin)
            if running:
                runtime_s += now_s - last_s
            running = kind == SCHEDULE
            runs += running
            last_s = now_s
        runtime_s += end - last_s if running else 0
        early = not task_events or task_events[0][1] != SUBMIT or task_events[0][0] == 0
        assert (intervals.runtime_s[row], intervals.runs[row], bool(intervals.early[row])) == (runtime_s, runs, early)
        assert intervals.submit_s[row] == (begin if early else task_events[0][0])
        assert bool(intervals.late[row]) == running
        assert bool(intervals.waiting[row]) == (not task_events or task_events[-1][1] == SUBMIT)
