"""Comparisons of policies on the same windows of logs: `compare` for Python, prepared plans for the command line."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from kilowait.cluster import Cluster
from kilowait.cluster.toml import to_dict
from kilowait.engine.gpu.settings import GpuSettings
from kilowait.engine.interface import PriorityPolicy
from kilowait.engine.policy import Policy
from kilowait.engine.settings import Settings
from kilowait.errors import InputError, NoProgressError
from kilowait.evaluation.comparison import Comparison, PolicyConfig, Windows, cut_windows, single_window
from kilowait.evaluation.storage import save_comparison
from kilowait.experiments.comparison.freedom import freedom_note, shared_freedom
from kilowait.experiments.comparison.plan import ComparisonPlan
from kilowait.experiments.comparison.results import (
    compute_energy_results,
    default_control_sets,
    gpu_metrics_by_policy,
    summarize_comparison,
)
from kilowait.experiments.comparison.run_matrix import (
    Cell,
    ComparisonCase,
    FolderCellCache,
    all_cells,
    default_workers,
    run_cells,
)
from kilowait.experiments.oversized import jobs_that_fit, oversized_note
from kilowait.experiments.policies import (
    AGENT_PREFIX,
    combine_policies,
    make_policy_configs,
    policy_and_placement,
    policy_notes,
    resolve_policy,
)
from kilowait.experiments.power import make_power_context, with_power
from kilowait.experiments.power_controls import check_controls_supported, check_power_controls
from kilowait.experiments.scenario import Console, prepare_scenario
from kilowait.experiments.scenario_inputs import Workload
from kilowait.experiments.settings import GpuOptions, PowerSettings, Scenario, check_placement_on, default_backfill
from kilowait.jobs import ExecutionLog, JobTable
from kilowait.policies.registry import AnyPolicy, as_policy


def compare(
    jobs: JobTable | Windows,
    cluster: Cluster,
    policies: Sequence[AnyPolicy] | Mapping[str, AnyPolicy],
    *,
    windows: int | None = None,
    window_jobs: int = 1024,
    seed: int = 0,
    backfill: str | int | None = None,
    settings: Settings | GpuSettings | None = None,
    power: PowerSettings | str | None = None,
    power_controls: Sequence[str] = ("none",),
    clairvoyant: bool = False,
    trace: str = "jobs",
    progress: Callable[[str], None] | None = None,
    **changes: Any,
) -> Comparison:
    """Run several policies on the same jobs, or on the same windows of a log, and compare them.

    The result has the metrics of every policy in every window (`table`, `values`, `to_pandas`), the significance of
    differences (`significance`), and all logs (`logs`).

    Args:
        jobs: a log, or windows cut from one (`kilowait.cut_windows`).
        cluster: nodes, groups and queues (`kilowait.Cluster`).
        policies: names ("sjf", "agent:runs/x"), functions or objects as in `kilowait.simulate`; a mapping names them.
        windows: windows to cut from the log; None: one window, the full log.
        window_jobs: jobs of each window.
        seed: seed of the random positions of the windows.
        backfill: as in `kilowait.simulate`; None: easy, on GPU clusters none, or skip if a contender skips jobs.
        settings: all settings of the runs, as in `kilowait.simulate`.
        power: power settings, or the name of a power model, for energy, CO2 and cost; None: no energy accounting.
        power_controls: sets of power controls ("sleep=break-even+dvfs=1.1"); every policy runs with each of them.
        clairvoyant: run every priority policy that does not predict once more with perfect estimates.
        trace: name of the log in tables.
        progress: is called with the label of a policy when its first run ends.
        changes: single settings by name, as in `kilowait.simulate`.

    On GPU clusters every priority policy may preempt, migrate and try the fastest GPU types first if any contender may,
    unless `settings`, a single setting or the policy's own name ("srtf:preempt=0") says otherwise.

    >>> import kilowait as kw
    >>> log = kw.lublin(400, 16, load=0.9, seed=1)
    >>> result = compare(log, Cluster.from_nodes(16), ["fcfs", "sjf"], windows=4, window_jobs=100)
    >>> result.labels, result.values("mean_bsld").shape
    (('fcfs', 'sjf'), (2, 4))
    """
    if isinstance(jobs, Windows):
        cut = jobs
    else:
        cut = single_window(jobs) if windows is None else cut_windows(jobs, windows, window_jobs=window_jobs, seed=seed)
    named = dict(policies) if isinstance(policies, Mapping) else {_name(policy): policy for policy in policies}
    resolved = {name: _policy(policy) for name, policy in named.items()}
    shares = cluster.node_level and settings is None
    freedom, skip = shared_freedom(resolved.values()) if shares else ({}, False)
    if backfill is None:
        backfill = default_backfill(cluster.node_level, skip) if settings is None else _backfill(settings)
    context = None
    if power is not None:
        settings_of_power = PowerSettings(power) if isinstance(power, str) else power
        powered, _ = with_power(settings_of_power, cut.jobs)
        cut = replace(cut, jobs=powered)
        context = make_power_context(settings_of_power, powered, cluster)
    _check_control_sets(power_controls, cluster, has_power=context is not None)
    configured = [(PolicyConfig(name, backfill, _kind(policy)), resolved[name]) for name, policy in named.items()]
    pairs = combine_policies(configured, [backfill], power_controls, clairvoyant=clairvoyant)
    configs = tuple(config for config, _ in pairs)
    started: set[int] = set()

    def report(cell: Cell, ran: bool) -> None:
        if progress is not None and cell[1] not in started:
            started.add(cell[1])
            progress(configs[cell[1]].label)

    arguments = {**changes, **({} if settings is None else {"settings": settings})}
    case = ComparisonCase(trace, cluster, Workload(cut.jobs), cut, arguments, context, freedom=freedom)
    return compare_cases((case,), configs, policies=[policy for _, policy in pairs], workers=1, progress=report)[0]


def _check_control_sets(power_controls: Sequence[str], cluster: Cluster, *, has_power: bool) -> None:
    """Raise an error unless these sets of power controls can be used on this cluster."""
    for text in power_controls:
        check_power_controls(text)
        check_controls_supported(text, cluster)
        if text != "none" and not has_power:
            raise InputError(f"power controls {text!r} need a power model; give power, such as power='taurus'")


def compare_cases(
    cases: Sequence[ComparisonCase],
    configs: tuple[PolicyConfig, ...],
    *,
    policies: Sequence[Policy] | None = None,
    workers: int | None = None,
    cache: FolderCellCache | None = None,
    progress: Callable[[Cell, bool], None] | None = None,
    running: Callable[[float], None] | None = None,
) -> list[Comparison]:
    """Run every policy in every window of every case, and return one comparison for each case.

    Args:
        cases: logs on clusters, cut into windows.
        configs: the policies, with backfilling and power controls.
        policies: the policy objects of `configs`, for one process; None: every process resolves them by name.
        workers: number of processes; None: as many as the jobs justify.
        cache: finished cells are read from it and written to it.
        progress: is called with every finished cell, and whether it was run.
        running: is called during the runs with the unfinished work that is done, in runs; see `run_cells`.
    """
    if workers is None:
        workers = default_workers(cases, configs)
    if workers < 1:
        raise InputError(f"the number of processes is {workers}; it must be at least 1")
    logs, errors = run_cells(
        cases, configs, workers=workers, cache=cache, progress=progress, running=running, policies=policies
    )
    if len(errors) == len(configs):
        raise NoProgressError(errors[0])
    node_level = all(case.cluster.node_level for case in cases)
    failed = {replace(configs[number], node_level=node_level).label: error for number, error in sorted(errors.items())}
    kept = tuple(number for number in range(len(configs)) if number not in errors)
    configs = tuple(configs[number] for number in kept)
    comparisons = []
    for number, case in enumerate(cases):
        of_case, energy = _Logs(logs, number, kept), None
        if case.power_context is not None:
            energy = compute_energy_results(case.power_context, case.windows, configs, of_case, case.gpu_speeds)
        report = case.workload.cleaning_report
        comparisons.append(
            Comparison(
                trace=case.trace,
                size=case.cluster.size,
                windows=case.windows,
                policies=configs,
                logs=of_case,
                cleaning_report=None if report is None else report.to_dict(),
                cluster=to_dict(case.cluster),
                notes=(*case.notes, *(f"{label} has no results: {error}" for label, error in failed.items())),
                energy=energy,
                failed=failed,
            )
        )
    return comparisons


@dataclass(frozen=True)
class _Logs:
    """The logs of one case, by the indices of policy and window."""

    logs: Mapping[Cell, ExecutionLog]
    case: int
    kept: Sequence[int]
    """Numbers of the policies that have results."""

    def __call__(self, policy: int, window: int) -> ExecutionLog:
        return self.logs[self.case, self.kept[policy], window]


def _name(policy: AnyPolicy) -> str:
    return policy if isinstance(policy, str) else as_policy(policy).name


def _backfill(settings: Settings | GpuSettings | None) -> str | int:
    """The backfilling of the settings of a run."""
    if isinstance(settings, GpuSettings):
        return "none" if settings.head_of_line_blocking else "skip"
    return Settings.backfill if settings is None else settings.backfill


def _kind(policy: AnyPolicy) -> str:
    if isinstance(policy, str):
        return "agent" if policy.startswith(AGENT_PREFIX) else "rule"
    return "rule" if isinstance(policy, PriorityPolicy) else "agent"


def _policy(policy: AnyPolicy) -> Policy:
    return resolve_policy(policy) if isinstance(policy, str) else as_policy(policy)


@dataclass(frozen=True)
class PreparedComparison:
    """A comparison whose logs are read and whose windows are cut."""

    plan: ComparisonPlan
    cases: tuple[ComparisonCase, ...]
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
    cases = []
    several = len({scenario.cluster for scenario in plan.scenarios}) > 1
    for scenario in plan.scenarios:
        workload, cluster, notes = prepare_scenario(scenario, progress)
        for config in plan.policies:
            if config.power_controls != "none":
                check_controls_supported(config.power_controls, cluster)
            check_placement_on(policy_and_placement(config.policy)[1], cluster)
        notes += policy_notes((config.policy for config in plan.policies), scenario.placement, workload.jobs, cluster)
        if scenario.on_oversized == "drop":
            notes += tuple(oversized_note(jobs_that_fit(workload.jobs, cluster, "drop", scenario.gpu.gpu_speeds)))
        windows = plan.window_options.cut(workload.jobs)
        workload = workload.evaluated_from(int(windows.first.min()))
        cases.append(
            ComparisonCase(
                f"{scenario.trace} on {cluster.size_text}" if several else scenario.trace,
                cluster,
                workload,
                windows,
                scenario.simulation_settings,
                None if scenario.power is None else make_power_context(scenario.power, workload.jobs, cluster),
                scenario.settings_dict,
                scenario.gpu.gpu_speeds,
                (*notes, *workload.leakage_notes, *_freedom_notes(plan.freedom, scenario.gpu)),
                plan.freedom,
            )
        )
    exact = all(_has_perfect_estimates(case.workload.jobs) for case in cases)
    node_level = all(case.cluster.node_level for case in cases)
    policies = tuple(
        replace(config, node_level=node_level)
        for config in plan.policies
        if not (exact and config.kind == "clairvoyant")
    )
    return PreparedComparison(plan, tuple(cases), policies)


def _freedom_notes(freedom: Mapping[str, Any], options: GpuOptions) -> list[str]:
    """A note on the freedom that the priority policies get and that the options do not set."""
    unset = {name: value for name, value in freedom.items() if getattr(options, name) is None}
    return [freedom_note(unset)] if unset else []


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


def run(
    prepared: PreparedComparison,
    *,
    workers: int | None = None,
    cache: FolderCellCache | None = None,
    progress: Callable[[Cell, bool], None] | None = None,
    running: Callable[[float], None] | None = None,
) -> list[Comparison]:
    """Run every policy in every window of every log, and return one comparison for each log.

    >>> from kilowait.experiments.comparison.plan import WindowOptions
    >>> plan = ComparisonPlan(
    ...     (Scenario("lublin:200:16"),),
    ...     make_policy_configs("fcfs,sjf", "easy"),
    ...     WindowOptions(windows=2, window_jobs=50),
    ... )
    >>> comparison = run(prepare(plan))[0]
    >>> comparison.labels, comparison.values("mean_wait_s").shape
    (('fcfs', 'sjf'), (2, 2))
    """
    return compare_cases(
        prepared.cases, prepared.policies, workers=workers, cache=cache, progress=progress, running=running
    )


def run_and_save(
    prepared: PreparedComparison,
    console: Console,
    *,
    out: Path | None = None,
    force: bool = False,
    workers: int | None = None,
    command: Sequence[str] = (),
    tables: bool = True,
    lines: bool = False,
    csv: bool = False,
) -> tuple[list[Comparison], list[dict[str, Any]]]:
    """Run a comparison with its progress and write its folder; the comparisons, and their results as plain data.

    Finished runs are stored beside the folder until it is written: a repeated command does not run them again. With
    `tables` the results have lower bounds and the metrics of GPU clusters; `lines` shows each run without a terminal;
    with `csv` the folder has the per-job records as CSV too.
    """
    cache = None if out is None else prepared.cell_cache(out)
    if cache is not None:
        cache.check_unused(force=force)
    finished = 0
    with console.steps(prepared.cell_count) as step:

        def finish(cell: Cell, ran: bool) -> None:
            nonlocal finished
            finished += 1
            step(prepared.policies[cell[1]].label, lines, finished)

        try:
            comparisons = run(
                prepared,
                workers=workers,
                cache=cache,
                progress=finish,
                running=lambda work: step("running", False, min(finished + work, prepared.cell_count)),
            )
        except KeyboardInterrupt:
            if cache is not None and cache.folder.exists():
                console.info(f"finished runs are stored in {cache.folder}; repeat the command to resume")
            raise
    if cache is not None and cache.hits:
        console.note(f"{cache.hits:,} of {prepared.cell_count:,} runs were read from the folder and not repeated")
    plan = prepared.plan
    results = [
        summarize_comparison(one, plan.metric, seed=plan.window_options.seed, bounds=tables) for one in comparisons
    ]
    if tables:
        for entry, case, comparison in zip(results, prepared.cases, comparisons, strict=True):
            if case.cluster.node_level:
                entry["gpus"] = gpu_metrics_by_policy(comparison, case.cluster, case.gpu_speeds, case.power_context)
    if out is not None and cache is not None:
        document = {"traces": results}
        date = console.today()
        save(out, prepared, comparisons, document, cache, command=command, date=date, csv=csv, force=force)
    return comparisons, results


def save(
    out: Path,
    prepared: PreparedComparison,
    comparisons: Sequence[Comparison],
    results: Mapping[str, Any],
    cache: FolderCellCache,
    *,
    command: Sequence[str],
    date: str,
    csv: bool = False,
    force: bool = False,
) -> Path:
    """Write the comparison's folder, and remove the cache of finished cells."""
    workloads = {case.trace: case.workload for case in prepared.cases}
    manifest: dict[str, Any] = {
        "command": list(command),
        "date": date,
        "seeds": {
            "comparison": prepared.plan.window_options.seed,
            "workloads": [case.workload.jobs.meta.get("seed") for case in prepared.cases],
        },
        "inputs": {trace: workload.sha256 for trace, workload in workloads.items()},
    }
    predictors = {
        trace: [predictor.to_dict() for predictor in workload.predictors]
        for trace, workload in workloads.items()
        if workload.predictors
    }
    if predictors:
        manifest["predictors"] = predictors
    failed = comparisons[0].failed
    cells = [
        cache.key(cell)
        for cell in all_cells(prepared.cases, prepared.policies)
        if prepared.policies[cell[1]].label not in failed
    ]
    folder = save_comparison(
        out,
        comparisons,
        scenario=prepared.plan.to_dict(),
        results=results,
        manifest=manifest,
        cells=cells,
        csv=csv,
        force=force,
    )
    cache.clear()
    return folder
