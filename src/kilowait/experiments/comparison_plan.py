"""Contenders side by side: the same windows of the same logs on the same machines, and a verdict."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from kilowait.cluster import Cluster
from kilowait.errors import InputError, UnknownNameError
from kilowait.evaluation.comparison import METRIC_DIRECTION, Comparison, PolicyConfig
from kilowait.evaluation.storage import save_comparison
from kilowait.experiments.cell_cache import FolderCellCache
from kilowait.experiments.compare import comparison_of
from kilowait.experiments.energy_results import lever_sets
from kilowait.experiments.gpu_power_cap import check_controls_supported
from kilowait.experiments.gpu_results import gpu_table
from kilowait.experiments.gpu_settings import check_placement_on
from kilowait.experiments.inputs import Workload
from kilowait.experiments.policy_configs import contenders_of, policy_and_placement
from kilowait.experiments.power import DRAWN, check_judged, meter_for
from kilowait.experiments.power_context import PowerContext
from kilowait.experiments.run_matrix import (
    Cell,
    ComparisonCase,
    all_cells,
    run_cells,
    workers_for,
)
from kilowait.experiments.scenario import Scenario, check_power, prepare_scenario
from kilowait.experiments.window_options import WindowOptions
from kilowait.jobs import JobTable

__all__ = [
    "ComparisonPlan",
    "PreparedComparison",
    "gpu_means",
    "prepare",
    "prepare_levers",
    "run",
    "save",
    "usual_metric",
]


def usual_metric(placed: bool) -> str:
    """What is judged by where nobody says: the slowdown; on placed nodes, where speeds differ, the completion time."""
    return "mean_turnaround_s" if placed else "mean_bsld"


@dataclass(frozen=True)
class ComparisonPlan:
    """What is to be compared, on what, and by what."""

    scenarios: tuple[Scenario, ...]
    policies: tuple[PolicyConfig, ...]
    protocol: WindowOptions = field(default_factory=WindowOptions)
    metric: str = "mean_bsld"

    def __post_init__(self) -> None:
        if self.metric not in METRIC_DIRECTION:
            raise UnknownNameError("metric to judge by", self.metric, METRIC_DIRECTION)
        for scenario in self.scenarios:
            for contender in self.policies:
                check_power(contender.power_controls, scenario.power)
            if self.metric in DRAWN:
                check_judged(self.metric, scenario.power)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for scenario.toml."""
        return {
            "metric": self.metric,
            "protocol": asdict(self.protocol),
            "case": [scenario.to_dict() for scenario in self.scenarios],
            "contender": [asdict(contender) for contender in self.policies],
        }


@dataclass(frozen=True)
class PreparedComparison:
    """Logs read and cut, machines made: ready to run."""

    plan: ComparisonPlan
    cases: tuple[ComparisonCase, ...]
    workloads: tuple[Workload, ...]
    notes: tuple[tuple[str, ...], ...]
    """For each case: what had to be guessed, for people."""
    policies: tuple[PolicyConfig, ...]
    """Those of the plan; without the clairvoyant where all estimates are the run times anyway."""

    @property
    def cells(self) -> int:
        """How many runs it takes."""
        return len(self.policies) * sum(len(case.windows) for case in self.cases)

    def store(self, out: Path) -> FolderCellCache:
        """Where finished cells of a comparison that goes to `out` are kept."""
        return FolderCellCache(out, self.cases, self.policies)


def prepare(plan: ComparisonPlan, progress: Callable[[Any], None] | None = None) -> PreparedComparison:
    """Read every log and cut its windows; `progress` hears of every fit of a predictor."""
    made = [prepare_scenario(scenario, progress) for scenario in plan.scenarios]
    for _, cluster, _ in made:
        for who in plan.policies:
            check_controls_supported(who.power_controls, cluster)
            check_placement_on(policy_and_placement(who.policy)[1], cluster)
    cases = tuple(
        ComparisonCase(
            scenario.trace,
            cluster,
            plan.protocol.cut(workload.jobs),
            scenario.simulate_arguments,
            _meter(scenario, workload, cluster),
            scenario.settings_dict,
            scenario.gpu.gpu_speeds,
        )
        for scenario, (workload, cluster, _) in zip(plan.scenarios, made, strict=True)
    )
    workloads = tuple(
        workload.judged_from(int(case.windows.first.min()))
        for (workload, _, _), case in zip(made, cases, strict=True)
    )
    exact = all(_foreseen(workload.jobs) for workload in workloads)
    placed = all(cluster.node_level for _, cluster, _ in made)
    contenders = tuple(
        replace(who, node_level=placed) for who in plan.policies if not (exact and who.kind == "clairvoyant")
    )
    notes = tuple((*said, *own.leakage_notes) for (_, _, said), own in zip(made, workloads, strict=True))
    return PreparedComparison(plan, cases, workloads, notes, contenders)


def _foreseen(jobs: JobTable) -> bool:
    """Whether estimates are the run times already, for rules and for planners."""
    return np.array_equal(jobs["estimate_s"], jobs["runtime_s"]) and "planned_s" not in jobs


def prepare_levers(
    scenario: Scenario, policy: str, backfill: str, power_controls: str | Sequence[str] | None = None
) -> PreparedComparison:
    """One rule with several sets of levers over a whole log; by default none, each alone and all."""
    contenders_of(policy, backfill, power_controls or "none")  # names are looked at before a long read
    found = prepare(ComparisonPlan((scenario,), contenders_of(policy, backfill, clairvoyant=False)))
    meter = found.cases[0].meter
    if meter is None:
        raise InputError("levers are compared by a power model; name one with --power")
    asked = contenders_of(policy, backfill, power_controls or lever_sets(meter), clairvoyant=False)
    for who in asked:
        check_controls_supported(who.power_controls, meter.cluster)
    placed = tuple(replace(who, node_level=meter.cluster.node_level) for who in asked)
    return replace(found, plan=replace(found.plan, policies=asked), policies=placed)


def _meter(scenario: Scenario, workload: Workload, cluster: Cluster) -> PowerContext | None:
    return None if scenario.power is None else meter_for(scenario.power, workload.jobs, cluster)


def run(
    ready: PreparedComparison,
    *,
    workers: int | None = None,
    store: FolderCellCache | None = None,
    progress: Callable[[Cell, bool], None] | None = None,
) -> list[Comparison]:
    """Run every contender in every window of every log; a contest for each log.

    >>> plan = ComparisonPlan(
    ...     (Scenario("lublin:200:16"),),
    ...     contenders_of("fcfs,sjf", "easy"),
    ...     WindowOptions(windows=2, window_jobs=50),
    ... )
    >>> contest = run(prepare(plan))[0]
    >>> contest.labels, contest.values("mean_wait_s").shape
    (('fcfs', 'sjf'), (2, 2))
    """
    many = workers_for(ready.cases, ready.policies) if workers is None else workers
    if many < 1:
        raise InputError(f"{many} processes; there must be at least 1")
    logs = run_cells(ready.cases, ready.policies, workers=many, store=store, progress=progress)
    return [
        comparison_of(
            number,
            case,
            ready.policies,
            logs,
            ledger=None if workload.ledger is None else workload.ledger.to_dict(),
            notes=notes,
        )
        for number, (case, workload, notes) in enumerate(
            zip(ready.cases, ready.workloads, ready.notes, strict=True)
        )
    ]


def gpu_means(ready: PreparedComparison, contests: Sequence[Comparison]) -> list[dict[str, dict[str, float]]]:
    """Of each contest of placed nodes: by contender the GPU metrics of its windows, on average."""
    return [
        gpu_table(contest, case.cluster, case.speeds, case.meter)
        for case, contest in zip(ready.cases, contests, strict=True)
    ]


def save(
    out: Path,
    ready: PreparedComparison,
    contests: Sequence[Comparison],
    results: Mapping[str, Any],
    store: FolderCellCache,
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
            case.trace: workload.sha256 for case, workload in zip(ready.cases, ready.workloads, strict=True)
        },
    }
    predictors = {
        case.trace: [one.to_dict() for one in workload.predictors]
        for case, workload in zip(ready.cases, ready.workloads, strict=True)
        if workload.predictors
    }
    if predictors:
        manifest["predictors"] = predictors
    cells = [store.key(cell) for cell in all_cells(ready.cases, ready.policies)]
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
