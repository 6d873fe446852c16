"""Pages on runs whose jobs were placed on single GPUs."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from kilowait.evaluation.storage import (
    contest_of_runs,
    load_run,
    save_comparison,
    save_run,
)
from kilowait.report import page, write_report
from kilowait.report.comparison_data import ComparisonData
from kilowait.report.gpu.data import GpuData
from kilowait.report.gpu.figures import gpus_over_time
from kilowait.report.gpu.interactive import gpu_chart
from tests.report.gpu.conftest import gpu_contest


def headings(text):
    return re.findall(r"<h3>([^<]*)</h3>", text)


def plain(text):
    return re.sub(r"<[^>]+>", " ", text).replace("&nbsp;", " ")


def tiles(text):
    return [plain(found).strip() for found in re.findall(r"<dt>(.*?)</dt>", text)]


def test_parts_in_order(gpus):
    text = page([gpus])
    assert headings(text) == [
        "Side by side",
        "GPUs",
        "How waits and completion times are spread",
        "Over time",
        "GPUs over time",
        "Who waits",
        "Job by job",
    ]
    assert tiles(text)[:2] == ["mean completion time (JCT)", "of the GPUs held"]
    assert "mean bounded slowdown" not in " ".join(tiles(text))
    words = plain(text)
    for wanted in (
        "By type of GPU",
        "By priority",
        "Preemption and fairness",
        "finish-time fairness",
        "makespan",
        "GPUs they ask for",
        "The 20 users of most GPU-hours",
    ):
        assert wanted in words, wanted
    assert "no backfill" not in words
    assert "nodes busy" not in words


def test_what_did_not_happen_has_no_column():
    text = plain(page([gpu_contest(policies=["fcfs"], measured=False)]))
    assert "Preemption and fairness" not in text
    assert "No job was preempted or moved." in text
    assert "need the speeds of the run" in text


def test_what_is_lacking_is_in_the_page(gpus):
    text = page([replace(gpus, cluster={})])
    assert "does not say what nodes there are" in text
    assert "GPUs over time" not in headings(text)
    assert tiles(text)[0] == "mean bounded slowdown"
    bare = replace(gpus, logs=lambda who, window: replace(gpus.logs(who, window), pieces=None))
    text = page([bare])
    assert "no pieces.parquet" in text
    assert "GPUs over time" not in headings(text)


def test_figures_for_files(gpus, tmp_path):
    save_comparison(tmp_path / "run", [gpus], scenario={}, results={})
    write_report([tmp_path / "run"], tmp_path / "page.html", figures=tmp_path / "figures")
    assert (tmp_path / "figures" / "gpus-over-time.svg").stat().st_size > 1000
    drawn = gpus_over_time(GpuData.of(ComparisonData(gpus, 0)))
    axes = drawn.figure.axes
    assert [one.get_ylabel() for one in axes] == ["T4, %", "A100, %", "fragments, %"]
    assert all(len(one.lines) == 3 for one in axes)
    tops = [float(np.max(line.get_ydata())) for one in axes for line in one.lines]
    assert 0 < max(tops) <= 100
    assert "srtf: A100" in drawn.alt


def test_the_chart_has_a_panel_for_each_type(gpus):
    text = gpu_chart(GpuData.of(ComparisonData(gpus, 0)), "gpus-0")
    assert "T4: 8 GPUs, held" in text
    assert "A100: 4 GPUs, held" in text
    assert "fragments, of all GPUs" in text
    assert text.count('type="checkbox"') == 3


def test_run_folders_keep_what_was_measured(gpus, tmp_path):
    """Two runs side by side, with rho as it was taken when they ran; folders without it are drawn as well."""
    folders = []
    for who, label in enumerate(gpus.labels[:2]):
        results = {"gpus": {"metrics": {**gpus.gpus[label], "jain_rho": None}}} if who == 0 else {}
        scenario = {"trace": "gpu:150", "policy": label, "backfill": "none", "cluster": dict(gpus.cluster)}
        folders.append(save_run(tmp_path / label, gpus.logs(who, 0), scenario=scenario, results=results))
    contest = contest_of_runs([load_run(folder) for folder in folders])
    assert contest.labels == ("fcfs", "srtf")
    assert contest.machine == gpus.machine
    held = GpuData.of(ComparisonData(contest, 0))
    assert held.table[0]["mean_rho"] == pytest.approx(gpus.gpus["fcfs"]["mean_rho"])
    assert np.isnan(held.table[0]["jain_rho"])
    assert np.isnan(held.table[1]["mean_rho"])
    assert "<h3>GPUs</h3>" in page([contest])


def test_folders_are_drawn_without_numba_and_torch(gpus, tmp_path):
    save_comparison(tmp_path / "run", [gpus], scenario={}, results={})
    code = (
        "import sys\n"
        "from kilowait.report import write_report\n"
        f"write_report([{str(tmp_path / 'run')!r}], {str(tmp_path / 'page.html')!r})\n"
        "sys.exit(', '.join({'numba', 'torch'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "GPUs over time" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_in_a_browser(gpus, browser, tmp_path):
    """The chart starts, and tells what is held at the pointer."""
    path = tmp_path / "page.html"
    path.write_text(page([gpus]), encoding="utf-8")
    context = browser.new_context(offline=True, viewport={"width": 1200, "height": 900})
    problems = []
    tab = context.new_page()
    tab.on("pageerror", lambda error: problems.append(str(error)))
    tab.goto(path.as_uri())
    tab.wait_for_selector("figure.chart:not([data-ready])", state="detached", timeout=30_000)
    for name, wanted in (
        ("gpus-0", r"las T4 [\d.]+ %; A100 [\d.]+ %; fragments [\d.]+ %"),
        ("time-0", r"las [\d.]+ jobs waiting for [\d.]+ GPUs, [\d.]+ % held"),
    ):
        canvas = tab.locator(f"#{name} canvas")
        canvas.scroll_into_view_if_needed()
        canvas.hover(position={"x": 200, "y": 60})
        assert re.search(wanted, tab.locator(f"#{name} output").inner_text().replace("\n", " "))
    assert problems == []
    context.close()
