"""Policies by name, with parameters where they take some: ``sjf``, ``multifactor:age=500:max_age_s=3d``."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.cluster import Cluster
from kilowait.engine.interface import PriorityPolicy
from kilowait.engine.policy import Policy, StepwisePolicy
from kilowait.errors import InputError, UnknownNameError
from kilowait.jobs import JobTable
from kilowait.policies import fair_share, gpu, priority
from kilowait.policies.compile import compiled_score
from kilowait.policies.round_based import round_based_policy
from kilowait.rng import stream
from kilowait.settings import named_parameters


def random(*, seed: int = 0) -> PriorityPolicy:
    """Random order, which depends on a seed."""

    def prepare(jobs: JobTable, cluster: Cluster) -> npt.NDArray[np.float64]:
        return stream(int(seed), "random policy").random(len(jobs))

    return PriorityPolicy("random", compiled_score(priority.random), prepare=prepare)


def by_priority() -> PriorityPolicy:
    """The largest priority first; on GPU clusters running jobs of lower priority are preempted."""
    score = compiled_score(priority.largest_priority)
    return PriorityPolicy("priority", score, gpu_settings=gpu.PREEMPTING)


def balance() -> PriorityPolicy:
    """First come, first served; jobs start on the emptiest of their groups."""
    return replace(_plain(priority.fcfs, False), name="balance", placement="balance")


@cache
def _plain(score: Callable[..., float], time_dependent: bool) -> PriorityPolicy:
    return PriorityPolicy(score.__name__, compiled_score(score), time_dependent=time_dependent, monotone=time_dependent)


def _constructor(score: Callable[..., float], time_dependent: bool) -> Callable[[], PriorityPolicy]:
    def construct() -> PriorityPolicy:
        return _plain(score, time_dependent)

    construct.__doc__ = score.__doc__
    return construct


POLICIES: dict[str, Callable[..., PriorityPolicy]] = {
    **{score.__name__: _constructor(score, False) for score in priority.STATIC_POLICIES},
    **{score.__name__: _constructor(score, True) for score in priority.TIME_DEPENDENT_POLICIES},
    "multifactor": fair_share.multifactor,
    "fair_share": fair_share.fair_share,
    "alcf": fair_share.alcf,
    "alcf_wfp": fair_share.alcf_wfp,
    "priority": by_priority,
    "balance": balance,
    "random": random,
    "easy+": priority.easy_plus,
    "easy++": priority.easy_plus_plus,
    "srtf": gpu.srtf,
    "srsf": gpu.srsf,
    "las": gpu.las,
    "qssf": gpu.qssf,
    "tiresias": gpu.tiresias,
}
"""Constructor of each priority policy by name."""


GPU_PARAMETERS: dict[str, tuple[str, dict[str, Any]]] = {
    "preempt": ("preempt", {"0": False, "1": True}),
    "migrate": ("migrate", {"0": False, "1": True}),
    "types": ("gpu_type_order", {"any": "any", "fastest": "fastest"}),
}
"""Parameters of every priority policy on GPU clusters, as in ``srtf:preempt=0``: the setting and its values by text.
They take precedence over the settings of the run."""

AnyPolicy = str | Policy | Callable[..., Any]
"""Types of policies that `simulate` and `compare` accept; `as_policy` converts them."""


def as_policy(policy: AnyPolicy) -> Policy:
    """The policy of that name, or the object itself; a function of a view becomes a `StepwisePolicy`.

    >>> as_policy("sjf").name, as_policy("random:seed=3").name, as_policy("gavel").name
    ('sjf', 'random:seed=3', 'gavel')
    """
    if isinstance(policy, str):
        return round_based_policy(policy) or resolve(policy)
    if isinstance(policy, Policy) and not isinstance(policy, type):
        return policy
    if callable(policy):
        return StepwisePolicy(policy)
    raise InputError(
        f"policy is {policy!r}; give a name, a function decorated with kilowait.policy, a function of a view, or an "
        "object with the attributes name and run (see kilowait.Policy)"
    )


def resolve(policy: str | PriorityPolicy) -> PriorityPolicy:
    """The priority policy of that name, with its parameters after colons.

    >>> resolve("sjf").name, resolve("random:seed=3").name
    ('sjf', 'random:seed=3')
    >>> resolve("srtf:preempt=0").fixed_gpu_settings
    (('preempt', False),)
    """
    if isinstance(policy, PriorityPolicy):
        return policy
    wrapped = getattr(policy, "rule", None)  # a linear agent is a priority policy with weights
    if isinstance(wrapped, PriorityPolicy):
        return wrapped
    if not isinstance(policy, str):
        raise InputError(
            f"the order is {policy!r}; give the name of a priority policy, or a function decorated with kilowait.policy"
        )
    name = policy.strip().partition(":")[0]
    if name.lower() not in POLICIES:
        raise UnknownNameError("policy", name, POLICIES)
    constructor = POLICIES[name.lower()]
    known = inspect.signature(constructor).parameters
    texts = named_parameters("policy", policy, [*known, *GPU_PARAMETERS])
    values = {key: _value(policy, key, text, str(known[key].annotation)) for key, text in texts.items() if key in known}
    fixed = tuple(_gpu_setting(policy, key, text) for key, text in texts.items() if key not in known)
    resolved = constructor(**values)
    return replace(resolved, name=policy.strip(), fixed_gpu_settings=fixed) if texts else resolved


def _gpu_setting(policy: str, key: str, text: str) -> tuple[str, Any]:
    """The GPU setting and its value that a parameter names."""
    setting, values = GPU_PARAMETERS[key]
    if text not in values:
        raise InputError(f"policy {policy!r}: {key} is {text!r}; it must be {' or '.join(values)}")
    return setting, values[text]


def _value(policy: str, key: str, text: str, annotation: str) -> float | int | str:
    """The text converted to the parameter's type; durations stay text, which the policy parses."""
    if "Mapping" in annotation:
        raise InputError(f"policy {policy!r}: {key} is a table of names; pass it in Python, not in a name")
    if "str" in annotation:
        return text
    try:
        return int(text) if annotation == "int" else float(text)
    except ValueError:
        kind = "whole number" if annotation == "int" else "number"
        raise InputError(f"policy {policy!r}: {key} is {text!r}, which is not a {kind}") from None


def describe_policies() -> dict[str, str]:
    """Each policy's name and the first line of what it does.

    >>> describe_policies()["sjf"]
    'Shortest estimate first.'
    """
    return {name: (constructor.__doc__ or "").strip().splitlines()[0] for name, constructor in POLICIES.items()}
