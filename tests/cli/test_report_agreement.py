"""A page and the terminal show the same number under one name, and the same verdict."""

from __future__ import annotations

import html
import re

import pytest

pytest.importorskip("matplotlib")

LOG = "lublin:1500:32:0.95:7"


def plain(text):
    return html.unescape(re.sub(r"<[^>]+>", " ", text)).replace("\N{NO-BREAK SPACE}", " ").replace(" (best)", "")


def main_table(page):
    """The main table of a page: text by policy and column."""
    table = next(part for part in re.findall(r"<table>.*?</table>", page, re.DOTALL) if "best first" in part)
    names = [plain(name) for name in re.findall(r'<th scope="col"[^>]*>(.*?)</th>', table)][1:]
    rows = re.findall(r'<tr[^>]*><th scope="row">(.*?)</th>(.*?)</tr>', table)
    return {
        label: dict(
            zip(names, (plain(cell).strip() for cell in re.findall(r"<td[^>]*>(.*?)</td>", cells)), strict=True)
        )
        for label, cells in rows
    }


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    return tmp_path_factory.mktemp("pages")


@pytest.mark.parametrize("windows", [("--windows", "6", "--window", "150", "--seed", "3"), ()])
def test_values_of_a_comparison(kilowait, pages, windows):
    out, page = pages / f"compared-{len(windows)}", pages / f"page-{len(windows)}.html"
    printed = kilowait("compare", LOG, "--policies", "fcfs,saf", *windows, "--out", out)
    assert printed.status == 0
    assert kilowait("report", out, "--out", page).status == 0
    text = page.read_text(encoding="utf-8")
    table = main_table(text)
    for policy in ("fcfs", "saf"):
        line = next(line for line in printed.out.splitlines() if line.startswith(f"{policy} "))
        cells = re.split(r"\s{2,}", line.replace(" *", "").replace(" !", ""))
        shown = table[policy]
        assert shown["longest wait"].split("  ")[0].strip() in cells, (shown, cells)
        assert shown["99th percentile of waits"] in cells
        assert shown["utilization while jobs arrive"] in cells
        assert f"– {shown['mean wait'].rpartition('– ')[2]} " in line, "the intervals have the same seed"
    sentences = [line for line in printed.out.splitlines() if "mean bounded slowdown" in line and line.endswith(").")]
    assert sentences and all(sentence in plain(text) for sentence in sentences)


def test_longest_wait_is_that_of_all_windows(kilowait):
    args = ("--policies", "fcfs,saf", "--windows", "6", "--window", "150", "--json")
    rows = kilowait("compare", LOG, *args).json()["traces"][0]["rows"]
    per_window = kilowait("compare", LOG, *args, "--metric", "max_wait_s").json()["traces"][0]["rows"]
    for row, tested in zip(rows, per_window, strict=True):
        assert row["metrics"]["max_wait_s"] == tested["metrics"]["max_wait_s"]
        assert tested["mean"] < tested["metrics"]["max_wait_s"], "the test compares the mean of the windows' maxima"


def test_utilization_of_a_run(kilowait, pages):
    out, page = pages / "run", pages / "run.html"
    printed = kilowait("simulate", LOG, "--policy", "saf", "--out", out)
    assert kilowait("report", out, "--out", page).status == 0
    (line,) = [line for line in printed.out.splitlines() if line.startswith("utilization")]
    over_makespan, while_jobs_arrive = re.findall(r"([\d.]+ %)", line)
    assert over_makespan != while_jobs_arrive
    text = plain(page.read_text(encoding="utf-8"))
    assert f"the utilization while jobs arrive is {while_jobs_arrive}" in text
    assert over_makespan not in text


def test_starvation_is_marked_in_both(kilowait, pages):
    """A policy that starts the smallest jobs first makes the large jobs of a full machine wait for days."""
    out, page = pages / "starving", pages / "starving.html"
    printed = kilowait("compare", "lublin:5000:128:0.9:7", "--policies", "fcfs,saf", "--out", out)
    kilowait("report", out, "--out", page)
    (line,) = [line for line in printed.out.splitlines() if line.startswith("saf ") and " !" in line]
    assert "! longest wait above 5 times that of FCFS; --max-wait bounds it" in printed.out.splitlines()
    (sentence,) = [line for line in printed.out.splitlines() if line.startswith("Risk of starvation under saf: ")]
    text = page.read_text(encoding="utf-8")
    assert sentence in plain(text)
    assert re.search(r'<span class="starves">([^<]*)</span>', text).group(1) in line
