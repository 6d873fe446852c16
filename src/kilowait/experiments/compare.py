"""`compare`: several policies on the same windows of a log, with the statistics of their differences."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kilowait.cluster import Cluster
from kilowait.cluster.toml import to_dict
from kilowait.engine.gpu.settings import GpuSettings
from kilowait.engine.interface import PriorityPolicy
from kilowait.engine.policy import Policy
from kilowait.engine.settings import Settings
from kilowait.errors import InputError
from kilowait.evaluation.comparison import Comparison, PolicyConfig, Windows, cut_windows, single_window
from kilowait.experiments.energy_results import compute_energy_results
from kilowait.experiments.gpu_options import default_backfill
from kilowait.experiments.gpu_power_cap import check_controls_supported, check_power_controls
from kilowait.experiments.policy_names import AGENT_PREFIX, resolve_policy
from kilowait.experiments.power import PowerSettings, make_power_context, with_power
from kilowait.experiments.run_matrix import Cell, ComparisonCase, run_cells
from kilowait.experiments.train_power import PowerAgent
from kilowait.jobs import ExecutionLog, JobTable
from kilowait.policies.registry import AnyPolicy, as_policy

__all__ = ["compare", "comparison_of"]


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
        backfill: as in `kilowait.simulate`; None: easy, on GPU clusters none.
        settings: all settings of the runs, as in `kilowait.simulate`.
        power: power settings, or the name of a power model, for energy, CO2 and cost; None: no energy accounting.
        power_controls: sets of power controls ("sleep=break-even+dvfs=1.1"); every policy runs with each of them.
        clairvoyant: run every priority policy that does not predict once more with perfect estimates.
        trace: name of the log in tables.
        progress: is called with the label of a policy when its first run ends.
        changes: single settings by name, as in `kilowait.simulate`.

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
    if backfill is None:
        backfill = default_backfill(cluster.node_level) if settings is None else _backfill(settings)
    context = None
    if power is not None:
        settings_of_power = PowerSettings(power) if isinstance(power, str) else power
        powered, _ = with_power(settings_of_power, cut.jobs)
        cut = replace(cut, jobs=powered)
        context = make_power_context(settings_of_power, powered, cluster)
    named = dict(policies) if isinstance(policies, Mapping) else {_name(policy): policy for policy in policies}
    resolved = {name: _policy(policy) for name, policy in named.items()}
    for text in power_controls:
        check_power_controls(text)
        check_controls_supported(text, cluster)
        if text != "none" and context is None:
            raise InputError(f"power controls {text!r} need a power model; give power, such as power='taurus'")
    pairs = [
        (PolicyConfig(name, backfill, _kind(named[name]), power_controls=text), policy)
        for name, policy in resolved.items()
        for text in power_controls
        # An agent that sets power controls is not run without them.
        if text != "none" or not isinstance(policy, PowerAgent) or tuple(power_controls) == ("none",)
    ]
    if clairvoyant:
        pairs += [
            (PolicyConfig(config.policy, backfill, "clairvoyant"), policy)
            for config, policy in pairs
            if config.kind == "rule"
            and config.power_controls == "none"
            and not (isinstance(policy, PriorityPolicy) and policy.predicts)
        ]
    configs = tuple(config for config, _ in pairs)
    case = ComparisonCase(
        trace, cluster, cut, {**changes, **({} if settings is None else {"settings": settings})}, context
    )
    started: set[int] = set()

    def report(cell: Cell, ran: bool) -> None:
        if progress is not None and cell[1] not in started:
            started.add(cell[1])
            progress(configs[cell[1]].label)

    logs = run_cells((case,), configs, workers=1, policies=[policy for _, policy in pairs], progress=report)
    return comparison_of(0, case, configs, logs)


def comparison_of(
    number: int,
    case: ComparisonCase,
    configs: tuple[PolicyConfig, ...],
    logs: Mapping[Cell, ExecutionLog],
    *,
    cleaning_report: Mapping[str, Any] | None = None,
    notes: Sequence[str] = (),
) -> Comparison:
    """The comparison of one case (number `number` of the run matrix) from its logs."""
    of_case = _Logs(logs, number)
    return Comparison(
        trace=case.trace,
        nodes=case.cluster.nodes,
        windows=case.windows,
        policies=configs,
        logs=of_case,
        cleaning_report=cleaning_report,
        cluster=to_dict(case.cluster),
        notes=notes,
        energy=None
        if case.power_context is None
        else compute_energy_results(case.power_context, case.windows, configs, of_case, case.gpu_speeds),
    )


@dataclass(frozen=True)
class _Logs:
    """The logs of one case, by the indices of policy and window."""

    logs: Mapping[Cell, ExecutionLog]
    case: int

    def __call__(self, policy: int, window: int) -> ExecutionLog:
        return self.logs[self.case, policy, window]


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
