"""`evaluate`: an agent against policies on the last jobs of a log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kilowait.cluster import Cluster
from kilowait.engine.gpu.settings import GpuSettings
from kilowait.engine.settings import Settings
from kilowait.errors import InputError
from kilowait.evaluation.comparison import Comparison, cut_windows
from kilowait.experiments.compare import compare
from kilowait.experiments.power import PowerSettings
from kilowait.jobs import JobTable
from kilowait.policies.registry import AnyPolicy, as_policy

__all__ = ["evaluate"]

POLICIES = ("fcfs", "sjf", "saf", "f1", "f2", "f3", "f4", "wfp3", "unicef")
"""Policies that an agent is compared with by default."""
GPU_POLICIES = ("fcfs", "sjf", "srtf", "las")
"""The same on GPU clusters."""
TEST_FRACTION = 0.2
"""Share of the jobs, the last ones, that no training of `kilowait.train` uses."""


def evaluate(
    agent: AnyPolicy,
    jobs: JobTable,
    cluster: Cluster,
    policies: Sequence[AnyPolicy] | None = None,
    *,
    windows: int = 60,
    window_jobs: int = 1024,
    test_fraction: float = TEST_FRACTION,
    seed: int = 0,
    settings: Settings | GpuSettings | None = None,
    power: PowerSettings | str | None = None,
    power_controls: str | None = None,
    progress: Callable[[str], None] | None = None,
    **changes: Any,
) -> Comparison:
    """Compare an agent with policies on windows of the last jobs of a log.

    The last `test_fraction` of the jobs must be later than those the agent was trained on; the default is the part that
    `kilowait.train` does not use.

    Args:
        agent: the agent, or any other policy; "agent:runs/x" reads one from its folder.
        jobs: the log.
        cluster: the machine.
        policies: policies to compare with; None: `POLICIES`, on GPU clusters `GPU_POLICIES`.
        windows: windows, at random positions in the test jobs.
        window_jobs: jobs of each window.
        test_fraction: share of the jobs, from the end of the log, that are test jobs; 0 to 1.
        seed: seed of the positions of the windows.
        settings: settings of the runs, as in `kilowait.simulate`.
        power: power settings, or the name of a power model, of the energy accounting; agents that use power controls
            need one.
        power_controls: the power controls that such an agent may use; None: those of its training. Policies are
            compared without and with them.
        progress: is called with the label of a policy when its first run ends.
        changes: single settings by name, as in `kilowait.simulate`.

    >>> import kilowait as kw
    >>> log, machine = kw.lublin(600, nodes=16, load=0.9, seed=1), Cluster.from_nodes(16)
    >>> result = evaluate("saf", log, machine, ["fcfs"], windows=2, window_jobs=50)
    >>> result.labels, int(result.windows.first.min()) >= 480
    (('fcfs', 'agent'), True)
    """
    if not 0 < test_fraction <= 1:
        raise InputError(f"test_fraction is {test_fraction}; it must be above 0 and at most 1, such as 0.2")
    count = len(jobs)
    test_windows = cut_windows(
        jobs, windows, window_jobs=window_jobs, seed=seed, within=(int(count * (1 - test_fraction)), count)
    )
    if policies is None:
        policies = GPU_POLICIES if cluster.node_level else POLICIES
    names: dict[str, AnyPolicy] = {
        policy if isinstance(policy, str) else as_policy(policy).name: policy for policy in policies
    }
    if power_controls is None:
        power_controls = getattr(agent, "power_controls", "none")
    return compare(
        test_windows,
        cluster,
        {**names, "agent": agent},
        settings=settings,
        power=power,
        power_controls=tuple(dict.fromkeys(("none", power_controls))),
        progress=progress,
        **changes,
    )
