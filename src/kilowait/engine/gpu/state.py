"""State of a GPU simulation, as flat arrays of records."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from kilowait.engine.interface import JOB

EVENT_KIND = 1 << 60
"""An event is (time, kind * KIND + number); round ticks are not in the heap."""
FINISH, RELEASE, ARRIVAL, CANCEL = 0, EVENT_KIND, 2 * EVENT_KIND, 3 * EVENT_KIND

COMING, WAITING, RUNNING, ENDING, DONE, CANCELLED, REJECTED = 0, 1, 2, 3, 4, 5, 6
"""Job status."""
COMPLETED, PREEMPTED, MIGRATED = 1, 5, 6
"""Outcomes of a segment, numbered as in jobs.Outcome."""

RUN_STATE = np.dtype(
    [
        ("now", np.float64),
        ("origin_s", np.float64),
        ("round_interval_s", np.float64),
        ("next_tick_s", np.float64),
        ("ticks", np.int64),  # number of the next round tick
        ("is_round_tick", np.int64),  # whether this instant is a round tick
        ("idle_rounds", np.int64),  # round ticks since the last instant after which another event was due
        ("first_submit_s", np.float64),
        ("min_run_before_preempt_s", np.float64),
        ("grace_s", np.float64),
        ("checkpoint_write_s", np.float64),
        ("next_arrival", np.int64),
        ("events", np.int64),
        ("queue_lo", np.int64),
        ("queue_hi", np.int64),
        ("running", np.int64),  # jobs in running_jobs
        ("ending", np.int64),  # jobs in ending_jobs: preempted, not yet released
        ("placed_pieces", np.int64),  # pieces of running and ending jobs
        ("segments", np.int64),
        ("pieces", np.int64),
        ("changed_gpus", np.int64),  # GPUs whose jobs changed in this instant
        ("claims", np.int64),  # jobs in claimed
        # number of releases: a job that has not fitted since the last one does not fit now
        ("releases", np.int64),
        ("attempt", np.int64),  # number of placement attempts
        ("passes", np.int64),  # number of scheduling passes
        ("max_fruitless_starts", np.int64),  # of any job
        ("fruitless", np.int64),  # segments since the last one whose work was kept; they were preempted or migrated
        ("first_new_segment", np.int64),  # segments from here on were started in this pass
        ("bad_score", np.int64),
        ("placement", np.int64),
        ("seed", np.int64),
        ("time_dependent", np.int64),
        ("head_of_line_blocking", np.int64),
        ("preempt", np.int64),
        ("migrate", np.int64),
        ("rounds", np.int64),
        ("interference", np.int64),
        ("demand_classes", np.int64),
        ("max_cpu", np.int64),
        ("max_gpu", np.int64),
    ],
    align=True,
)
"""Counters and settings of the run."""

NODE = np.dtype(
    [
        ("cpu", np.int64),  # free thousandths of cores
        ("memory", np.int64),  # free bytes
        ("gpu_milli", np.int64),  # free thousandths of GPUs
        ("free_gpus", np.int64),  # GPUs that are entirely free
        ("gpus", np.int64),
        ("gpu_lo", np.int64),  # its GPUs in `gpu_free`
        ("type", np.int64),
        ("group", np.int64),
        ("version", np.int64),  # number of its changes
        ("attempt", np.int64),  # last placement attempt that put a piece here
    ],
    align=True,
)
"""A node: what is free on it."""

JOB_STATE = np.dtype(
    [
        ("run_s", np.float64),
        ("estimate_s", np.float64),
        ("arrival_s", np.float64),
        ("cancel_s", np.float64),
        ("checkpoint_s", np.float64),
        ("checkpoint_load_s", np.float64),
        ("done", np.float64),  # work done at `since`
        ("since", np.float64),  # time from which it works at `rate`
        ("rate", np.float64),  # work per second
        ("uncontended_rate", np.float64),  # rate without interference
        ("done_at_start", np.float64),  # work done when this segment started
        ("start_s", np.float64),
        ("finish_s", np.float64),
        ("stop_s", np.float64),  # no work is done after it
        ("attained_s", np.float64),  # of earlier segments
        ("key", np.float64),
        ("pieces", np.int64),
        ("gpus", np.int64),  # of a piece
        ("gpu_milli", np.int64),
        ("cpu", np.int64),
        ("memory", np.int64),
        ("load", np.int64),  # on a shared GPU, thousandths
        ("spread", np.int64),  # whether its GPUs may span nodes
        ("speed_class", np.int64),  # row of speed, factor, type_order and type_rank
        ("demand_class", np.int64),  # jobs of one class have the same demand
        ("place_lo", np.int64),  # its pieces are places[place_lo : place_lo + pieces]
        ("status", np.int64),
        ("segment", np.int64),
        ("slot", np.int64),  # position in running_jobs or ending_jobs
        ("starts", np.int64),
        ("fruitless_starts", np.int64),  # last ones in succession that kept no work
        ("next", np.int64),  # next job that shares its GPU; -1: none
    ],
    align=True,
)
"""State of a job."""

GPU_JOB = np.dtype(
    [
        *((name, JOB[name]) for name in JOB.names or () if name != "ran_s"),
        ("gpu_share", np.float64),
        ("attained_s", np.float64),
        ("done_s", np.float64),
        ("remaining_s", np.float64),
        ("waited_s", np.float64),
        ("running", np.int64),
    ],
    align=True,
)
"""Job record for policies: the fields of interface.JOB and those of the GPU engine."""

SEGMENT = np.dtype(
    [
        ("job", np.int64),
        ("start_s", np.float64),
        ("end_s", np.float64),
        ("outcome", np.int64),
        ("group", np.int64),
        ("work_s", np.float64),
        ("lost_s", np.float64),
        ("piece_lo", np.int64),
        ("piece_hi", np.int64),
    ],
    align=True,
)
PIECE = np.dtype([("node", np.int64), ("gpus", np.int64), ("gpu_milli", np.int64), ("count", np.int64)], align=True)
"""Pieces of a segment on one node: how many, and their GPUs as bits."""

TYPICAL_JOB = np.dtype(
    [("cpu", np.int64), ("gpu_milli", np.int64), ("gpus", np.int64), ("label", np.int64), ("share", np.float64)],
    align=True,
)
"""A typical job shape of fragmentation scores."""

Records = npt.NDArray[Any]
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class GpuState(NamedTuple):
    """Arrays of a run: n jobs, N nodes, g GPUs, T node types, K speed classes, L demand classes."""

    clock: Records  # (1,) RUN_STATE
    nodes: Records  # (N,) NODE
    gpu_free: Ints  # (g,) free thousandths
    gpu_load: Ints  # (g,) total load of its jobs
    gpu_first: Ints  # (g,) first of the jobs that share it, -1: none
    gpu_jobs: Ints  # (g,) number of its jobs
    classes: Ints  # (N, max GPUs of a piece + 1) pieces by size class
    by_type: Ints  # (N,) nodes by (type, number)
    type_lo: Ints  # (T + 1,)
    job_state: Records  # (n,) JOB_STATE
    jobs: Records  # (n,) GPU_JOB: fields visible to policies
    arrivals: Ints  # (n,) by (arrival, number)
    places: Ints  # (pieces of all jobs, 2): node, and GPUs as bits
    saved_places: Ints  # (max pieces of a job, 2): saved copy of a job's places
    speed: Floats  # (K, T); 0: the job cannot use the type
    factor: Floats  # (K, T) on speed, if the GPUs span more nodes than necessary
    max_node_gpus: Ints  # (T,) maximum GPUs of a node
    type_order: Ints  # (K, T) types in the order in which they are tried, -1 at the end
    type_rank: Ints  # (K, T) types of equal rank are tried together
    interference: Records  # RANKED: speed, load up to
    typical_jobs: Records  # TYPICAL_JOB
    label_types: npt.NDArray[np.bool_]  # (labels, T) whether jobs with the label may use the type
    score_cache: Floats  # (rows, N) node scores; row: demand class modulo rows
    score_cache_gpus: Ints  # (rows, N) GPUs to allocate, as bits
    score_cache_stamp: Ints  # (rows, N) node version and demand class, combined
    failed: Ints  # (L, 2) `releases` at the last failed placement; pass in which preemption failed too
    queue: Records  # (n,) RANKED: waiting jobs
    running_jobs: Ints  # (n,)
    ending_jobs: Ints  # (n,)
    order: Records  # (n,) RANKED: jobs of the scheduling pass, lowest priority first
    victims: Ints  # (n,) jobs to preempt
    claimed: Ints  # (n,) jobs whose places are reserved until ending jobs release them
    changed_gpus: Ints  # (g,) GPUs whose jobs changed in this instant
    gpu_changed: npt.NDArray[np.bool_]  # (g,) whether it is in changed_gpus
    events: Records  # RANKED, a heap; enlarged by with_larger_buffers
    segments: Records  # SEGMENT; enlarged by with_larger_buffers
    log: Records  # PIECE; enlarged by with_larger_buffers
