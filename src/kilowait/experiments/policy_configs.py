"""Who takes part in a comparison: every policy with every kind of backfilling, placement and set of levers."""

from __future__ import annotations

from collections.abc import Sequence

from kilowait.engine.interface import PriorityPolicy
from kilowait.errors import InputError
from kilowait.evaluation.comparison import PolicyConfig
from kilowait.experiments.gpu_power_cap import check_power_controls
from kilowait.experiments.gpu_settings import check_placement
from kilowait.experiments.inputs import parse_backfill
from kilowait.experiments.predict_runtimes import USERS
from kilowait.experiments.scenario import AGENT, agent_and_preference, check_backfill, resolve_policy
from kilowait.experiments.train_power import PowerAgent

__all__ = ["contenders_of", "listed", "policy_and_placement"]

AT = "@"
"""Between a policy and the placement it is tried with: las@fgd."""


def contenders_of(
    policies: str | Sequence[str],
    backfills: str | Sequence[str],
    power_controls: str | Sequence[str] = "none",
    placements: Sequence[str] = (),
    *,
    clairvoyant: bool = True,
    users: bool = False,
) -> tuple[PolicyConfig, ...]:
    """Every policy with every kind of backfilling, every placement and every set of levers.

    Without placements all have that of the scenario; a policy that is written with its own (las@fgd) keeps it. Each
    rule takes part once more with perfect estimates, without levers, but those that predict: they would not use them.
    With `users` every policy takes part without predictions too (users:saf).

    Names are checked here, before anything runs.

    >>> [contender.label for contender in contenders_of("fcfs", "none,2")][:2]
    ['fcfs, no backfill', 'fcfs, 2 backfill']
    >>> [
    ...     who.policy
    ...     for who in contenders_of("fcfs,las", "none", placements=["best", "fgd"], clairvoyant=False)
    ... ]
    ['fcfs@best', 'fcfs@fgd', 'las@best', 'las@fgd']
    """
    written = listed("policies", policies)
    names, pulling, predicting = [], set(), set()
    for text in written:
        policy, own = policy_and_placement(text)
        rule = resolve_policy(policy)
        if isinstance(rule, PowerAgent):
            pulling.add(text)
        if isinstance(rule, PriorityPolicy) and rule.predicts:
            predicting.add(policy)
        names += [text] if own is not None or not placements else [text + AT + place for place in placements]
    if users:
        names += [USERS + name for name in names if not name.startswith(USERS)]
    for place in placements:
        check_placement(place)
    depths = [parse_backfill(text) for text in listed("kinds of backfilling", backfills)]
    for depth in depths:
        check_backfill(depth)
    sets = listed("sets of levers", power_controls)
    for text in sets:
        check_power_controls(text)
    found = [
        PolicyConfig(name, depth, _kind(name), _short(name, written), text)
        for name in dict.fromkeys(names)
        for depth in depths
        for text in sets
        if text != "none" or name not in pulling or sets == ["none"]  # who pulls levers is not tried without
    ]
    if clairvoyant:
        found += [
            PolicyConfig(who.policy, who.backfill, "clairvoyant", who.name)
            for who in found
            if who.kind == "rule"
            and who.power_controls == "none"
            and policy_and_placement(who.policy)[0] not in predicting
            and not who.policy.startswith(USERS)
        ]
    return tuple(found)


def _kind(name: str) -> str:
    return "agent" if name.removeprefix(USERS).startswith(AGENT) else "rule"


def policy_and_placement(text: str) -> tuple[str, str | None]:
    """What a contender's policy is made of; None: no placement of its own.

    >>> policy_and_placement("las@fgd"), policy_and_placement("agent:me@home/agent.json")
    (('las', 'fgd'), ('agent:me@home/agent.json', None))
    """
    policy, _, placement = text.rpartition(AT)
    if not policy or "/" in placement or "." in placement:  # of a path
        return text, None
    check_placement(placement)
    return policy, placement


def listed(what: str, given: str | Sequence[str]) -> list[str]:
    """What stands between commas, each once.

    >>> listed("policies", "fcfs, sjf,fcfs")
    ['fcfs', 'sjf']
    """
    names = [name.strip() for name in (given.split(",") if isinstance(given, str) else given)]
    names = [name for name in dict.fromkeys(names) if name]
    if not names:
        raise InputError(f"the list of {what} is empty; name at least one, with commas between")
    return names


def _short(name: str, written: Sequence[str]) -> str | None:
    """The only agent of a comparison is called agent, with what it is told to prefer."""
    if name.startswith(USERS):
        plain = name.removeprefix(USERS)
        return f"{_short(plain, written) or plain} (users)"
    agents = {
        agent_and_preference(policy_and_placement(other)[0])[0]
        for other in written
        if other.startswith(AGENT)
    }
    if not name.startswith(AGENT) or len(agents) > 1:
        return None
    policy, placement = policy_and_placement(name)
    preference = agent_and_preference(policy)[1]
    called = f"agent {preference}" if preference else "agent"
    return called if placement is None else f"{called}{AT}{placement}"
