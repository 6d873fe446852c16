"""Pages on runs of GPU clusters."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from kilowait.evaluation.storage import comparison_of_runs, load_run, save_comparison, save_run
from kilowait.report import page, write_report
from kilowait.report.charts import gpu_chart
from kilowait.report.data.comparison import ComparisonData
from kilowait.report.data.gpu import GpuData
from kilowait.report.figures.gpu import gpus_over_time
from kilowait.report.markup import render_part
from tests.report.gpu.conftest import gpu_comparison


def headings(text):
    return re.findall(r"<h3>([^<]*)</h3>", text)


def plain(text):
    return re.sub(r"<[^>]+>", " ", text).replace("&nbsp;", " ").replace("\N{NO-BREAK SPACE}", " ")


def tiles(text):
    return [plain(match_text).strip() for match_text in re.findall(r"<dt>(.*?)</dt>", text)]


def test_sections_are_in_order(gpus):
    text = page([gpus])
    assert headings(text) == [
        "Comparison",
        "GPUs",
        "Distribution of waits and completion times",
        "Over time",
        "GPUs over time",
        "Waits by job class",
        "Winners and losers",
        "Schedule (Gantt chart)",
    ]
    assert tiles(text)[:2] == ["mean completion time (JCT)", "GPU utilization while jobs arrive"]
    assert "mean bounded slowdown" not in " ".join(tiles(text))
    words = plain(text)
    for expected in (
        "By GPU type",
        "By job priority",
        "Preemption and fairness",
        "finish-time fairness",
        "makespan",
        "GPUs requested by waiting jobs",
        "The 20 users with the most GPU-hours",
    ):
        assert expected in words, expected
    assert "no backfill" not in words
    assert "nodes busy" not in words


def test_events_that_did_not_happen_have_no_column():
    text = plain(page([gpu_comparison(policies=["fcfs"], measured=False)]))
    assert "Preemption and fairness" not in text
    assert "No job was preempted or migrated." in text
    assert "require the GPU speeds of the run" in text


def test_missing_data_is_reported_in_the_page(gpus):
    text = page([replace(gpus, cluster={})])
    assert "has no cluster description" in text
    assert "GPUs over time" not in headings(text)
    assert tiles(text)[0] == "mean bounded slowdown"
    without_allocations = replace(gpus, logs=lambda index, window: replace(gpus.logs(index, window), pieces=None))
    text = page([without_allocations])
    assert "pieces.parquet is missing" in text
    assert "GPUs over time" not in headings(text)


def test_saved_figures(gpus, tmp_path):
    save_comparison(tmp_path / "run", [gpus], scenario={}, results={})
    write_report([tmp_path / "run"], tmp_path / "page.html", figures=tmp_path / "figures")
    assert (tmp_path / "figures" / "gpus-over-time.svg").stat().st_size > 1000
    figure = gpus_over_time(GpuData.of(ComparisonData(gpus, 0)))
    axes = figure.figure.axes
    assert [panel.get_ylabel() for panel in axes] == ["T4, %", "A100, %", "fragmentation, %"]
    assert all(len(panel.lines) == 3 for panel in axes)
    tops = [float(np.max(line.get_ydata())) for panel in axes for line in panel.lines]
    assert 0 < max(tops) <= 100
    assert "srtf: A100" in figure.alt


def test_chart_has_a_panel_for_each_gpu_type(gpus):
    text = render_part("chart", gpu_chart(GpuData.of(ComparisonData(gpus, 0)), "gpus-0"))
    assert "T4: 8 GPUs, allocated" in text
    assert "A100: 4 GPUs, allocated" in text
    assert "fragmentation, of all GPUs" in text
    assert text.count('type="checkbox"') == 3


def test_run_folders_keep_gpu_metrics(gpus, tmp_path):
    """Two compared runs, one with saved rho; folders without it are reported too."""
    folders = []
    for index, label in enumerate(gpus.labels[:2]):
        results = {"gpus": {"metrics": {**gpus.gpus[label], "jain_rho": None}}} if index == 0 else {}
        scenario = {"trace": "gpu:150", "policy": label, "backfill": "none", "cluster": dict(gpus.cluster)}
        folders.append(save_run(tmp_path / label, gpus.logs(index, 0), scenario=scenario, results=results))
    comparison = comparison_of_runs([load_run(folder) for folder in folders])
    assert comparison.labels == ("fcfs", "srtf")
    assert comparison.machine == gpus.machine
    gpu_data = GpuData.of(ComparisonData(comparison, 0))
    assert gpu_data.table[0]["mean_rho"] == pytest.approx(gpus.gpus["fcfs"]["mean_rho"])
    assert np.isnan(gpu_data.table[0]["jain_rho"])
    assert np.isnan(gpu_data.table[1]["mean_rho"])
    assert "<h3>GPUs</h3>" in page([comparison])


def test_reports_need_neither_numba_nor_torch(gpus, tmp_path):
    save_comparison(tmp_path / "run", [gpus], scenario={}, results={})
    code = (
        "import sys\n"
        "from kilowait.report import write_report\n"
        f"write_report([{str(tmp_path / 'run')!r}], {str(tmp_path / 'page.html')!r})\n"
        "sys.exit(', '.join({'numba', 'torch'} & set(sys.modules)) or 0)"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    assert "GPUs over time" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_gpu_chart_in_a_browser(gpus, browser, tmp_path):
    """The chart starts, and its read-out shows the allocation at the pointer."""
    path = tmp_path / "page.html"
    path.write_text(page([gpus]), encoding="utf-8")
    context = browser.new_context(offline=True, viewport={"width": 1200, "height": 900})
    problems = []
    tab = context.new_page()
    tab.on("pageerror", lambda error: problems.append(str(error)))
    tab.goto(path.as_uri())
    tab.wait_for_selector("figure.chart:not([data-ready])", state="detached", timeout=30_000)
    for name, expected in (
        ("gpus-0", r"las T4 [\d.]+ %; A100 [\d.]+ %; fragmentation [\d.]+ %"),
        ("time-0", r"las [\d.]+ jobs waiting for [\d.]+ GPUs, [\d.]+ % allocated"),
    ):
        canvas = tab.locator(f"#{name} canvas")
        canvas.scroll_into_view_if_needed()
        canvas.hover(position={"x": 200, "y": 60})
        assert re.search(expected, tab.locator(f"#{name} output").inner_text().replace("\n", " "))
    assert problems == []
    context.close()
