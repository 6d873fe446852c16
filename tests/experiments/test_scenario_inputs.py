"""Tests of the texts for traces, clusters, job ranges and column maps."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kilowait as kw
from kilowait.errors import ClusterError, InputError, KilowaitError, UnknownNameError
from kilowait.experiments import policies as policy_names
from kilowait.experiments import scenario, scenario_inputs
from kilowait.experiments.settings import Scenario
from kilowait.files.documents import to_toml
from kilowait.synth import gavel_jobs, gpu_load, gpu_workload
from kilowait.traces import trace_sha256
from tests.traces.formats import sample_files
from tests.traces.formats.test_alibaba import pai_folder

JOBS = kw.JobTable(job_id=[1, 2], submit_s=[0, 5], runtime_s=[60, 30], nodes=[4, 1])


def test_lublin_workloads_are_those_of_the_library():
    jobs = scenario_inputs.read_workload("lublin:1_000:64:0.7:9").jobs
    expected = kw.lublin(1000, 64, load=0.7, seed=9)
    assert jobs["submit_s"].tolist() == expected["submit_s"].tolist()
    assert kw.offered_load(jobs, 64) == pytest.approx(0.7)
    assert scenario_inputs.read_workload("LUBLIN:10:4::3").jobs.meta["seed"] == 3  # a seed without a load


def test_existing_file_is_read_instead_of_a_synthetic_workload(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    kw.write_trace(JOBS, "lublin:10:4", format="swf")
    assert len(scenario_inputs.read_workload("lublin:10:4").jobs) == 2


@given(st.text(alphabet="0123456789:-_, abc", max_size=12))
def test_job_ranges_give_a_slice_or_an_error(text):
    try:
        rows = scenario_inputs.parse_rows(text)
    except InputError as problem:
        assert "range of jobs" in str(problem)
    else:
        assert rows.start >= 0 and (rows.stop is None or rows.stop > rows.start)


def test_clusters_are_resolved(tmp_path):
    sized = kw.JobTable(job_id=[1], submit_s=[0], runtime_s=[1], nodes=[1], meta={"max_nodes": 9, "max_procs": 36})
    assert scenario_inputs.resolve_cluster("auto", sized)[0].nodes == 9  # the unit of these jobs
    assert scenario_inputs.resolve_cluster("auto", sized)[1] is None
    cluster, note = scenario_inputs.resolve_cluster("auto", JOBS)
    assert cluster.nodes == 4 and note is not None and "--cluster" in note
    assert scenario_inputs.resolve_cluster("1_024", JOBS)[0].nodes == 1024
    assert scenario_inputs.resolve_cluster("Mira", JOBS)[0].nodes == 49_152
    site = tmp_path / "site.toml"
    site.write_text('[[group]]\nname = "a"\nnodes = 3\n')
    assert scenario_inputs.resolve_cluster(str(site), JOBS)[0].nodes == 3
    with pytest.raises(UnknownNameError, match="nodes:N"):
        scenario_inputs.resolve_cluster("miraa", JOBS)
    with pytest.raises(InputError, match="give a cluster"):
        scenario_inputs.resolve_cluster("auto", JOBS[:0])


def test_scenario_checks_names_before_reading():
    with pytest.raises(UnknownNameError, match="did you mean 'easy'"):
        scenario.Scenario("nowhere.swf", backfill="eazy")
    with pytest.raises(UnknownNameError, match="did you mean 'sjf'"):
        scenario.run_scenario(scenario.Scenario("nowhere.swf", policy="sjff"))


def test_agent_policies_need_a_path_and_the_agents_package(monkeypatch):
    with pytest.raises(InputError, match="agent:PATH"):
        policy_names.resolve_policy("agent:")
    monkeypatch.setattr(policy_names, "find_spec", lambda name: None)
    with pytest.raises(InputError, match="no trained policies"):
        policy_names.resolve_policy("agent:x.json")


def test_agent_with_a_priority_policy_resolves_to_that_policy(monkeypatch):
    class Agent:
        rule = policy_names.resolve_policy("sjf")

    class AgentsModule:
        @staticmethod
        def load_agent(path: str) -> object:
            return Agent if path == "sjf.json" else object()

    monkeypatch.setattr(policy_names, "find_spec", lambda name: True)
    monkeypatch.setattr(policy_names, "import_module", lambda name: AgentsModule)
    assert policy_names.resolve_policy("agent:sjf.json") is Agent.rule


def test_resolved_cluster_can_be_read_again(tmp_path):
    cluster = kw.Cluster(
        groups=(
            kw.NodeGroup("a", 6, cores=4, memory_gb=1.5, gpus=1, gpu_type='"x"', shared=True),
            kw.NodeGroup("b", 4),
        ),
        queues={"q 1": ("b", "a")},
        outages=(kw.Outage("b", 2, 40.5),),
        reservations=(kw.Reservation("r", "a", 1, 0.0, 9.0, announced_s=-5.0),),
        name="site",
    )
    path = tmp_path / "site.toml"
    path.write_text(to_toml(scenario.to_dict(cluster)))
    assert kw.Cluster.from_file(path) == cluster


VALUES = st.recursive(
    st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=6,
)
TABLES = st.dictionaries(st.text(), VALUES, max_size=4)


@given(TABLES, TABLES, st.lists(TABLES, min_size=1, max_size=3))
def test_written_toml_is_read_back(plain, table, rows):
    data = {**plain, "a table": table, "rows": rows}
    assert tomllib.loads(to_toml(data)) == data


def test_toml_omits_none_and_rejects_unknown_types():
    assert to_toml({"a": None, "b": 1}) == "b = 1\n"
    with pytest.raises(TypeError, match="complex"):
        to_toml({"a": 1j})


@given(st.text(max_size=20))
def test_column_maps_give_a_mapping_or_an_error(text):
    try:
        mapping = scenario_inputs.parse_columns(text)
    except KilowaitError:
        return
    assert mapping


def test_overload_gives_a_note():
    _, _, notes = scenario.prepare_scenario(scenario.Scenario("lublin:200:64:0.9", cluster="16"))
    assert len(notes) == 1 and "3.6 times the work 16 nodes can do" in notes[0]
    assert scenario.prepare_scenario(scenario.Scenario("lublin:200:64:0.9"))[2] == ()
    assert scenario.prepare_scenario(scenario.Scenario("lublin:1:64"))[2] == ()


# -- GPU clusters ----------------------------------------------------------------------------------

NODES = "sn,cpu_milli,memory_mib,gpu,model\na,64000,262144,2,P100\nb,32000,262144,0,\nc,64000,262144,2,P100\n"


def same(first, second):
    return all(first[name].tolist() == second[name].tolist() for name in (*first.columns, *second.columns))


def test_gpu_workloads_are_those_of_the_library():
    mixed = kw.Cluster.preset("gpu-mixed")
    jobs = scenario_inputs.read_workload("gpu:200:gpu-mixed:0.7:3").jobs
    assert same(jobs, gpu_workload(200, mixed, load=0.7, seed=3))
    assert gpu_load(scenario_inputs.read_workload("gpu:200:gpu-mixed").jobs, mixed) == pytest.approx(0.9)
    assert scenario_inputs.resolve_cluster("auto", jobs) == (mixed, None)
    assert same(scenario_inputs.read_workload("gavel:50:4:2").jobs, gavel_jobs(50, 4.0, 2))
    multi_gpu = scenario_inputs.read_workload("gavel:50:4::multi").jobs
    assert same(multi_gpu, gavel_jobs(50, 4.0, 0, multi_gpu=True)) and multi_gpu["gpus"].max() > 1
    assert scenario_inputs.resolve_cluster("auto", multi_gpu[:10])[0].name == "gavel"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gavel:50", "gavel:JOBS:JOBS_PER_HOUR"),
        ("gavel:50:many", "number of jobs an hour"),
        ("gavel:50:4:0:some", "not in multi"),
        ("gpu:50", "gpu:JOBS:CLUSTER"),
        ("gpu:50:nodes.csv", "nodes.csv"),
        ("gpu:50:mira", "no GPUs"),
    ],
)
def test_invalid_gpu_workloads_are_rejected(text, message):
    with pytest.raises(KilowaitError, match=message):
        scenario_inputs.read_workload(text)


def test_node_list_defines_a_cluster(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "nodes.csv"
    path.write_text(NODES)
    cluster = scenario_inputs.resolve_cluster(str(path), JOBS)[0]
    assert cluster.node_level and cluster.node_groups == (0, 1, 0)
    assert scenario.to_dict(cluster)["layout"] == [0, 1, 0]
    jobs = scenario_inputs.read_workload("gpu:20:nodes.csv:0.5").jobs
    assert scenario_inputs.resolve_cluster("auto", jobs)[0] == cluster
    assert scenario_inputs.is_node_level("nodes.csv", "log.swf") and scenario_inputs.is_node_level(
        "auto", "gpu:20:nodes.csv"
    )


def test_folder_is_read_as_a_trace(tmp_path):
    folder = pai_folder(tmp_path, job_table=sample_files.PAI_JOBS, task_table=sample_files.PAI_TASKS)
    workload = scenario_inputs.read_workload(str(folder))
    assert len(workload.jobs) and workload.sha256 == trace_sha256(folder)


def test_load_of_gpu_clusters_is_gpu_load():
    mixed = kw.Cluster.preset("gpu-mixed")
    jobs = scenario_inputs.read_workload("gpu:200:gpu-mixed:0.7").jobs
    assert gpu_load(scenario_inputs.rescale_to_load(jobs, mixed, 1.5), mixed) == pytest.approx(1.5)
    assert scenario_inputs.cluster_load(jobs, mixed) == pytest.approx(0.7)
    with pytest.raises(InputError, match="none of these jobs has a GPU"):
        scenario_inputs.rescale_to_load(jobs.with_columns(gpus=0 * jobs["gpus"]), mixed, 1.0)
    _, _, notes = scenario.prepare_scenario(scenario.Scenario("gpu:200:gpu-mixed:0.7", load=1.5))
    assert len(notes) == 1 and "1.5 times the work the GPUs of gpu-mixed can do" in notes[0]


def test_dates_of_a_cluster_file_are_in_the_time_of_the_log(tmp_path: Path) -> None:
    site = tmp_path / "site.toml"
    site.write_text(
        "[[group]]\nname = 'n'\nnodes = 4\n[[outage]]\ngroup = 'n'\nnodes = 4\n"
        "start = 2009-01-05T00:00:00Z\nend = 2009-01-05T00:01:40Z\n"
    )
    log = tmp_path / "log.swf"
    log.write_text("; UnixStartTime: 1231113590\n1 20 0 5 4 -1 -1 4 60 -1 1 1 1 -1 1 -1 -1 -1\n")
    done = scenario.run_scenario(Scenario(str(log), cluster=str(site)))
    assert (done.cluster.outages[0].start_s, done.cluster.outages[0].end_s) == (10, 110)
    assert done.log.jobs()["start_s"].tolist() == [110]
    log.write_text("1 20 0 5 4 -1 -1 4 60 -1 1 1 1 -1 1 -1 -1 -1\n")
    with pytest.raises(ClusterError, match="start is a date, but the log does not state the date of its second 0"):
        scenario.run_scenario(Scenario(str(log), cluster=str(site)))
    assert not scenario_inputs.is_node_level(str(site), "log.swf")


@pytest.mark.parametrize("text", ["1200,1440", "1,024", "nodes:1,024"])
def test_numbers_with_commas_are_errors(text):
    with pytest.raises(InputError, match=r"not a number; write nodes:N.* without commas; .*--clusters 128,256"):
        scenario_inputs.resolve_cluster(text, JOBS)


def processors(max_nodes=24, **columns):
    """A log of a machine with 1,728 processors, as the SWF reader gives it."""
    known = {} if max_nodes is None else {"max_nodes": max_nodes}
    unit = "processor" if max_nodes is None else "core"
    jobs = kw.JobTable(
        job_id=[1, 2], submit_s=[0, 5], runtime_s=[60, 30], nodes=[2, 1], cores=[88, 1],
        meta={"max_procs": 1728, "format": "swf", **known, "unit": unit}, **columns,
    )  # fmt: skip
    return jobs if max_nodes is not None else jobs.with_columns(nodes=jobs["cores"])


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("auto", "24 nodes, 1,728 cores"),
        ("1728", "24 nodes, 1,728 cores"),
        ("864", "12 nodes, 864 cores"),
        ("100", "2 nodes, 100 cores"),
        ("nodes:48", "48 nodes, 3,456 cores"),
        ("+25%", "30 nodes, 2,160 cores"),
        ("-50 %", "12 nodes, 864 cores"),
    ],
)
def test_a_number_of_a_log_of_processors_is_a_number_of_processors(text, size):
    machine = scenario_inputs.resolve_machine(text, processors())
    assert machine.cluster.size_text == size
    assert machine.jobs.size.tolist() == [88, 1] and machine.jobs["nodes"].tolist() == [2, 1]


def test_processors_on_unknown_nodes():
    jobs = processors(None)
    machine = scenario_inputs.resolve_machine("auto", jobs)
    assert machine.cluster.size_text == "1,728 processors" and not machine.cluster.groups[0].nodes_known
    assert scenario_inputs.resolve_machine("100", jobs).cluster.size_text == "100 processors"
    known = scenario_inputs.resolve_machine("auto", jobs, cores_per_node=72)
    assert known.cluster.size_text == "24 nodes, 1,728 cores" and known.jobs["nodes"].tolist() == [2, 1]
    with pytest.raises(InputError, match="its nodes are unknown; give the cores of a node with --cores-per-node"):
        scenario_inputs.resolve_machine("auto", jobs, exclusive_nodes=True)


def test_exclusive_nodes_of_a_log_of_processors():
    machine = scenario_inputs.resolve_machine("auto", processors(), exclusive_nodes=True)
    assert (machine.cluster.size_text, machine.jobs.unit, machine.jobs.size.tolist()) == ("24 nodes", "node", [2, 1])


def test_cores_per_node_of_a_log_of_nodes():
    nodes = kw.JobTable(job_id=[1], submit_s=[0], runtime_s=[60], nodes=[4], meta={"max_nodes": 8, "format": "swf"})
    machine = scenario_inputs.resolve_machine("auto", nodes, cores_per_node=2)  # the header says nodes for processors
    assert machine.cluster.size_text == "4 nodes, 8 cores" and machine.jobs["nodes"].tolist() == [2]
    with pytest.raises(InputError, match="--cores-per-node 2 is for logs that count processors, and this log counts"):
        scenario_inputs.resolve_machine("auto", JOBS, cores_per_node=2)


def test_the_size_of_a_machine_is_the_peak_of_recorded_use():
    jobs = kw.JobTable(job_id=[1, 2], submit_s=[0, 5], runtime_s=[60, 30], nodes=[4, 3], wait_s=[0, 0])
    machine = scenario_inputs.resolve_machine("auto", jobs)
    assert machine.cluster.nodes == 7
    assert "7 nodes are assumed, the largest number in use at one time" in machine.note
    assert "as many as its largest job has" in scenario_inputs.resolve_machine("auto", JOBS).note


def test_a_machine_without_nodes_is_an_error():
    with pytest.raises(InputError, match="--cluster -100% leaves no node"):
        scenario_inputs.resolve_machine("-100%", processors())
