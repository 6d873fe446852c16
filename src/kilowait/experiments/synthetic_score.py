"""Score of a synthetic workload: fidelity, privacy, and simulations of the real and the synthetic workload.

Metrics are computed by `synth` and `evaluation`. The report page also gets counts and curves, but not the logs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from kilowait.cluster import Cluster
from kilowait.evaluation.run_similarity import (
    RunSimilarity,
    compare_runs,
    run_distributions,
    series_of_run,
    share_curves,
)
from kilowait.evaluation.storage import results_writer, save_folder
from kilowait.experiments.scenario_inputs import cluster_load, resolve_cluster
from kilowait.jobs import JobTable
from kilowait.policies import simulate
from kilowait.synth.fidelity import Fidelity, fidelity
from kilowait.synth.fidelity.distances import column_shares, empirical_distributions
from kilowait.synth.fidelity.workload_statistics import (
    LAGS_H,
    autocorrelation,
    band_edges_h,
    calendar_correlation,
    has_users,
    profile,
    spectrum,
    user_distributions,
)
from kilowait.synth.log_schema import DAY_S, WEEK_S
from kilowait.synth.privacy_metrics import (
    Anonymity,
    PrivacyMetrics,
    RecordDistances,
    anonymity,
    anonymity_by_k,
    privacy_metrics,
    record_distances,
    roc,
)
from kilowait.synth.sampler import SampleProgress

POLICIES = ("fcfs", "sjf")
OPTIONAL_COLUMNS = ("user", "account", "queue", "status", "gpus", "energy_j")
"""Optional columns of a log, whose absence is reported."""


@dataclass(frozen=True)
class PolicyWait:
    """Mean waits of both workloads under one policy with EASY backfilling, seconds."""

    policy: str
    real_s: float
    synthetic_s: float

    @property
    def ratio(self) -> float:
        """Synthetic divided by real."""
        return self.synthetic_s / self.real_s if self.real_s > 0 else float("nan")


@dataclass(frozen=True)
class PolicyOutcome:
    """Simulation results of both workloads under one policy with EASY backfilling."""

    policy: str
    measures: tuple[RunSimilarity, ...]

    def measure(self, name: str) -> RunSimilarity | None:
        """A metric by name; None if one of the two runs has no value."""
        return next((measure for measure in self.measures if measure.name == name), None)

    def document(self) -> dict[str, Any]:
        """As plain data."""
        rows = [{**asdict(measure), "ratio": measure.ratio, "near": measure.near} for measure in self.measures]
        return {"policy": self.policy, "measures": rows}


@dataclass(frozen=True)
class SyntheticScore:
    """Fidelity, privacy and simulation results of a synthetic workload."""

    jobs: tuple[int, int]
    """Number of real and of synthetic jobs."""
    spans_s: tuple[float, float]
    """Time from the first submission to the last, of both workloads."""
    loads: tuple[float, float]
    fidelity: Fidelity
    outcomes: tuple[PolicyOutcome, ...]
    anonymity: tuple[Anonymity, Anonymity] | None
    """None if one of the two workloads has no users."""
    privacy: PrivacyMetrics | None
    """None without held-out jobs."""
    calendar: float | None = None
    """Correlation of the submission hours with the real log (see `calendar_correlation`); None if undefined."""
    missing_columns: Mapping[str, str] = field(default_factory=dict)
    """Columns that were not compared, and where they are missing: in both, real or synthetic."""
    curves: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Additional plain data for the report page."""

    @property
    def waits(self) -> tuple[PolicyWait, ...]:
        """Mean waits by policy; only policies under which jobs of both workloads started."""
        waits = [(outcome.policy, outcome.measure("wait_s")) for outcome in self.outcomes]
        return tuple(
            PolicyWait(policy, measure.real, measure.synthetic) for policy, measure in waits if measure is not None
        )

    def document(self) -> dict[str, Any]:
        """All numbers as plain data; the curves are left out."""
        numbers = {name: value for name, value in asdict(self).items() if name != "curves"}
        exceeded = {} if self.privacy is None else {"exceeded_limits": list(self.privacy.exceeded)}
        return {
            **numbers,
            "outcomes": [outcome.document() for outcome in self.outcomes],
            "waits": [{**asdict(wait), "ratio": wait.ratio} for wait in self.waits],
            "worst_ks": asdict(self.fidelity.worst_ks),
            "worst_pair": asdict(self.fidelity.worst_pair),
            **exceeded,
        }


def score_synthetic(
    real: JobTable,
    synthetic: JobTable,
    *,
    held_out: JobTable | None = None,
    cluster: str = "auto",
    policies: Sequence[str] = POLICIES,
    seed: int = 0,
    progress: SampleProgress | None = None,
) -> SyntheticScore:
    """Compare generated jobs with real ones.

    Args:
        real: the generator's training log.
        synthetic: generated jobs.
        held_out: real jobs that the generator was not fitted to, for privacy metrics.
        cluster: machine of both simulations; auto: the machine of the real log.
        policies: policies to simulate, each with EASY backfilling.
        seed: of the classifier and of subsampling.
        progress: progress callback.
    """
    report = progress or (lambda what, share: None)
    real, synthetic = real.sorted(), synthetic.sorted()
    machine, _ = resolve_cluster(cluster, real)
    real, synthetic = machine.sized(real), machine.sized(synthetic)
    steps = 2 + len(policies)
    report("comparing columns", 0.0)
    fidelity_result = fidelity(real, synthetic, seed=seed)
    report("computing privacy metrics", 1 / steps)
    distances = None if held_out is None else record_distances(synthetic, real, held_out, seed=seed)
    outcomes, curves_by_policy = [], []
    for number, policy in enumerate(policies):
        report(f"simulating {policy}", (2 + number) / steps)
        outcome, curves = _simulated(real, synthetic, machine, policy)
        outcomes.append(outcome)
        curves_by_policy.append(curves)
    return SyntheticScore(
        (len(real), len(synthetic)),
        (float(np.ptp(real["submit_s"])), float(np.ptp(synthetic["submit_s"]))),
        (cluster_load(real, machine), cluster_load(synthetic, machine)),
        fidelity_result,
        tuple(outcomes),
        (anonymity(real), anonymity(synthetic)) if _users_known(real, synthetic) else None,
        None if held_out is None else privacy_metrics(synthetic, real, held_out, seed=seed, close=distances),
        calendar_correlation(real, synthetic),
        _missing_columns(real, synthetic),
        {**_curves(real, synthetic), "outcomes": curves_by_policy, **_distance_curves(distances)},
    )


def save_score(
    path: str | PathLike[str],
    score: SyntheticScore,
    *,
    scenario: Mapping[str, Any],
    manifest: Mapping[str, Any],
    force: bool = False,
) -> Path:
    """Write scenario.toml and results.json into a new folder, of kind synthetic.

    The scenario contains the files: `real`, `synthetic` and, if given, `held_out`.
    """
    names = {name: scenario.get(name) for name in ("real", "synthetic", "held_out")}
    results = {**names, **score.document(), "curves": score.curves}
    fill = results_writer(scenario, {"synthetic": results})
    return save_folder(path, fill, kind="synthetic", manifest=manifest, force=force)


def _simulated(
    real: JobTable, synthetic: JobTable, machine: Cluster, policy: str
) -> tuple[PolicyOutcome, dict[str, Any]]:
    """Results and curves of both workloads on one machine under one policy with EASY backfilling."""
    logs = [simulate(jobs, machine, policy=policy, backfill="easy", on_oversized="drop") for jobs in (real, synthetic)]
    numbers = [run_distributions(log) for log in logs]
    series = {side: asdict(series_of_run(log)) for side, log in zip(("real", "synthetic"), logs, strict=True)}
    curves = {name: asdict(curve) for name, curve in share_curves(*numbers).items()}
    return PolicyOutcome(policy, compare_runs(*numbers)), {"policy": policy, "shares": curves, "series": series}


def _curves(real: JobTable, synthetic: JobTable) -> dict[str, Any]:
    """Curves that need no simulation."""
    hours = int(min(np.ptp(real["submit_s"]), np.ptp(synthetic["submit_s"])) / 3600)
    lags = min(LAGS_H, hours // 2)  # longer lags have too few pairs
    dated = real.meta.get("unix_start_s") is not None
    users, anonymous = {}, None
    if _users_known(real, synthetic):
        synthetic_numbers = user_distributions(synthetic)
        users = {
            name: asdict(empirical_distributions(values, synthetic_numbers[name]))
            for name, values in user_distributions(real).items()
            if len(values) and len(synthetic_numbers[name])
        }
        anonymous = {"real": anonymity_by_k(real), "synthetic": anonymity_by_k(synthetic)}
    return {
        "columns": {name: asdict(curve) for name, curve in column_shares(real, synthetic).items()},
        "users": users,
        "anonymity": anonymous,
        "autocorrelation": _both(lambda jobs: autocorrelation(jobs, lags), real, synthetic),
        "spectrum": {"edge_h": band_edges_h(), **_both(spectrum, real, synthetic)},
        "day": _both(lambda jobs: profile(jobs, DAY_S, dated=dated), real, synthetic),
        "week": _both(lambda jobs: profile(jobs, WEEK_S, dated=dated), real, synthetic),
        "dated": dated,
    }


def _both(measure: Callable[[JobTable], Any], real: JobTable, synthetic: JobTable) -> dict[str, Any]:
    return {"real": measure(real), "synthetic": measure(synthetic)}


def _distance_curves(distances: RecordDistances | None) -> dict[str, Any]:
    if distances is None:
        return {"closest": None, "membership": None}
    return {
        "closest": distances.shares(),
        "membership": asdict(roc(distances.seen_to_synthetic, distances.held_out_to_synthetic)),
    }


def _users_known(real: JobTable, synthetic: JobTable) -> bool:
    return has_users(real) and has_users(synthetic)


def _missing_columns(real: JobTable, synthetic: JobTable) -> dict[str, str]:
    """The columns that are missing in a log, and in which: both, real or synthetic."""
    missing_in = {(False, False): "both", (False, True): "real", (True, False): "synthetic"}
    return {
        name: missing_in[name in real, name in synthetic]
        for name in OPTIONAL_COLUMNS
        if not (name in real and name in synthetic)
    }
