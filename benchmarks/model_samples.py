"""Saved predictors, agents and states of every kind, and their use after loading; for `benchmarks.fuzz_models`."""

from __future__ import annotations

import contextlib
import io
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import kilowait as kw
from kilowait.agents.evolution.cma_es import EvolutionStrategy
from kilowait.agents.evolution.search import CheckpointDir, Generation, SearchCheckpoint
from kilowait.agents.linear_batch import LinearAgent, default_weights, user_histories
from kilowait.agents.linear_gpu import agent_equal_to_policy
from kilowait.agents.linear_power import agent_from_controls
from kilowait.agents.network_policies import settings_to_dict
from kilowait.agents.networks import network, q_network
from kilowait.agents.networks.factory import save_network
from kilowait.cli.output.predict import show_card
from kilowait.envs.batch_env import DecisionSettings
from kilowait.envs.energy_env import EnergyDecisionSettings
from kilowait.envs.gpu_env import GpuDecisionSettings
from kilowait.envs.power_setup import PowerConfig
from kilowait.jobs import JobTable
from kilowait.predict.dataset import Dataset, make_dataset
from kilowait.predict.forest import BoostingSettings, ForestSettings
from kilowait.predict.job_history import from_log
from kilowait.predict.models import PredictionModel
from kilowait.predict.predictor import fit, load
from kilowait.predict.targets import energy

__all__ = ["SAMPLES", "Sample"]

PREDICTORS = ("forest", "forest:quantile:0.9", "boosting:mean", "boosting:quantile:0.8", "random-forest", "last2")
SETTINGS: dict[str, Any] = {
    "forest": ForestSettings(trees=3, leaves=7),
    "boosting": BoostingSettings(trees=4, leaves=5),
}
NODES = 16


@dataclass(frozen=True)
class Sample:
    """A saved object: how its files are written, and how it is loaded and used."""

    write: Callable[[Path], None]
    """Write the files into an empty folder."""
    use: Callable[[Path], None]
    """Load the object and use it; raises AssertionError if a result is not finite or not valid."""


@cache
def _jobs(count: int = 120) -> JobTable:
    jobs = kw.lublin(count, nodes=NODES, load=0.9, seed=1)
    columns = {name: jobs[name] for name in jobs.columns}
    columns |= {"user": np.arange(count) % 3, "wait_s": np.zeros(count)}
    return JobTable(labels={"user": ("ann", "bob", "cy")}, **columns)


@cache
def _dataset() -> Dataset:
    jobs = _jobs(400)
    return make_dataset(jobs, from_log(jobs), NODES)


def _predictor(name: str) -> Sample:
    def write(folder: Path) -> None:
        model = PredictionModel.of(name)
        settings = SETTINGS.get("boosting" if model.family == "boosting" else "forest")
        settings = None if model.family == "baseline" else settings
        fit(_dataset(), model, nodes=NODES, data="sample", settings=settings).save(folder)

    def use(folder: Path) -> None:
        predictor = load(folder)
        predicted = predictor.predict(_dataset())
        for part in ("value", "low", "median", "high"):
            values = getattr(predicted, part)
            assert np.isfinite(values).all() and (values >= 0).all(), f"{part} is not finite, or below 0"
            assert (values <= _dataset().target.max_value).all(), f"{part} is above the request"
        assert (predicted.low <= predicted.median).all() and (predicted.median <= predicted.high).all(), "bounds cross"
        with contextlib.redirect_stdout(io.StringIO()):
            show_card(predictor)

    return Sample(write, use)


@cache
def _metered(is_measured: bool) -> Dataset:
    """Energy of the jobs, or an unknown energy of the same jobs."""
    jobs = _jobs(400)
    if is_measured:
        jobs = jobs.with_columns(energy_j=jobs["runtime_s"] * jobs["nodes"] * (100.0 + 10.0 * jobs["user"]))
    times = from_log(jobs)
    return make_dataset(jobs, times, NODES, energy(jobs, times, require_measured=False))


def _energy_predictor(folder: Path) -> None:
    fit(_metered(True), PredictionModel.of("forest"), nodes=NODES, data="sample", settings=SETTINGS["forest"]).save(
        folder
    )


def _use_energy_predictor(folder: Path) -> None:
    predictor = load(folder)
    for is_measured in (True, False):
        predicted = predictor.predict(_metered(is_measured))
        for values in (predicted.value, predicted.low, predicted.median, predicted.high):
            assert np.isfinite(values).all() and (values >= 0).all(), "joules are not finite, or below 0"
    with contextlib.redirect_stdout(io.StringIO()):
        show_card(predictor)


def _check_run(jobs: JobTable, cluster: Any, agent: Any) -> None:
    started = kw.simulate(jobs, cluster, agent).jobs()["start_s"]
    assert np.isfinite(started).all() and len(started) == len(jobs), "jobs without a start"


def _batch_agent(folder: Path) -> None:
    history = user_histories(_jobs(), [100])[100]
    LinearAgent(default_weights(), provenance={"seed": 0}, user_history=history).save(folder / "agent.json")


def _use_batch(folder: Path) -> None:
    agent = kw.load_agent(folder)
    assert np.isfinite(agent.weights).all() if hasattr(agent, "weights") else True
    _check_run(_jobs(30), kw.Cluster.from_nodes(NODES), agent)


@cache
def _gpu_log() -> tuple[JobTable, Any]:
    jobs = JobTable(
        job_id=np.arange(12), submit_s=np.arange(12) * 60.0, runtime_s=np.full(12, 600.0),
        estimate_s=np.full(12, 900.0), nodes=np.ones(12), gpus=1 + np.arange(12) % 3, cores=np.ones(12),
    )  # fmt: skip
    return jobs, kw.Cluster.preset("gpu-mixed")


def _use_gpu(folder: Path) -> None:
    _check_run(*_gpu_log(), kw.load_agent(folder))


@cache
def _power() -> PowerConfig:
    return PowerConfig("taurus", power_controls="sleep=timeout:600")


def _use_power(folder: Path) -> None:
    agent: Any = kw.load_agent(folder)
    bound = agent.bind_power(_power()) if hasattr(agent, "bind_power") else agent
    _check_run(_jobs(30), kw.Cluster.from_nodes(NODES), bound)


def _network(kind: str, build: Callable[..., Any] = network, **options: Any) -> Sample:
    def write(folder: Path) -> None:
        decisions = DecisionSettings(queue_window=8, graph=kind == "gat")
        built = build(decisions.observation_spec, kind, seed=1, width=8, depth=1, **options)
        save_network(built, folder / "agent.pt", provenance={"decision_settings": settings_to_dict(decisions)})

    return Sample(write, _use_batch)


def _gpu_network(folder: Path) -> None:
    decisions = GpuDecisionSettings(queue_window=8, by_type=False, preempt=True, victims=4)
    built = network(decisions.observation_spec(_gpu_log()[1]), "kernel", seed=1, width=8, depth=1)
    provenance = {
        "env": "kilowait/Gpu-v0",
        "decision_settings": settings_to_dict(decisions),
        "gpu_settings": {"gpu_type_order": "fastest", "placement": "best", "migrate": True},
    }
    save_network(built, folder / "agent.pt", provenance=provenance)


def _energy_network(folder: Path) -> None:
    decisions = EnergyDecisionSettings(queue_window=8)
    setup = _power().setup(_jobs(30), kw.Cluster.from_nodes(NODES), 30)
    built = network(decisions.observation_spec_for(setup), "kernel", seed=1, width=8, depth=1)
    provenance = {
        "env": "kilowait/Energy-v0",
        "decision_settings": settings_to_dict(decisions),
        "power_controls": "sleep=timeout:600",
    }
    save_network(built, folder / "agent.pt", provenance=provenance)


def _search(folder: Path) -> None:
    checkpoint = SearchCheckpoint({"seed": 0}, 2, CheckpointDir(folder))
    checkpoint.start_scores([0, 1], lambda _: np.array([[1.0, 2.0], [2.0, 1.0]]))
    search = EvolutionStrategy([0.0, 1.0], step=1.0, seed=0)
    for _ in checkpoint.remaining_generations(search, np.random.default_rng(0)):
        points = search.ask()
        search.tell(points, (points**2).sum(axis=1))
        checkpoint.path.append(search.mean)
        checkpoint.close(Generation(1, 2, 1.0, 1.0, 1.0, 0.1))
        break


def _use_search(folder: Path) -> None:
    checkpoint = SearchCheckpoint({"seed": 0}, 3, CheckpointDir(folder, resume=True))
    search = EvolutionStrategy([0.0, 1.0], step=1.0, seed=0)
    next(checkpoint.remaining_generations(search, np.random.default_rng(0)))
    assert np.isfinite(search.ask()).all(), "candidates that are not finite"


def _file(name: str, save: Callable[[Path], object]) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        save(folder / name)

    return write


SAMPLES: dict[str, Sample] = {
    **{f"predictor {name}": _predictor(name) for name in PREDICTORS},
    "predictor of energy": Sample(_energy_predictor, _use_energy_predictor),
    "linear batch agent": Sample(_batch_agent, _use_batch),
    "linear GPU agent": Sample(
        _file("agent.json", lambda path: agent_equal_to_policy("srtf", 56, gpu_type_order="fastest").save(path)),
        _use_gpu,
    ),
    "linear power agent": Sample(
        _file("agent.json", lambda path: agent_from_controls(NODES, slowdown=0.1, timeout_s=600.0).save(path)),
        _use_power,
    ),
    "kernel network": _network("kernel"),
    "attention network": _network("attention"),
    "graph network": _network("gat"),
    "dueling network": _network("kernel", q_network, noisy=True, atoms=5, span=(-3.0, 1.0)),
    "GPU network": Sample(_gpu_network, _use_gpu),
    "energy network": Sample(_energy_network, _use_power),
    "state of a search": Sample(_search, _use_search),
}
"""Samples by kind."""


@cache
def sample_files(kind: str) -> dict[str, bytes]:
    """The files of a sample, by name."""
    with tempfile.TemporaryDirectory() as folder:
        SAMPLES[kind].write(Path(folder))
        return {file.name: file.read_bytes() for file in sorted(Path(folder).iterdir())}
