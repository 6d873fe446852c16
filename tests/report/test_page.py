"""The report page: complete, self-contained, escaped, safely written, and no empty figure."""

from __future__ import annotations

import base64
import builtins
import hashlib
import re
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise

import numpy as np
import pytest

import kilowait as kw
from kilowait.errors import InputError, LockError, MissingExtraError
from kilowait.evaluation.storage import save_comparison, save_folder, save_run
from kilowait.report import RunSource, TrainingData, page, write_report
from kilowait.report.data.comparison import ComparisonData
from kilowait.report.data.summary import comparison_table, key_numbers
from kilowait.report.folders import load_runs
from kilowait.report.markup import render_part
from tests.report.conftest import NASTY, NODES, comparison_of, jobs_of

VOID = {"meta", "br", "img", "link", "hr", "input"}
TRAINING = TrainingData(
    "agent",
    "bounded slowdown",
    [{"number": n, "training": 1 - n / 50, "validation": None if n % 2 else 1 - n / 40} for n in range(1, 9)],
    [["length", 0.5, "ln <estimate>"], ["wait", -1.25, "how long it waits"]],
)
SOURCE = RunSource(
    "runs/<x>",
    "comparison",
    {
        "layout": 2,
        "kind": "comparison",
        "versions": {"python": "3.11.2", "numpy": "2.1"},
        "command": ["kilowait", "compare", "a b.swf"],
        "date": "2026-01-02",
        "seeds": {"windows": 7},
        "inputs": {f"{NASTY}.swf": "ab" * 32},
        "files": {"log.parquet": "cd" * 32},
    },
    {"trace": NASTY},
)


class Reader(HTMLParser):
    """An HTML parser that checks that every tag is closed and collects ids, text and tags."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.open, self.ids, self.text, self.tags = [], [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.ids += [value for name, value in attrs if name == "id"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.ids += [value for name, value in attrs if name == "id"]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def read(text):
    reader = Reader()
    reader.feed(text)
    reader.close()
    assert reader.open == []
    return reader


@pytest.fixture(scope="module")
def full_page(windowed_comparison):
    """A page with every section."""
    return page([windowed_comparison], training=[TRAINING], sources=[SOURCE], title=f"All {NASTY}")


def test_page_is_well_formed_and_self_contained(full_page):
    reader = read(full_page)
    assert len(reader.ids) == len(set(reader.ids)), "ids are used once"
    assert {tag for tag, _ in reader.tags} & {"link", "img", "iframe", "object"} == set()
    assert not any("src" in attributes for _, attributes in reader.tags)
    spaces = {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
    assert set(re.findall(r"https?://[\w./-]+", full_page)) <= spaces
    used = set(re.findall(r'href="#([^"]+)"', full_page)) | set(re.findall(r"url\(#([^)]+)\)", full_page))
    assert used
    assert used <= set(reader.ids)


def test_content_security_policy_allows_only_the_page_script(full_page):
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', full_page).group(1)
    script = re.search(r'<script type="module">(.*?)</script>', full_page, re.DOTALL).group(1)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert policy.startswith("default-src 'none'")
    assert f"script-src 'sha256-{digest}'" in policy
    kinds = [attributes.get("type") for tag, attributes in read(full_page).tags if tag == "script"]
    assert kinds.count("module") == 1
    assert set(kinds) == {"module", "application/json", "text/plain"}


def test_input_text_is_escaped(full_page):
    assert "<b onload" not in full_page
    assert "&lt;b onload" in full_page
    with_markup = comparison_of(jobs_of(60), trace=f"dir/{NASTY}")
    with_markup = replace(
        with_markup, policies=tuple(replace(c, name=f"{c.policy}{NASTY} $") for c in with_markup.policies)
    )
    text = page([with_markup])
    assert "<b onload" not in text
    read(text)


def test_sections_are_in_order(full_page):
    titles = re.findall(r"<h[23][^>]*>(.*?)</h[23]>", full_page)
    assert titles == [
        "Summary",
        "Results on made",
        "Comparison",
        "Distribution of waits and slowdowns",
        "Over time",
        "Waits by job class",
        "Winners and losers",
        "Schedule (Gantt chart)",
        "Training",
        "Training curves",
        "Feature attribution",
        "Cleaning report",
        "Provenance",
    ]


def test_page_is_accessible(full_page):
    reader = read(full_page)
    drawings = [a for tag, a in reader.tags if tag == "svg" and "aria-hidden" not in a]
    assert len(drawings) == 6
    assert all(a["role"] == "img" and len(a["aria-label"]) > 20 for a in drawings)
    assert all("scope" in a for tag, a in reader.tags if tag == "th")
    canvases = [a for tag, a in reader.tags if tag == "canvas"]
    assert len(canvases) == 2
    assert all(a["tabindex"] == "0" and a["role"] and a["aria-label"] for a in canvases)
    assert sum(tag == "output" and a["aria-live"] == "polite" for tag, a in reader.tags) == 2
    levels = [int(tag[1]) for tag, _ in reader.tags if re.fullmatch(r"h\d", tag)]
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    assert {"header", "nav", "main", "footer"} <= {tag for tag, _ in reader.tags}
    assert dict(reader.tags)["html"]["lang"] == "en"
    labelled = reader.open + [a for tag, a in reader.tags if tag == "button"]
    assert all(a.get("aria-label") or a.get("id") == "scheme" or a.get("data-do") == "reset" for a in labelled)


def test_colours_are_variables_that_exist(full_page):
    defined = set(re.findall(r"(--\w+): ", full_page))
    used = set(re.findall(r"var\((--\w+)\)", full_page))
    assert used <= defined
    assert {"--line0", "--line5", "--ink"} <= used


def test_provenance_is_exact(full_page):
    text = "".join(read(full_page).text)
    for text_expected in ("python 3.11.2, numpy 2.1", "kilowait compare 'a b.swf'", "2026-01-02", "windows 7"):
        assert text_expected in text
    assert f"sha256 {'ab' * 32}" in text
    assert f"sha256 {'cd' * 32}" in text
    assert "612 rows read, 600 jobs; 12 dropped, 3 corrected." in text


def test_same_input_same_bytes(comparison):
    assert page([comparison], title="t") == page([comparison], title="t")


def test_comparison_table_matches_the_evaluation(windowed_comparison):
    data = ComparisonData(windowed_comparison, 0, {"mean_bsld": 1.25, "mean_wait_s": 60.0})
    html = render_part("table", comparison_table(data))
    mean = data.significance.ranked()[0]
    assert mean.policy == data.comparison.labels[data.ranked[0]]
    cells = re.findall(r"<tr[^>]*><th scope=\"row\">([^<]*)</th>(.*?)</tr>", html)
    assert cells[-1][0] == "lower bound of any schedule"
    assert "1.25" in cells[-1][1]
    best = re.findall(r"<td>(.*?)</td>", cells[0][1])
    assert "(best)" in best[0]
    pair = data.significance.pair(
        windowed_comparison.labels[data.ranked[1]], windowed_comparison.labels[data.reference]
    )
    assert f"{pair.wins} of 20" in cells[1][1]
    assert f'<span class="{pair.verdict}">' in cells[1][1]


def test_page_names_the_drawn_policies_if_not_all():
    names = ("fcfs", "sjf", "saf", "f1", "lxf", "wfp3", "unicef")
    assert "The figures below show 6 of 7 policies: fcfs, " in page([comparison_of(jobs_of(60), names)])
    assert "The figures below show" not in page([comparison_of(jobs_of(60), names[:6])])


def test_tiles_name_undecided_comparisons(windowed_comparison):
    data = ComparisonData(windowed_comparison, 0)
    pair = data.significance.pair(windowed_comparison.labels[data.real[0]], "fcfs")
    assert any(detail.startswith(f"{pair.verdict}; 95 % interval") for _, _, detail in key_numbers(data))


def test_page_of_one_policy_and_of_no_jobs():
    read(page([comparison_of(jobs_of(50), ("fcfs",))]))
    none = comparison_of(jobs_of(50).with_columns(nodes=[64] * 50), ("fcfs", "sjf"), on_oversized="drop")
    text = page([none])
    read(text)
    assert "No job started" in text


def test_empty_input_is_an_error(tmp_path):
    with pytest.raises(InputError, match="there is nothing to report on"):
        page([])
    with pytest.raises(InputError, match="there is nothing to report on; give at least one run, comparison"):
        write_report([], tmp_path / "x.html")


# -- folders and files -------------------------------------------------------------------------------


@pytest.fixture
def folders(tmp_path):
    """Two runs of the same jobs."""
    jobs = jobs_of(200)
    paths = []
    for name in ("fcfs", "sjf"):
        log = kw.simulate(jobs, kw.Cluster.from_nodes(NODES), name, "easy")
        scenario = {"trace": "made.swf", "policy": name, "backfill": "easy"}
        paths.append(save_run(tmp_path / name, log, scenario=scenario, results={"ledger": None}))
    return paths


def test_runs_become_a_page_and_figures(folders, tmp_path):
    from matplotlib.image import imread

    messages = []
    out = tmp_path / "new" / "report.html"
    figures_folder = tmp_path / "figures"
    assert write_report(folders, out, figures=figures_folder, progress=messages.append) == out
    text = out.read_text(encoding="utf-8")
    read(text)
    assert "<title>Comparison of scheduling policies on made</title>" in text
    assert any("opening" in line for line in messages)
    names = {path.stem for path in figures_folder.iterdir()}
    assert names == {"means", "ratios", "shares", "violins", "classes", "over-time", "gantt-fcfs", "gantt-sjf"}
    for name in names:
        pixels = imread(figures_folder / f"{name}.png")[..., :3]
        ink = (np.abs(pixels - 1.0).max(axis=2) > 0.1).mean()
        assert 0.01 < ink < 0.95, name
        assert (figures_folder / f"{name}.svg").read_text().lstrip().startswith("<?xml")
    assert not list(tmp_path.glob("new/.*")), "nothing is left beside it"
    write_report(folders[:1], out, title="Again & again")
    assert "<title>Again &amp; again</title>" in out.read_text(encoding="utf-8")


def test_runs_comparisons_and_agents_on_one_page(folders, windowed_comparison, tmp_path):
    results = {"traces": [{"lower_bounds": {"mean_bsld": 1.5, "mean_wait_s": None}}]}
    compared = save_comparison(tmp_path / "compared", [windowed_comparison], scenario={"trace": "x"}, results=results)

    def fill(folder):
        (folder / "scenario.toml").write_text("", encoding="utf-8")
        results_json = '{"objective": "mean_bsld", "training": [{"number": 1, "training": 0.9, "validation": null}]}'
        (folder / "results.json").write_text(results_json, encoding="utf-8")

    agent = save_folder(tmp_path / "agent", fill, kind="agent")
    out = write_report([*folders, compared, agent], tmp_path / "all.html")
    text = out.read_text(encoding="utf-8")
    read(text)
    assert "lower bound of any schedule" in text
    assert "Objective: mean bounded slowdown." in text
    assert text.count("<canvas") == 4
    agent_page = write_report([agent], tmp_path / "only.html").read_text(encoding="utf-8")
    assert "<title>Training of agent</title>" in agent_page


def test_runs_of_different_jobs_are_not_compared(folders, tmp_path):
    log = kw.simulate(jobs_of(150, seed=5), kw.Cluster.from_nodes(NODES), "fcfs", "easy")
    other = save_run(tmp_path / "other", log, scenario={"trace": "other.swf"}, results={})
    with pytest.raises(InputError, match="different jobs"):
        write_report([*folders, other], tmp_path / "x.html")
    assert not (tmp_path / "x.html").exists()


def test_other_files_are_not_overwritten(folders, tmp_path):
    other_file = tmp_path / "mine.html"
    other_file.write_text("<html>my own</html>", encoding="utf-8")
    with pytest.raises(InputError, match="is not a kilowait report"):
        write_report(folders, other_file)
    assert other_file.read_text(encoding="utf-8") == "<html>my own</html>"
    with pytest.raises(InputError, match="is a folder; name the file"):
        write_report(folders, tmp_path)
    with pytest.raises(LockError, match="mine.html is a file; name a folder"):
        write_report(folders, other_file / "below.html")
    with pytest.raises(InputError, match="there is no run folder"):
        write_report([tmp_path / "absent"], tmp_path / "x.html")
    with pytest.raises(LockError, match="mine.html is a file; name a folder"):
        write_report(folders, tmp_path / "x.html", figures=other_file)


def test_matplotlib_settings_are_unchanged(comparison):
    import matplotlib

    before = dict(matplotlib.rcParams)
    page([comparison])
    assert dict(matplotlib.rcParams) == before


def test_without_matplotlib_the_extra_is_named(comparison, monkeypatch):
    original_import = builtins.__import__

    def import_without_matplotlib(name, *rest, **kwargs):
        if name.partition(".")[0] == "matplotlib":
            raise ImportError(name)
        return original_import(name, *rest, **kwargs)

    monkeypatch.setattr(builtins, "__import__", import_without_matplotlib)
    with pytest.raises(MissingExtraError, match=r"\[report\]"):
        page([comparison])


def test_package_needs_no_numba():
    """Reports are written without importing the simulator."""
    code = "import sys, kilowait.report; sys.exit('numba' in sys.modules or 'matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_intervals_have_the_seed_of_the_comparison(windowed_comparison, tmp_path):
    seeds = {"seeds": {"comparison": 5}}
    folder = save_comparison(tmp_path / "c", [windowed_comparison], scenario={}, results={}, manifest=seeds)
    assert [each.seed for each in load_runs([folder], lambda _: None).comparisons] == [5]
    unknown = save_comparison(tmp_path / "d", [windowed_comparison], scenario={}, results={})
    assert [each.seed for each in load_runs([unknown], lambda _: None).comparisons] == [0]
