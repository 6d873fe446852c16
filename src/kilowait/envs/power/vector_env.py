"""`kilowait/Energy-v0`, vector environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any

from gymnasium.vector import AutoresetMode

from kilowait.cluster import Cluster
from kilowait.energy.controls import ForecastFactory
from kilowait.energy.power import PowerModel, UtilizationProfile
from kilowait.envs.custom_functions import Feature
from kilowait.envs.power.batched_sim import EnergyBatchedSimulator, EnergyDecisionSettings
from kilowait.envs.power.power_setup import PowerConfig, Signal
from kilowait.envs.power.reward_terms import DEFAULT_WEIGHTS, TERMS
from kilowait.envs.reward_terms import Reward, RewardWeights
from kilowait.envs.vector_env import EngineVectorEnv, check_sizes, default_reward, kernel_autoreset, plain_jobs
from kilowait.errors import InputError
from kilowait.jobs import JobTable

__all__ = ["EnergyVectorEnv"]


class EnergyVectorEnv(EngineVectorEnv):
    """Copies of a batch system with power controls; an action chooses the next job and its DVFS state.

    Action ``slot * levels + level`` starts the job, or makes a reservation for it, at that DVFS state (under a power
    budget at that or the first slower state that fits). Then comes ``hold``: start no job until the next event, the
    next step of a signal or the end of `hold_s`. Where nodes can sleep, two more follow. ``sleep`` puts all idle nodes
    to sleep but those that the power controls keep awake; ``wake`` wakes as many nodes as waiting jobs need beyond
    those awake. Where no job can be chosen but nodes can be put to sleep or woken, only that is decided, and hold
    leaves them unchanged.

    >>> import gymnasium, kilowait as kw, kilowait.envs
    >>> from kilowait.series import Series
    >>> jobs = kw.lublin(jobs=300, nodes=64, seed=1)
    >>> vec = gymnasium.make_vec(
    ...     "kilowait/Energy-v0",
    ...     num_envs=4,
    ...     vectorization_mode="vector_entry_point",
    ...     jobs=jobs,
    ...     cluster=kw.Cluster.from_nodes(64),
    ...     power="taurus",
    ...     carbon=Series.constant(400, "g/kWh"),
    ...     power_controls="sleep=break-even+dvfs=1.1",
    ... )
    >>> observation, _ = vec.reset(seed=0)
    >>> (observation["jobs"].shape, vec.unwrapped.observation_spec.choices, vec.unwrapped.observation_spec.extra)
    ((4, 128, 13), 3, 3)
    """

    term_names = tuple(TERMS)

    def __init__(
        self,
        num_envs: int = 1,
        *,
        jobs: JobTable,
        cluster: Cluster,
        power: PowerModel | str | PathLike[str] = "auto",
        carbon: Signal | None = None,
        price: Signal | None = None,
        power_controls: str = "all",
        forecast: str | ForecastFactory = "perfect",
        utilization: UtilizationProfile | None = None,
        cooling: str | None = None,
        log_start: str | None = None,
        repeat_signals: bool = False,
        episode_jobs: int = 256,
        reward: RewardWeights | None = None,
        features: Sequence[Feature] = (),
        preferences: Mapping[str, float] | None = None,
        sla_s: float = 4 * 3600.0,
        autoreset_mode: AutoresetMode = AutoresetMode.NEXT_STEP,
        threads: int | None = None,
        copy: bool = True,
        seed: int = 0,
        job_info: bool = False,
        **decision_settings: Any,
    ) -> None:
        """A vector environment.

        Args:
            num_envs: number of environment copies.
            jobs: the log; episodes are windows of it, until all jobs have ended. Cancellations, dependencies and
                load shifting (hold_until_s) of jobs are ignored.
            cluster: the machine, without outages and reservations.
            power: a preset, a TOML file, a PowerModel, or auto: the preset with the cluster's name.
            carbon: carbon intensity over time: a Series or a file that `kilowait.energy.read_carbon` reads; None: no
                CO2.
            price: electricity price over time: a Series or a file that `kilowait.energy.read_price` reads; None: no
                cost.
            power_controls: power controls as text, without load shifting: ``sleep=POLICY`` lets idle nodes also sleep
                by that policy (``sleep=timeout:1000d``: only by action), ``dvfs=SLOWDOWN`` limits the slowdown of a job
                by DVFS, ``budget=WATTS`` limits the power; all: break-even and 1.1, as far as the machine has them.
            forecast: forecast of the signals: perfect, persistence, noisy[:GRID], or a function that returns a
                forecast.
            utilization: assumed utilization of jobs whose power and utilization are unknown; None: full load.
            cooling: replaces the cooling of the power model, such as pue:1.2; it must not depend on the weather.
            log_start: date of the first submission, for logs without dates.
            repeat_signals: whether signals that are too short are repeated. More than 30 days after the last
                submission, the last value is used.
            episode_jobs: jobs in an episode.
            reward: reward term to weight; None: {"turnaround": 1, "energy": 1}. A term is a name in
                `power.reward_terms.TERMS`, a `kilowait.envs.RewardTerm`, or a function of the jobs that started in the
                step.
            features: custom features of the shown jobs (`kilowait.envs.Feature`), after the built-in ones.
            preferences: instead of a reward: reward terms whose weights are sampled for every episode, and the unit
                of each (see `kilowait.envs.preferences`).
            sla_s: wait that violates the service level, seconds.
            autoreset_mode: as Gymnasium defines it.
            threads: threads of the engine; None: one per core.
            copy: whether every step returns new arrays, or the same ones, overwritten.
            seed: seed of the windows, until `reset` is given one.
            job_info: whether `infos` has ids and users of the shown jobs.
            decision_settings: fields of `EnergyDecisionSettings`: queue_window, backfill, hold_s, max_wait_for_hold_s,
                sleep_actions ...
        """
        check_sizes(num_envs, jobs, episode_jobs, threads)
        if cluster.node_level or cluster.outages or cluster.reservations:
            raise InputError(
                f"cluster {cluster.name!r} has node-level (GPU) groups, outages or reservations, which "
                "kilowait/Energy-v0 does not simulate; use kilowait/Gpu-v0 for GPU clusters, or a cluster without "
                "outages and reservations"
            )
        self.cluster, self.decision_settings = cluster, EnergyDecisionSettings(**decision_settings)
        self.reward = Reward(default_reward(reward, preferences, DEFAULT_WEIGHTS), sla_s, TERMS)
        mode, table = AutoresetMode(autoreset_mode), plain_jobs(jobs)
        if "hold_until_s" in table:
            table = table.with_columns(hold_until_s=None)
        self.power_setup = PowerConfig(
            power, carbon, price, power_controls, forecast, utilization, cooling, log_start, repeat_signals
        ).setup(table, cluster, episode_jobs)
        if len(self.power_setup.power_controls.budget or ()) > 1:
            raise InputError(
                f"power controls {power_controls!r}: the power budget changes by the hour, and kilowait/Energy-v0 has "
                "one constant budget; give it without hours"
            )
        simulator = EnergyBatchedSimulator(
            table,
            cluster,
            self.decision_settings,
            self.reward,
            self.power_setup,
            copies=num_envs,
            episode_jobs=episode_jobs,
            autoreset=kernel_autoreset(mode, self.reward, features),
            threads=threads,
        )
        super().__init__(
            simulator,
            self.decision_settings.observation_spec_for(self.power_setup),
            table,
            episode_jobs=episode_jobs,
            autoreset_mode=mode,
            copy=copy,
            seed=seed,
            preferences=preferences,
            features=features,
            job_info=job_info,
        )
