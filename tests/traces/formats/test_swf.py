from __future__ import annotations

from pathlib import Path

import pytest

import kilowait as kw
from kilowait.errors import TraceError
from kilowait.jobs import JobTable
from kilowait.traces import CleaningReport, read_trace_with_report
from kilowait.traces.formats import swf


def line(
    job: object = 1,
    submit: object = 0,
    wait: object = 5,
    run: object = 60,
    alloc: object = 4,
    req: object = 4,
    limit: object = 600,
    memory: object = -1,
    status: object = 1,
    user: object = 3,
    queue: object = 1,
    partition: object = -1,
    after: object = -1,
    think: object = -1,
) -> str:
    return (
        f"{job} {submit} {wait} {run} {alloc} -1 -1 {req} {limit} {memory} {status} {user} 2 7 {queue} {partition} "
        f"{after} {think}"
    )


def read(folder: Path, *lines: str, **options: object) -> tuple[JobTable, CleaningReport]:
    path = folder / "log.swf"
    path.write_text("\n".join(lines) + "\n")
    jobs, report = read_trace_with_report(path, **options)  # type: ignore[arg-type]
    assert report.rows_read == report.jobs + report.dropped + report.folded
    return jobs, report


def entry(report: CleaningReport, part: str) -> tuple[str, int, int | None]:
    [found] = [e for e in report.entries if part in e.reason]
    return found.kind, found.count, found.first_line


def test_every_field_is_read(tmp_path: Path) -> None:
    jobs, report = read(
        tmp_path,
        "; Computer: Test  ",
        ";   MaxNodes: 338 (batch partition; 512 total)",
        ";MaxProcs: 1,664 (72, 1368, 224)",
        "; UnixStartTime: 843480031",
        "; TimeZoneString: Europe/Stockholm",
        "; Queue:  1  normal   ",
        line(memory=1000),
        line(job=2, submit=7, run=30.5, alloc=2, memory=-1, after=1, think=9),
    )
    assert jobs["job_id"].tolist() == [1, 2]
    assert jobs["submit_s"].tolist() == [0, 7]
    assert jobs["runtime_s"].tolist() == [60, 30.5]
    assert jobs["estimate_s"].tolist() == [600, 600]
    assert jobs["cores"].tolist() == [4, 2] and jobs.unit == "core" and jobs.machine_size == 1664
    assert jobs["nodes"].tolist() == [1, 1]  # 4.9 processors per node
    assert jobs["wait_s"].tolist() == [5, 5]
    assert jobs["memory_mb"].tolist() == pytest.approx([4.096, 0])
    assert (jobs["user"].tolist(), jobs["account"].tolist(), jobs["name"].tolist()) == ([3, 3], [2, 2], [7, 7])
    assert [jobs.labels["queue"][code] for code in jobs["queue"]] == ["normal", "normal"]
    assert jobs["after_id"].tolist() == [-1, 1]
    assert jobs["think_s"].tolist() == [0, 9]
    assert jobs["status"].tolist() == [1, 1]
    assert jobs.meta["max_nodes"] == 338
    assert jobs.meta["max_procs"] == 1664
    assert jobs.meta["unix_start_s"] == 843480031
    assert jobs.meta["time_zone"] == "Europe/Stockholm"
    assert jobs.meta["header"]["Computer"] == "Test"
    assert jobs.meta["format"] == "swf"
    assert jobs.meta["ledger"] == report.to_dict()


def test_columns_without_values_are_omitted(tmp_path: Path) -> None:
    jobs, _ = read(tmp_path, "1 0 -1 60 4 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1")
    assert set(jobs.columns) == {"job_id", "submit_s", "runtime_s", "estimate_s", "nodes", "cores", "status"}
    assert jobs.unit == "processor"


def test_submit_times_are_not_shifted(tmp_path: Path) -> None:
    jobs, _ = read(tmp_path, line(submit=31656837), line(job=2, submit=31656900))
    assert jobs["submit_s"].tolist() == [31656837, 31656900]


@pytest.mark.parametrize("broken", ["1 2 3", line() + " 9", "1" + line(), line()[:-3], line() + " " + line()])
def test_broken_lines_do_not_affect_others(tmp_path: Path, broken: str) -> None:
    good = [line(job=n, submit=n, run=n * 10) for n in (11, 12, 13)]
    jobs, report = read(tmp_path, good[0], good[1], broken, good[2])
    rows = dict(zip(jobs["job_id"].tolist(), jobs["runtime_s"].tolist(), strict=True))
    assert {n: rows[n] for n in (11, 12, 13)} == {11: 110, 12: 120, 13: 130}
    assert report.rows_read == 4


def test_tabs_carriage_returns_blank_lines_and_fractions(tmp_path: Path) -> None:
    jobs, report = read(tmp_path, line().replace(" ", "\t") + "\r", "", "  ", "  " + line(job=2, run="1e3") + "  ")
    assert jobs["runtime_s"].tolist() == [60, 1000]
    assert report.rows_read == 2


def test_fast_and_slow_parser_agree(tmp_path: Path) -> None:
    texts = ["0.1", "12345.6789", "86400", "0.30000001", "99999.99"]
    fast, _ = read(tmp_path, *(line(job=i, run=t) for i, t in enumerate(texts)))
    slow, _ = read(tmp_path, *(line(job=i, run=f"+{t}") for i, t in enumerate(texts)))
    assert fast["runtime_s"].tolist() == slow["runtime_s"].tolist() == [float(t) for t in texts]


def test_allocated_processors_override_requested_ones(tmp_path: Path) -> None:
    jobs, report = read(tmp_path, line(alloc=8, req=4), line(job=2, alloc=-1, req=16))
    assert jobs["nodes"].tolist() == [8, 16]
    assert entry(report, "processors requested (field 8) used") == ("corrected", 1, 2)
    jobs, report = read(tmp_path, line(alloc=-1, req=16))
    assert entry(report, "processors requested (field 8) used")[0] == "note"


def test_missing_estimate_is_the_run_time(tmp_path: Path) -> None:
    jobs, report = read(tmp_path, line(limit=-1), line(job=2))
    assert jobs["estimate_s"].tolist() == [60, 600]
    assert entry(report, "perfect") == ("corrected", 1, 1)
    _, report = read(tmp_path, line(limit=-1))
    assert entry(report, "the log has none")[0] == "note"


NEVER_RAN = [
    (line(job=2, run=-1, status=5), "run time -1, status 5"),
    (line(job=2, run=-1, status=0), "run time -1, status 0"),
    (line(job=2, run=-1, status=1), "never ran: run time -1"),
    (line(job=2, run=0, alloc=-1, status=5), "run time 0, no processors allocated"),
    (line(job=2, run=50, alloc=-1, req=-1), "no processors"),
]


@pytest.mark.parametrize(("row", "reason"), NEVER_RAN)
def test_jobs_that_never_ran_are_dropped_with_the_reason(tmp_path: Path, row: str, reason: str) -> None:
    jobs, report = read(tmp_path, line(), row)
    assert jobs["job_id"].tolist() == [1]
    assert entry(report, reason) == ("dropped", 1, 2)


def test_jobs_that_never_ran_can_be_kept_for_replay(tmp_path: Path) -> None:
    rows = (line(), line(job=2, submit=10, wait=90, run=-1, alloc=-1, req=3, status=5))
    jobs, report = read(tmp_path, *rows, never_ran="keep")
    assert jobs["runtime_s"].tolist() == [60, 0]
    assert jobs["nodes"].tolist() == [4, 3]
    assert jobs["cancel_s"].tolist() == [float("inf"), 100]
    assert report.dropped == 0
    jobs, _ = read(tmp_path, line(submit=10, wait=-1, run=-1, status=5), never_ran="keep")
    assert jobs["cancel_s"].tolist() == [10]


def test_job_with_run_time_zero(tmp_path: Path) -> None:
    jobs, report = read(tmp_path, line(run=0))
    assert jobs["runtime_s"].tolist() == [0]
    assert not report.dropped


def test_unknown_submit_time_is_that_of_the_row_before(tmp_path: Path) -> None:
    jobs, report = read(tmp_path, line(submit=50), line(job=2, submit=-1), line(job=3, submit=70))
    assert jobs["submit_s"].tolist() == [50, 50, 70]
    assert entry(report, "submit time unknown") == ("corrected", 1, 2)
    jobs, _ = read(tmp_path, line(submit=-1), line(job=2, submit=20))
    assert jobs["submit_s"].tolist() == [20, 20]


def test_rows_out_of_order_are_sorted(tmp_path: Path) -> None:
    jobs, report = read(tmp_path, line(job=5, submit=9), line(job=4, submit=3), line(job=3, submit=9))
    assert jobs["job_id"].tolist() == [4, 3, 5]
    assert entry(report, "submit order") == ("corrected", 1, 2)


def test_duplicate_ids_are_renumbered(tmp_path: Path) -> None:
    jobs, report = read(tmp_path, line(job=7), line(job=7, submit=1), line(job=9, submit=2), line(job=7, submit=3))
    assert jobs["job_id"].tolist() == [7, 10, 9, 11]
    assert entry(report, "duplicate job number") == ("corrected", 2, 2)


@pytest.mark.parametrize("bad", ["x", "nan", "12.5", "99999999999999999999"])
def test_invalid_job_numbers_are_replaced(tmp_path: Path, bad: str) -> None:
    jobs, report = read(tmp_path, line(job=7), line(job=bad, submit=1))
    assert jobs["job_id"].tolist() == [7, 8]
    assert entry(report, "renumbered") == ("corrected", 1, 2)


@pytest.mark.parametrize("after", [2, 3, 99, 2**40])
def test_invalid_dependencies_are_dropped(tmp_path: Path, after: int) -> None:
    jobs, report = read(tmp_path, line(), line(job=2, submit=1, after=after), line(job=3, submit=2, after=1))
    assert jobs["after_id"].tolist() == [-1, -1, 1]
    assert entry(report, "dependency left out") == ("corrected", 1, 2)


def test_constant_preceding_job_is_ignored(tmp_path: Path) -> None:
    jobs, report = read(tmp_path, *(line(job=n, submit=n, after=1, think=1) for n in range(4)))
    assert "after_id" not in jobs
    assert entry(report, "depend on the same job")[1] == 4


def test_format_with_21_fields(tmp_path: Path) -> None:
    tail = "{12,12} q_1d 1:ppn=4#excl"
    jobs, report = read(tmp_path, f"{line(memory=4_000_000)} {tail}", f"{line(job=2)} {tail.replace('1d', '2w')}")
    assert [jobs.labels["queue"][code] for code in jobs["queue"]] == ["q_1d", "q_2w"]
    assert jobs["memory_mb"].tolist() == [4, 0]
    assert entry(report, "21 fields")[0] == "note"


def test_unknown_19th_field_is_ignored(tmp_path: Path) -> None:
    jobs, report = read(tmp_path, line() + " 0.73", line(job=2) + " 0.11")
    assert len(jobs) == 2
    assert entry(report, "19 fields")[0] == "note"


def test_exit_codes_are_distinguished_from_status(tmp_path: Path) -> None:
    jobs, report = read(tmp_path, line(status=0), line(job=2, status=137), line(job=3, status=-1))
    assert jobs["status"].tolist() == [1, 0, -1]
    assert entry(report, "exit codes")[0] == "note"


def test_partial_executions_are_dropped(tmp_path: Path) -> None:
    jobs, report = read(
        tmp_path, line(run=90), line(status=2, run=40), line(status=3, submit=50, run=50), line(job=2, submit=60)
    )
    assert jobs["runtime_s"].tolist() == [90, 60]
    assert entry(report, "partial execution") == ("dropped", 2, 2)


def test_partitions_are_used_as_queues(tmp_path: Path) -> None:
    header = ["; Partition: 1 test", "; Partition: 2 UNKNOWN", "; Partition: 3 UNKNOWN", "; Partition: 4 "]
    rows = [line(job=n, submit=n, queue=-1, partition=n) for n in (1, 2, 3, 4)]
    jobs, report = read(tmp_path, *header, *rows)
    assert [jobs.labels["queue"][code] for code in jobs["queue"]] == ["test", "UNKNOWN", "UNKNOWN (3)", "4"]
    assert entry(report, "partitions")[0] == "note"


def test_large_ids_become_names(tmp_path: Path) -> None:
    jobs, _ = read(tmp_path, line(user=35012304659472), line(job=2, user=-1, submit=1))
    assert jobs["user"].tolist() == [0, -1]
    assert jobs.labels["user"] == ("id35012304659472",)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (line(job=2, run=-7), "run time below 0"),
        (line(job=2, run="1e12"), "run time above"),
        (line(job=2, run="nan"), "run time unknown"),
        (line(job=2, alloc="1e18"), "number of nodes above"),
        (line(job=2, alloc=2.5), "number of nodes is not a whole number"),
        (line(job=2, submit="1e14"), "submit time beyond"),
    ],
)
def test_invalid_numbers_drop_the_job(tmp_path: Path, row: str, reason: str) -> None:
    jobs, report = read(tmp_path, line(), row)
    assert jobs["job_id"].tolist() == [1]
    assert entry(report, reason)[:2] == ("dropped", 1)


def test_invalid_optional_values_become_unknown(tmp_path: Path) -> None:
    jobs, report = read(tmp_path, line(), line(job=2, wait=-9, user=1.5, limit="1e300"))
    assert jobs["estimate_s"].tolist() == [600, 60]
    assert jobs["user"].tolist() == [3, -1]
    assert str(jobs["wait_s"].tolist()) == "[5.0, nan]"
    assert report.corrected == 4


def test_header_line_without_semicolon(tmp_path: Path) -> None:
    jobs, report = read(tmp_path, "; Version: 2", "MaxNodes: 64", line())
    assert jobs.meta["max_nodes"] == 64
    assert report.rows_read == 1


@pytest.mark.parametrize("text", ["; Version: 2\n;\n", "; only\n\n; words\n"])
def test_file_of_comments_only(tmp_path: Path, text: str) -> None:
    (tmp_path / "log.swf").write_text(text)
    with pytest.raises(TraceError, match="only comments"):
        read_trace_with_report(tmp_path / "log.swf")


def test_forced_format_error_names_the_field_count(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("a b c\nd e f\n")
    with pytest.raises(TraceError, match="most lines have 3 fields; SWF has 18"):
        read_trace_with_report(tmp_path / "log", format="swf")


def test_log_without_usable_jobs(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no job in .* can be used: dropped 1: never ran"):
        read(tmp_path, line(run=-1))


@pytest.mark.parametrize("size", [1, 60, 300, 1000])
def test_the_result_does_not_depend_on_the_parts_in_which_the_text_is_parsed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    lines = [
        *("1 2 3" for _ in range(9)),  # first part: mostly lines of another width
        "MaxProcs: 64",
        *(line(job=number, submit=7 * number, run=number + 0.5 * (number > 30)) for number in range(1, 40)),
        line(job=41, submit="x"),
        line(job=2**40, submit=3e9, user=2**33),
        "; Queue: 1 normal",
        line(job=43, run=-1, status=5) + " 9",
        line(job=44, submit="-0", run="nan"),
    ]
    whole, report = read(tmp_path, *lines)
    monkeypatch.setattr(swf, "PARSED_BYTES", size)
    parts, report_of_parts = read(tmp_path, *lines)
    assert report_of_parts.lines() == report.lines()
    assert (parts.columns, parts.labels, parts.meta) == (whole.columns, whole.labels, whole.meta)
    for name in whole.columns:
        assert parts[name].dtype == whole[name].dtype
        assert parts[name].tobytes() == whole[name].tobytes()


def test_the_first_line_of_a_reason_is_that_of_the_whole_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(swf, "PARSED_BYTES", 100)
    many = " ".join(["1"] * 150)
    more = " ".join(["1"] * 120)
    _, report = read(tmp_path, line(), line(job=2), many, line(job=3, wait="?"), more, line(job=4, wait="?"))
    assert entry(report, "a hundred fields") == ("dropped", 2, 3)
    assert entry(report, "not a number") == ("corrected", 2, 4)


def extended(
    *, gpus: object = -1, soft: object = -1, placement: str = "frontier:excl:2500x112", **fields: object
) -> str:
    """A line in the 21-field form of Frontier's log."""
    return f"{line(**fields)} {gpus} {soft} {placement}"


def test_field_21_of_frontier_gives_nodes_and_cores(tmp_path: Path) -> None:
    jobs, report = read(
        tmp_path,
        "; MaxNodes: 9408",
        "; MaxProcs: 1053696",
        extended(job=1, alloc=280_000, req=280_000, gpus=20_000),
        extended(job=2, alloc=2, req=2, gpus=16, soft=300, placement="frontier:excl:2x112"),
        extended(job=3, alloc=64, req=64, placement="frontier:shared:1x112"),
    )
    assert jobs.meta["format"] == "swf"
    assert jobs["nodes"].tolist() == [2500, 2, 1]
    assert jobs["cores"].tolist() == [280_000, 224, 112]
    assert jobs["gpus"].tolist() == [20_000, 16, 0]
    assert (jobs.meta["max_nodes"], "max_procs" in jobs.meta) == (9408, False)
    assert entry(report, "nodes by field 21 differ from processors allocated (field 5)")[1] == 2
    assert entry(report, "not exclusive (field 21: shared)")[1] == 1
    assert entry(report, "soft wall time (field 20) left out")[1] == 1
    assert entry(report, "MaxProcs")[0] == "note"


def test_partitions_of_field_21_are_queues_where_field_15_is_empty(tmp_path: Path) -> None:
    rows = [extended(job=n, queue=-1, placement=f"{name}:excl:4x112") for n, name in enumerate(("batch", "extended"))]
    jobs, _ = read(tmp_path, *rows)
    assert [jobs.labels["queue"][code] for code in jobs["queue"]] == ["batch", "extended"]


def test_lines_without_a_readable_field_21_use_field_5(tmp_path: Path) -> None:
    rows = [extended(job=n, placement="frontier:excl:8x112") for n in (1, 2, 3)]
    jobs, report = read(tmp_path, *rows, extended(job=4, placement="-1"), extended(job=5, placement="frontier:excl"))
    assert jobs["nodes"].tolist() == [8, 8, 8, 4, 4]
    assert entry(report, "no nodes x cores in field 21: processors of field 5 or 8 used")[:2] == ("corrected", 2)


def test_jobs_of_the_21_field_form_that_never_ran(tmp_path: Path) -> None:
    jobs, report = read(tmp_path, extended(job=1), extended(job=2, run=0, alloc=0, status=5), extended(job=3, run=-1))
    assert jobs["job_id"].tolist() == [1]
    assert report.dropped == 2


def test_requested_nodes_of_the_21_field_form_are_those_of_field_21(tmp_path: Path) -> None:
    jobs, _ = read(tmp_path, extended(job=1), extended(job=2, alloc=-1, req=448, placement="frontier:excl:4x112"))
    assert jobs["nodes"].tolist() == [2500, 4]


def test_memory_of_the_21_field_form_has_no_known_unit(tmp_path: Path) -> None:
    jobs, report = read(tmp_path, extended(job=1, memory=1024), extended(job=2))
    assert "memory_mb" not in jobs
    assert entry(report, "memory (field 10) left out")[:2] == ("note", 1)


def test_extra_fields_are_named_by_the_line_of_names(tmp_path: Path) -> None:
    names = (
        "; Job Submit Wait Run Procs CPU Mem ReqProcs ReqTime ReqMem Status User Group Exe Queue Part Prec Think "
        "Job-Status Node-Hours"
    )
    _, report = read(tmp_path, names, f"{line()} 0 4.5", f"{line(job=2)} -1 4.5")
    assert entry(report, "field 19 (Job-Status) left out")[:2] == ("note", 1)
    assert entry(report, "field 20 (Node-Hours) left out")[:2] == ("note", 2)


def sized(tmp_path: Path, *header: str, processors: int = 88) -> JobTable:
    return read(tmp_path, *header, line(alloc=processors, memory=1000))[0]


def test_processors_are_not_nodes(tmp_path: Path) -> None:
    """A machine of 24 nodes with 72 processors each."""
    jobs = sized(tmp_path, "; MaxNodes: 24", "; MaxProcs: 1728")
    assert (jobs.unit, jobs["cores"].tolist(), jobs["nodes"].tolist()) == ("core", [88], [2])
    assert jobs["memory_mb"].tolist() == pytest.approx([88 * 1.024])
    assert jobs.machine_size == 1728


def test_nodes_that_differ_keep_the_number_of_processors(tmp_path: Path) -> None:
    jobs = sized(tmp_path, "; MaxNodes: 151", "; MaxProcs: 2004", processors=40)
    assert jobs["nodes"].tolist() == [4]  # 13.27 processors per node
    assert kw.Cluster.from_trace(jobs).size == 2004


def test_one_processor_per_node_counts_nodes(tmp_path: Path) -> None:
    for header in (("; MaxNodes: 100", "; MaxProcs: 100"), ("; MaxNodes: 100",)):
        jobs = sized(tmp_path, *header)
        assert (jobs.unit, jobs["nodes"].tolist(), jobs.machine_size) == ("node", [88], 100)
        assert "cores" not in jobs


@pytest.mark.parametrize("header", [("; MaxProcs: 1728",), ()])
def test_nodes_are_unknown_without_max_nodes(tmp_path: Path, header: tuple[str, ...]) -> None:
    jobs, report = read(tmp_path, *header, line(alloc=88))
    assert (jobs.unit, jobs["nodes"].tolist(), jobs["cores"].tolist()) == ("processor", [88], [88])
    assert "nodes are unknown" in " ".join(report.lines())


def test_invalid_numbers_of_processors_are_not_rounded_to_nodes(tmp_path: Path) -> None:
    text = ("; MaxNodes: 24", "; MaxProcs: 1728", line(), line(job=2).replace(" 4 ", " 2.5 ", 1))
    jobs, report = read(tmp_path, *text)
    assert len(jobs) == 1 and "not a whole number" in " ".join(report.lines())
