"""What each contender of a comparison on a GPU cluster may do besides ordering jobs.

A contender that preempts, migrates, tries the fastest GPU types first or lets jobs overtake blocked ones has an
advantage that has nothing to do with its order of jobs. Therefore all priority policies of a comparison get the freedom
that any contender has (`shared_freedom`), unless the user sets it; the freedom of every run is reported
(`freedom_of_run`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kilowait.engine.interface import PriorityPolicy
from kilowait.engine.policy import Policy
from kilowait.experiments.settings import GpuOptions
from kilowait.policies.simulation import gpu_settings_for

FREEDOMS = ("preempt", "migrate", "types", "skip")
"""Preempt running jobs; migrate running jobs; try some GPU types first; start jobs behind a job that does not fit."""
SHARED = ("preempt", "migrate", "gpu_type_order")
"""The settings of `shared_freedom`."""


def freedom_of_run(run: Mapping[str, Any]) -> tuple[str, ...]:
    """What a run on a GPU cluster was allowed to do, by the settings that its log records.

    >>> freedom_of_run({"preempt": True, "gpu_type_order": "fastest", "head_of_line_blocking": True})
    ('preempt', 'types')
    """
    may = {
        "preempt": run.get("preempt", False),
        "migrate": run.get("migrate", False),
        "types": run.get("gpu_type_order", "any") != "any",
        "skip": not run.get("head_of_line_blocking", True),
    }
    return tuple(name for name in FREEDOMS if may[name])


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


_VERBS = {
    "preempt": "preempt jobs",
    "migrate": "migrate jobs",
    "types": "try some GPU types first",
    "skip": "let jobs overtake blocked ones",
}


def difference_sentence(first: str, first_may: Sequence[str], second: str, second_may: Sequence[str]) -> str:
    """What one of two contenders may do and the other not; empty if they may do the same.

    >>> difference_sentence("agent", ("preempt", "migrate"), "sjf", ("preempt",))
    'They have different freedom: agent may migrate jobs, sjf may not.'
    """
    parts = []
    for name, other, more, fewer in ((first, second, first_may, second_may), (second, first, second_may, first_may)):
        extra = [_VERBS[each] for each in FREEDOMS if each in more and each not in fewer]
        if extra:
            parts.append(f"{name} may {' and '.join(extra)}, {other} may not")
    return f"They have different freedom: {'; '.join(parts)}." if parts else ""


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
