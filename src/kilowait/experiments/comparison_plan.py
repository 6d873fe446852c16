"""Comparisons of scenarios and policies: plan, preparation, runs and storage, for the command line."""

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
from kilowait.experiments.energy_results import default_control_sets
from kilowait.experiments.gpu_options import check_placement_on
from kilowait.experiments.gpu_power_cap import check_controls_supported
from kilowait.experiments.gpu_results import gpu_metrics_by_policy
from kilowait.experiments.policy_configs import make_policy_configs, policy_and_placement
from kilowait.experiments.power import ENERGY_METRICS, check_metric_available, make_power_context
from kilowait.experiments.power_context import PowerContext
from kilowait.experiments.run_matrix import Cell, ComparisonCase, all_cells, default_workers, run_cells
from kilowait.experiments.scenario import Scenario, check_has_power_model, prepare_scenario
from kilowait.experiments.scenario_inputs import Workload
from kilowait.experiments.window_options import WindowOptions
from kilowait.jobs import JobTable

__all__ = ["ComparisonPlan", "gpu_tables", "prepare", "prepare_control_comparison", "run", "save", "default_metric"]


def default_metric(node_level: bool) -> str:
    """The default metric: mean bounded slowdown; on GPU clusters, where speeds differ, mean turnaround time."""
    return "mean_turnaround_s" if node_level else "mean_bsld"


@dataclass(frozen=True)
class ComparisonPlan:
    """Scenarios, policies, windows and metric of a comparison."""

    scenarios: tuple[Scenario, ...]
    policies: tuple[PolicyConfig, ...]
    window_options: WindowOptions = field(default_factory=WindowOptions)
    metric: str = "mean_bsld"

    def __post_init__(self) -> None:
        if self.metric not in METRIC_DIRECTION:
            raise UnknownNameError("metric", self.metric, METRIC_DIRECTION)
        for scenario in self.scenarios:
            for config in self.policies:
                check_has_power_model(config.power_controls, scenario.power)
            if self.metric in ENERGY_METRICS:
                check_metric_available(self.metric, scenario.power)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for scenario.toml."""
        return {
            "metric": self.metric,
            "windows": asdict(self.window_options),
            "case": [scenario.to_dict() for scenario in self.scenarios],
            "policy": [asdict(config) for config in self.policies],
        }


@dataclass(frozen=True)
class PreparedComparison:
    """A comparison whose logs are read and whose windows are cut."""

    plan: ComparisonPlan
    cases: tuple[ComparisonCase, ...]
    workloads: tuple[Workload, ...]
    notes: tuple[tuple[str, ...], ...]
    """Notes for the user, for each case."""
    policies: tuple[PolicyConfig, ...]
    """The policies of the plan; without clairvoyant ones if all estimates are equal to the run times."""

    @property
    def cell_count(self) -> int:
        """The number of runs."""
        return len(self.policies) * sum(len(case.windows) for case in self.cases)

    def cell_cache(self, out: Path) -> FolderCellCache:
        """The cache of finished cells for a comparison that is written to `out`."""
        return FolderCellCache(out, self.cases, self.policies)


def prepare(plan: ComparisonPlan, progress: Callable[[Any], None] | None = None) -> PreparedComparison:
    """Read every log and cut its windows; `progress` is called after every fit of a predictor."""
    prepared = [prepare_scenario(scenario, progress) for scenario in plan.scenarios]
    for _, cluster, _ in prepared:
        for config in plan.policies:
            check_controls_supported(config.power_controls, cluster)
            check_placement_on(policy_and_placement(config.policy)[1], cluster)
    cases = tuple(
        ComparisonCase(
            scenario.trace,
            cluster,
            plan.window_options.cut(workload.jobs),
            scenario.simulation_settings,
            _power_context(scenario, workload, cluster),
            scenario.settings_dict,
            scenario.gpu.gpu_speeds,
        )
        for scenario, (workload, cluster, _) in zip(plan.scenarios, prepared, strict=True)
    )
    workloads = tuple(
        workload.evaluated_from(int(case.windows.first.min()))
        for (workload, _, _), case in zip(prepared, cases, strict=True)
    )
    exact = all(_has_perfect_estimates(workload.jobs) for workload in workloads)
    node_level = all(cluster.node_level for _, cluster, _ in prepared)
    policies = tuple(
        replace(config, node_level=node_level)
        for config in plan.policies
        if not (exact and config.kind == "clairvoyant")
    )
    notes = tuple(
        (*scenario_notes, *workload.leakage_notes)
        for (_, _, scenario_notes), workload in zip(prepared, workloads, strict=True)
    )
    return PreparedComparison(plan, cases, workloads, notes, policies)


def _has_perfect_estimates(jobs: JobTable) -> bool:
    """Whether the estimates, for priorities and for reservations, are equal to the run times."""
    return np.array_equal(jobs["estimate_s"], jobs["runtime_s"]) and "planned_s" not in jobs


def prepare_control_comparison(
    scenario: Scenario, policy: str, backfill: str, power_controls: str | Sequence[str] | None = None
) -> PreparedComparison:
    """Prepare one policy with several sets of power controls on a full log; default: none, each one, and all."""
    # Names are checked before the trace is read, which may take long.
    make_policy_configs(policy, backfill, power_controls or "none")
    prepared = prepare(ComparisonPlan((scenario,), make_policy_configs(policy, backfill, clairvoyant=False)))
    context = prepared.cases[0].power_context
    if context is None:
        raise InputError("a comparison of power controls needs a power model; name one with --power")
    controls = power_controls or default_control_sets(context)
    configs = make_policy_configs(policy, backfill, controls, clairvoyant=False)
    for config in configs:
        check_controls_supported(config.power_controls, context.cluster)
    policies = tuple(replace(config, node_level=context.cluster.node_level) for config in configs)
    return replace(prepared, plan=replace(prepared.plan, policies=configs), policies=policies)


def _power_context(scenario: Scenario, workload: Workload, cluster: Cluster) -> PowerContext | None:
    return None if scenario.power is None else make_power_context(scenario.power, workload.jobs, cluster)


def run(
    prepared: PreparedComparison,
    *,
    workers: int | None = None,
    cache: FolderCellCache | None = None,
    progress: Callable[[Cell, bool], None] | None = None,
) -> list[Comparison]:
    """Run every policy in every window of every log, and return one comparison for each log.

    >>> plan = ComparisonPlan(
    ...     (Scenario("lublin:200:16"),),
    ...     make_policy_configs("fcfs,sjf", "easy"),
    ...     WindowOptions(windows=2, window_jobs=50),
    ... )
    >>> comparison = run(prepare(plan))[0]
    >>> comparison.labels, comparison.values("mean_wait_s").shape
    (('fcfs', 'sjf'), (2, 2))
    """
    if workers is None:
        workers = default_workers(prepared.cases, prepared.policies)
    if workers < 1:
        raise InputError(f"the number of processes is {workers}; it must be at least 1")
    logs = run_cells(prepared.cases, prepared.policies, workers=workers, cache=cache, progress=progress)
    return [
        comparison_of(
            number,
            case,
            prepared.policies,
            logs,
            cleaning_report=None if workload.cleaning_report is None else workload.cleaning_report.to_dict(),
            notes=notes,
        )
        for number, (case, workload, notes) in enumerate(
            zip(prepared.cases, prepared.workloads, prepared.notes, strict=True)
        )
    ]


def gpu_tables(prepared: PreparedComparison, comparisons: Sequence[Comparison]) -> list[dict[str, dict[str, float]]]:
    """For each comparison on a GPU cluster: the GPU metrics of every policy, means over the windows."""
    return [
        gpu_metrics_by_policy(comparison, case.cluster, case.gpu_speeds, case.power_context)
        for case, comparison in zip(prepared.cases, comparisons, strict=True)
    ]


def save(
    out: Path,
    prepared: PreparedComparison,
    comparisons: Sequence[Comparison],
    results: Mapping[str, Any],
    cache: FolderCellCache,
    *,
    command: Sequence[str],
    date: str,
    force: bool = False,
) -> Path:
    """Write the comparison's folder, and remove the cache of finished cells."""
    manifest = {
        "command": list(command),
        "date": date,
        "seeds": {
            "comparison": prepared.plan.window_options.seed,
            "workloads": [workload.jobs.meta.get("seed") for workload in prepared.workloads],
        },
        "inputs": {
            case.trace: workload.sha256 for case, workload in zip(prepared.cases, prepared.workloads, strict=True)
        },
    }
    predictors = {
        case.trace: [predictor.to_dict() for predictor in workload.predictors]
        for case, workload in zip(prepared.cases, prepared.workloads, strict=True)
        if workload.predictors
    }
    if predictors:
        manifest["predictors"] = predictors
    cells = [cache.key(cell) for cell in all_cells(prepared.cases, prepared.policies)]
    folder = save_comparison(
        out, comparisons, scenario=prepared.plan.to_dict(), results=results, manifest=manifest, cells=cells, force=force
    )
    cache.clear()
    return folder
