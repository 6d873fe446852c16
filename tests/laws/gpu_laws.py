"""Laws that every schedule on a GPU cluster obeys: functions of a case and its log.

A law that is broken raises AssertionError and says where. The results are those of tests/oracle/gpu_model.py;
only what the case says outright is used, nothing of how the reference simulator comes to its answer.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator

from tests.oracle.gpu_model import GpuCase, GpuReferenceJob, GpuRun, Segment, jobs_of, settings_of, type_of, types_of

Law = Callable[[GpuCase, GpuRun], None]
ENDED = ("completed", "killed")


def near(a: float, b: float) -> bool:
    """Equal but for rounding; times may be large, work is small."""
    return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-6)


def group_numbers(case: GpuCase) -> list[int]:
    """The group of every node."""
    if case.layout is not None:
        return case.layout
    return [g for g, group in enumerate(case.groups) for _ in range(group["nodes"])]


def type_numbers(case: GpuCase) -> list[int]:
    """The number of every node's type."""
    types = types_of(case)
    return [types.index(type_of(case, case.groups[g])) for g in group_numbers(case)]


def by_job(case: GpuCase, run: GpuRun) -> Iterator[tuple[GpuReferenceJob, list[Segment]]]:
    """Every job with its segments, in their order."""
    segments = defaultdict(list)
    for segment in run.segments:
        segments[segment.job].append(segment)
    for job in jobs_of(case):
        yield job, segments[job.number]


def every_job_is_accounted_for(case: GpuCase, run: GpuRun) -> None:
    """How a job came out and its segments belong together; none runs for ever."""
    assert len(run.jobs) == len(case.jobs["job_id"])
    assert all(0 <= segment.job < len(run.jobs) for segment in run.segments)
    for job, segments in by_job(case, run):
        job_result = run.jobs[job.number]
        what = f"job {job.number}: {job_result}, {segments}"
        assert job_result.eligible == job.arrival, what
        ended = [segment.outcome for segment in segments if segment.outcome in ENDED]
        if job_result.outcome in ENDED:
            assert ended == [job_result.outcome] and segments[-1].outcome == job_result.outcome, what
            assert (job_result.outcome == "killed") == job.too_long, what
        elif job_result.outcome == "unstarted":
            assert not ended, what
        else:
            assert job_result.outcome in ("cancelled", "rejected") and not segments, what
            assert job_result.outcome == "rejected" or job.cancel < math.inf, what
        assert all(segment.outcome in (*ENDED, "preempted", "migrated") for segment in segments), what
        for i, segment in enumerate(segments):
            if segment.outcome == "migrated":
                assert [after.start for after in segments[i + 1 : i + 2]] == [segment.end], what


def no_job_starts_before_it_is_eligible(case: GpuCase, run: GpuRun) -> None:
    """A job starts when it has arrived, and its segments never overlap; places are numbered as they are taken."""
    for job, segments in by_job(case, run):
        free = job.arrival
        for segment in segments:
            assert free <= segment.start <= segment.end, f"job {job.number}, free at {free}: {segment}"
            free = segment.end
    starts = [segment.start for segment in run.segments]
    assert starts == sorted(starts), "places are not numbered in the order in which they were taken"


def jobs_get_what_they_request(case: GpuCase, run: GpuRun) -> None:
    """All pieces of a job, together, on nodes of one type that it may use."""
    groups, types = group_numbers(case), type_numbers(case)
    for job, segments in by_job(case, run):
        for segment in segments:
            what = f"job {job.number} ({job.pieces} pieces of {job.k} GPUs): {segment}"
            nodes = [piece.node for piece in segment.pieces]
            kinds = {types[node] for node in nodes}
            assert len(set(nodes)) == len(nodes) and len(kinds) == 1, what
            assert kinds <= job.types, f"{what} on {kinds}"
            has = [piece.gpus.bit_count() for piece in segment.pieces]
            assert sum(has) == job.gpus, what
            assert all(piece.gpu_milli == job.gpu_milli for piece in segment.pieces), what
            assert job.spread or has == [job.k] * job.pieces, what
            for piece in segment.pieces:
                assert piece.gpus < 1 << case.groups[groups[piece.node]]["gpus"], what


def never_oversubscribed(case: GpuCase, run: GpuRun) -> None:
    """At no time are more cores, memory or thousandths of a GPU in use on a node than it has."""
    jobs, groups = jobs_of(case), group_numbers(case)
    here = defaultdict(list)
    for segment in run.segments:
        for piece in segment.pieces:
            here[piece.node].append((segment, piece))
    for node, pieces in here.items():
        group = case.groups[groups[node]]
        # Use grows at starts only, so it is enough to look there.
        for time in sorted({segment.start for segment, _ in pieces}):
            cpu, memory, gpus = 0, 0, [0] * group["gpus"]
            for segment, piece in pieces:
                if segment.start <= time < segment.end:
                    job = jobs[segment.job]
                    count = piece.gpus.bit_count() if job.spread else 1
                    cpu += count * job.cpu
                    memory += count * job.memory
                    for gpu in range(group["gpus"]):
                        gpus[gpu] += piece.gpu_milli * (piece.gpus >> gpu & 1)
            what = f"node {node} at {time}: {cpu} of cores, {memory} bytes, {gpus} of GPUs in use"
            assert cpu <= group["cores"] * 1000 and max(gpus, default=0) <= 1000, what
            assert group["memory_gb"] == 0 or memory <= round(group["memory_gb"] * 10**9), what


def work_is_conserved(case: GpuCase, run: GpuRun) -> None:
    """What was done and not lost is all the work of a job that has finished, and never more than that."""
    for job, segments in by_job(case, run):
        kept = 0.0
        for segment in segments:
            assert segment.work >= -1e-9 and segment.lost >= -1e-9, segment
            kept += segment.work - segment.lost
            assert kept <= job.run or near(kept, job.run), f"job {job.number} has {kept} of {job.run}"
        if run.jobs[job.number].outcome in ENDED:
            assert near(kept, job.run), f"job {job.number} has finished with {kept} of {job.run}: {segments}"


def lost_work_is_limited_by_checkpoints(case: GpuCase, run: GpuRun) -> None:
    """At most the work since the last checkpoint, and all there is; nothing where it finishes."""
    for job, segments in by_job(case, run):
        done = 0.0
        for segment in segments:
            done += segment.work
            most = 0.0 if segment.outcome in ENDED else min(done, job.checkpoint)
            assert segment.lost <= most or near(segment.lost, most), f"{segment} may lose {most}"
            if math.isinf(job.checkpoint) and segment.outcome not in ENDED:
                assert near(segment.lost, done), f"{segment} had {done} and no checkpoint"
            done -= segment.lost


def work_is_limited_by_speed(case: GpuCase, run: GpuRun) -> None:
    """None works faster than its speed there, nor while it loads what it kept; alone and still, exactly so fast."""
    settings, types = settings_of(case), type_numbers(case)
    for job, segments in by_job(case, run):
        for i, segment in enumerate(segments):
            speed = job.speed[types[segment.pieces[0].node]]
            held = segment.end - segment.start
            loading = min(job.checkpoint_load if i > 0 else 0.0, held)
            most = (held - loading) * speed
            assert segment.work <= most or near(segment.work, most), f"{segment}: at most {most}"
            undisturbed = settings["interference"] is None or not job.part
            if len(segments) == 1 and segment.outcome in ENDED and undisturbed and not job.spread:
                end = segment.start + job.run / speed
                assert segment.end == end, f"{segment} should end at {end}"


def disabled_features_do_not_occur(case: GpuCase, run: GpuRun) -> None:
    """Preemption and migration only where they are on, and not before a place was kept for long enough."""
    settings = settings_of(case)
    for segment in run.segments:
        held = segment.end - segment.start
        if segment.outcome == "preempted":
            assert settings["preemption"], segment
            least = settings["min_run_before_preempt"] + settings["grace"]
            assert held >= least or near(held, least), f"{segment} was held for less than {least}"
        if segment.outcome == "migrated":
            assert settings["migration"], segment
            assert held >= settings["min_run_before_preempt"] or near(held, settings["min_run_before_preempt"]), segment
        if settings["rounds"]:
            origin = min(job_result.eligible for job_result in run.jobs)
            tick = origin + round((segment.start - origin) / settings["round_interval"]) * settings["round_interval"]
            assert segment.start == tick, f"{segment} started between ticks"


LAWS: tuple[Law, ...] = (
    every_job_is_accounted_for,
    no_job_starts_before_it_is_eligible,
    jobs_get_what_they_request,
    never_oversubscribed,
    work_is_conserved,
    lost_work_is_limited_by_checkpoints,
    work_is_limited_by_speed,
    disabled_features_do_not_occur,
)
"""Laws of every case."""
