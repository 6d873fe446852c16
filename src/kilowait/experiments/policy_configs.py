"""Policy configurations of a comparison: policies combined with backfilling, placements and power controls."""

from __future__ import annotations

from collections.abc import Sequence

from kilowait.engine.interface import PriorityPolicy
from kilowait.errors import InputError
from kilowait.evaluation.comparison import PolicyConfig
from kilowait.experiments.gpu_options import check_placement
from kilowait.experiments.gpu_power_cap import check_power_controls
from kilowait.experiments.policy_names import AGENT_PREFIX, AgentName, resolve_policy
from kilowait.experiments.predicted_runtimes import USERS_PREFIX
from kilowait.experiments.scenario import check_backfill
from kilowait.experiments.scenario_inputs import parse_backfill
from kilowait.experiments.train_power import PowerAgent

__all__ = ["make_policy_configs", "parse_names", "policy_and_placement"]

PLACEMENT_SEPARATOR = "@"
"""Separates a policy from its placement: las@fgd."""


def make_policy_configs(
    policies: str | Sequence[str],
    backfills: str | Sequence[str],
    power_controls: str | Sequence[str] = "none",
    placements: Sequence[str] = (),
    *,
    clairvoyant: bool = True,
    users: bool = False,
) -> tuple[PolicyConfig, ...]:
    """Combine every policy with every kind of backfilling, every placement and every set of power controls.

    A policy with its own placement (las@fgd) is not combined with `placements`; without `placements`, the others use
    the placement of the scenario. With `clairvoyant`, priority policies that do not predict run times are repeated with
    perfect estimates and without power controls. With `users`, every policy is repeated with the users' estimates
    instead of predictions (users:saf).

    All names are checked here, before anything runs.

    >>> [config.label for config in make_policy_configs("fcfs", "none,2")][:2]
    ['fcfs, no backfill', 'fcfs, 2 backfill']
    >>> configs = make_policy_configs("fcfs,las", "none", placements=["best", "fgd"], clairvoyant=False)
    >>> [config.policy for config in configs]
    ['fcfs@best', 'fcfs@fgd', 'las@best', 'las@fgd']
    """
    written = parse_names("policies", policies)
    names, power_agents, predicting = [], set(), set()
    for text in written:
        name, own_placement = policy_and_placement(text)
        policy = resolve_policy(name)
        if isinstance(policy, PowerAgent):
            power_agents.add(text)
        if isinstance(policy, PriorityPolicy) and policy.predicts:
            predicting.add(name)
        if own_placement is not None or not placements:
            names.append(text)
        else:
            names += [text + PLACEMENT_SEPARATOR + placement for placement in placements]
    if users:
        names += [USERS_PREFIX + name for name in names if not name.startswith(USERS_PREFIX)]
    for placement in placements:
        check_placement(placement)
    depths = [parse_backfill(text) for text in parse_names("kinds of backfilling", backfills)]
    for depth in depths:
        check_backfill(depth)
    control_sets = parse_names("power controls", power_controls)
    for text in control_sets:
        check_power_controls(text)
    configs = [
        PolicyConfig(name, depth, _kind(name), _short_name(name, written), text)
        for name in dict.fromkeys(names)
        for depth in depths
        for text in control_sets
        # An agent that sets power controls is not run without them.
        if text != "none" or name not in power_agents or control_sets == ["none"]
    ]
    if clairvoyant:
        configs += [
            PolicyConfig(config.policy, config.backfill, "clairvoyant", config.name)
            for config in configs
            if config.kind == "rule"
            and config.power_controls == "none"
            and policy_and_placement(config.policy)[0] not in predicting
            and not config.policy.startswith(USERS_PREFIX)
        ]
    return tuple(configs)


def _kind(name: str) -> str:
    return "agent" if name.removeprefix(USERS_PREFIX).startswith(AGENT_PREFIX) else "rule"


def policy_and_placement(text: str) -> tuple[str, str | None]:
    """The policy and its own placement, if it has one.

    >>> policy_and_placement("las@fgd"), policy_and_placement("agent:me@home/agent.json")
    (('las', 'fgd'), ('agent:me@home/agent.json', None))
    """
    policy, _, placement = text.rpartition(PLACEMENT_SEPARATOR)
    if not policy or "/" in placement or "." in placement:  # the @ belongs to a path
        return text, None
    check_placement(placement)
    return policy, placement


def parse_names(what: str, text: str | Sequence[str]) -> list[str]:
    """The names of a comma-separated list, without duplicates.

    >>> parse_names("policies", "fcfs, sjf,fcfs")
    ['fcfs', 'sjf']
    """
    names = [name.strip() for name in (text.split(",") if isinstance(text, str) else text)]
    names = [name for name in dict.fromkeys(names) if name]
    if not names:
        raise InputError(f"the list of {what} is empty; name at least one, with commas between")
    return names


def _short_name(name: str, written: Sequence[str]) -> str | None:
    """The name in tables: a single agent is "agent" or "agent untrained", with its preference; None: the whole name."""
    if name.startswith(USERS_PREFIX):
        policy_name = name.removeprefix(USERS_PREFIX)
        return f"{_short_name(policy_name, written) or policy_name} (users)"
    agents = {
        AgentName.parse(policy_and_placement(other)[0]).path for other in written if other.startswith(AGENT_PREFIX)
    }
    if not name.startswith(AGENT_PREFIX) or len(agents) > 1:
        return None
    policy, placement = policy_and_placement(name)
    short = f"agent{AgentName.parse(policy).suffix}"
    return short if placement is None else f"{short}{PLACEMENT_SEPARATOR}{placement}"
