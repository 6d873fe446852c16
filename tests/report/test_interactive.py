"""What the browser is given: the same numbers, small, and nothing that could be run."""

from __future__ import annotations

import base64
import json
import re
import zlib
from dataclasses import replace
from html import unescape

import numpy as np

from kilowait.evaluation import timeline
from kilowait.evaluation.job_measures import started
from kilowait.jobs import ExecutionLog, JobTable
from kilowait.report import interactive
from kilowait.report.comparison_data import ComparisonData
from kilowait.report.gantt import lanes

KINDS = {"i": "<i4", "f": "<f4", "g": "<f8"}


def unpacked(html):
    """What assets/packed.js does, by name of the block."""
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


def gantt(found):
    given = {who: interactive.rows_of(found, who) for who in interactive.gantt_runs(found)}
    html = interactive.gantt_chart(found, "g", given)
    return html, setup_of(html), unpacked(html), given


def test_blocks_come_back_as_they_were():
    columns = {
        "id": np.array([5, -7, 2**31 - 1, -(2**31)], np.int32),
        "plain": np.array([1, 2], np.int32),
        "share": np.array([0.25, np.nan], np.float32),
        "id_": np.array([2.0**40], np.float64),
        "none": np.empty(0, np.int32),
        "start": np.empty(0, np.int32),
    }
    back = unpacked(interactive.block("x", columns))["x"]
    for name, values in columns.items():
        np.testing.assert_array_equal(back[name], values)


def test_data_cannot_end_its_element():
    text = interactive.data({"</script>": "<!-- <script> & \u2028"})
    assert text.count("<") == 2
    assert json.loads(text[text.index(">") + 1 : text.rindex("<")]) == {"</script>": "<!-- <script> & \u2028"}


def test_every_segment_is_there(contest):
    found = ComparisonData(contest, 0)
    _, setup, blocks, given = gantt(found)
    jobs = blocks[setup["jobs"]]
    tick, zero = setup["tick"], setup["zero"]
    for who, run in zip(given, setup["runs"], strict=True):
        log, packed = found.log(who), blocks[run["block"]]
        assert run["label"] == contest.labels[who]
        np.testing.assert_array_equal(packed["job"], log.job)
        start = packed["start"] * tick + zero
        np.testing.assert_allclose(start, log.start_s, atol=tick)
        end = start + (jobs["runtime"][log.job] + packed["over"]) * tick
        np.testing.assert_allclose(end, log.end_s, atol=2 * tick)
        wait = (packed["start"] - jobs["submit"][log.job] - packed["late"]) * tick
        np.testing.assert_allclose(wait, log.jobs()["wait_s"][log.job], atol=2 * tick)
        ran = started(log, 10.0)
        bsld = dict(zip(ran.row.tolist(), ran.bsld.tolist(), strict=True))
        np.testing.assert_allclose(packed["bsld"], [bsld[job] for job in log.job.tolist()], rtol=1e-6)
        rows = lanes(log)
        np.testing.assert_array_equal(packed["row"], rows.first)
        nodes = jobs["nodes"][log.job[rows.segment]]
        np.testing.assert_array_equal(nodes - packed["less"], rows.count)
        np.testing.assert_array_equal(packed["more"] + 1, np.bincount(rows.segment))


def test_a_job_in_two_stretches_keeps_its_wait():
    jobs = JobTable(job_id=[7, 8], submit_s=[0, 10], runtime_s=[30, 20], nodes=[2, 4])
    small, tiny = np.zeros(3, np.int16), np.ones(3, np.int8)
    start, end = np.array([5.0, 15.0, 40.0]), np.array([15.0, 35.0, 60.0])
    log = ExecutionLog(
        jobs,
        np.array([0, 1, 0]),
        start,
        end,
        small,
        small,
        tiny,
        jobs["submit_s"],
        tiny[:2],
        np.zeros(1),
        np.array([4]),
    )
    ticks = interactive.Ticks([log])
    packed, shared = (
        interactive.run_columns(log, lanes(log), ticks, 10.0),
        interactive.jobs_columns(log, ticks),
    )
    wait = packed["start"] - shared["submit"][packed["job"]] - packed["late"]
    assert wait.tolist() == [5, 5, 5]
    assert packed["over"].tolist() == [-20, 0, -10]
    assert packed["bsld"].tolist() == [2.0, 1.25, 2.0]


def test_whole_seconds_stay_whole(contest):
    log = ComparisonData(contest, 0).log(0)
    fractions = interactive.Ticks([log])
    assert fractions.round_interval_s < 1
    assert (log.end_s.max() - fractions.zero_s) / fractions.round_interval_s < 2**31
    floored = log.jobs_table.with_columns(
        submit_s=np.floor(log.jobs_table["submit_s"]), runtime_s=np.ceil(log.jobs_table["runtime_s"])
    )
    import kilowait as kw

    assert (
        interactive.Ticks([kw.simulate(floored, kw.Cluster.from_nodes(32), "fcfs", "easy")]).round_interval_s
        == 1.0
    )


def test_the_typical_window_is_drawn_with_its_warm_up(windowed):
    found = ComparisonData(windowed, 0)
    html, setup, blocks, _ = gantt(found)
    window = windowed.windows[found.typical]
    assert setup["warmup"] == 15
    assert len(blocks["g-jobs"]["id"]) == len(window.jobs)
    assert setup["unix"] == 843_000_000 + setup["zero"]
    assert f"window {found.typical + 1} of 20" in html
    assert "Pale: jobs that only warm" in html
    values = windowed.values("mean_bsld")[0]
    assert np.sum(values < values[found.typical]) == 9, "the lower median of 20"


def test_time_in_bins_is_the_timeline(contest):
    found = ComparisonData(contest, 0)
    html = interactive.time_chart(found, "t")
    setup, blocks = setup_of(html), unpacked(html)
    assert setup["unix"] is None
    for who, line in zip(found.shown, setup["series"], strict=True):
        steps = timeline(found.log(who)).sampled(line["bins"])
        columns = blocks[line["block"]]
        np.testing.assert_allclose(columns["jobs"], steps.waiting_jobs, rtol=1e-6)
        np.testing.assert_allclose(columns["busy"], 100 * steps.busy_nodes / 32, rtol=1e-5, atol=1e-6)
        assert line["to"] + setup["zero"] == steps.edge_s[-1]


def test_few_schedules_of_many_jobs(contest, monkeypatch):
    found = ComparisonData(contest, 0)
    monkeypatch.setattr(interactive, "GANTT_SEGMENTS", 1300)
    assert len(interactive.gantt_runs(found)) == 2
    assert found.reference in interactive.gantt_runs(found)
    monkeypatch.setattr(interactive, "GANTT_SEGMENTS", 1)
    assert interactive.gantt_runs(found) == (found.reference,)


def test_segments_that_start_later_than_they_were_decided(contest):
    """Where nodes have to wake, a log is not in the order of starts; the chart needs it so."""
    log = ComparisonData(contest, 0).log(0)
    mixed = np.argsort(-log.start_s, kind="stable")
    columns = ("job", "start_s", "end_s", "group", "level", "outcome")
    shuffled = replace(log, **{name: getattr(log, name)[mixed] for name in columns})
    ticks = interactive.Ticks([log])
    ours = interactive.run_columns(shuffled, lanes(shuffled), ticks, 10.0)
    theirs = interactive.run_columns(log, lanes(log), ticks, 10.0)
    for name, column in theirs.items():
        assert ours[name].tolist() == column.tolist(), name
