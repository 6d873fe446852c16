"""Small sample logs of GPU and cloud clusters for `benchmarks.fuzz_readers`."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from kilowait.jobs import JobTable

__all__ = ["gpu_samples", "gpu_tables"]

_HEADERS = {
    "openb": (
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time"
    ),
    "openb_bare": "name,cpu_milli,memory_mib,num_gpu,gpu_milli",
    "gaia": "arrival_time,length,cpus",
    "spot": "arrival_time,runtime,gpus,priority",
    "spot_published": (
        "job_name,organization,gpu_model,cpu_request,gpu_request,worker_num,submit_time,duration,job_type"
    ),
    "sia": "timestamp,duration,num_gpus,gpu_time,cluster",
    "lumos_philly": ",run_time,wait_time,submit_time,gpu_num",
    "helios": "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue",
    "helios_slice": (
        "# pools: a=20\njob_id,user,tenant,class,submit_time,num_chips,chip_type,num_nodes,duration_s,"
        "walltime_limit_s,final_status"
    ),
    "supercloud": (
        "id_job,id_user,nodes_alloc,mem_req,partition,priority,state,timelimit,time_submit,time_start,time_end,"
        "tres_alloc,tres_req"
    ),
    "google2019_csv": "time,type,collection_id,instance_index,collection_type,priority,resource_request.cpus",
}


def gpu_samples(jobs: int = 40) -> dict[str, bytes]:
    """A log in every format, one or two lines per job."""
    lines_by_format: dict[str, list[str]] = {name: [header] for name, header in _HEADERS.items()}
    lines_by_format |= {name: [] for name in ("pai", "google2011_tasks", "google2011_jobs", "google2019")}
    philly: list[dict[str, object]] = []
    for n in range(1, jobs + 1):
        submit, start, end = 60 * n, 60 * n + n % 7, 60 * n + 100 + 17 * n
        gpus, times = (1, 2, 4, 8)[n % 4], [_time_text(moment) for moment in (submit, start, end)]
        lines_by_format["openb"].append(
            f"openb-pod-{n:04d},{n * 500},{n * 1000},{gpus},1000,{'V100|T4' * (n % 2)},LS,Running,"
            f"{submit},{end},{start}"
        )
        lines_by_format["openb_bare"].append(f"openb-pod-{n:04d},{n * 500},{n * 1000},1,{n * 20}")
        lines_by_format["gaia"].append(f"{submit / 3600},{(end - start) / 3600},{gpus}")
        lines_by_format["spot"].append(f"{submit}.0,{end - start}.0,{n % 3},0.5")
        lines_by_format["spot_published"].append(
            f"{n},{n % 5},A10,{n},{n % 9 / 2},{1 + n % 3},{submit},{end - start},HP"
        )
        lines_by_format["sia"].append(f"{times[0]},{end - start}.0,{gpus},{gpus * (end - start)}.0,11cb48")
        lines_by_format["lumos_philly"].append(f"{n},{end - start},{start - submit},{1502114581 + submit},{gpus}")
        lines_by_format["helios"].append(
            f"{n},u{n % 4},vcJ,{gpus},{n},{1 + n % 2},COMPLETED,{times[0]},{times[1]},{times[2]},{end - start},0"
        )
        lines_by_format["helios_slice"].append(
            f"{n},u{n % 4},a,x,{submit}000000,{gpus},,1,{end - start}.0,9999.0,FAILED"
        )
        lines_by_format["supercloud"].append(
            f"{n},{n % 4}.0,1,2048,normal,{n},3,1440,{1609535912 + submit},{1609535912 + start},{1609535912 + end},"
            f'"1={n},2={n * 100},4=1,1002={gpus}","1={n},4=1"'
        )
        lines_by_format["pai"].append(
            f"aaaaaaaaaaaaaaaaaaaaaa{n:02d},worker,{1 + n % 3}.0,Terminated,{start}.0,{end}.0,600.0,29.3,"
            f"{n % 5 * 50}.0,T4"
        )
        for kind, moment in ((0, submit), (1, start), (4, end)):
            lines_by_format["google2011_tasks"].append(f"{moment}000000,,{n},0,7,{kind},u=,0,9,0.0{n},0.01,0.001,0")
            lines_by_format["google2011_jobs"].append(f"{moment}000000,,{n},{kind},u=,0,name=,logical=")
        for kind, moment in ((0, submit), (3, start), (6, end)):
            lines_by_format["google2019_csv"].append(f"{moment}000000,{kind},{n},0,0,103,0.01")
            event = {"time": f"{moment}000000", "type": kind, "collection_id": str(n), "instance_index": "0"}
            lines_by_format["google2019"].append(
                json.dumps({**event, "resource_request": {"cpus": 0.01, "memory": 0.02}})
            )
        detail = [{"ip": "m1", "gpus": [f"gpu{i}" for i in range(gpus)]}]
        attempt = {"start_time": times[1], "end_time": times[2], "detail": detail}
        philly.append(
            {"status": "Pass", "vc": "v", "jobid": f"a_{n}", "attempts": [attempt], "submitted_time": times[0]}
        )
    for name in ("google2011_tasks", "google2011_jobs"):
        lines_by_format[name].sort(key=lambda line: int(line.partition(",")[0]))
    lines_by_format["philly"] = json.dumps(philly, indent=0).split("\n")
    return {name: ("\n".join(lines) + "\n").encode() for name, lines in lines_by_format.items()}


def gpu_tables(jobs: int = 40) -> dict[str, JobTable]:
    """Tables of a GPU cluster of 8 and 13 columns of small whole numbers, as many as Google's events of 2011 have."""
    count = np.arange(1, jobs + 1)
    columns: dict[str, Any] = {
        "job_id": count, "submit_s": count * 2, "runtime_s": count % 9, "estimate_s": count % 5, "nodes": count % 2 + 1,
        "gpus": count % 2, "cores": count % 4, "user": count % 3, "cpu_milli": count % 7, "memory_mb": count % 6,
        "priority": count % 2, "queue": count % 2, "qos": count % 3,
    }  # fmt: skip
    return {f"own_gpu_{width}": JobTable(**dict(list(columns.items())[:width])) for width in (8, 13)}


def _time_text(seconds: int) -> str:
    return f"2017-10-09 {seconds // 3600 % 24:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
