"""A scenario: everything a run depends on, in words that can be stored; and the run itself."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

from kilowait.cluster import Cluster
from kilowait.energy.accounts import Accounts
from kilowait.energy.levering import parse_levers
from kilowait.engine.ports import Rule
from kilowait.engine.settings import Settings
from kilowait.errors import InputError
from kilowait.experiments.energy import PowerSettings, dressed, meter_for
from kilowait.experiments.inputs import Workload, brought_to_load, cluster_of, workload_of
from kilowait.jobs import JobTable, SegmentLog
from kilowait.policies import resolve, simulate
from kilowait.synth import offered_load

__all__ = ["Done", "Scenario", "check_power", "prepared", "resolve_policy", "run_scenario"]

AGENT = "agent:"
OVERLOAD = 1.2
"""Offered load from which on a run says more of its length than of the rule; people are told."""


@dataclass(frozen=True)
class Scenario:
    """What to run; see `kilowait.simulate` for the rules and `experiments.inputs` for how things are written."""

    trace: str
    cluster: str = "auto"
    policy: str = "fcfs"
    backfill: str | int = "easy"
    backfill_order: str | None = None
    walltime: str = "extend"
    passes: str = "instant"
    placement: str = "first"
    oversized: str = "error"
    dependencies: bool = True
    load: float | None = None
    """Offered load the jobs are brought to; None: as they are."""
    jobs: str | None = None
    """Rows of the trace; None: all."""
    format: str | None = None
    columns: str | None = None
    strict: bool = False
    power: PowerSettings | None = None
    """What power the run is judged with; None: none."""
    levers: str = "none"
    """What is pulled besides the order of jobs; see `kilowait.energy.levering`."""

    def __post_init__(self) -> None:
        Settings(
            backfill=self.backfill,
            walltime=self.walltime,
            passes=self.passes,
            placement=self.placement,
            dependencies=self.dependencies,
            oversized=self.oversized,
        )
        parse_levers(self.levers)
        check_power(self.levers, self.power)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, without what was not asked for."""
        plain = {key: value for key, value in asdict(self).items() if value is not None}
        return plain if self.power is None else {**plain, "power": self.power.to_dict()}

    @property
    def rules_as_written(self) -> dict[str, Any]:
        """What `simulate` takes besides policy and backfill, as plain data."""
        return {
            "backfill_order": self.backfill_order,
            "walltime": self.walltime,
            "passes": self.passes,
            "placement": self.placement,
            "dependencies": self.dependencies,
            "oversized": self.oversized,
        }

    @property
    def rules(self) -> dict[str, Any]:
        """The same, with the order of backfilling as a rule."""
        order = None if self.backfill_order is None else resolve_policy(self.backfill_order)
        return {**self.rules_as_written, "backfill_order": order}


@dataclass(frozen=True)
class Done:
    """A scenario that was run."""

    scenario: Scenario
    workload: Workload
    cluster: Cluster
    log: SegmentLog
    notes: tuple[str, ...] = ()
    """What had to be guessed, for people."""
    accounts: Accounts | None = None
    """What it drew, where a power model was given."""
    pulled: str = ""
    """The levers, in words."""

    def resolved(self) -> dict[str, Any]:
        """The scenario with the machine written out, for scenario.toml."""
        return {**self.scenario.to_dict(), "cluster": described(self.cluster)}


def run_scenario(scenario: Scenario) -> Done:
    """Read, prepare, simulate.

    >>> run_scenario(Scenario("lublin:20:8", policy="sjf")).log.run["policy"]
    'sjf'
    """
    rule, rules = resolve_policy(scenario.policy), scenario.rules  # names are looked at before a long read
    workload, cluster, notes = prepared(scenario)
    if scenario.power is None:
        log = simulate(workload.jobs, cluster, rule, scenario.backfill, **rules)
        return Done(scenario, workload, cluster, log, notes)
    meter = meter_for(scenario.power, workload.jobs, cluster)
    pulled = meter.pull(scenario.levers, workload.jobs)
    log = simulate(pulled.jobs, cluster, rule, scenario.backfill, levers=pulled.levers, **rules)
    log = replace(log, jobs_table=workload.jobs)  # holds are the run's, not the log's
    return Done(scenario, workload, cluster, log, notes, meter.account(log, pulled), pulled.words)


def check_power(levers: str, power: PowerSettings | None) -> None:
    """Raise where something is pulled whose power nobody knows."""
    if power is None and levers.strip() != "none":
        raise InputError(f"levers {levers!r} need a power model; name one with --power")


def prepared(scenario: Scenario) -> tuple[Workload, Cluster, tuple[str, ...]]:
    """Jobs at the load asked for, the machine, and notes for people."""
    workload = workload_of(
        scenario.trace,
        format=scenario.format,
        columns=scenario.columns,
        strict=scenario.strict,
        rows=scenario.jobs,
    )
    cluster, note = cluster_of(scenario.cluster, workload.jobs)
    jobs: JobTable = brought_to_load(workload.jobs, cluster, scenario.load)
    notes = [note] if note is not None else []
    if scenario.power is not None:
        jobs, more = dressed(scenario.power, jobs)
        notes += more
    load = offered_load(jobs, cluster.nodes) if len(jobs) > 1 and np.ptp(jobs["submit_s"]) > 0 else 0.0
    if load > OVERLOAD:
        notes.append(
            f"these jobs offer {load:.2g} times the work {cluster.nodes:,} nodes can do while they arrive, so the "
            "queue only grows; take a larger --cluster or a lower --load"
        )
    return Workload(jobs, workload.ledger, workload.sha256), cluster, tuple(notes)


def resolve_policy(text: str) -> Rule:
    """A rule by name with its parameters, or a trained one from ``agent:PATH``.

    >>> resolve_policy("multifactor:age=500:size=0").name
    'multifactor:age=500:size=0'
    """
    if not text.startswith(AGENT):
        return resolve(text)
    path = text[len(AGENT) :]
    if not path:
        raise InputError("a trained policy is written agent:PATH, for instance agent:runs/x/agent.json")
    if find_spec("kilowait.agents") is None:
        raise InputError(f"policy {text!r}: this kilowait has no trained policies; take a rule by name")
    rule = import_module("kilowait.agents").load_agent(path).rule
    if not isinstance(rule, Rule):
        raise InputError(f"policy {text!r}: the agent at {path} holds no rule")
    return rule


def described(cluster: Cluster) -> dict[str, Any]:
    """The machine as plain data, with the keys of a cluster file; what is at its default is left out."""
    data: dict[str, Any] = {"name": cluster.name}
    for key, listed in (
        ("group", cluster.groups),
        ("outage", cluster.outages),
        ("reservation", cluster.reservations),
    ):
        if listed:
            data[key] = [
                {f.name: getattr(item, f.name) for f in fields(item) if getattr(item, f.name) != f.default}
                for item in listed
            ]
    if cluster.queues:
        data["queue"] = [{"name": name, "groups": list(groups)} for name, groups in cluster.queues.items()]
    return data
