"""The page: whole, self-contained, escaped, honest."""

from __future__ import annotations

import builtins
import io
import re
import sys
from html.parser import HTMLParser

import numpy as np
import pytest

import kilowait as kw
from kilowait.errors import InputError, MissingExtraError
from kilowait.report import Curve, Duel, Report, Result, figures, page, write_page
from kilowait.report.content import summary
from kilowait.report.page import drawn

VOID = {"meta", "br", "img", "link", "hr", "input"}


class Reader(HTMLParser):
    """Checks that every tag is closed, and keeps what matters."""

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
def logs():
    jobs = kw.lublin(600, 32, load=0.95, seed=1)
    return {name: kw.simulate(jobs, kw.Cluster.from_nodes(32), name, "easy") for name in ("fcfs", "sjf")}


def duel(rule="saf", low=0.8, high=0.95, mean=20.0):
    ratio = (low + high) / 2
    return Duel(
        rule, 12, mean, (mean - 2, mean + 2), mean * ratio, (mean * low, mean * high), ratio, low, high
    )


@pytest.fixture(scope="module")
def report(logs):
    results = [Result(name, "easy", kw.metrics(log)) for name, log in logs.items()]
    return Report(
        title="A <test> & more",
        results=[*results, Result("agent", "easy", results[1].metrics, learned=True)],
        duels=[duel(), duel("sjf", mean=30.0), duel("f1", 0.7, 1.2, 25.0), duel("lxf", 1.1, 1.3, 26.0)],
        curve=Curve([1, 2, 3], [1.0, 0.9, 0.95], [float("nan"), 0.9, 0.92]),
        logs=logs,
        facts=[("seed", "0"), ("note", '<script>alert("x")</script>')],
        weights=[("length", 0.5, "ln <estimate>")],
    )


def test_the_page_is_well_formed_and_self_contained(report):
    text = page(report)
    reader = read(text)
    assert len(reader.ids) == len(set(reader.ids)), "ids are used once"
    assert {tag for tag, _ in reader.tags} & {"script", "link", "img", "iframe"} == set()
    spaces = {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
    assert set(re.findall(r"(?:https?:)?//[\w./-]+", text)) <= spaces
    used = set(re.findall(r'href="#([^"]+)"', text)) | set(re.findall(r"url\(#([^)]+)\)", text))
    assert used
    assert used <= set(reader.ids)
    assert "currentcolor" not in text.lower()


def test_what_is_passed_in_is_escaped(report):
    text = page(report)
    assert "<script>" not in text
    assert "&lt;script&gt;" in text
    assert "<title>A &lt;test&gt; &amp; more</title>" in text
    nasty = Result('"><b onload=x>', "easy", report.results[0].metrics)
    assert "<b onload" not in page(Report(title="t", results=[nasty]))


def test_readers_who_cannot_see_are_told(report):
    tags = read(page(report)).tags
    drawings = [attributes for tag, attributes in tags if tag == "svg"]
    assert len(drawings) == 5
    assert all(a["role"] == "img" and len(a["aria-label"]) > 20 for a in drawings)
    assert all("scope" in attributes for tag, attributes in tags if tag == "th")
    assert dict(tags)["html"]["lang"] == "en"
    assert any(a.get("name") == "viewport" for tag, a in tags if tag == "meta")


def test_light_and_dark(report):
    text = page(report)
    assert "prefers-color-scheme: dark" in text
    defined = set(re.findall(r"(--\w+):", text))
    assert set(re.findall(r"var\((--\w+)\)", text)) <= defined


def test_same_report_same_bytes(report, tmp_path):
    assert page(report) == page(report)
    path = write_page(report, tmp_path / "new" / "page.html")
    assert path.read_text(encoding="utf-8") == page(report)
    with pytest.raises(InputError, match="cannot write the page"):
        write_page(report, path / "below.html")


def test_one_policy_is_enough(logs):
    one = Report(title="one", results=[Result("fcfs", "easy", kw.metrics(logs["fcfs"]))])
    reader = read(page(one))
    assert "fcfs has a mean bounded slowdown of" in "".join(reader.text)
    assert sum(tag == "svg" for tag, _ in reader.tags) == 1


def test_a_log_without_jobs_is_drawn():
    none, small, tiny = np.empty(0), np.empty(0, np.int16), np.empty(0, np.int8)
    jobs, row = kw.lublin(5, 8)[:0], np.empty(0, np.int64)
    log = kw.SegmentLog(jobs, row, none, none, small, small, tiny, none, tiny, np.zeros(1), np.array([8]))
    read(page(Report(title="none", results=[Result("fcfs", "none", kw.metrics(log))], logs={"fcfs": log})))


def test_results_are_checked():
    with pytest.raises(InputError, match="without results"):
        Report(title="x", results=[])
    with pytest.raises(InputError, match="'sjf' lack mean_bsld"):
        Report(title="x", results=[Result("sjf", "easy", {"mean_wait_s": 1.0})])


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [
        (0.8, 0.95, "The agent beats the best rule, saf"),
        (0.9, 1.1, "not shown to be better or worse"),
        (1.05, 1.3, "does not beat the best rule, saf"),
    ],
)
def test_the_words_say_what_the_interval_says(report, low, high, words):
    results = report.results
    told = " ".join(
        summary(Report(title="x", results=results, duels=[duel("saf", low, high), duel("f1", mean=99.0)]))
    )
    assert words in told
    assert "Against the other rules it is better than f1." in told


def test_the_price_is_named(logs):
    def result(name, bsld, wait_s, longest_s):
        return Result(name, "easy", {"mean_bsld": bsld, "mean_wait_s": wait_s, "max_wait_s": longest_s})

    told = summary(
        Report(title="x", results=[result("fcfs", 100.0, 600, 7200), result("sjf", 10.0, 300, 86400)])
    )
    assert told[1] == "First come, first served with the same backfilling has 100, 10 times as much."
    assert told[2].endswith("under sjf the longest wait is 24 h 0 min instead of 2 h 0 min.")
    assert (
        len(summary(Report(title="x", results=[result("fcfs", 9.0, 600, 7200), result("sjf", 8.0, 3, 9)])))
        == 2
    )


def test_every_figure_has_something_on_it(report, tmp_path):
    from matplotlib.image import imread

    for name, (figure, caption, alt) in drawn(report).items():
        png, svg = figures.save(figure, tmp_path, name)
        pixels = imread(io.BytesIO(png.read_bytes()))[..., :3]
        ink = (np.abs(pixels - 1.0).max(axis=2) > 0.1).mean()
        assert 0.01 < ink < 0.6, name
        colours = np.unique((pixels * 255).astype(int).reshape(-1, 3), axis=0)
        assert len(colours) > 10, name
        assert svg.read_text().lstrip().startswith("<?xml")
        assert caption
        assert alt


def test_no_global_state_is_left(report):
    import matplotlib

    before = dict(matplotlib.rcParams)
    page(report)
    assert dict(matplotlib.rcParams) == before


def test_without_matplotlib_the_extra_is_named(report, monkeypatch):
    real = builtins.__import__

    def absent(name, *rest, **more):
        if name.partition(".")[0] == "matplotlib":
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(MissingExtraError, match=r"kilowait\[report\]"):
        page(report)


def test_the_room_needs_no_numba():
    """Pages are made where nothing is simulated."""
    import subprocess

    code = "import sys, kilowait.report; sys.exit('numba' in sys.modules or 'matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
