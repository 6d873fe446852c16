"""`kilowait/Batch-v0`: the agent chooses the next job of a batch system; and runs of whole logs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.cluster import Cluster
from kilowait.engine.initial_state import build_initial_state
from kilowait.engine.interface import PriorityPolicy
from kilowait.engine.jit_entry import no_score_compiled
from kilowait.engine.kernels.state import State
from kilowait.engine.policy import RunInputs, settings_of
from kilowait.engine.pools import resource_pools
from kilowait.engine.settings import Settings
from kilowait.engine.simulator import Simulator
from kilowait.envs.batched_sim import BatchedSimulator, CopySettings, Decide, checked_actions, record, step_buffers
from kilowait.envs.custom_functions import CustomFunctions, Feature, check_features
from kilowait.envs.env import EngineEnv
from kilowait.envs.kernels.decision_batch import advance_to_decision, apply_action
from kilowait.envs.kernels.inline_network import NetworkWeights, inference_kernel
from kilowait.envs.kernels.observation_batch import write_observation
from kilowait.envs.kernels.reward import compute_reward, reset_reward
from kilowait.envs.kernels.state_stack import (
    COPY_RECORD,
    ENV_SETTINGS,
    LogArrays,
    prepare_log_arrays,
    reset,
    stack_states,
    static_score_kernel,
)
from kilowait.envs.kernels.step import START_PREPARED, KernelSet
from kilowait.envs.observation_spec import (
    FEATURES,
    PREDICTION_FEATURES,
    REQUEST_FEATURES,
    SUMMARY,
    ObservationSpec,
    fixed_features,
)
from kilowait.envs.reward_terms import Reward, user_numbers
from kilowait.envs.vector_env import EngineVectorEnv, plain_jobs
from kilowait.errors import InputError
from kilowait.jobs import ExecutionLog, JobTable
from kilowait.policies import resolve

KERNELS = KernelSet(
    "batch",
    "the training environment",
    "15 s",
    reset,
    advance_to_decision,
    apply_action,
    write_observation,
    reset_reward,
    compute_reward,
)


def external_policy() -> PriorityPolicy:
    """Placeholder policy for a run whose decisions come from outside the engine; its order may change at every pass."""
    return PriorityPolicy("agent", no_score_compiled(), time_dependent=True)


@dataclass(frozen=True)
class DecisionSettings:
    """Which decisions the agent takes, and what it observes."""

    queue_window: int = 128
    """Waiting jobs shown at once (the queue window)."""
    backfill: str | int = Settings.backfill
    """none, easy, or the number of reservations per group."""
    backfill_order: str | PriorityPolicy = "saf"
    """Priority policy of the backfill candidates, or "agent": the agent chooses these too."""
    at_limit: str = Settings.at_limit
    placement: str = Settings.placement
    overrun: str = Settings.overrun
    """double, steps or quantile: the new expected run time of a job that exceeds its planned one."""
    max_wait_s: float = np.inf
    """A job that has waited longer than this, seconds, must be chosen first."""
    hold: bool = False
    """Whether the last action starts no job until the next event."""
    graph: bool = False
    """Whether the observation has edges between jobs."""
    prediction_features: bool = False
    """Whether jobs have `observation_spec.PREDICTION_FEATURES`; the jobs need the column planned_s."""
    request_features: bool = False
    """Whether jobs have `REQUEST_FEATURES`: memory, priority, queue and account, where the log has them."""

    def __post_init__(self) -> None:
        if self.queue_window < 1 or not self.max_wait_s > 0:
            raise InputError(
                f"queue_window is {self.queue_window}, max_wait_s {self.max_wait_s}; give at least 1 and a time above 0"
            )
        if self.settings.depth > 1_000_000:
            raise InputError("backfill is conservative; agents choose with none, easy or a number of reservations")

    @property
    def settings(self) -> Settings:
        """The corresponding engine settings."""
        return Settings(self.backfill, self.at_limit, "instant", self.placement, False, "drop", self.overrun)

    @property
    def observation_spec(self) -> ObservationSpec:
        """The shape of observations."""
        features = (
            *FEATURES,
            *(PREDICTION_FEATURES if self.prediction_features else ()),
            *(REQUEST_FEATURES if self.request_features else ()),
        )
        return ObservationSpec(features, tuple(SUMMARY), self.queue_window, 1, int(self.hold), self.graph)


class BatchSimulator(BatchedSimulator):
    """Environment copies of a batch system, each on its own window of the log."""

    def __init__(
        self,
        jobs: JobTable,
        cluster: Cluster,
        decision_settings: DecisionSettings,
        reward: Reward,
        copies: CopySettings,
        state: State | None = None,
    ) -> None:
        """`state`: the state of a simulator of all jobs, which the only copy advances; None: new states."""
        spec, settings, resources = (
            decision_settings.observation_spec,
            decision_settings.settings,
            resource_pools(cluster),
        )
        log_state = build_initial_state(jobs, resources, settings, external_policy(), None)
        if state is None:
            window = jobs[: copies.episode_jobs]
            states = stack_states(
                build_initial_state(window, resources, settings, external_policy(), None), copies.copies
            )
        else:
            rows: list[Any] = [array[None] for array in state._replace(need=state.need.copy())]
            states = State(*rows)
        env_settings = record(ENV_SETTINGS, **shared_settings(log_state, decision_settings, reward, copies))
        buffers = step_buffers(env_settings, COPY_RECORD, spec, reward.vector(), copies.copies)
        log_arrays = log_arrays_for(jobs, cluster, log_state, decision_settings, copies)
        super().__init__(KERNELS, states, buffers, log_arrays, copies.threads)

    def _changing_arrays(self) -> dict[str, npt.NDArray[Any]]:
        arrays = super()._changing_arrays() | {"user_weight": self.log_arrays.user_weight}
        del arrays["buffers.cut"]  # always False
        return arrays


def shared_settings(
    log_state: Any, decision_settings: DecisionSettings, reward: Reward, copies: CopySettings
) -> dict[str, Any]:
    """Fields of ENV_SETTINGS."""
    return {
        "nodes": sum(int(log_state.pools["capacity"][lo]) for lo in log_state.groups["pool_lo"]),
        "max_wait_s": decision_settings.max_wait_s,
        "sla_s": reward.sla_s,
        "agent_backfills": decision_settings.backfill_order == "agent",
        "hold": decision_settings.hold,
        "autoreset": copies.autoreset,
    }


def check_cluster(cluster: Cluster, environment: str) -> None:
    """Raise an error for a cluster that this environment of a batch system does not simulate."""
    if cluster.node_level or cluster.outages or cluster.reservations:
        raise InputError(
            f"cluster {cluster.name!r} has node-level (GPU) groups, outages or reservations, which {environment} does "
            "not simulate; use kilowait/Gpu-v0 for GPU clusters, or a cluster without outages and reservations"
        )


def log_arrays_for(
    jobs: JobTable, cluster: Cluster, log_state: Any, decision_settings: DecisionSettings, copies: CopySettings
) -> LogArrays:
    """The log arrays of these jobs, from their state before the first event."""
    order = decision_settings.backfill_order
    return prepare_log_arrays(
        log_state,
        fixed_features(
            jobs,
            cluster.size,
            predictions=decision_settings.prediction_features,
            requests=decision_settings.request_features,
        ),
        user_numbers(jobs),
        np.ascontiguousarray(jobs["account"] if "account" in jobs else np.full(len(jobs), -1), np.int64),
        np.zeros(len(jobs)) if order == "agent" else static_scores(resolve(order), jobs, cluster, log_state.jobs),
        copies.episode_jobs,
        copies.copies,
    )


def static_scores(
    policy: PriorityPolicy, jobs: JobTable, cluster: Cluster, job_records: npt.NDArray[Any]
) -> npt.NDArray[np.float64]:
    """Scores, one per job, of a priority policy whose order does not depend on time."""
    scores = []
    if policy.compiled and not (policy.time_dependent or policy.observes_jobs or policy.predicts):
        values = policy.parameters if policy.prepare is None else policy.prepare(jobs, cluster)
        for shift_s in (0.0, 86400.0):
            job_records["submit_s"] = jobs["submit_s"] + shift_s
            job_records["since_first_s"] = job_records["submit_s"] - jobs["submit_s"][0]
            job_records["number"] = np.arange(len(jobs))
            scores.append(np.zeros(len(jobs)))
            static_score_kernel()(
                np.asarray(job_records), scores[-1], policy.score, np.ascontiguousarray(values, np.float64)
            )
    orders = [np.argsort(values, kind="stable") for values in scores]
    if not orders or not np.array_equal(orders[0], orders[1]):
        raise InputError(
            f"the backfill order {policy.name!r} changes during the run, or is not compiled; use "
            'fcfs, sjf, saf or another policy with a static order, or "agent" to let the agent choose'
        )
    return scores[0]


class BatchVectorEnv(EngineVectorEnv):
    """Copies of a batch system, each on its own window of the log; an action chooses the next job.

    >>> import gymnasium, kilowait as kw, kilowait.envs
    >>> jobs = kw.lublin(jobs=300, nodes=64, seed=1)
    >>> vec = gymnasium.make_vec(
    ...     "kilowait/Batch-v0",
    ...     num_envs=4,
    ...     vectorization_mode="vector_entry_point",
    ...     jobs=jobs,
    ...     cluster=kw.Cluster.from_nodes(64),
    ... )
    >>> observation, _ = vec.reset(seed=0)
    >>> observation["jobs"].shape, bool(observation["mask"].any())
    ((4, 128, 10), True)

    Arguments beside those of `EngineVectorEnv` are fields of `DecisionSettings`.
    """

    default_weights = {"slowdown": 1.0}  # noqa: RUF012 - never changed

    def _make_simulator(
        self, jobs: JobTable, copies: CopySettings, settings: dict[str, Any]
    ) -> tuple[JobTable, BatchedSimulator, ObservationSpec]:
        check_cluster(self.cluster, "kilowait/Batch-v0")
        self.decision_settings, table = DecisionSettings(**settings), plain_jobs(jobs)
        simulator = BatchSimulator(table, self.cluster, self.decision_settings, self.reward, copies)
        return table, simulator, self.decision_settings.observation_spec


class BatchEnv(EngineEnv):
    """A batch system on windows of a log: the agent chooses the next job. Arguments as of `BatchVectorEnv`.

    >>> import gymnasium, kilowait as kw, kilowait.envs
    >>> jobs = kw.lublin(jobs=300, nodes=64, seed=1)
    >>> env = gymnasium.make("kilowait/Batch-v0", jobs=jobs, cluster=kw.Cluster.from_nodes(64))
    >>> observation, info = env.reset(seed=0)
    >>> observation["summary"].shape, int(env.action_space.n), info["job_id"].shape
    ((11,), 128, (128,))
    """

    vector_env_type = BatchVectorEnv


@dataclass(frozen=True, eq=False)
class ObservationPolicy:
    """A policy that decides from the observations of `kilowait/Batch-v0`: an SB3 model, a network, any function.

    `kilowait.simulate` and `kilowait.compare` take it like any other policy. Backfilling, limits, placement and
    overruns are those of the run; the other decision settings must be those of the training.

    >>> import kilowait as kw
    >>> jobs, cluster = kw.lublin(200, nodes=32, load=0.9, seed=1), kw.Cluster.from_nodes(32)
    >>> oldest = ObservationPolicy("oldest", lambda observation: observation["mask"].argmax(axis=1))
    >>> kw.compare(jobs, cluster, ["saf", oldest]).labels
    ('saf', 'oldest')
    """

    name: str
    decide: Decide | NetworkWeights
    """From an observation with one row (`jobs`, `mask`, `summary`) to an array with one action; or network weights."""
    decision_settings: DecisionSettings = field(default_factory=DecisionSettings)
    features: Sequence[Feature] = ()
    """Custom features of the training."""

    def run(self, inputs: RunInputs) -> ExecutionLog:
        """Simulate a run under these decisions."""
        settings = settings_of(inputs, self.name)
        if inputs.power_controls is not None:
            raise InputError(
                f"policy {self.name!r} decides in kilowait/Batch-v0, which has no power controls: leave them out"
            )
        decision_settings = replace(
            self.decision_settings,
            backfill=settings.backfill,
            at_limit=settings.at_limit,
            placement=settings.placement,
            overrun=settings.overrun,
            max_wait_s=min(self.decision_settings.max_wait_s, settings.max_wait_s),
        )
        return run_policy(
            inputs.jobs,
            inputs.cluster,
            self.decide,
            decision_settings=decision_settings,
            settings=settings,
            name=self.name,
            features=self.features,
        )


def run_policy(
    jobs: JobTable,
    cluster: Cluster,
    decide: Decide | NetworkWeights,
    *,
    decision_settings: DecisionSettings | None = None,
    settings: Settings | None = None,
    name: str = "agent",
    features: Sequence[Feature] = (),
) -> ExecutionLog:
    """Replay `jobs` on `cluster` with the decisions of `decide`; `NetworkWeights` are evaluated inside the engine.

    `settings` may have what episodes do not simulate: dependencies, and jobs that fit no group. Cancelled jobs, outages
    and reservations of the cluster are as in `kilowait.simulate`. `features` are custom features of the observation.

    >>> import kilowait as kw
    >>> jobs = kw.JobTable(job_id=[1, 2, 3], submit_s=[0, 1, 2], runtime_s=[9, 9, 3], nodes=[2, 2, 2])
    >>> log = run_policy(
    ...     jobs, kw.Cluster.from_nodes(2), lambda observation: observation["mask"].sum(axis=1) - 1
    ... )  # the last submitted
    >>> log.jobs()["start_s"].tolist()
    [0.0, 12.0, 9.0]
    """
    decision_settings = DecisionSettings() if decision_settings is None else decision_settings
    settings = decision_settings.settings if settings is None else settings
    jobs = cluster.sized(jobs)
    simulator = Simulator(jobs, cluster, settings, policy=replace(external_policy(), name=name))
    copies = CopySettings(1, len(jobs), threads=1)
    env_simulator = BatchSimulator(
        simulator.table, cluster, decision_settings, Reward({"wait": 1.0}), copies, simulator.state
    )
    buffers: Any = env_simulator.buffers
    buffers.copies["jobs"] = np.iinfo(np.int64).max  # run to the last event: some jobs may never start
    env_simulator.step(np.array([START_PREPARED]))
    if isinstance(decide, NetworkWeights):
        arrays = (env_simulator.states, env_simulator.buffers, env_simulator.log_arrays, decide)
        inference_kernel(*arrays)(*arrays, 0, 1)
    custom = CustomFunctions(
        env_simulator, simulator.table, features=check_features(features, decision_settings.observation_spec.features)
    )
    while not buffers.over[0]:
        observation = custom.add_features(env_simulator.observed(copy=False))
        env_simulator.step(checked_actions(decide(observation), 1, buffers.mask.shape[1]))  # type: ignore[operator]
    return simulator.log()
