"""What each contender of a comparison on a GPU cluster may do besides ordering jobs.

A contender that preempts, migrates, tries the fastest GPU types first or lets jobs overtake blocked ones has an
advantage that has nothing to do with its order of jobs. Therefore all priority policies of a comparison get the freedom
that any contender has (`shared_freedom`), unless the user sets it; the freedom of every run is reported
(`evaluation.comparison.freedom`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from kilowait.engine.interface import PriorityPolicy
from kilowait.engine.policy import Policy
from kilowait.evaluation.comparison.freedom import freedom_of_run
from kilowait.experiments.settings import GpuOptions
from kilowait.policies.simulation import gpu_settings_for

SHARED = ("preempt", "migrate", "gpu_type_order")
"""The settings of `shared_freedom`."""


def freedom_of_policy(policy: Policy) -> tuple[str, ...]:
    """What a policy may do with the settings that it recommends.

    >>> from kilowait.policies import as_policy
    >>> freedom_of_policy(as_policy("srtf")), freedom_of_policy(as_policy("gavel"))
    (('preempt',), ('preempt', 'migrate', 'types', 'skip'))
    """
    return freedom_of_run({**vars(gpu_settings_for(policy)), **dict(getattr(policy, "freedom", ()))})


def shared_freedom(policies: Iterable[Policy]) -> tuple[dict[str, Any], bool]:
    """The settings that give every priority policy the freedom of all, and whether jobs may overtake blocked ones.

    >>> from kilowait.policies import as_policy
    >>> shared_freedom([as_policy("fcfs"), as_policy("srtf")]), shared_freedom([as_policy("fcfs")])
    (({'preempt': True}, False), ({}, False))
    """
    found = {name for policy in policies for name in freedom_of_policy(policy)}
    settings = {"preempt": True, "migrate": True, "gpu_type_order": "fastest"}
    names = {"preempt": "preempt", "migrate": "migrate", "gpu_type_order": "types"}
    return {key: value for key, value in settings.items() if names[key] in found}, "skip" in found


def with_freedom(settings: Mapping[str, Any], policy: Policy, freedom: Mapping[str, Any]) -> Mapping[str, Any]:
    """The settings of a run with the shared freedom, where the user has not set it; agents keep their own settings.

    `settings` are those of a scenario (with `GpuOptions` as "gpu") or arguments of `simulate`.
    """
    if not freedom or not isinstance(policy, PriorityPolicy) or settings.get("settings") is not None:
        return settings
    options = settings.get("gpu")
    if isinstance(options, GpuOptions):
        unset = {name: value for name, value in freedom.items() if getattr(options, name) is None}
        return {**settings, "gpu": replace(options, **unset)}
    return {**freedom, **settings}


def freedom_note(freedom: Mapping[str, Any]) -> str:
    """The shared freedom as a note for the user.

    >>> freedom_note({"preempt": True})
    'every priority policy may preempt, as another contender does; to change it: --no-preempt, or NAME:preempt=0'
    """
    words = {
        "preempt": ("preempt", "--no-preempt", "preempt=0"),
        "migrate": ("migrate", "--no-migrate", "migrate=0"),
        "gpu_type_order": ("try the fastest GPU types first", "--gpu-type-order any", "types=any"),
    }
    chosen = [words[name] for name in SHARED if name in freedom]
    may, options, parameters = (list(each) for each in zip(*chosen, strict=True))
    return (
        f"every priority policy may {' and '.join(may)}, as another contender does; to change it: "
        f"{', '.join(options)}, or {':'.join(['NAME', *parameters])}"
    )
