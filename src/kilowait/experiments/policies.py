"""Policies of runs and comparisons: by name (``sjf``, ``multifactor:age=500``, ``agent:PATH``, ``rule:FILE.py:NAME``,
``lookahead``), and combined with backfilling, placements and power controls.

The text of a trained policy is ``agent:PATH[:untrained[=SEED]][:prefer=TERM=WEIGHT+...]``. The prefix ``users:``
before a name runs the policy with the users' estimates instead of predictions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np

from kilowait.cluster import Cluster
from kilowait.engine.interface import PriorityPolicy
from kilowait.engine.policy import Policy
from kilowait.errors import InputError, UnknownNameError
from kilowait.evaluation.comparison import PolicyConfig
from kilowait.experiments.power_controls import PowerAgent, check_power_controls
from kilowait.experiments.predictors import USERS_PREFIX
from kilowait.experiments.settings import check_backfill, check_placement, parse_backfill
from kilowait.jobs import JobTable
from kilowait.policies import POLICIES, as_policy, resolve
from kilowait.policies.round_based import ROUND_BASED_POLICIES

AGENT_PREFIX = "agent:"
FILE_PREFIX = "rule:"
"""Prefix of a policy that a Python file defines: rule:mine.py:mine."""
LOOKAHEAD = "lookahead"
PREFERENCE = "prefer="
UNTRAINED = "untrained"


@dataclass(frozen=True)
class AgentName:
    """The parts of ``agent:PATH[:untrained[=SEED]][:prefer=TERM=WEIGHT+...]``.

    >>> AgentName.parse("agent:runs/x:untrained=3:prefer=slowdown=0.3+energy=0.7")
    AgentName(path='runs/x', preference='slowdown=0.3+energy=0.7', seed=3)
    >>> AgentName.parse("agent:runs/x/agent.pt").suffix
    ''
    """

    path: str
    preference: str = ""
    """Weights of the objectives, for an agent that was trained with several."""
    seed: int | None = None
    """Seed of new initial weights: the network as it is before training, a control. None: the trained weights."""

    @classmethod
    def parse(cls, text: str) -> AgentName:
        """The parts of a text that begins with ``agent:``."""
        path, preference, seed = text.removeprefix(AGENT_PREFIX), "", None
        path, _, preference = path.partition(f":{PREFERENCE}")
        head, colon, last = path.rpartition(":")
        if colon and last.partition("=")[0] == UNTRAINED:
            path, number = head, last.partition("=")[2] or "0"
            if not number.isdecimal():
                raise InputError(f"{text!r} has the seed {number!r}; write a whole number, such as untrained=1")
            seed = int(number)
        return cls(path, preference, seed)

    @property
    def suffix(self) -> str:
        """What the name in tables says besides "agent"."""
        untrained = "" if self.seed is None else f" {UNTRAINED}" + (f" (seed {self.seed})" if self.seed else "")
        return untrained + (f" {self.preference}" if self.preference else "")


def resolve_policy(text: str) -> Policy:
    """The policy of a text: NAME:PARAMETERS, a round-based policy, lookahead, ``rule:FILE.py:NAME`` or ``agent:PATH``.

    The prefix ``users:`` is ignored here; `run_matrix.run_cell` gives such a policy the jobs without predictions.

    >>> resolve_policy("multifactor:age=500:size=0").name
    'multifactor:age=500:size=0'
    """
    text = text.removeprefix(USERS_PREFIX)
    if text.partition(":")[0].strip() == LOOKAHEAD:  # imported on use, because envs need an extra
        lookahead: Policy = import_module("kilowait.envs.lookahead").LookAhead.from_text(text)
        return lookahead
    if text.startswith(FILE_PREFIX):
        return policy_from_file(text.removeprefix(FILE_PREFIX))
    if not text.startswith(AGENT_PREFIX):
        name = text.partition(":")[0].strip()
        if name.lower() in POLICIES:
            return resolve(text)
        if text.strip().lower() not in ROUND_BASED_POLICIES:
            raise UnknownNameError("policy", name, (*POLICIES, *ROUND_BASED_POLICIES, LOOKAHEAD))
        return as_policy(text)
    name_of_agent = AgentName.parse(text)
    if not name_of_agent.path:
        raise InputError("a trained policy is written agent:PATH, for instance agent:runs/x/agent.json")
    if find_spec("kilowait.agents") is None:
        raise InputError(f"policy {text!r}: this installation has no trained policies; name a priority policy")
    agent = import_module("kilowait.agents").load_agent(name_of_agent.path)
    if name_of_agent.seed is not None:
        if not hasattr(agent, "untrained"):
            raise InputError(
                f"{text!r}: only networks have an untrained form, and this agent is a linear score; leave "
                f":{UNTRAINED} out"
            )
        agent = agent.untrained(name_of_agent.seed)
    agent = with_preference(agent, name_of_agent.preference)
    policy: Policy = getattr(agent, "rule", agent)  # a linear agent is a priority policy
    return policy


def policy_notes(names: Iterable[str], placement: str | None, jobs: JobTable, cluster: Cluster) -> tuple[str, ...]:
    """What the user should know about these policies on these jobs and this cluster.

    >>> table = JobTable(job_id=[1], submit_s=[0], runtime_s=[60], nodes=[1])
    >>> policy_notes(["balance"], None, table, Cluster.from_nodes(4))
    ("balance starts jobs on the emptiest node group, and '4 nodes' has one group: it has no effect",)
    """
    placed = [policy_and_placement(name.removeprefix(USERS_PREFIX)) for name in names]
    words = {name.partition(":")[0].strip().lower() for name, _ in placed}
    notes = []
    if "balance" in words | {placement} | {own for _, own in placed} and len(cluster.groups) == 1:
        notes.append(
            f"balance starts jobs on the emptiest node group, and {cluster.name!r} has one group: it has no effect"
        )
    if "priority" in words and len(np.unique(jobs.column("priority"))) == 1:
        notes.append("the jobs have no priorities (column priority): the policy priority is first come, first served")
    return tuple(notes)


def policy_from_file(text: str) -> Policy:
    """The policy that a Python file defines, written FILE.py:NAME.

    NAME is a function decorated with `kilowait.policy`, a function of a view, or an object with the protocol
    `kilowait.Policy`. The file is run.
    """
    path, colon, name = text.rpartition(":")
    if not colon or not path or not name.isidentifier():
        raise InputError(f"the policy of a file is written rule:FILE.py:NAME, but this is 'rule:{text}'")
    source = Path(path)
    if not source.is_file():
        raise InputError(f"there is no file {path!r} with the policy {name!r}")
    spec = spec_from_file_location(f"kilowait_policy_{source.stem}", source)
    if spec is None or spec.loader is None:
        raise InputError(f"{path!r} is not a Python file; its name must end with .py")
    module = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as problem:
        raise InputError(f"{path} cannot be run: {type(problem).__name__}: {problem}") from problem
    if not hasattr(module, name):
        known = [
            key
            for key, value in vars(module).items()
            if isinstance(value, Policy) or getattr(value, "__module__", None) == module.__name__
        ]
        raise UnknownNameError(f"policy in {path}", name, known)
    return as_policy(getattr(module, name))


def with_preference(agent: Any, preference: str) -> Any:
    """The agent with the preference of a text; raises if the agent needs one, or takes none."""
    prefer = getattr(agent, "prefer", None)
    if prefer is None:
        if not preference:
            return agent
        raise InputError(f"the agent {agent.name!r} takes no preference, but {preference!r} was given; leave it out")
    if preference:
        return prefer(**parse_preference(preference))
    agent.check_preference_fixed()
    return agent


def parse_preference(text: str) -> dict[str, float]:
    """The weights of a preference, by term.

    >>> parse_preference("slowdown=0.3+energy=0.7")
    {'slowdown': 0.3, 'energy': 0.7}
    """
    weights = {}
    for part in text.split("+"):
        name, _, number = part.partition("=")
        try:
            weights[name.strip()] = float(number)
        except ValueError:
            raise InputError(
                f"the preference {text!r} contains {part.strip()!r}; write terms with their weights, such as "
                "slowdown=0.3+energy=0.7"
            ) from None
    return weights


def policy_digest(text: str) -> str:
    """The text of a policy; paths of agents and of policy files are replaced by a digest of the file's content."""
    if text.startswith(USERS_PREFIX):
        return USERS_PREFIX + policy_digest(text.removeprefix(USERS_PREFIX))
    try:
        if text.startswith(FILE_PREFIX):
            path, _, name = text.removeprefix(FILE_PREFIX).rpartition(":")
            return f"{FILE_PREFIX}{_digest(Path(path))}:{name}"
        if text.startswith(AGENT_PREFIX):
            agent = AgentName.parse(text)
            file = import_module("kilowait.agents.io").agent_file(agent.path)
            return f"{AGENT_PREFIX}{_digest(file)}{text.removeprefix(AGENT_PREFIX + agent.path)}"
    except (OSError, InputError):
        pass  # `resolve_policy` raises the error
    return text


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


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
    the placement of the scenario; `clairvoyant` is that of `combine_policies`. With `users`, every policy is repeated
    with the users' estimates instead of predictions (users:saf).

    All names are checked here, before anything runs.

    >>> [config.label for config in make_policy_configs("fcfs", "none,2")][:2]
    ['fcfs, no backfill', 'fcfs, 2 backfill']
    >>> configs = make_policy_configs("fcfs,las", "none", placements=["best", "fgd"], clairvoyant=False)
    >>> [config.policy for config in configs]
    ['fcfs@best', 'fcfs@fgd', 'las@best', 'las@fgd']
    """
    written = parse_names("policies", policies)
    named: dict[str, Policy] = {}
    for text in written:
        name, own_placement = policy_and_placement(text)
        policy = resolve_policy(name)
        if own_placement is not None or not placements:
            named[text] = policy
        else:
            named |= {text + PLACEMENT_SEPARATOR + placement: policy for placement in placements}
    if users:
        named |= {USERS_PREFIX + name: policy for name, policy in named.items() if not name.startswith(USERS_PREFIX)}
    for placement in placements:
        check_placement(placement)
    depths = [parse_backfill(text) for text in parse_names("kinds of backfilling", backfills)]
    for depth in depths:
        check_backfill(depth)
    control_sets = parse_names("power controls", power_controls)
    for text in control_sets:
        if text != "none":
            check_power_controls(text)
    configs = [
        (PolicyConfig(name, depths[0], _kind(name), _short_name(name, written)), policy)
        for name, policy in named.items()
    ]
    return tuple(config for config, _ in combine_policies(configs, depths, control_sets, clairvoyant=clairvoyant))


def combine_policies(
    policies: Sequence[tuple[PolicyConfig, Policy]],
    backfills: Sequence[str | int],
    power_controls: Sequence[str],
    *,
    clairvoyant: bool,
) -> list[tuple[PolicyConfig, Policy]]:
    """Every policy with every kind of backfilling and every set of power controls.

    With `clairvoyant`, priority policies that do not predict run times are repeated with perfect estimates and without
    power controls.
    """
    pairs = [
        (replace(config, backfill=depth, power_controls=text), policy)
        for config, policy in policies
        for depth in backfills
        for text in power_controls
        # An agent that sets power controls is not run without them.
        if text != "none" or not isinstance(policy, PowerAgent) or tuple(power_controls) == ("none",)
    ]
    if clairvoyant:
        pairs += [
            (replace(config, kind="clairvoyant"), policy)
            for config, policy in pairs
            if config.kind == "rule"
            and config.power_controls == "none"
            and not (isinstance(policy, PriorityPolicy) and policy.predicts)
            and not config.policy.startswith(USERS_PREFIX)
        ]
    return pairs


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
