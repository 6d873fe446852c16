"""Fixtures: comparisons for reports, and a browser."""

from __future__ import annotations

import os
import shutil

import numpy as np
import pytest

import kilowait as kw
from kilowait.cluster import Outage
from kilowait.evaluation.comparison import (
    Comparison,
    EnergyResults,
    PolicyConfig,
    PowerCurve,
    SignalCurve,
    cut_windows,
    single_window,
)
from kilowait.evaluation.timeline import timeline
from kilowait.jobs import JobTable

NODES = 32
LEDGER = {
    "rows_read": 612,
    "jobs": 600,
    "folded": 0,
    "entries": [
        {"kind": "dropped", "reason": "never ran", "count": 12, "first_line": 7},
        {"kind": "corrected", "reason": "estimate <unknown>", "count": 3, "first_line": 9},
        {"kind": "note", "reason": "no header", "count": 0, "first_line": None},
    ],
}
NASTY = "</script><b onload=x>"


def jobs_of(count=600, *, seed=1, dated=False):
    """Jobs of a few users, one with a name that must be escaped."""
    workload = kw.lublin(count, NODES, load=0.95, seed=seed)
    columns = {name: workload[name] for name in ("job_id", "submit_s", "runtime_s", "estimate_s", "nodes")}
    return JobTable(
        **columns,
        user=[number % 4 for number in range(count)],
        labels={"user": (NASTY, "ada", "grace", "mary")},
        meta={"unix_start_s": 843_000_000} if dated else {},
    )


def comparison_of(
    jobs,
    names=("fcfs", "sjf", "saf"),
    *,
    windows=None,
    kinds=None,
    trace="traces/made.swf.gz",
    cluster=None,
    **settings,
):
    """A comparison of policies, all with EASY, on the jobs or on windows of them."""
    cut = single_window(jobs) if windows is None else windows
    cluster = kw.Cluster.from_nodes(NODES) if cluster is None else cluster
    logs = {
        (index, number): kw.simulate(window.jobs, cluster, name, "easy", **settings)
        for index, name in enumerate(names)
        for number, window in enumerate(cut)
    }
    kinds = kinds or ["rule"] * len(names)
    policies = tuple(PolicyConfig(name, "easy", kind) for name, kind in zip(names, kinds, strict=True))
    return Comparison(trace, NODES, cut, policies, lambda index, number: logs[index, number], cleaning_report=LEDGER)


def cluster_with_outage(span_s):
    """A cluster in which 10 nodes are unavailable in the middle of a time span."""
    machine = kw.Cluster.from_nodes(NODES)
    return machine.with_outages(Outage(machine.groups[0].name, 10, 0.4 * span_s, 0.6 * span_s))


CONTROLS = ("none", "sleep=break-even", "dvfs=1.1", "shift=lowest-window:6h", "all")
"""No power control, each control alone, all controls."""


def energy_comparison(jobs, power_controls=CONTROLS, *, windows=None, carbon=True, price=True, window_of_curves=0):
    """A comparison of fcfs with EASY under several power controls, with energy results.

    A busy node draws 500 W, an idle one 200 W, a sleeping one 20 W; the facility adds a quarter.
    """
    cut = single_window(jobs) if windows is None else windows
    cluster = kw.Cluster.from_nodes(NODES)
    policies = ("fcfs", "fcfs", "sjf", "saf", "lxf", "f1", "wfp3")
    logs = {
        (index, number): kw.simulate(window.jobs, cluster, policies[index], "easy")
        for index in range(len(power_controls))
        for number, window in enumerate(cut)
    }
    cells, states = [], []
    for index, text in enumerate(power_controls):
        sleeps, slowed = "sleep" in text or text == "all", "dvfs" in text or text == "all"
        row, kwh = [], dict.fromkeys(("jobs", "idle", "asleep", "shutting_down", "waking", "fixed"), 0.0)
        for number in range(len(cut)):
            steps = timeline(logs[index, number])
            hours = np.diff(steps.time_s) / 3600
            busy = float(steps.busy_nodes[:-1] @ hours)
            free = float((steps.capacity_nodes - steps.busy_nodes)[:-1] @ hours)
            energy_by_state = {
                "jobs": busy * (0.45 if slowed else 0.5),
                "idle": free * (0.06 if sleeps else 0.2),
                "asleep": free * 0.014 if sleeps else 0.0,
                "shutting_down": free * 0.004 if sleeps else 0.0,
                "waking": free * 0.011 if sleeps else 0.0,
                "fixed": 2.0 * float(hours.sum()),
            }
            kwh = {name: kwh[name] + energy_by_state[name] for name in kwh}
            energy = sum(energy_by_state.values())
            metrics = {"energy_kwh": energy, "facility_kwh": 1.25 * energy, "peak_kw": 16.0 - index, "pue": 1.25}
            metrics["least_kwh"] = 0.4 * busy
            if carbon:
                metrics["co2_kg"] = 1.25 * energy * (0.2 if "shift" in text or text == "all" else 0.25)
            if price:
                metrics["cost"] = 1.25 * energy * 0.1
            row.append(metrics)
        cells.append(tuple(row))
        states.append(kwh)
    curves = []
    for index, text in enumerate(power_controls):
        steps = timeline(logs[index, window_of_curves]).sampled(600)
        idle = 20.0 if "sleep" in text or text == "all" else 200.0
        watts = 500.0 * steps.busy_nodes + idle * (steps.capacity_nodes - steps.busy_nodes) + 2000.0
        curves.append(PowerCurve(*(tuple(v.tolist()) for v in (steps.edge_s, watts, 1.25 * watts))))
    first_s = min(curve.edge_s[0] for curve in curves)
    last_s = max(curve.edge_s[-1] for curve in curves)
    edge = np.arange(first_s // 3600 * 3600, last_s + 3600, 3600.0)
    day = 2 * np.pi * edge[:-1] / 86400
    signals = []
    if carbon:
        description = "GB; average; direct; a <made> series"
        signals.append(
            SignalCurve("carbon intensity", "g/kWh", description, tuple(edge), tuple(250 - 100 * np.sin(day)))
        )
    if price:
        description = "DE-LU day ahead; EUR"
        signals.append(SignalCurve("price", "EUR/MWh", description, tuple(edge), tuple(60 + 90 * np.cos(day))))
    notes = ("power model 'made': 3 of 9 parts are estimates",)
    record = EnergyResults(tuple(cells), tuple(states), tuple(curves), window_of_curves, tuple(signals), notes)
    policies = tuple(PolicyConfig("fcfs", "easy", power_controls=text) for text in power_controls)
    return Comparison(
        "made.swf", NODES, cut, policies, lambda index, number: logs[index, number], LEDGER, energy=record
    )


@pytest.fixture(scope="session")
def energy_run():
    """Power controls alone and together on one log."""
    return energy_comparison(jobs_of(dated=True))


@pytest.fixture(scope="session")
def energy_windows():
    """The same on 20 windows."""
    jobs = jobs_of(1500, dated=True)
    return energy_comparison(jobs, windows=cut_windows(jobs, 20, window_jobs=60, warmup_jobs=15, seed=0))


@pytest.fixture(scope="session")
def comparison():
    """Three policies on one log of 600 jobs."""
    return comparison_of(jobs_of())


@pytest.fixture(scope="session")
def windowed_comparison():
    """Four policies, one marked as an agent, on 20 windows with a warm-up."""
    jobs = jobs_of(1500, dated=True)
    cut = cut_windows(jobs, 20, window_jobs=60, warmup_jobs=15, seed=0)
    names, kinds = ("fcfs", "sjf", "saf", "f1"), ("rule", "rule", "rule", "agent")
    return comparison_of(jobs, names, windows=cut, kinds=kinds)


@pytest.fixture(scope="session")
def browser():
    """Headless Chromium from KILOWAIT_CHROMIUM or the PATH; skips the test without one."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    names = ("chromium", "chromium-browser", "google-chrome")
    executable = os.environ.get("KILOWAIT_CHROMIUM") or next(filter(None, map(shutil.which, names)), None)
    if executable is None:
        pytest.skip(f"no browser: none of {', '.join(names)} is on the PATH; name one by KILOWAIT_CHROMIUM")
    flags = "no-sandbox disable-gpu disable-quic no-first-run disable-background-networking"
    flags += " disable-component-update disable-sync"
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=executable, args=[f"--{flag}" for flag in flags.split()])
        yield chromium
        chromium.close()
