"""Policies by name: ``sjf``, ``multifactor:age=500``, ``agent:PATH``, ``rule:FILE.py:NAME``, ``lookahead``.

The text of a trained policy is ``agent:PATH[:untrained[=SEED]][:prefer=TERM=WEIGHT+...]``. The prefix ``users:``
before a name runs the policy with the users' estimates instead of predictions.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from kilowait.engine.policy import Policy
from kilowait.errors import InputError, UnknownNameError
from kilowait.experiments.predicted_runtimes import USERS_PREFIX
from kilowait.policies import POLICIES, as_policy
from kilowait.policies.round_based import ROUND_BASED_POLICIES

__all__ = ["AGENT_PREFIX", "AgentName", "parse_preference", "policy_digest", "resolve_policy", "with_preference"]

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
        if name.lower() not in POLICIES and text.strip().lower() not in ROUND_BASED_POLICIES:
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
