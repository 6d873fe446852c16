"""What a day of telemetry costs: eight GPUs sampled once a second, packed, and laid over 2,000 jobs.

``python -m benchmarks.telemetry_day`` prints the figures of docs/telemetry.md; ``--seconds`` makes the day shorter.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from pathlib import Path

from kilowait.telemetry.meters import GpuMeter, open_recorder

GPUS = 8
BEGIN_S = 1_763_424_000.0  # a midnight
JOBS = 2_000


def main(arguments: list[str] | None = None) -> None:
    """Sample, pack and label a made day; print what each took."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.telemetry_day")
    parser.add_argument("--seconds", type=int, default=86_400)
    seconds = parser.parse_args(arguments).seconds
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "node7.parquet"
        recorder = open_recorder(path, GpuMeter.columns)
        began = time.perf_counter()
        for second in range(seconds):
            recorder.write([_row(second, number) for number in range(GPUS)])
        each = (time.perf_counter() - began) / seconds
        _say(f"writing        {each * 1e3:.2f} ms a tick of {GPUS} GPUs, {_peak_mb():.0f} MB of memory")
        size = sum(piece.stat().st_size for piece in path.iterdir()) / 1e6
        began = time.perf_counter()
        recorder.close()
        packed = sum(piece.stat().st_size for piece in path.iterdir()) / 1e6
        took = time.perf_counter() - began
        _say(
            f"packing        {size:.1f} MB to {packed:.1f} MB in {took:.2f} s, {_peak_mb():.0f} MB of memory"
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
    from kilowait.telemetry.labels import SampleFiles, Sharing, label_energy

    draw = stream(0, "jobs")
    jobs = JobTable(
        job_id=np.arange(JOBS),
        submit_s=BEGIN_S + draw.uniform(0, seconds, JOBS),
        wait_s=np.zeros(JOBS),
        runtime_s=draw.uniform(10, 300, JOBS),
        nodes=np.ones(JOBS),
        cores=draw.integers(1, 64, JOBS),
        gpus=draw.integers(0, 5, JOBS),
        node_list=np.zeros(JOBS, np.int32),
        labels={"node_list": ("node7",)},
        meta={"unix_start_s": 0},
    )
    began = time.perf_counter()
    samples = SampleFiles([path])
    found = label_energy(jobs, samples, sharing=Sharing("shared"))
    took = time.perf_counter() - began
    apart = abs(found.measured_j.sum() + found.unattributed_j - found.node_j) / found.node_j
    _say(
        f"labelling      {JOBS:,} jobs by {samples.rows:,} samples in {took:.2f} s, {_peak_mb():.0f} MB of memory"
    )
    _say(f"conservation   jobs and nobody differ from the node by {apart:.0e} of its joules")


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
