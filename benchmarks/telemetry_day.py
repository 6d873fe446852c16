"""Cost of one day of telemetry: eight GPUs sampled every second, compressed, and used to label 2,000 jobs.

``python -m benchmarks.telemetry_day`` prints the numbers of docs/telemetry.md; ``--seconds`` shortens the day.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from pathlib import Path

from kilowait.telemetry.meters import GpuMeter
from kilowait.telemetry.recorder import open_recorder

GPUS = 8
BEGIN_S = 1_763_424_000.0  # a midnight
JOBS = 2_000


def main(arguments: list[str] | None = None) -> None:
    """Sample, compress and label a synthetic day; print the cost of each step."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.telemetry_day")
    parser.add_argument("--seconds", type=int, default=86_400)
    seconds = parser.parse_args(arguments).seconds
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "node7.parquet"
        recorder = open_recorder(path, GpuMeter.columns)
        start_time = time.perf_counter()
        for second in range(seconds):
            recorder.write([_row(second, number) for number in range(GPUS)])
        per_sample_s = (time.perf_counter() - start_time) / seconds
        _say(f"writing        {per_sample_s * 1e3:.2f} ms per sample of {GPUS} GPUs, {_peak_mb():.0f} MB of memory")
        size_mb = sum(piece.stat().st_size for piece in path.iterdir()) / 1e6
        start_time = time.perf_counter()
        recorder.close()
        compressed_mb = sum(piece.stat().st_size for piece in path.iterdir()) / 1e6
        elapsed_s = time.perf_counter() - start_time
        _say(
            f"packing        {size_mb:.1f} MB to {compressed_mb:.1f} MB in {elapsed_s:.2f} s, {_peak_mb():.0f} MB "
            "of memory"
        )
        _label(path, seconds)


def _row(second: int, number: int) -> tuple[str | float, ...]:
    at = second + number * 1e-3
    power = 400 + 50 * number + 30 * (second // 60 % 7)
    named = ("node7", f"gpu{number}", f"GPU-{number:08x}-0000", "NVIDIA H200")
    return (BEGIN_S + at, at, *named, power + 0.337, 400.0 * at, 0.97, 70_500.1 + second % 50, 54.0, 1980.0)


def _label(path: Path, seconds: int) -> None:
    import numpy as np

    from kilowait.jobs import JobTable
    from kilowait.rng import stream
    from kilowait.telemetry.labels import label_energy
    from kilowait.telemetry.sample_reader import SampleFiles
    from kilowait.telemetry.settings import EnergySplit, LabelSettings

    rng = stream(0, "jobs")
    jobs = JobTable(
        job_id=np.arange(JOBS),
        submit_s=BEGIN_S + rng.uniform(0, seconds, JOBS),
        wait_s=np.zeros(JOBS),
        runtime_s=rng.uniform(10, 300, JOBS),
        nodes=np.ones(JOBS),
        cores=rng.integers(1, 64, JOBS),
        gpus=rng.integers(0, 5, JOBS),
        node_list=np.zeros(JOBS, np.int32),
        labels={"node_list": ("node7",)},
        meta={"unix_start_s": 0},
    )
    start_time = time.perf_counter()
    samples = SampleFiles([path])
    energy = label_energy(jobs, samples, LabelSettings(EnergySplit("shared")))
    elapsed_s = time.perf_counter() - start_time
    relative_difference = abs(energy.measured_j.sum() + energy.unattributed_j - energy.node_j) / energy.node_j
    _say(
        f"labelling      {JOBS:,} jobs by {samples.rows:,} samples in {elapsed_s:.2f} s, {_peak_mb():.0f} MB of memory"
    )
    _say(
        f"conservation   job energy plus unattributed energy differs from node energy by {relative_difference:.0e} "
        "(relative)"
    )


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
