"""Data of the interactive charts: exact, compact, and not executable."""

from __future__ import annotations

import base64
import json
import re
import zlib
from dataclasses import replace
from html import unescape

import numpy as np

from kilowait.evaluation import timeline
from kilowait.evaluation.job_measures import started_jobs
from kilowait.jobs import ExecutionLog, JobTable
from kilowait.report import charts, gantt_chart
from kilowait.report.data.comparison import ComparisonData
from kilowait.report.gantt import assign_rows
from kilowait.report.markup import render_part

KINDS = {"i": "<i4", "f": "<f4", "g": "<f8"}


def unpacked(html):
    """Decode the data blocks as assets/packed.js does, by block name."""
    blocks = {}
    pattern = r'<script type="text/plain" id="([^"]+)" data-columns="([^"]*)">([^<]*)</script>'
    for name, listed, text in re.findall(pattern, html):
        data, at, columns = zlib.decompress(base64.b64decode(text)), 0, {}
        for key, kind, length, differences in json.loads(unescape(listed)):
            size = np.dtype(KINDS[kind]).itemsize
            planes = np.frombuffer(data, np.uint8, length * size, at).reshape(size, length)
            values = np.ascontiguousarray(planes.T).view(KINDS[kind]).ravel()
            at += length * size
            columns[key] = np.cumsum(values, dtype=values.dtype) if differences else values
        assert at == len(data)
        blocks[name] = columns
    return blocks


def setup_of(html):
    return json.loads(re.search(r'<script type="application/json">(.*?)</script>', html).group(1))


def gantt(comparison_data):
    schedules = gantt_chart.GanttSchedules(comparison_data)
    html = render_part("chart", schedules.chart("g"))
    return html, setup_of(html), unpacked(html), schedules.rows


def test_packed_blocks_round_trip():
    columns = {
        "id": np.array([5, -7, 2**31 - 1, -(2**31)], np.int32),
        "plain": np.array([1, 2], np.int32),
        "share": np.array([0.25, np.nan], np.float32),
        "id_": np.array([2.0**40], np.float64),
        "none": np.empty(0, np.int32),
        "start": np.empty(0, np.int32),
    }
    read_back = unpacked(render_part("chart", charts.Chart("c", "time", columns={"x": charts.pack(columns)})))["x"]
    for name, values in columns.items():
        np.testing.assert_array_equal(read_back[name], values)


def test_json_script_cannot_end_its_element():
    document = {"</script>": "<!-- <script> & \u2028"}
    html = render_part("chart", charts.Chart("c", "time", document=document))
    assert html.count("<script") == 1
    assert setup_of(html) == document


def test_gantt_data_has_every_segment(comparison):
    comparison_data = ComparisonData(comparison, 0)
    _, setup, blocks, rows_by_policy = gantt(comparison_data)
    jobs = blocks[setup["jobs"]]
    tick, zero = setup["tick"], setup["zero"]
    for policy, run in zip(rows_by_policy, setup["runs"], strict=True):
        log, packed = comparison_data.log(policy), blocks[run["block"]]
        assert run["label"] == comparison.labels[policy]
        np.testing.assert_array_equal(packed["job"], log.job)
        start = packed["start"] * tick + zero
        np.testing.assert_allclose(start, log.start_s, atol=tick)
        end = start + (jobs["runtime"][log.job] + packed["over"]) * tick
        np.testing.assert_allclose(end, log.end_s, atol=2 * tick)
        wait = (packed["start"] - jobs["submit"][log.job] - packed["late"]) * tick
        np.testing.assert_allclose(wait, log.jobs()["wait_s"][log.job], atol=2 * tick)
        job_measures = started_jobs(log, 10.0)
        bsld = dict(zip(job_measures.row.tolist(), job_measures.bsld.tolist(), strict=True))
        np.testing.assert_allclose(packed["bsld"], [bsld[job] for job in log.job.tolist()], rtol=1e-6)
        rows = assign_rows(log)
        np.testing.assert_array_equal(packed["row"], rows.first)
        nodes = jobs["nodes"][log.job[rows.segment]]
        np.testing.assert_array_equal(nodes - packed["less"], rows.count)
        np.testing.assert_array_equal(packed["more"] + 1, np.bincount(rows.segment))


def test_job_in_two_segments_keeps_its_wait():
    jobs = JobTable(job_id=[7, 8], submit_s=[0, 10], runtime_s=[30, 20], nodes=[2, 4])
    zeros, ones = np.zeros(3, np.int16), np.ones(3, np.int8)
    start, end = np.array([5.0, 15.0, 40.0]), np.array([15.0, 35.0, 60.0])
    log = ExecutionLog(
        jobs,
        np.array([0, 1, 0]),
        start,
        end,
        zeros,
        zeros,
        ones,
        jobs["submit_s"],
        ones[:2],
        np.zeros(1),
        np.array([4]),
    )
    ticks = charts.TickScale([log])
    packed, shared = (gantt_chart.run_columns(log, assign_rows(log), ticks, 10.0), gantt_chart.jobs_columns(log, ticks))
    wait = packed["start"] - shared["submit"][packed["job"]] - packed["late"]
    assert wait.tolist() == [5, 5, 5]
    assert packed["over"].tolist() == [-20, 0, -10]
    assert packed["bsld"].tolist() == [2.0, 1.25, 2.0]


def test_tick_is_one_second_for_whole_seconds(comparison):
    log = ComparisonData(comparison, 0).log(0)
    fractions = charts.TickScale([log])
    assert fractions.round_interval_s < 1
    assert (log.end_s.max() - fractions.zero_s) / fractions.round_interval_s < 2**31
    floored = log.jobs_table.with_columns(
        submit_s=np.floor(log.jobs_table["submit_s"]), runtime_s=np.ceil(log.jobs_table["runtime_s"])
    )
    import kilowait as kw

    assert charts.TickScale([kw.simulate(floored, kw.Cluster.from_nodes(32), "fcfs", "easy")]).round_interval_s == 1.0


def test_typical_window_is_drawn_with_its_warm_up(windowed_comparison):
    comparison_data = ComparisonData(windowed_comparison, 0)
    html, setup, blocks, _ = gantt(comparison_data)
    window = windowed_comparison.windows[comparison_data.typical]
    assert setup["warmup"] == 15
    assert len(blocks["g-jobs"]["id"]) == len(window.jobs)
    assert setup["unix"] == 843_000_000 + setup["zero"]
    assert f"window {comparison_data.typical + 1} of 20" in html
    assert "Pale: warm-up jobs" in html
    values = windowed_comparison.values("mean_bsld")[0]
    assert np.sum(values < values[comparison_data.typical]) == 9, "the lower median of 20"


def test_time_chart_matches_the_timeline(comparison):
    comparison_data = ComparisonData(comparison, 0)
    html = render_part("chart", charts.time_chart(comparison_data, "t"))
    setup, blocks = setup_of(html), unpacked(html)
    assert setup["unix"] is None
    for policy, line in zip(comparison_data.shown, setup["series"], strict=True):
        expected = timeline(comparison_data.log(policy)).sampled(line["bins"])
        columns = blocks[line["block"]]
        np.testing.assert_allclose(columns["jobs"], expected.waiting_jobs, rtol=1e-6)
        np.testing.assert_allclose(columns["busy"], 100 * expected.busy_nodes / 32, rtol=1e-5, atol=1e-6)
        assert line["to"] + setup["zero"] == expected.edge_s[-1]


def test_number_of_schedules_is_limited_by_segments(comparison, monkeypatch):
    comparison_data = ComparisonData(comparison, 0)
    monkeypatch.setattr(gantt_chart, "GANTT_SEGMENTS", 1300)
    assert len(gantt_chart.GanttSchedules(comparison_data).policies) == 2
    assert comparison_data.reference in gantt_chart.GanttSchedules(comparison_data).policies
    monkeypatch.setattr(gantt_chart, "GANTT_SEGMENTS", 1)
    assert gantt_chart.GanttSchedules(comparison_data).policies == (comparison_data.reference,)


def test_segments_that_start_after_their_decision(comparison):
    """Logs are in decision order, not in start order, if nodes have to wake up; the chart sorts by start."""
    log = ComparisonData(comparison, 0).log(0)
    order = np.argsort(-log.start_s, kind="stable")
    columns = ("job", "start_s", "end_s", "group", "level", "outcome")
    shuffled = replace(log, **{name: getattr(log, name)[order] for name in columns})
    ticks = charts.TickScale([log])
    ours = gantt_chart.run_columns(shuffled, assign_rows(shuffled), ticks, 10.0)
    theirs = gantt_chart.run_columns(log, assign_rows(log), ticks, 10.0)
    for name, column in theirs.items():
        assert ours[name].tolist() == column.tolist(), name
