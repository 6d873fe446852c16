"""A scenario: everything a run depends on, in words that can be stored; and the run itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from importlib import import_module
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np

from kilowait.cluster import Cluster
from kilowait.cluster.gpu_speeds import Speeds
from kilowait.cluster.toml import to_dict
from kilowait.energy.accounting import EnergyAccounts
from kilowait.energy.controls import BudgetViolation, budget_violation
from kilowait.engine.policy import Policy
from kilowait.engine.settings import Settings
from kilowait.errors import InputError, UnknownNameError
from kilowait.experiments.gpu_power_cap import (
    cap_description,
    cap_of,
    check_controls_supported,
    check_power_controls,
)
from kilowait.experiments.gpu_settings import (
    BACKFILLS,
    GpuOptions,
    arguments,
    check_placement,
    default_backfill,
)
from kilowait.experiments.inputs import Workload, cluster_of, load_of, rescaled_to_load, workload_of
from kilowait.experiments.power import PowerSettings, meter_for, with_power
from kilowait.experiments.predict_power import (
    check_power_predictor,
    is_saved_power_predictor,
    with_predicted_power,
)
from kilowait.experiments.predict_runtimes import (
    USERS,
    check_predictor,
    is_saved_predictor,
    with_predicted_runtimes,
)
from kilowait.experiments.saved_predictor import SavedPredictor, saved_predictor
from kilowait.experiments.train_power import bind_agent_power
from kilowait.jobs import ExecutionLog, JobTable
from kilowait.policies import POLICIES, as_policy, simulate
from kilowait.policies.round_based import ROUND_BASED_POLICIES

__all__ = [
    "ScenarioResult",
    "Scenario",
    "agent_and_preference",
    "check_backfill",
    "check_power",
    "parse_preference",
    "with_preference",
    "prepare_scenario",
    "resolve_policy",
    "run_scenario",
]

AGENT = "agent:"
PREFER = ":prefer="
"""After the path of an agent that weighs terms as it is told."""
FILE = "rule:"
"""Before a Python file and the name of a policy in it: rule:mine.py:mine."""
LOOKAHEAD = "lookahead"
OVERLOAD = 1.2
"""Offered load from which on a run says more of its length than of the rule; people are told."""


@dataclass(frozen=True)
class Scenario:
    """What to run; see `kilowait.simulate` for the rules and `experiments.inputs` for how things are written."""

    trace: str
    cluster: str = "auto"
    policy: str = "fcfs"
    backfill: str | int | None = None
    """None: easy, on placed nodes none."""
    backfill_order: str | None = None
    at_limit: str = Settings.at_limit
    overrun: str | None = None
    """None: later where a forest predicts, as it says what is likely then; else double, or the policy's own."""
    schedule_per: str = Settings.schedule_per
    placement: str | None = None
    """None: first, on placed nodes the policy's own."""
    on_oversized: str = Settings.on_oversized
    dependencies: bool = Settings.dependencies
    load: float | None = None
    """Offered load the jobs are brought to; None: as they are."""
    jobs: str | None = None
    """Rows of the trace; None: all."""
    format: str | None = None
    columns: str | None = None
    strict: bool = False
    runtime_predictor: str | None = None
    """Who predicts run times (`foreseeing.PREDICTORS`, or the folder of a kept one); None: users are believed."""
    power_predictor: str | None = None
    """Who says what jobs will draw (`foreseeing_power`), for levers; None: what was measured, as if it were known."""
    power: PowerSettings | None = None
    """What power the run is judged with; None: none."""
    power_controls: str = "none"
    """What is pulled besides the order of jobs; see `kilowait.energy.controls`, and for placed nodes `capping`."""
    gpu: GpuOptions = field(default_factory=GpuOptions)
    """How jobs are placed on single nodes, preempted and moved, where the machine has such nodes."""

    def __post_init__(self) -> None:
        if self.backfill is not None:
            check_backfill(self.backfill)
        check_placement(self.placement)
        Settings(
            at_limit=self.at_limit,
            overrun=self.overrun or Settings.overrun,
            schedule_per=self.schedule_per,
            dependencies=self.dependencies,
            on_oversized=self.on_oversized,
        )
        if self.runtime_predictor is not None:
            check_predictor(self.runtime_predictor)
        if self.power_predictor is not None:
            if self.power is None:
                raise InputError(
                    "--power-predictor is of no use without a power model; name one with --power"
                )
            check_power_predictor(self.power_predictor)
        check_power_controls(self.power_controls)
        check_power(self.power_controls, self.power)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, without what was not asked for."""
        plain = {key: value for key, value in asdict(self).items() if value is not None and key != "gpu"}
        if self.power is not None:
            plain["power"] = self.power.to_dict()
        if self.gpu.unusual:
            plain["gpu"] = self.gpu.to_dict()
        return plain

    @property
    def settings_dict(self) -> dict[str, Any]:
        """What a run depends on besides policy and backfill, as plain data."""
        return {
            "backfill_order": self.backfill_order,
            "at_limit": self.at_limit,
            "overrun": self.overrun,
            "schedule_per": self.schedule_per,
            "placement": self.placement,
            "dependencies": self.dependencies,
            "on_oversized": self.on_oversized,
            "gpu": self.gpu.to_dict(),
        }

    @property
    def simulate_arguments(self) -> dict[str, Any]:
        """The same, with the order of backfilling as a rule; `placing.arguments` makes what `simulate` takes of it."""
        order = None if self.backfill_order is None else resolve_policy(self.backfill_order)
        return {**self.settings_dict, "backfill_order": order, "gpu": self.gpu}


@dataclass(frozen=True)
class ScenarioResult:
    """A scenario that was run."""

    scenario: Scenario
    workload: Workload
    cluster: Cluster
    log: ExecutionLog
    notes: tuple[str, ...] = ()
    """What had to be guessed, for people."""
    accounts: EnergyAccounts | None = None
    """What it drew, where a power model was given."""
    controls_description: str = ""
    """The levers, in words."""
    budget_violation: BudgetViolation | None = None
    """How far it went above its budget of power, where it had one."""
    speeds: Speeds | None = None
    """How fast jobs ran on each GPU type, on placed nodes; None: alike."""

    def resolved(self) -> dict[str, Any]:
        """The scenario with the machine written out, for scenario.toml."""
        return {**self.scenario.to_dict(), "cluster": to_dict(self.cluster)}


def run_scenario(scenario: Scenario, progress: Callable[[Any], None] | None = None) -> ScenarioResult:
    """Read, prepare, simulate; `progress` hears of every fit of a predictor.

    >>> run_scenario(Scenario("lublin:20:8", policy="sjf")).log.run["policy"]
    'sjf'
    """
    rule, rules = (
        resolve_policy(scenario.policy),
        scenario.simulate_arguments,
    )  # names are looked at before a long read
    workload, cluster, notes = prepare_scenario(scenario, progress)
    notes += workload.leakage_notes
    jobs = workload.jobs
    backfill = default_backfill(cluster.node_level) if scenario.backfill is None else scenario.backfill
    if scenario.power is None:
        rule = bind_agent_power(rule, None, scenario.power_controls)
        given = arguments(rules, jobs, cluster, rule, backfill)
        log = simulate(jobs, cluster, rule, backfill, **given)
        accounts, words, above = None, "", None
    else:
        meter = meter_for(scenario.power, jobs, cluster)
        rule = bind_agent_power(rule, meter, scenario.power_controls)
        cap = cap_of(scenario.power_controls)
        pulled = meter.pull(scenario.power_controls if cap is None else "none", jobs)
        given = arguments(rules, jobs, cluster, rule, backfill, meter, scenario.power_controls)
        log = simulate(pulled.jobs, cluster, rule, backfill, power_controls=pulled.controls, **given)
        log = replace(log, jobs_table=jobs)  # holds are the run's, not the log's
        accounts = meter.account(log, pulled if cap is None else scenario.power_controls)
        words = pulled.description if cap is None else cap_description(cap)
        above = None if pulled.budget_w is None else budget_violation(accounts, pulled.budget_w)
    whole = replace(scenario, backfill=backfill, placement=log.run["placement"])
    return ScenarioResult(whole, workload, cluster, log, notes, accounts, words, above, given.get("speeds"))


def check_backfill(backfill: str | int) -> None:
    """Raise unless some machine knows this kind of backfilling."""
    if backfill not in BACKFILLS:
        Settings(backfill=backfill)


def check_power(power_controls: str, power: PowerSettings | None) -> None:
    """Raise where something is pulled whose power nobody knows."""
    if power is None and power_controls.strip() != "none":
        what = (
            f"levers {power_controls!r} need" if cap_of(power_controls) is None else f"{power_controls} needs"
        )
        raise InputError(f"{what} a power model; name one with --power")


def prepare_scenario(
    scenario: Scenario, progress: Callable[[Any], None] | None = None
) -> tuple[Workload, Cluster, tuple[str, ...]]:
    """Jobs at the load asked for, with predictions where those are, the machine, and notes for people.

    What is judged, and whether a kept predictor has seen it, is the caller's to say (`Workload.judged_from`).
    `progress` hears of every fit of a predictor.
    """
    workload = workload_of(
        scenario.trace,
        format=scenario.format,
        columns=scenario.columns,
        strict=scenario.strict,
        rows=scenario.jobs,
    )
    cluster, note = cluster_of(scenario.cluster, workload.jobs)
    check_controls_supported(scenario.power_controls, cluster)
    jobs: JobTable = rescaled_to_load(workload.jobs, cluster, scenario.load)
    notes = [note] if note is not None else []
    predictors: tuple[SavedPredictor, ...] = ()
    if cluster.node_level:
        jobs, more = _independent(jobs, scenario.dependencies)
        notes += more
    if scenario.power is not None:
        jobs, more = with_power(scenario.power, jobs)
        notes += more
        if scenario.power_predictor is not None:
            if is_saved_power_predictor(scenario.power_predictor):
                kept = saved_predictor(scenario.power_predictor, "power", workload.jobs, scenario.trace)
                predictors += (kept,)
            jobs, note = with_predicted_power(
                scenario.power, jobs, cluster, scenario.power_predictor, progress
            )
            notes.append(note)
    if scenario.runtime_predictor is not None:
        if is_saved_predictor(
            scenario.runtime_predictor
        ):  # on the log's own clock, whatever load the jobs are brought to
            predictors += (
                saved_predictor(scenario.runtime_predictor, "runtime", workload.jobs, scenario.trace),
            )
        jobs = with_predicted_runtimes(jobs, cluster, scenario.runtime_predictor, progress=progress)
        notes.append(
            f"run times are predicted ({scenario.runtime_predictor}), from jobs that ended in a first replay (fcfs, "
            "with the users' estimates)"
        )
    load = load_of(jobs, cluster)
    if load > OVERLOAD:
        size = f"{cluster.nodes:,} nodes" if not cluster.node_level else f"the GPUs of {cluster.name}"
        notes.append(
            f"these jobs offer {load:.2g} times the work {size} can do while they arrive, so the "
            "queue only grows; take a larger --cluster or a lower --load"
        )
    return Workload(jobs, workload.ledger, workload.sha256, predictors), cluster, tuple(notes)


def _independent(jobs: JobTable, dependencies: bool) -> tuple[JobTable, tuple[str, ...]]:
    """The jobs without word of which follows which, as placed nodes take them, and a note; an error if that counts."""
    follows = np.isin(jobs["after_id"], jobs["job_id"]) if "after_id" in jobs else np.zeros(len(jobs), bool)
    if not follows.any():
        return jobs, ()
    count = f"{np.count_nonzero(follows):,} of {len(jobs):,} jobs follow another one (after_id)"
    if dependencies:
        raise InputError(
            f"{count}, which placed nodes cannot wait for; submit them when the log says with --ignore-dependencies"
        )
    kept = {name: jobs[name] for name in jobs.columns if name not in ("after_id", "think_s")}
    return JobTable(labels=jobs.labels, meta=jobs.meta, **kept), (f"{count}: submitted when the log says",)


def resolve_policy(text: str) -> Policy:
    """A rule by name with its parameters, one that plays in rounds, look-ahead, or a trained one from ``agent:PATH``.

    That one is told of no predictions (``users:saf``) is for `cells.run_cell` to see to.

    >>> resolve_policy("multifactor:age=500:size=0").name
    'multifactor:age=500:size=0'
    """
    text = text.removeprefix(USERS)
    if text.partition(":")[0].strip() == LOOKAHEAD:  # loaded when asked for, as envs want an extra
        ahead: Policy = import_module("kilowait.envs.lookahead").LookAhead.from_text(text)
        return ahead
    if text.startswith(FILE):
        return policy_from_file(text.removeprefix(FILE))
    if not text.startswith(AGENT):
        name = text.partition(":")[0].strip()
        if name.lower() not in POLICIES and text.strip().lower() not in ROUND_BASED_POLICIES:
            raise UnknownNameError("policy", name, (*POLICIES, *ROUND_BASED_POLICIES, LOOKAHEAD))
        return as_policy(text)
    path, preference = agent_and_preference(text)
    if not path:
        raise InputError("a trained policy is written agent:PATH, for instance agent:runs/x/agent.json")
    if find_spec("kilowait.agents") is None:
        raise InputError(f"policy {text!r}: this kilowait has no trained policies; take a rule by name")
    agent = with_preference(import_module("kilowait.agents").load_agent(path), preference)
    found: Policy = getattr(agent, "rule", agent)  # a linear agent orders jobs by a priority
    return found


def policy_from_file(text: str) -> Policy:
    """The policy that a Python file defines, written FILE.py:NAME.

    NAME is a function decorated with `kilowait.policy`, a function of a view, or an object with the protocol
    `kilowait.Policy`. The file is run.
    """
    path, colon, name = text.rpartition(":")
    if not colon or not path or not name.isidentifier():
        raise InputError(f"the policy of a file is written rule:FILE.py:NAME, and this is 'rule:{text}'")
    source = Path(path)
    if not source.is_file():
        raise InputError(f"there is no file {path!r} to take the policy {name!r} from")
    spec = spec_from_file_location(f"kilowait_policy_{source.stem}", source)
    if spec is None or spec.loader is None:
        raise InputError(f"{path!r} is no Python file; its name must end with .py")
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
    """An agent with the preference it is told, as written; an error where it needs one, or takes none."""
    prefer = getattr(agent, "prefer", None)
    if prefer is None:
        if not preference:
            return agent
        raise InputError(
            f"the agent {agent.name!r} takes no preference, and is told {preference}: leave it out"
        )
    if preference:
        return prefer(**parse_preference(preference))
    agent.check_preference_fixed()
    return agent


def agent_and_preference(text: str) -> tuple[str, str]:
    """The path of a trained policy, and the preference that it is told, as written.

    >>> agent_and_preference("agent:runs/x/agent.pt:prefer=slowdown=0.3+energy=0.7")
    ('runs/x/agent.pt', 'slowdown=0.3+energy=0.7')
    >>> agent_and_preference("agent:runs/x/agent.pt")
    ('runs/x/agent.pt', '')
    """
    path, _, preference = text.removeprefix(AGENT).partition(PREFER)
    return path, preference


def parse_preference(text: str) -> dict[str, float]:
    """Weights as people write them.

    >>> parse_preference("slowdown=0.3+energy=0.7")
    {'slowdown': 0.3, 'energy': 0.7}
    """
    found = {}
    for part in text.split("+"):
        name, _, number = part.partition("=")
        try:
            found[name.strip()] = float(number)
        except ValueError:
            raise InputError(
                f"the preference {text!r} has {part.strip()!r}; write terms with their weights, such as "
                "slowdown=0.3+energy=0.7"
            ) from None
    return found
