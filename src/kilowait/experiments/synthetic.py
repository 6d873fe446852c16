"""Learned workloads: a log becomes a generator's folder, that becomes a file of jobs, and those get a score."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import isfinite
from os import PathLike
from pathlib import Path
from typing import Any

from kilowait.cluster import Cluster
from kilowait.errors import InputError
from kilowait.evaluation import metrics
from kilowait.evaluation.folders import save_folder
from kilowait.evaluation.folders.writing import check_free
from kilowait.experiments.inputs import brought_to_load, cluster_of, load_of
from kilowait.jobs import JobTable
from kilowait.policies import simulate
from kilowait.synth import Generator, fit_generator, load_generator
from kilowait.synth.conditions import Wanted
from kilowait.synth.fidelity import Fidelity, fidelity
from kilowait.synth.generator import Told
from kilowait.synth.privacy import Anonymity, Leaks, anonymity, leaks
from kilowait.traces import write_trace

__all__ = ["Score", "Wait", "fit_folder", "parse_settings", "sample_file", "score", "waits"]

POLICIES = ("fcfs", "sjf")


def parse_settings(text: str) -> dict[str, float | str]:
    """Settings of a generator: ``passes=10,draws=2``. What is no number is a word.

    >>> parse_settings("passes=10,session_s=900.5,python=/opt/sdv/bin/python")
    {'passes': 10, 'session_s': 900.5, 'python': '/opt/sdv/bin/python'}
    """
    found: dict[str, float | str] = {}
    for part in text.split(","):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not (name and equals and value):
            raise InputError(
                f"the settings have {part!r}; write name=value, with commas between: passes=10,draws=2"
            )
        try:
            number = float(value)
        except ValueError:
            found[name] = value
            continue
        if not isfinite(number):
            raise InputError(f"the settings have {part!r}; a number must be finite")
        found[name] = int(number) if number == int(number) else number
    return found


def fit_folder(
    jobs: JobTable,
    model: str,
    out: str | PathLike[str],
    *,
    seed: int = 0,
    names: bool = False,
    settings: Mapping[str, Any] | None = None,
    manifest: Mapping[str, Any] | None = None,
    force: bool = False,
    told: Told | None = None,
) -> Generator:
    """Fit a generator and write its folder, whole or not at all."""
    check_free(out, force=force)
    generator = fit_generator(jobs, model, seed=seed, names=names, told=told, **(settings or {}))
    save_folder(out, generator.save, kind="generator", manifest=manifest, force=force)
    return generator


def sample_file(
    folder: str | PathLike[str],
    jobs: int,
    out: str | PathLike[str],
    *,
    seed: int = 0,
    conditions: Mapping[str, Wanted] | None = None,
    load: float | None = None,
    cluster: str = "auto",
    format: str | None = None,
    trust: str | None = None,
    told: Told | None = None,
) -> tuple[JobTable, float]:
    """Write a file of generated jobs, at another load if wanted; the jobs, and their offered load."""
    made = load_generator(folder, trust=trust).sample(jobs, seed=seed, conditions=conditions, told=told)
    machine, _ = cluster_of(cluster, made)
    made = brought_to_load(made, machine, load)
    Path(out).parent.mkdir(parents=True, exist_ok=True)
    write_trace(made, out, format=format, cluster=machine)
    return made, load_of(made, machine)


@dataclass(frozen=True)
class Wait:
    """What people would wait under one rule with EASY backfilling, seconds on average."""

    policy: str
    real_s: float
    made_s: float

    @property
    def ratio(self) -> float:
        """Generated over real."""
        return self.made_s / self.real_s if self.real_s > 0 else float("nan")


@dataclass(frozen=True)
class Score:
    """How like a generated workload is to a real one, and what it gives away."""

    jobs: tuple[int, int]
    """Real and generated."""
    loads: tuple[float, float]
    fidelity: Fidelity
    waits: tuple[Wait, ...]
    anonymity: tuple[Anonymity, Anonymity]
    leaks: Leaks | None
    """None where no held-out jobs were given."""

    def document(self) -> dict[str, Any]:
        """All of it as plain data."""
        return {
            **asdict(self),
            "waits": [{**asdict(wait), "ratio": wait.ratio} for wait in self.waits],
            "worst_ks": asdict(self.fidelity.worst_ks),
            "worst_pair": asdict(self.fidelity.worst_pair),
        }


def score(
    real: JobTable,
    made: JobTable,
    *,
    held_out: JobTable | None = None,
    cluster: str = "auto",
    policies: Sequence[str] = POLICIES,
    seed: int = 0,
    told: Told | None = None,
) -> Score:
    """Compare generated jobs with real ones.

    Args:
        real: what the generator was fitted to.
        made: generated.
        held_out: real jobs that the generator has not seen, for measures of privacy.
        cluster: the machine on which both are simulated; auto is the real log's.
        policies: rules to simulate, each with EASY backfilling.
        seed: of the classifier and of the choice of rows.
        told: hears of progress.
    """
    heard = told or (lambda what, share: None)
    machine, _ = cluster_of(cluster, real)
    heard("comparing columns", 0.0)
    alike = fidelity(real, made, seed=seed)
    waited = []
    for place, policy in enumerate(policies):
        heard(f"simulating {policy}", (1 + place) / (1 + len(policies)))
        waited.append(waits(real, made, machine, policy))
    return Score(
        (len(real), len(made)),
        (load_of(real, machine), load_of(made, machine)),
        alike,
        tuple(waited),
        (anonymity(real), anonymity(made)),
        None if held_out is None else leaks(made, real, held_out, seed=seed),
    )


def waits(real: JobTable, made: JobTable, machine: Cluster, policy: str) -> Wait:
    """Mean waits of both workloads on one machine under one rule, with EASY backfilling."""
    means = [
        float(
            metrics(simulate(jobs, machine, policy=policy, backfill="easy", oversized="reject"))[
                "mean_wait_s"
            ]
        )
        for jobs in (real, made)
    ]
    return Wait(policy, *means)
