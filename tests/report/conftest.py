"""Contests to draw, and a real browser to look at them with."""

from __future__ import annotations

import os
import shutil

import pytest

import kilowait as kw
from kilowait.evaluation.judging import Contender, Contest, cut_windows, whole
from kilowait.jobs import JobTable

NODES = 32
LEDGER = {
    "rows_read": 612,
    "jobs": 600,
    "folded": 0,
    "entries": [
        {"kind": "dropped", "reason": "never ran", "count": 12, "first_line": 7},
        {"kind": "mended", "reason": "estimate <unknown>", "count": 3, "first_line": 9},
        {"kind": "note", "reason": "no header", "count": 0, "first_line": None},
    ],
}
NASTY = "</script><b onload=x>"


def jobs_of(count=600, *, seed=1, dated=False):
    """Jobs of a few users, one with a nasty name."""
    made = kw.lublin(count, NODES, load=0.95, seed=seed)
    columns = {name: made[name] for name in ("job_id", "submit_s", "runtime_s", "estimate_s", "nodes")}
    return JobTable(
        **columns,
        user=[number % 4 for number in range(count)],
        labels={"user": (NASTY, "ada", "grace", "mary")},
        meta={"unix_start_s": 843_000_000} if dated else {},
    )


def contest_of(
    jobs, names=("fcfs", "sjf", "saf"), *, windows=None, kinds=None, trace="traces/made.swf.gz", **more
):
    """The rules, all with EASY, on the jobs or on windows of them."""
    cut = whole(jobs) if windows is None else windows
    cluster = kw.Cluster.from_nodes(NODES)
    logs = {
        (who, number): kw.simulate(window.jobs, cluster, name, "easy", **more)
        for who, name in enumerate(names)
        for number, window in enumerate(cut)
    }
    kinds = kinds or ["rule"] * len(names)
    contenders = tuple(Contender(name, "easy", kind) for name, kind in zip(names, kinds, strict=True))
    return Contest(trace, NODES, cut, contenders, lambda who, number: logs[who, number], ledger=LEDGER)


@pytest.fixture(scope="session")
def contest():
    """Three rules on one log of 600 jobs."""
    return contest_of(jobs_of())


@pytest.fixture(scope="session")
def windowed():
    """Four rules, one called an agent, on 20 windows with a warm-up."""
    jobs = jobs_of(1500, dated=True)
    cut = cut_windows(jobs, 20, window_jobs=60, warmup_jobs=15, seed=0)
    names, kinds = ("fcfs", "sjf", "saf", "f1"), ("rule", "rule", "rule", "agent")
    return contest_of(jobs, names, windows=cut, kinds=kinds)


@pytest.fixture(scope="session")
def browser():
    """Chromium without a window, named by KILOWAIT_CHROMIUM or found on the PATH; skips where there is none."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    names = ("chromium", "chromium-browser", "google-chrome")
    found = os.environ.get("KILOWAIT_CHROMIUM") or next(filter(None, map(shutil.which, names)), None)
    if found is None:
        pytest.skip(f"no browser: none of {', '.join(names)} is on the PATH; name one by KILOWAIT_CHROMIUM")
    flags = "no-sandbox disable-gpu disable-quic no-first-run disable-background-networking"
    flags += " disable-component-update disable-sync"
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=found, args=[f"--{flag}" for flag in flags.split()])
        yield opened
        opened.close()
