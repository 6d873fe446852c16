"""Learned workloads: a log becomes a generator's folder, that becomes a file of jobs, and those get a score."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from kilowait.errors import InputError
from kilowait.evaluation.folders import save_folder
from kilowait.evaluation.folders.writing import check_free
from kilowait.experiments.inputs import brought_to_load, cluster_of, load_of
from kilowait.experiments.scoring import Score, Wait, score
from kilowait.jobs import JobTable
from kilowait.synth import Generator, fit_generator, load_generator
from kilowait.synth.conditions import Wanted
from kilowait.synth.generator import Told
from kilowait.traces import write_trace

__all__ = ["Score", "Wait", "fit_folder", "parse_settings", "sample_file", "score"]


def parse_settings(text: str) -> dict[str, float]:
    """Settings of a generator: ``passes=10,draws=2``.

    >>> parse_settings("passes=10,session_s=900.5")
    {'passes': 10, 'session_s': 900.5}
    """
    usage = "name=number, with commas between: passes=10,draws=2"
    found: dict[str, float] = {}
    for part in text.split(","):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        try:
            number = float(value)
        except ValueError:
            raise InputError(f"the settings have {part!r}; write {usage}") from None
        if not (name and equals):
            raise InputError(f"the settings have {part!r}; write {usage}")
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
    told: Told | None = None,
) -> tuple[JobTable, float]:
    """Write a file of generated jobs, at another load if wanted; the jobs, and their offered load."""
    made = load_generator(folder).sample(jobs, seed=seed, conditions=conditions, told=told)
    machine, _ = cluster_of(cluster, made)
    made = brought_to_load(made, machine, load)
    Path(out).parent.mkdir(parents=True, exist_ok=True)
    write_trace(made, out, format=format, cluster=machine)
    return made, load_of(made, machine)
