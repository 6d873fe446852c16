"""`compare`: contenders side by side from Python, rules of one's own and agents among them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kilowait.cluster import Cluster
from kilowait.cluster.toml import to_dict
from kilowait.engine.interface import PriorityPolicy
from kilowait.evaluation.comparison import (
    Comparison,
    PolicyConfig,
    Windows,
    single_window,
)
from kilowait.experiments.gpu_settings import usual_backfill
from kilowait.experiments.run_matrix import run_cell
from kilowait.experiments.scenario import resolve_policy
from kilowait.jobs import ExecutionLog, JobTable
from kilowait.policies import resolve
from kilowait.policies.registry import HasRule, RunPolicy
from kilowait.policies.round_based import StepPolicy

__all__ = ["compare"]


def compare(
    jobs: JobTable | Windows,
    cluster: Cluster,
    policies: Sequence[str | PriorityPolicy | HasRule | RunPolicy]
    | Mapping[str, str | PriorityPolicy | HasRule | RunPolicy],
    *,
    backfill: str | int | None = None,
    clairvoyant: bool = False,
    trace: str = "jobs",
    progress: Callable[[str], None] | None = None,
    **rules: Any,
) -> Comparison:
    """Run several policies on the same jobs, or on the same windows of a log (`kilowait.cut_windows`).

    The contest that comes back has the metrics of every contender in every window (`table`, `values`), says who is
    better (`judge`), and holds all logs (`logs`).

    Args:
        jobs: a log, or windows cut from one.
        cluster: the machine.
        policies: names, rules or agents; a mapping gives them names of its own.
        backfill: as in `kilowait.simulate`, which also takes `rules`; by default easy, on placed nodes none.
        clairvoyant: run every named rule that does not predict once more with perfect estimates.
        trace: what to call the log.
        progress: hears who is about to run.

    >>> import kilowait as kw
    >>> log = kw.lublin(400, 16, load=0.9, seed=1)
    >>> cut = kw.cut_windows(log, 4, window_jobs=100, seed=0)
    >>> contest = compare(cut, Cluster.from_nodes(16), ["fcfs", "sjf"])
    >>> contest.labels, contest.values("mean_bsld").shape
    (('fcfs', 'sjf'), (2, 4))
    """
    if backfill is None:
        backfill = usual_backfill(cluster.node_level)
    cut = jobs if isinstance(jobs, Windows) else single_window(jobs)
    named = (
        dict(policies) if isinstance(policies, Mapping) else {_name(policy): policy for policy in policies}
    )
    who = [
        (
            PolicyConfig(name, backfill, "rule" if isinstance(policy, str | PriorityPolicy) else "agent"),
            _rule(policy),
        )
        for name, policy in named.items()
    ]
    if clairvoyant:
        who += [
            (PolicyConfig(c.policy, c.backfill, "clairvoyant"), rule)
            for c, rule in who
            if c.kind == "rule" and not (isinstance(rule, PriorityPolicy) and rule.predicts)
        ]
    logs: list[list[ExecutionLog]] = []
    for contender, rule in who:
        if progress is not None:
            progress(contender.label)
        logs.append([run_cell(window.jobs, cluster, contender, rule, rules) for window in cut])
    return Comparison(
        trace=trace,
        nodes=cluster.nodes,
        windows=cut,
        contenders=tuple(contender for contender, _ in who),
        logs=lambda contender, window: logs[contender][window],
        cluster=to_dict(cluster),
    )


def _name(policy: str | PriorityPolicy | HasRule | RunPolicy) -> str:
    if isinstance(policy, str | RunPolicy):
        return policy if isinstance(policy, str) else policy.name
    return resolve(policy).name


def _rule(policy: str | PriorityPolicy | HasRule | RunPolicy) -> PriorityPolicy | StepPolicy | RunPolicy:
    if isinstance(policy, RunPolicy):
        return policy
    return resolve_policy(policy) if isinstance(policy, str) else resolve(policy)
