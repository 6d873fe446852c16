"""`kilowait/Energy-v0`, many copies at once."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import Any

from gymnasium.vector import AutoresetMode

from kilowait.cluster import Cluster
from kilowait.energy.controls import ForecastFactory
from kilowait.energy.power import PowerModel, UtilizationProfile
from kilowait.envs.power.batched_sim import EnergyBatchedSimulator, EnergyDecisionSettings
from kilowait.envs.power.power_setup import PowerConfig, Signal
from kilowait.envs.power.reward_terms import TERMS, USUAL
from kilowait.envs.reward_terms import Reward
from kilowait.envs.vector_env import (
    MODES,
    EngineVectorEnv,
    check_sizes,
    default_reward,
    plain_jobs,
)
from kilowait.errors import InputError
from kilowait.jobs import JobTable

__all__ = ["EnergyVectorEnv"]


class EnergyVectorEnv(EngineVectorEnv):
    """Copies of a batch system with its power, all asked "who is next, how fast, or shall all wait?".

    Action ``slot * levels + level`` starts the job, or reserves for it, at that level (under a budget at that or the
    first slower one that fits). Then come ``hold``: nobody until the next event, the next step of a signal or the end
    of `hold_s`; and, where nodes can sleep, ``sleep``: all idle nodes but those that the levers keep awake; and
    ``wake``: as many sleeping ones as waiting jobs ask for beyond those awake. Where nobody can be chosen but nodes can
    be put to sleep or woken, that alone is asked, and hold leaves them as they are.

    >>> import gymnasium, kilowait as kw
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
    ...     levers="sleep=break-even+dvfs=1.1",
    ... )
    >>> seen, _ = vec.reset(seed=0)
    >>> seen["jobs"].shape, vec.unwrapped.seen.choices, vec.unwrapped.seen.extra
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
        levers: str = "all",
        forecast: str | ForecastFactory = "perfect",
        profile: UtilizationProfile | None = None,
        cooling: str | None = None,
        start: str | None = None,
        wrap: bool = False,
        episode_jobs: int = 256,
        reward: Mapping[str, float] | None = None,
        preferences: Mapping[str, float] | None = None,
        sla_s: float = 4 * 3600.0,
        autoreset_mode: AutoresetMode = AutoresetMode.NEXT_STEP,
        threads: int | None = None,
        copy: bool = True,
        seed: int = 0,
        **asking: Any,
    ) -> None:
        """`num_envs` copies.

        Args:
            num_envs: copies.
            jobs: the log; episodes are windows of it, until all jobs have ended. None is withdrawn in an episode, none
                waits for another and none is held by a rule.
            cluster: the machine, without outages and reservations.
            power: a preset, a TOML file, a PowerModel, or auto: the preset with the cluster's name.
            carbon: intensity over time: a Series or a file that `kilowait.energy.read_carbon` reads; None: no CO2.
            price: of electricity: a Series or a file that `kilowait.energy.read_price` reads; None: no cost.
            levers: as on the command line, without hold: ``sleep=RULE`` lets idle nodes fall asleep by that rule too
                (``sleep=timeout:1000d``: only when told), ``dvfs=SLOWDOWN`` says how many times as long a job may be
                made, ``budget=WATTS`` limits the power; all: break-even and 1.1, as far as the machine has them.
            forecast: what is told of the signals: perfect, persistence, noisy[:GRID], or a maker of forecasts.
            profile: utilization of jobs whose power and utilization are not known; None: full load.
            cooling: instead of the model's own, such as pue:1.2; none that depends on the weather.
            start: moment of the first submission, for logs without dates.
            wrap: whether signals that are too short are repeated. Beyond 30 days after the last submission the last
                value holds.
            episode_jobs: jobs in an episode.
            reward: weights of energy.rewards.TERMS; None: {"turnaround": 1, "energy": 1}.
            preferences: instead of a reward, terms whose weights are drawn anew for every episode, and the unit of
                each (`envs.preferences`).
            sla_s: wait beyond which the agreement is violated, seconds.
            autoreset_mode: as Gymnasium defines them.
            threads: of the engine; None: one a core.
            copy: whether observations are new arrays every step, or the same ones, overwritten.
            seed: of the windows, until `reset` is given one.
            asking: fields of `energy.board.EnergyAsking`: slots, backfill, hold_s, max_wait_for_hold_s, turns ...
        """
        check_sizes(num_envs, jobs, episode_jobs, threads)
        if cluster.node_level or cluster.outages or cluster.reservations:
            raise InputError(
                f"cluster {cluster.name!r} has placed nodes, outages or reservations; episodes of kilowait/Energy-v0 "
                "know none: take kilowait/Gpu-v0 for placed nodes, or a cluster without outages and reservations"
            )
        self.cluster, self.asking = cluster, EnergyDecisionSettings(**asking)
        self.reward = Reward(default_reward(reward, preferences, USUAL), sla_s, TERMS)
        mode, table = AutoresetMode(autoreset_mode), plain_jobs(jobs)
        if "hold_until_s" in table:
            table = table.with_columns(hold_until_s=None)
        self.powered = PowerConfig(power, carbon, price, levers, forecast, profile, cooling, start, wrap).of(
            table, cluster, episode_jobs
        )
        if len(self.powered.levers.budget or ()) > 1:
            raise InputError(
                f"levers {levers!r}: the budget changes by the hour; episodes of kilowait/Energy-v0 know one budget: "
                "give it without hours"
            )
        board = EnergyBatchedSimulator(
            table,
            cluster,
            self.asking,
            self.reward,
            self.powered,
            copies=num_envs,
            episode_jobs=episode_jobs,
            autoreset=MODES[mode],
            threads=threads,
        )
        super().__init__(
            board,
            self.asking.shown(self.powered),
            table,
            episode_jobs=episode_jobs,
            autoreset_mode=mode,
            copy=copy,
            seed=seed,
            preferences=preferences,
        )
