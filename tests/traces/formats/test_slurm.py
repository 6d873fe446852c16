from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from kilowait.errors import TraceError
from kilowait.jobs import JobTable
from kilowait.traces import CleaningReport, read_trace_with_report
from kilowait.traces.formats.sacct import sacct_delimiter

HEAD = "JobID|JobName|User|Account|Partition|QOS|Submit|Start|End|Elapsed|Timelimit|NNodes|NCPUS|ReqMem|State"


def read(folder: Path, *lines: str, **options: object) -> tuple[JobTable, CleaningReport]:
    path = folder / "dump.txt"
    path.write_text("\n".join(lines) + "\n")
    jobs, report = read_trace_with_report(path, **options)  # type: ignore[arg-type]
    assert report.rows_read == report.jobs + report.dropped + report.folded
    return jobs, report


def row(
    job: str = "7",
    name: str = "a",
    submit: str = "2021-01-01T00:00:00",
    start: str = "2021-01-01T00:01:00",
    end: str = "2021-01-01T01:01:00",
    elapsed: str = "01:00:00",
    limit: str = "2-12:30:00",
    nodes: str = "2",
    cpus: str = "8",
    memory: str = "4Gn",
    state: str = "COMPLETED",
) -> str:
    return f"{job}|{name}|ann|acc|batch|normal|{submit}|{start}|{end}|{elapsed}|{limit}|{nodes}|{cpus}|{memory}|{state}"


def test_node_lists_are_kept(tmp_path: Path) -> None:
    other = row(job="9", state="CANCELLED by 5", start="Unknown", elapsed="00:00:00")
    jobs, _ = read(
        tmp_path,
        HEAD + "|NodeList",
        row() + "|node[01-02]",
        row(job="8") + "|gpu7",
        other + "|None assigned",
        never_ran="keep",
    )
    assert jobs.labels["node_list"] == ("node[01-02]", "gpu7")
    assert jobs["node_list"].tolist() == [0, 1, -1]


def reasons(report: CleaningReport, kind: str) -> list[str]:
    return [entry.reason for entry in report.entries if entry.kind == kind]


def test_sacct_dump(tmp_path: Path) -> None:
    jobs, report = read(tmp_path, HEAD, row())
    assert jobs["job_id"].tolist() == [7]
    assert jobs["submit_s"].tolist() == [1609459200]
    assert jobs["runtime_s"].tolist() == [3600]
    assert jobs["estimate_s"].tolist() == [217800]
    assert jobs["wait_s"].tolist() == [60]
    assert jobs["nodes"].tolist() == [2]
    assert jobs["cores"].tolist() == [8]
    assert jobs["memory_mb"].tolist() == pytest.approx([2 * 4 * 2**30 / 1e6])
    assert jobs["status"].tolist() == [1]
    assert jobs.labels["user"] == ("ann",)
    assert jobs.labels["queue"] == ("batch",)
    assert jobs.meta["format"] == "sacct"
    assert jobs.meta["time_zone"] == "UTC (assumed)"
    assert "times without a zone are read as UTC" in reasons(report, "note")


def test_steps_are_merged_into_their_job(tmp_path: Path) -> None:
    jobs, report = read(tmp_path, HEAD, row(), row("7.batch"), row("7.extern"), row("7.0"))
    assert len(jobs) == 1
    assert report.folded == 3


def test_steps_without_a_job_record(tmp_path: Path) -> None:
    jobs, report = read(tmp_path, HEAD, row("7.0", elapsed="00:10:00"), row("7.batch"), row("7.1", elapsed="00:20:00"))
    assert jobs["job_id"].tolist() == [7]
    assert jobs["runtime_s"].tolist() == [3600]
    assert report.folded == 2
    assert reasons(report, "corrected") == ["steps without a job record: the longest step is used as the job"]


def test_array_tasks_and_het_jobs_get_unique_numbers(tmp_path: Path) -> None:
    jobs, _ = read(tmp_path, HEAD, row("7_1"), row("7_2"), row("9"), row("8+0"))
    assert len(jobs) == 4
    assert 9 in jobs["job_id"]
    jobs, _ = read(tmp_path, "JobIDRaw|" + HEAD, "21|" + row("7_1"), "7|" + row("7_2"))
    assert sorted(jobs["job_id"].tolist()) == [7, 21]


def test_pending_array_tasks_never_ran(tmp_path: Path) -> None:
    waiting = row("8_[5-9]", start="Unknown", end="Unknown", elapsed="00:00:00", state="PENDING")
    jobs, report = read(tmp_path, HEAD, row(), waiting)
    assert len(jobs) == 1
    assert reasons(report, "dropped") == ["never ran: tasks of an array still waiting when the dump was made"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (row("8", start="Unknown", end="Unknown", elapsed="00:00:00", state="PENDING"), "still waiting"),
        (row("8", end="Unknown", state="RUNNING"), "still running"),
        (row("8", start="None", elapsed="00:00:00", state="CANCELLED by 1000"), "cancelled while it waited"),
        (row("8", start="Unknown", elapsed="00:00:00", state="FAILED"), "ended without having started"),
    ],
)
def test_reasons_why_jobs_never_ran(tmp_path: Path, text: str, reason: str) -> None:
    jobs, report = read(tmp_path, HEAD, row(), text)
    assert jobs["job_id"].tolist() == [7]
    [reason_found] = reasons(report, "dropped")
    assert reason in reason_found


def test_job_cancelled_in_the_queue_can_be_kept(tmp_path: Path) -> None:
    cancelled = row("8", start="None", end="2021-01-01T00:02:00", elapsed="00:00:00", state="CANCELLED by 1000")
    jobs, _ = read(tmp_path, HEAD, row(), cancelled, never_ran="keep")
    assert jobs["cancel_s"].tolist() == [math.inf, 1609459320]
    assert jobs["status"].tolist() == [1, 5]


@pytest.mark.parametrize("limit", ["UNLIMITED", "Partition_Limit", ""])
def test_missing_limits(tmp_path: Path, limit: str) -> None:
    jobs, report = read(tmp_path, HEAD, row(), row("8", limit=limit))
    assert jobs["estimate_s"].tolist() == [217800, 3600]
    assert len(reasons(report, "corrected")) == 1


@pytest.mark.parametrize(
    ("memory", "mb"), [("500Mc", 8 * 500 * 2**20), ("1Gn", 2 * 2**30), ("4000M", 4000 * 2**20), ("1T", 2**40)]
)
def test_memory_suffixes(tmp_path: Path, memory: str, mb: float) -> None:
    jobs, _ = read(tmp_path, HEAD, row(memory=memory))
    assert jobs["memory_mb"].tolist() == pytest.approx([mb / 1e6])


@pytest.mark.parametrize("name", ["a|b", "|", "a||b|", "x|2021-01-01T00:00:00", "1|2|3"])
def test_delimiters_inside_names(tmp_path: Path, name: str) -> None:
    jobs, report = read(tmp_path, HEAD, row(), row("8", name=name), row("9"))
    assert jobs["job_id"].tolist() == [7, 8, 9]
    assert jobs["runtime_s"].tolist() == [3600] * 3
    assert jobs.labels["name"][jobs["name"][1]] == name
    assert not report.dropped


def test_line_breaks_inside_names(tmp_path: Path) -> None:
    jobs, report = read(tmp_path, HEAD, row(), row("8", name="one\ntwo | three\n\nfour"), row("9"))
    assert jobs["job_id"].tolist() == [7, 8, 9]
    assert report.rows_read == 3


def test_fragment_does_not_swallow_the_next_record(tmp_path: Path) -> None:
    jobs, report = read(tmp_path, HEAD, row()[:40], row("8"), row("9")[20:], row("10"))
    assert jobs["job_id"].tolist() == [8, 10]
    assert report.dropped == 2


def test_fragment_does_not_swallow_a_multi_line_record(tmp_path: Path) -> None:
    head, cut = HEAD.replace("JobName|", "") + "|SubmitLine|WorkDir", row().replace("|a|", "|")
    multi_line = row("8").replace("|a|", "|") + "|sbatch --wrap=\nx | y|/home"
    jobs, report = read(tmp_path, head, cut + "|sbatch x", multi_line, row("9").replace("|a|", "|") + "|s|/home")
    assert jobs["job_id"].tolist() == [8, 9]
    assert (report.rows_read, report.dropped) == (3, 1)


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "^", "~~"])
def test_other_delimiters(tmp_path: Path, delimiter: str) -> None:
    jobs, _ = read(tmp_path, HEAD.replace("|", delimiter), row().replace("|", delimiter))
    assert jobs["runtime_s"].tolist() == [3600]


def test_trailing_delimiter_and_repeated_header(tmp_path: Path) -> None:
    jobs, report = read(tmp_path, HEAD + "|", row() + "|", HEAD + "|", row("8") + "|")
    assert len(jobs) == report.rows_read == 2


def test_unix_times_raw_columns_and_tres(tmp_path: Path) -> None:
    jobs, _ = read(
        tmp_path,
        "JobIDRaw|Submit|Start|End|ElapsedRaw|TimelimitRaw|AllocTRES|State|ConsumedEnergyRaw|UID",
        "5|1609459200|1609459210|1609459310|100|60|cpu=64,mem=2G,node=3,gres/gpu=8,gres/gpu:a100=8|TIMEOUT|5000|1001",
        "6|1609459200|1609459210|1609459310|100|60|cpu=64,mem=2G,node=3|OUT_OF_ME+||1002",
    )
    assert jobs["runtime_s"].tolist() == [100, 100]
    assert jobs["estimate_s"].tolist() == [3600, 3600]
    assert jobs["nodes"].tolist() == [3, 3]
    assert jobs["gpus"].tolist() == [8, 0]
    assert jobs["status"].tolist() == [0, -1]
    assert np.array_equal(jobs["energy_j"], [5000, np.nan], equal_nan=True)
    assert jobs["user"].tolist() == [1001, 1002]


def test_without_elapsed_or_allocated_cpus_run_times_are_approximate(tmp_path: Path) -> None:
    jobs, report = read(
        tmp_path,
        "CPUTimeRAW|ReqCPUS|ReqNodes|ResvCPURAW|Submit|TimelimitRaw|State",
        "400|4|1|80|2024-06-24T12:00:00|60|COMPLETED",
        "256000|1|2|7|2024-06-24T12:00:01|1|TIMEOUT",
    )
    assert jobs["runtime_s"].tolist() == [100, 60]
    assert jobs["cores"].tolist() == [4, 4267]
    assert jobs["wait_s"].tolist() == [20, 7]
    assert any("approximate" in reason for reason in reasons(report, "corrected"))


def test_missing_submit_column(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no column Submit"):
        read(tmp_path, "JobID|State|Elapsed", "1|COMPLETED|00:00:01")


def test_missing_header(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no sacct header"):
        read(tmp_path, row(), format="sacct")


def test_sentence_is_not_a_header() -> None:
    assert sacct_delimiter("the job state was submitted") is None


EVENT = (
    "-dt {t} -e submit_batch_job | -sim-walltime {run} --uid=ann -J jobid_{n:05d} -N 2 -n 18 -t 3-00:00:00 "
    "-q general -p batch --mem=250G --gres=gpu:tesla:2 --exclusive pseudo.job"
)


def test_slurm_simulator_events(tmp_path: Path) -> None:
    jobs, report = read(tmp_path, EVENT.format(t=10.5, run=100.0, n=4), EVENT.format(t="11.0", run=7, n=5))
    assert jobs["job_id"].tolist() == [4, 5]
    assert jobs["submit_s"].tolist() == [10.5, 11]
    assert jobs["runtime_s"].tolist() == [100, 7]
    assert jobs["estimate_s"].tolist() == [259200] * 2
    assert jobs["nodes"].tolist() == [2, 2]
    assert jobs["cores"].tolist() == [18, 18]
    assert jobs["gpus"].tolist() == [4, 4]
    assert jobs["memory_mb"].tolist() == pytest.approx([2 * 250 * 2**30 / 1e6] * 2)
    assert (jobs.labels["queue"], jobs.labels["qos"], jobs.labels["user"]) == (("batch",), ("general",), ("ann",))
    assert report.rows_read == 2


def test_events_without_a_submission_are_dropped(tmp_path: Path) -> None:
    jobs, report = read(tmp_path, EVENT.format(t=1, run=2, n=1), "-dt 5 -e cancel_job | -jobid 1", EVENT[:30])
    assert len(jobs) == 1
    assert report.dropped == 2


def test_unitless_event_limit_is_in_minutes(tmp_path: Path) -> None:
    jobs, _ = read(tmp_path, EVENT.replace("3-00:00:00", "90").format(t=1, run=2, n=1))
    assert jobs["estimate_s"].tolist() == [5400]
