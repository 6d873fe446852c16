"""Contenders side by side: the same windows of the same logs on the same machines, and a verdict."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from kilowait.cluster import Cluster
from kilowait.energy.levering import parse_levers
from kilowait.errors import InputError, UnknownNameError
from kilowait.evaluation.folders import save_comparison
from kilowait.evaluation.judging import JUDGED, Contender, Contest, Windows, cut_windows, split, whole
from kilowait.experiments.cells import Case, Cell, all_cells, run_cells, workers_for
from kilowait.experiments.drawn import energy_record, lever_sets
from kilowait.experiments.energy import DRAWN, Meter, check_judged, meter_for
from kilowait.experiments.inputs import Workload, is_placed, parse_backfill
from kilowait.experiments.placed import gpu_table
from kilowait.experiments.scenario import (
    AGENT,
    Scenario,
    check_backfill,
    check_power,
    described,
    prepared,
    resolve_policy,
)
from kilowait.experiments.store import Store
from kilowait.jobs import JobTable, SegmentLog
from kilowait.units import parse_span

__all__ = [
    "Plan",
    "Prepared",
    "Protocol",
    "all_placed",
    "contenders_of",
    "gpu_means",
    "prepare",
    "prepare_levers",
    "protocol_of",
    "run",
    "save",
    "usual_metric",
]


@dataclass(frozen=True)
class Protocol:
    """On which jobs contenders meet."""

    windows: int | None = None
    """How many; None: one, the whole part."""
    window_jobs: int | None = None
    window_s: float | None = None
    warmup_jobs: int = 0
    warmup_s: float = 0.0
    part: str = "all"
    """all, train, validation or test: the log by time in 60, 20 and 20 per cent."""
    seed: int = 0

    def cut(self, jobs: JobTable) -> Windows:
        """The windows of a log."""
        within = None if self.part == "all" else split(jobs).places(self.part)
        if self.windows is None:
            return whole(jobs, within=within)
        length = {"window_jobs": self.window_jobs, "window_s": self.window_s}
        warmup = {"warmup_jobs": self.warmup_jobs, "warmup_s": self.warmup_s}
        return cut_windows(jobs, self.windows, seed=self.seed, within=within, **length, **warmup)  # type: ignore[arg-type]


def protocol_of(
    windows: int | None, length: str, warmup: str, part: str, seed: int, contenders: Sequence[Contender]
) -> Protocol:
    """The protocol as people write it; with ``auto`` an agent is judged on the last part of the log only.

    >>> protocol_of(3, "7d", "100", "auto", 0, contenders_of("fcfs", "easy")).window_s
    604800.0
    """
    jobs, seconds = parse_length(length, "length of a window")
    warm_jobs, warm_s = parse_length(warmup, "warm-up")
    if part == "auto":
        part = "test" if any(contender.kind == "agent" for contender in contenders) else "all"
    if windows is None and (warm_jobs or warm_s):
        raise InputError("a warm-up goes before windows; say how many with --windows")
    return Protocol(windows, None if seconds else jobs, seconds or None, warm_jobs, warm_s, part, seed)


def parse_length(text: str, what: str) -> tuple[int, float]:
    """Jobs and seconds: a plain number is jobs, one with a unit is time.

    >>> parse_length("1024", "window"), parse_length("7d", "window")
    ((1024, 0.0), (0, 604800.0))
    """
    plain = text.strip().replace(",", "").replace("_", "")
    if plain.lstrip("-").isdecimal():
        return int(plain), 0.0
    try:
        return 0, parse_span(text)
    except ValueError as problem:
        raise InputError(
            f"the {what} is {text!r}; write a number of jobs such as 1024 or a span such as 7d"
        ) from problem


def contenders_of(
    policies: str | Sequence[str],
    backfills: str | Sequence[str],
    levers: str | Sequence[str] = "none",
    *,
    clairvoyant: bool = True,
) -> tuple[Contender, ...]:
    """Every policy with every kind of backfilling and every set of levers.

    Each rule takes part once more with perfect estimates, without levers.

    Names are checked here, before anything runs.

    >>> [contender.label for contender in contenders_of("fcfs", "none,2")][:2]
    ['fcfs, no backfill', 'fcfs, 2 backfill']
    """
    names = _listed("policies", policies)
    for name in names:
        resolve_policy(name)
    depths = [parse_backfill(text) for text in _listed("kinds of backfilling", backfills)]
    for depth in depths:
        check_backfill(depth)
    sets = _listed("sets of levers", levers)
    for text in sets:
        parse_levers(text)
    found = [
        Contender(name, depth, "agent" if name.startswith(AGENT) else "rule", _short(name, names), text)
        for name in names
        for depth in depths
        for text in sets
    ]
    if clairvoyant:
        found += [
            Contender(who.policy, who.backfill, "clairvoyant", who.name)
            for who in found
            if who.kind == "rule" and who.levers == "none"
        ]
    return tuple(found)


def all_placed(cluster: str, traces: Sequence[str]) -> bool:
    """Whether the traces run on machines of placed nodes; an error where some do and some do not.

    >>> all_placed("auto", ["gpu:10:gpu-mixed"]), all_placed("nodes:4", ["log.swf"])
    (True, False)
    """
    placed = [is_placed(cluster, trace) for trace in traces]
    if any(placed) and not all(placed):
        one, other = traces[placed.index(True)], traces[placed.index(False)]
        raise InputError(
            f"{one} runs on single GPUs and {other} on whole nodes; rules and metrics differ: compare them apart, or "
            "name one machine with --cluster"
        )
    return all(placed)


def usual_metric(placed: bool) -> str:
    """What is judged by where nobody says: the slowdown; on placed nodes, where speeds differ, the completion time."""
    return "mean_turnaround_s" if placed else "mean_bsld"


def _short(name: str, names: Sequence[str]) -> str | None:
    """The only agent of a comparison is called agent."""
    agents = [other for other in names if other.startswith(AGENT)]
    return "agent" if agents == [name] else None


def _listed(what: str, given: str | Sequence[str]) -> list[str]:
    names = [name.strip() for name in (given.split(",") if isinstance(given, str) else given)]
    names = [name for name in dict.fromkeys(names) if name]
    if not names:
        raise InputError(f"the list of {what} is empty; name at least one, with commas between")
    return names


@dataclass(frozen=True)
class Plan:
    """What is to be compared, on what, and by what."""

    scenarios: tuple[Scenario, ...]
    contenders: tuple[Contender, ...]
    protocol: Protocol = Protocol()
    metric: str = "mean_bsld"

    def __post_init__(self) -> None:
        if self.metric not in JUDGED:
            raise UnknownNameError("metric to judge by", self.metric, JUDGED)
        for scenario in self.scenarios:
            for contender in self.contenders:
                check_power(contender.levers, scenario.power)
            if self.metric in DRAWN:
                check_judged(self.metric, scenario.power)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for scenario.toml."""
        return {
            "metric": self.metric,
            "protocol": asdict(self.protocol),
            "case": [scenario.to_dict() for scenario in self.scenarios],
            "contender": [asdict(contender) for contender in self.contenders],
        }


@dataclass(frozen=True)
class Prepared:
    """Logs read and cut, machines made: ready to run."""

    plan: Plan
    cases: tuple[Case, ...]
    workloads: tuple[Workload, ...]
    notes: tuple[tuple[str, ...], ...]
    """For each case: what had to be guessed, for people."""
    contenders: tuple[Contender, ...]
    """Those of the plan; without the clairvoyant where all estimates are the run times anyway."""

    @property
    def cells(self) -> int:
        """How many runs it takes."""
        return len(self.contenders) * sum(len(case.windows) for case in self.cases)

    def store(self, out: Path) -> Store:
        """Where finished cells of a comparison that goes to `out` are kept."""
        return Store(out, self.cases, self.contenders)


def prepare(plan: Plan) -> Prepared:
    """Read every log and cut its windows."""
    made = [prepared(scenario) for scenario in plan.scenarios]
    for _, cluster, _ in made:
        if cluster.placed and any(who.levers != "none" for who in plan.contenders):
            raise InputError(
                "placed nodes have no levers: they neither sleep nor slow down; leave --levers out"
            )
    workloads = tuple(workload for workload, _, _ in made)
    cases = tuple(
        Case(scenario, cluster, plan.protocol.cut(workload.jobs), _meter(scenario, workload, cluster))
        for scenario, (workload, cluster, _) in zip(plan.scenarios, made, strict=True)
    )
    exact = all(np.array_equal(w.jobs["estimate_s"], w.jobs["runtime_s"]) for w in workloads)
    contenders = tuple(who for who in plan.contenders if not (exact and who.kind == "clairvoyant"))
    return Prepared(plan, cases, workloads, tuple(notes for _, _, notes in made), contenders)


def prepare_levers(
    scenario: Scenario, policy: str, backfill: str, levers: str | Sequence[str] | None = None
) -> Prepared:
    """One rule with several sets of levers over a whole log; by default none, each alone and all."""
    contenders_of(policy, backfill, levers or "none")  # names are looked at before a long read
    found = prepare(Plan((scenario,), contenders_of(policy, backfill, clairvoyant=False)))
    meter = found.cases[0].meter
    if meter is None:
        raise InputError("levers are compared by a power model; name one with --power")
    who = contenders_of(policy, backfill, levers or lever_sets(meter), clairvoyant=False)
    return replace(found, plan=replace(found.plan, contenders=who), contenders=who)


def _meter(scenario: Scenario, workload: Workload, cluster: Cluster) -> Meter | None:
    return None if scenario.power is None else meter_for(scenario.power, workload.jobs, cluster)


def run(
    ready: Prepared,
    *,
    workers: int | None = None,
    store: Store | None = None,
    progress: Callable[[Cell, bool], None] | None = None,
) -> list[Contest]:
    """Run every contender in every window of every log; a contest for each log.

    >>> plan = Plan(
    ...     (Scenario("lublin:200:16"),),
    ...     contenders_of("fcfs,sjf", "easy"),
    ...     Protocol(windows=2, window_jobs=50),
    ... )
    >>> contest = run(prepare(plan))[0]
    >>> contest.labels, contest.values("mean_wait_s").shape
    (('fcfs', 'sjf'), (2, 2))
    """
    many = workers_for(ready.cases, ready.contenders) if workers is None else workers
    if many < 1:
        raise InputError(f"{many} processes; there must be at least 1")
    logs = run_cells(ready.cases, ready.contenders, workers=many, store=store, progress=progress)
    return [
        Contest(
            trace=case.scenario.trace,
            nodes=case.cluster.nodes,
            windows=case.windows,
            contenders=ready.contenders,
            logs=_Logs(logs, number),
            ledger=None if workload.ledger is None else workload.ledger.to_dict(),
            cluster=described(case.cluster),
            notes=notes,
            energy=None
            if case.meter is None
            else energy_record(case.meter, case.windows, ready.contenders, _Logs(logs, number)),
        )
        for number, (case, workload, notes) in enumerate(
            zip(ready.cases, ready.workloads, ready.notes, strict=True)
        )
    ]


def gpu_means(ready: Prepared, contests: Sequence[Contest]) -> list[dict[str, dict[str, float]]]:
    """Of each contest of placed nodes: by contender the GPU metrics of its windows, on average."""
    return [
        gpu_table(contest, case.cluster, case.scenario.placed.speeds)
        for case, contest in zip(ready.cases, contests, strict=True)
    ]


@dataclass(frozen=True)
class _Logs:
    """The logs of one case."""

    logs: Mapping[Cell, SegmentLog]
    case: int

    def __call__(self, contender: int, window: int) -> SegmentLog:
        return self.logs[self.case, contender, window]


def save(
    out: Path,
    ready: Prepared,
    contests: Sequence[Contest],
    results: Mapping[str, Any],
    store: Store,
    *,
    command: Sequence[str],
    date: str,
    force: bool = False,
) -> Path:
    """Write the comparison's folder; what was kept of it on the way is removed."""
    manifest = {
        "command": list(command),
        "date": date,
        "seeds": {
            "comparison": ready.plan.protocol.seed,
            "workloads": [workload.jobs.meta.get("seed") for workload in ready.workloads],
        },
        "inputs": {
            case.scenario.trace: workload.sha256
            for case, workload in zip(ready.cases, ready.workloads, strict=True)
        },
    }
    cells = [store.key(cell) for cell in all_cells(ready.cases, ready.contenders)]
    folder = save_comparison(
        out,
        contests,
        scenario=ready.plan.to_dict(),
        results=results,
        manifest=manifest,
        cells=cells,
        force=force,
    )
    store.clear()
    return folder
