"""Small traces of every format, written from the published column names and examples."""

from __future__ import annotations

import json

OPENB = """\
name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time
openb-pod-0000,12000,16384,1,1000,,LS,Running,0,1000,0
openb-pod-0001,6500,12288,1,460,V100M16|V100M32,BE,Succeeded,40,300,50
openb-pod-0002,4000,8192,0,0,,LS,Failed,20,90,25
openb-pod-0003,88000,327680,8,1000,,Burstable,Pending,60,160,
openb-pod-0004,1000,1024,1,220,,BE,Running,70,,80
"""
OPENB_BARE = """\
name,cpu_milli,memory_mib,num_gpu,gpu_milli
openb-pod-0005,12000,16384,1,1000
openb-pod-0003,6000,12288,1,460
"""
PAI_TASKS = """\
aaaaaaaaaaaaaaaaaaaaaaa1,tensorflow,1.0,Terminated,110.0,210.0,600.0,29.296875,50.0,MISC
aaaaaaaaaaaaaaaaaaaaaaa2,ps,2.0,Terminated,310.0,510.0,400.0,10.0,,
aaaaaaaaaaaaaaaaaaaaaaa2,worker,4.0,Failed,320.0,500.0,600.0,20.0,25.0,T4
aaaaaaaaaaaaaaaaaaaaaaa3,worker,3.0,Terminated,330.0,430.0,800.0,30.0,100.0,V100
aaaaaaaaaaaaaaaaaaaaaaa4,worker,2.0,Terminated,340.0,440.0,800.0,30.0,200.0,V100
aaaaaaaaaaaaaaaaaaaaaaa5,worker,1.0,Running,350.0,,800.0,30.0,100.0,V100
aaaaaaaaaaaaaaaaaaaaaaa6,worker,1.0,Waiting,,,800.0,30.0,100.0,
"""
PAI_JOBS = """\
aaaaaaaaaaaaaaaaaaaaaaa1,1111111111111111111111111111111111111111111111111111111111a1,b0b0b0b0b0b0,Terminated,100.0,211.0
aaaaaaaaaaaaaaaaaaaaaaa2,1111111111111111111111111111111111111111111111111111111111a2,c0c0c0c0c0c0,Failed,300.0,511.0
aaaaaaaaaaaaaaaaaaaaaaa3,1111111111111111111111111111111111111111111111111111111111a3,b0b0b0b0b0b0,Terminated,335.0,431.0
"""
PAI_TAGS = """\
1111111111111111111111111111111111111111111111111111111111a1,b0b0b0b0b0b0,V100M32,9999999999999999999999999999999a,nmt
1111111111111111111111111111111111111111111111111111111111a2,c0c0c0c0c0c0,,9999999999999999999999999999999b,
"""
PAI_MACHINES = """\
82e5af3cd5c4af3f56c62c54,T4,96,512,2
92e5af3cd5c4af3f56c62c54,CPU,96,512,0
"""
GAIA = "arrival_time,length,cpus\n0.0,0.5,1\n0.25,2.0,4\n"
SPOT = "arrival_time,runtime,gpus,priority\n0.0,100.0,4,2.5\n1.0,50.0,0,0.5\n2.0,60.0,1,0.5\n"
SPOT_PUBLISHED = """\
job_name,organization,gpu_model,cpu_request,gpu_request,worker_num,submit_time,duration,job_type
239255,13,A10,20,1,1,0,2764799,HP
437260,57,A100-SXM4-80GB,15,1,16,9589663,41060,Spot
437261,57,A100-SXM4-80GB,15,8,2,9589664,71718,Spot
437262,57,A10,4,0.5,1,9589665,10,Spot
"""
SIA = """\
timestamp,duration,num_gpus,gpu_time,cluster
2017-10-09 07:01:55,66.0,1,66.0,11cb48
2017-10-09 06:13:03,2951.0,8,23608.0,6214e9
"""
LUMOS = ",run_time,wait_time,submit_time,gpu_num\n0,1389243,0,1502114581,1\n1,14405,7,1502509727,8\n"


def _attempt(start: str | None, end: str | None, **gpus: int) -> dict[str, object]:
    detail = [{"ip": ip, "gpus": [f"gpu{n}" for n in range(count)]} for ip, count in gpus.items()]
    return {"start_time": start, "end_time": end, "detail": detail}


def _job(number: int, status: str, submitted: str, *attempts: dict[str, object]) -> dict[str, object]:
    return {
        "status": status,
        "vc": "ee9e8c",
        "jobid": f"application_1506638472019_{number}",
        "attempts": list(attempts),
        "submitted_time": submitted,
        "user": "ce2f4c",
    }


PHILLY = json.dumps(
    [
        _job(
            1, "Pass", "2017-10-07 01:11:39",
            _attempt("2017-10-07 01:12:09", "2017-10-07 01:13:23", m47=8),
            _attempt("2017-10-07 01:13:30", "2017-10-07 01:23:30", m412=4, m413=4),
        ),
        _job(2, "Killed", "2017-10-07 01:00:00", _attempt("2017-10-07 02:00:00", "2017-10-07 03:00:00", m1=1)),
        _job(3, "Failed", "2017-10-07 01:30:00", _attempt("2017-10-07 01:30:00", "2017-10-07 01:30:01", m1=6, m2=2)),
        _job(4, "Killed", "2017-10-07 01:40:00"),
        _job(5, "Pass", "2017-10-07 01:50:00", _attempt("2017-10-07 01:50:10", None, m3=2)),
        _job(
            6, "Pass", "2017-10-07 02:00:00",
            _attempt("None", "2017-10-07 02:10:00", m3=2), _attempt("2017-10-07 02:20:00", "2017-10-07 02:21:00", m3=1),
        ),
    ],
    indent=1,
)  # fmt: skip
HELIOS = """\
job_id,user,vc,jobname,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue
1425511,uXBbc,vcJkd,train,1,1,1,COMPLETED,2020-06-09 18:41:01,2020-06-09 18:41:01,2020-06-10 04:55:09,36848,0
1425512,uVMrF,vchbv,test,16,64,2,FAILED,2020-06-09 18:41:27,2020-06-09 18:41:37,2020-06-09 18:45:36,239,10
1425513,uzqls,vcpDC,test,10,40,4,CANCELLED,2020-06-09 18:41:28,2020-06-09 18:41:28,2020-06-17 14:15:21,675233,0
1425514,uzqls,vcpDC,data,0,4,2,TIMEOUT,2020-06-09 18:41:29,2020-06-09 18:41:29,2020-06-09 18:41:39,10,0
"""
HELIOS_SLICE = """\
# source: HeliosData, cluster Venus, cluster_log.csv
# per-VC pool sizes (nodes, 8 GPU/node): vcvGl=20
job_id,user,tenant,class,submit_time,num_chips,chip_type,num_nodes,duration_s,walltime_limit_s,final_status
765563,uH3om,vcvGl,finetune,5835000000,128,,16,24.0,24.0,CANCELED
765565,uJjMX,vcvGl,finetune,5842500000,16,,2,46520.0,46520.0,COMPLETED
"""
SUPERCLOUD = """\
id_job,id_user,nodes_alloc,cpus_req,constraints,mem_req,partition,priority,state,timelimit,time_submit,time_start,\
time_end,tres_alloc,tres_req,job_type
16051200000000.0,42770100000000.0,1,20,xeon-g6,9.22337e+18,normal,10239,3,4294967295,1609535912,1609808470,\
1609808777,"1=20,2=170000,4=1,5=20,1002=1","1=20,2=170000,4=1,5=20,1002=1",OTHER
16051200000000.0,42770100000000.0,2,20,xeon-g6,2048,normal,10243,6,1440,1609536070,1609536080,\
1609622480,"1=80,2=340000,3=18446744073709551614,4=2,5=80,1001=2,1002=4","1=80,2=340000,4=2",LLSUB:BATCH
25029700000000.0,42770100000000.0,0,4,\\N,2048,normal,10243,4,1440,1609536080,0,1609536090,,"1=4,2=8000,4=1",OTHER
"""
GOOGLE_TASKS = """\
0,2,3418309,0,4155527081,0,u1=,3,9,0.125,0.07446,0.0004244,0
0,2,3418309,0,4155527081,1,u1=,3,9,0.125,0.07446,0.0004244,0
601000000,,77,0,,0,u2=,0,2,0.0625,0.01,0.001,0
602000000,,77,1,,0,u2=,0,2,0.0625,0.01,0.001,0
603000000,,77,0,5,1,u2=,0,2,0.0625,0.01,0.001,0
604000000,,77,0,5,8,u2=,0,2,0.125,0.01,0.001,0
613000000,,77,0,5,2,u2=,0,2,0.0625,0.01,0.001,0
613000000,,77,0,,0,u2=,0,2,0.0625,0.01,0.001,0
620000000,,77,0,6,1,u2=,0,2,0.0625,0.01,0.001,0
625000000,,88,0,6,4,u2=,0,2,0.0625,0.01,0.001,0
650000000,,77,0,6,4,u2=,0,2,0.0625,0.01,0.001,0
660000000,,99,0,,0,u2=,0,2,0.0625,0.01,0.001,0
670000000,,99,0,,5,u2=,0,2,0.0625,0.01,0.001,0
"""
GOOGLE_JOBS = """\
0,,3418309,0,u1=,3,name=,logical1=
0,,3418309,1,u1=,3,name=,logical1=
601000000,,77,0,u2=,0,name=,logical2=
603000000,,77,1,u2=,0,name=,logical2=
653000000,,77,4,u2=,0,name=,logical2=
"""


def _instance(time: int, kind: object, index: int = 0, **extra: object) -> str:
    event = {"time": str(time), "type": kind, "collection_id": "394594644502", "instance_index": str(index)}
    request = {"resource_request": {"cpus": 0.00625, "memory": 0.0078}, "priority": "103", "constraint": []}
    return json.dumps({**event, **request, **extra})


GOOGLE_2019 = "\n".join(
    [
        _instance(700_000_000, 0),
        _instance(700_000_001, "1"),
        _instance(705_000_000, 3),
        _instance(765_000_000, 6),
        _instance(710_000_000, "SUBMIT", 1),
        _instance(720_000_000, "SCHEDULE", 1),
        _instance(9223372036854775807, "FINISH", 1),
        _instance(730_000_000, 0, 2, collection_type="1"),
        _instance(731_000_000, 3, 2, collection_type="1"),
    ]
)
GOOGLE_2019_CSV = """\
time,type,collection_id,scheduling_class,collection_type,priority,user,collection_logical_name
700000000,0,394594644502,2,0,103,u1=,job=
705000000,3,394594644502,2,0,103,u1=,job=
765000000,7,394594644502,2,0,103,u1=,job=
"""

FDATA = """\
jid,usr,jnam,cnumr,cnumat,nnumr,nnuma,adt,qdt,sdt,edt,ec,elpl,pri,econ,avgpcon,minpcon,maxpcon,freq_req,freq_alloc,\
pclass,exit state,duration
jid_7,usr_0,jnam_0,96,96,2,2,2023-06-01 09:00:00,2023-06-01 09:00:01,2023-06-01 09:10:00,2023-06-01 09:40:00,0,3600.0,\
127,100.0,200.0,180.0,240.0,2000,2000,memory-bound,completed,1800.0
jid_8,usr_1,jnam_1,48,48,1,1,2023-06-01 09:01:00,2023-06-01 09:01:01,2023-06-01 09:04:00,2023-06-01 09:05:00,1,120.0,\
127,1.6,96.0,95.0,105.0,2200,2200,compute-bound,failed,60.0
"""
ODA = """\
job_id,submit_time,start_time,end_time,runtime_seconds,allocated_cpus,partition,node_list,requested_seconds,\
num_nodes_alloc,num_nodes_req,job_state,user
1,2024-01-01T00:00:00Z,2024-01-01T00:01:00Z,2024-01-01T00:02:00Z,60,8,debug,n[1-2],600,2,2,COMPLETED,a1
2,,2024-01-01T00:03:00Z,2024-01-01T00:04:00Z,,4,batch,n3,600,,1,FAILED,a2
"""
WTA = """\
id,type,ts_submit,submission_site,runtime,resource_type,resource_amount_requested,parents,children,user_id,group_id,\
nfrs,workflow_id,wait_time,params,memory_requested,network_io_time,disk_io_time,disk_space_requested,\
energy_consumption,resource_used
1,map,1000,0,5000,cpu,2.0,[],"[2, 3]",7,-1,{},4,500,{},-1.0,-1,-1,-1.0,-1,-1
2,map,6500,0,8000,cpu,1.5,[1],[4],7,-1,{},4,0,{},-1.0,-1,-1,-1.0,-1,-1
3,map,6500,0,1000,cpu,1.0,[1],[4],7,-1,{},4,-1,{},-1.0,-1,-1,-1.0,-1,-1
4,reduce,16500,0,1000,cpu,1.0,"[2, 3]",[],-1,3,{},4,0,{},-1.0,-1,-1,-1.0,-1,-1
"""
OPENDC = """\
id,submission_time,duration,cpu_count,cpu_capacity,mem_capacity,gpu_count,parents,deferrable,deadline
0,1704067200000,3600000,4,3000.0,10000,0,[],True,1704074400000
1,1704067260000,60000,2,3000.0,20000,1,[0],False,1704074400000
"""


def kueue_workload(
    name: str,
    *pod_sets: tuple[int, dict[str, str]],
    conditions: dict[str, tuple[str, str, str]],
    created: str = "2025-12-22T09:00:00Z",
    cluster_queue: str = "",
    status: dict[str, object] | None = None,
    **spec: object,
) -> dict[str, object]:
    """A Workload object: pods and requests of one pod for each pod set; status, time and reason by condition."""
    admission = {"clusterQueue": cluster_queue, "podSetAssignments": []}
    sets = [
        {
            "name": f"set{index}",
            "count": count,
            "template": {"spec": {"containers": [{"name": "c", "resources": {"requests": requests}}]}},
        }
        for index, (count, requests) in enumerate(pod_sets)
    ]
    listed = [
        {"type": kind, "status": holds, "lastTransitionTime": f"2025-12-22T{time}Z", "reason": reason, "message": ""}
        for kind, (holds, time, reason) in conditions.items()
    ]
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "Workload",
        "metadata": {"name": name, "namespace": "team-a", "creationTimestamp": created},
        "spec": {"podSets": sets, "queueName": "user-queue", "priority": 100, **spec},
        "status": {"conditions": listed, **({"admission": admission} if cluster_queue else {}), **(status or {})},
    }


def kubernetes_list(*items: dict[str, object]) -> str:
    """What kubectl prints with -o json."""
    return json.dumps({"apiVersion": "v1", "items": list(items), "kind": "List", "metadata": {}}, indent=4)


_RAN = {"QuotaReserved": ("True", "09:01:00", "QuotaReserved"), "Admitted": ("True", "09:01:00", "Admitted")}
KUEUE = kubernetes_list(
    kueue_workload(
        "train", (2, {"cpu": "4", "memory": "8Gi", "nvidia.com/gpu": "8"}), cluster_queue="cq-a",
        priorityClassName="high", maximumExecutionTimeSeconds=7200,
        conditions=_RAN | {"Finished": ("True", "10:01:00", "Succeeded")},
    ),
    kueue_workload(
        "prepare", (1, {"cpu": "500m", "memory": "200M"}), cluster_queue="cq-a",
        conditions=_RAN | {"Finished": ("True", "09:02:00", "Failed")},
    ),
    kueue_workload("waiting", (1, {"cpu": "1"}), conditions={"QuotaReserved": ("False", "09:00:01", "Pending")}),
    {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "ClusterQueue",
        "metadata": {"name": "cq-a"},
        "spec": {
            "cohort": "all",
            "queueingStrategy": "BestEffortFIFO",
            "resourceGroups": [
                {
                    "coveredResources": ["cpu", "nvidia.com/gpu"],
                    "flavors": [
                        {
                            "name": "a100",
                            "resources": [
                                {"name": "cpu", "nominalQuota": "96"},
                                {"name": "nvidia.com/gpu", "nominalQuota": 16, "borrowingLimit": 8},
                            ],
                        }
                    ],
                }
            ],
        },
    },
)  # fmt: skip

SAMPLES = {
    "openb": OPENB,
    "openb_bare": OPENB_BARE,
    "pai": PAI_TASKS,
    "gaia": GAIA,
    "spot": SPOT,
    "spot_published": SPOT_PUBLISHED,
    "philly": PHILLY,
    "sia": SIA,
    "lumos_philly": LUMOS,
    "helios": HELIOS,
    "helios_slice": HELIOS_SLICE,
    "supercloud": SUPERCLOUD,
    "google2011_tasks": GOOGLE_TASKS,
    "google2011_jobs": GOOGLE_JOBS,
    "google2019": GOOGLE_2019,
    "google2019_csv": GOOGLE_2019_CSV,
    "fdata": FDATA,
    "oda": ODA,
    "wta": WTA,
    "opendc": OPENDC,
    "kueue": KUEUE,
}
"""One file of each format."""

FORMAT_OF = {name: name.split("_")[0] for name in SAMPLES}
FORMAT_OF |= {"gaia": "pai", "sia": "philly", "lumos_philly": "philly"}
