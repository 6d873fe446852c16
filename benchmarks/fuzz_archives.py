"""Small sample logs of archives and resource managers for `benchmarks.fuzz_readers`."""

from __future__ import annotations

import io
import json
from typing import Any

__all__ = ["archive_samples"]

_DJC = (
    "JOB_NAME,COBALT_JOBID,MACHINE_NAME,QUEUED_TIMESTAMP,START_TIMESTAMP,END_TIMESTAMP,USERNAME_GENID,"
    "PROJECT_NAME_GENID,QUEUE_NAME,WALLTIME_SECONDS,RUNTIME_SECONDS,NODES_USED,NODES_REQUESTED,CORES_USED,LOCATION,"
    "EXIT_STATUS,ELIGIBLE_WAIT_SECONDS,QUEUED_WAIT_SECONDS"
)
_FDATA = "jid,usr,jnam,cnumr,cnumat,nnumr,nnuma,adt,sdt,edt,ec,elpl,econ,avgpcon,freq_alloc,exit state,duration"
_ODA = (
    "job_id,submit_time,start_time,end_time,runtime_seconds,allocated_cpus,partition,node_list,requested_seconds,"
    "num_nodes_alloc,num_nodes_req,job_state,user"
)
_WTA = "id,ts_submit,runtime,wait_time,resource_type,resource_amount_requested,parents,user_id,group_id,workflow_id"
_OPENDC = "id,submission_time,duration,cpu_count,cpu_capacity,mem_capacity,gpu_count,parents,deferrable,deadline"


def archive_samples(jobs: int = 40) -> dict[str, bytes]:
    """A log in every format, one line per job."""
    lines: dict[str, list[str]] = {"djc_full": [_DJC], "fdata": [_FDATA], "oda": [_ODA], "wta": [_WTA]}
    lines |= {"opendc": [_OPENDC], "swf21_frontier": [], "sacct_xdmod": []}
    workloads: list[dict[str, Any]] = [_cluster_queue()]
    for n in range(1, jobs + 1):
        submit, start, end = 60 * n, 60 * n + n % 7, 60 * n + 100 + 17 * n
        wait, run, nodes = start - submit, end - start, 1 + n % 4
        a, b, c = (f"2023-06-01 {s // 3600:02d}:{s // 60 % 60:02d}:{s % 60:02d}" for s in (submit, start, end))
        lines["djc_full"].append(
            f'"{n}.mira",{n if n % 5 else -1},mira,"{a}","{b}","{c}",{n % 4}12345678901,7,default,9000,{run}.0,{nodes},'
            f'{nodes},{16 * nodes},"m{n}:m{n + 1}",0,{wait // 2},{wait}'
        )
        energy, power = 200 * run / 3600, 200
        lines["fdata"].append(
            f"jid_{n},usr_{n % 4},jnam_{n % 9},48,48,{nodes},{nodes},{a},{b},{c},0,9000.0,{energy:.4f},{power}.0,"
            f"{2000 + 200 * (n % 2)},completed,{run}.0"
        )
        ta, tb, tc = (text.replace(" ", "T") for text in (a, b, c))
        lines["oda"].append(
            f"{n},{ta}Z,{tb}Z,{tc}Z,{run},{4 * nodes},batch,n{n},9000,{nodes},{nodes},COMPLETED,u{n % 4}"
        )
        parents = f"[{n - 1}]" if n % 3 == 0 else "[]"
        lines["wta"].append(f"{n},{submit}000,{run}000,{wait}000,cpu,{nodes}.0,{parents},{n % 4},-1,{n // 3}")
        lines["opendc"].append(
            f"{n},{submit}000,{run}000,{nodes},3000.0,{n * 1000},0,{parents},True,{(end + 600) * 1000}"
        )
        lines["swf21_frontier"].append(
            f"{n} {submit} {wait} {run} {nodes * 112} -1 -1 {nodes} 9000 -1 1 {n % 5} 1 {n % 7} 1 -1 -1 -1 {8 * nodes} "
            f"-1 frontier:excl:{nodes}x112"
        )
        key = f"{n}+0" if n % 11 == 0 else str(n)
        lines["sacct_xdmod"].append(
            f"{key}|{n}|c|{'a,b' if n % 6 == 0 else 'a'}|normal|acc|g|100|u{n % 4}|1000|{ta}|{ta}|{tb}|{tc}|01:00:00|"
            f"0:0|COMPLETED|{nodes}|{4 * nodes}|{4 * nodes}|4Gn|"
            f"cpu=4,node={nodes}|cpu=4,node={nodes}|02:30:00|n{n}|job|{n}"
        )
        workloads.append(_workload(n, ta, tb, tc))
    texts = {name: ("\n".join(each) + "\n").encode() for name, each in lines.items()}
    document = {"apiVersion": "v1", "items": workloads, "kind": "List"}
    texts["kueue"] = json.dumps(document, indent=1).encode()
    return texts | _parquet_samples(texts["fdata"])


def _workload(number: int, created: str, admitted: str, finished: str) -> dict[str, Any]:
    container = {"resources": {"requests": {"cpu": f"{number}00m", "memory": "2Gi", "nvidia.com/gpu": str(number % 3)}}}
    conditions = [("Admitted", admitted, "Admitted"), ("Finished", finished, "Succeeded")]
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "Workload",
        "metadata": {"name": f"w{number}", "namespace": "team", "creationTimestamp": f"{created}Z"},
        "spec": {
            "podSets": [{"name": "main", "count": 1 + number % 3, "template": {"spec": {"containers": [container]}}}],
            "queueName": "lq",
            "priority": number % 4,
        },
        "status": {
            "admission": {"clusterQueue": "cq", "podSetAssignments": [{"name": "main", "count": 1 + number % 3}]},
            "conditions": [
                {"type": kind, "status": "True", "lastTransitionTime": f"{time}Z", "reason": reason}
                for kind, time, reason in conditions
            ],
        },
    }


def _cluster_queue() -> dict[str, Any]:
    flavor = {"name": "f", "resources": [{"name": "cpu", "nominalQuota": "9", "borrowingLimit": 1}]}
    spec = {"cohort": "all", "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [flavor]}]}
    return {"kind": "ClusterQueue", "metadata": {"name": "cq"}, "spec": spec}


def _parquet_samples(fdata: bytes) -> dict[str, bytes]:
    """F-DATA and PM100 as Parquet tables."""
    import pyarrow as pa
    import pyarrow.csv as pc
    import pyarrow.parquet as pq

    rows = list(range(1, 21))
    times = {
        name: pa.array([1_588_759_200 + 60 * n + shift for n in rows], pa.timestamp("s", tz="UTC"))
        for name, shift in (("submit_time", 0), ("eligible_time", 5), ("start_time", 30), ("end_time", 90))
    }
    power = pa.array([[1000.0, 1200.0][: n % 3] for n in rows])
    numbers = {
        "job_id": rows,
        "run_time": [60] * 20,
        "time_limit": [30] * 20,
        "num_nodes_alloc": [1 + n % 3 for n in rows],
    }
    pm100 = pa.table({
        **{name: pa.array(values) for name, values in numbers.items()},
        **times,
        "job_state": pa.array(["COMPLETED"] * 20),
        "nodes": pa.array([[str(n)] for n in rows]),
        "node_power_consumption": power,
    })  # fmt: skip
    files: dict[str, bytes] = {}
    for name, table in (("fdata_parquet", pc.read_csv(io.BytesIO(fdata))), ("pm100_parquet", pm100)):
        written = io.BytesIO()
        pq.write_table(table, written)
        files[name] = written.getvalue()
    return files
