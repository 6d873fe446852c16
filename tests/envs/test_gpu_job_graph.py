"""Job graph of `kilowait/Gpu-v0`: values of the edges."""

import numpy as np
from gymnasium.vector import AutoresetMode

import kilowait as kw
from kilowait.cluster import Cluster, NodeGroup
from kilowait.engine.gpu.state import RUNNING
from tests.envs.gpu_workloads import crowded, gpu_env, state_of

TWO = Cluster(
    [
        NodeGroup("a100", 1, 16, gpus=4, gpu_type="A100", node_level=True),
        NodeGroup("t4", 2, 8, gpus=2, gpu_type="T4", node_level=True),
    ]
)
USER, COMPETE, NEAR = 1, 2, 4


def owned(jobs):
    random = np.random.default_rng(9)
    return jobs.with_columns(user=random.integers(-1, 4, len(jobs)), account=random.integers(-1, 6, len(jobs)))


def expected(vec, copy=0):
    """The edges of a copy, pair by pair, from its state."""
    s, a = state_of(vec, copy), vec.simulator.buffers
    record, first = a.copies[copy], int(a.copies["first"][copy])
    room = vec.decision_settings.queue_window
    rows = [*range(record["shown"]), *range(room, room + record["victims"])]
    found = np.zeros((vec.observation_spec.slots, vec.observation_spec.slots), np.uint8)
    kinds = s.nodes["type"]
    gpu_milli = np.bincount(kinds, s.nodes["gpu_milli"], s.speed.shape[1])
    cpu = np.bincount(kinds, s.nodes["cpu"], s.speed.shape[1])

    def describe(row):
        job = int(a.slots[copy, row])
        job_state = s.job_state[job]
        runs = job_state["status"] == RUNNING
        lies = np.arange(len(gpu_milli)) == s.nodes["type"][s.places[job_state["place_lo"], 0]]
        may = lies if runs else s.speed[job_state["speed_class"]] > 0
        wants = (0, 0) if runs else (1000 * s.jobs["gpu_share"][job], job_state["cpu"] * job_state["pieces"])
        owner = (vec.jobs["user"][first + job], vec.jobs["account"][first + job])
        return may, wants, owner, job_state["arrival_s"]

    for i in rows:
        for j in rows:
            (may, wants, owner, came), (may2, wants2, owner2, came2) = describe(i), describe(j)
            both = may & may2
            short = wants[0] + wants2[0] > gpu_milli[both].sum() or wants[1] + wants2[1] > cpu[both].sum()
            related = any(x >= 0 and x == y for x, y in zip(owner, owner2, strict=True))
            found[i, j] = USER * related + COMPETE * (both.any() and short) + NEAR * (abs(came - came2) <= 600)
    return found


def test_edges_of_a_known_queue():
    jobs = kw.JobTable(
        job_id=[1, 2, 3, 4, 5],
        submit_s=[0, 0, 1000, 1001, 3000],
        runtime_s=[36000] * 5,
        nodes=[1] * 5,
        gpus=[2, 2, 4, 1, 2],
        user=[7, -1, 7, -1, 3],
        account=[-1, 2, -1, 2, -1],
        gpu_types=[0, 1, 0, -1, 1],
        labels={"gpu_types": ("A100", "T4")},
    )
    vec = gpu_env(jobs, cluster=TWO, episode_jobs=5, queue_window=4, preempt=True, victims=2, graph=True)
    vec.reset()
    assert vec.observation_spec.graph and vec.single_observation_space["edges"].shape == (6, 6)
    for action in (0, 0):  # the first two start, on A100 and T4
        observation, *_ = vec.step(np.array([action]))
    while vec.simulator.buffers.copies["shown"][0] < 3:
        observation, *_ = vec.step(np.array([vec.observation_spec.actions - 1]))  # hold until the others arrive
    numbers = vec.simulator.buffers.slots[0, [0, 1, 2, 4, 5]].tolist()
    assert numbers[:3] == [2, 3, 4] and set(numbers[3:]) == {0, 1}
    edges = {
        (one, other): int(observation["edges"][0, (0, 1, 2, 4, 5)[i], (0, 1, 2, 4, 5)[j]])
        for i, one in enumerate(numbers)
        for j, other in enumerate(numbers)
    }
    assert edges[2, 3] == COMPETE | NEAR  # four A100 and one of any type, a second apart: two A100 are free
    assert edges[2, 4] == 0  # A100 only and T4 only
    assert edges[3, 4] == COMPETE  # both may use T4, of which three are wanted and two free
    assert edges[2, 0] == USER | COMPETE  # it runs on the A100 GPUs that the wide job needs
    assert edges[3, 1] == USER  # same account; of T4 there is enough for one
    assert edges[0, 1] == NEAR and edges[1, 0] == NEAR  # both run
    assert not observation["edges"][0, 3].any() and not observation["edges"][0, :, 3].any()


def test_edges_match_the_state_throughout_an_episode():
    random = np.random.default_rng(0)
    vec = gpu_env(owned(crowded(150, 0)), queue_window=8, victims=4, preempt=True, graph=True, episode_jobs=80)
    observation, _ = vec.reset(seed=0)
    over, bits_seen = False, set()
    while not over:
        assert np.array_equal(observation["edges"][0], expected(vec))
        bits_seen |= set(np.unique(observation["edges"]).tolist())
        observation, _, ended, _, _ = vec.step(np.array([random.choice(np.flatnonzero(vec.action_masks()[0]))]))
        over = bool(ended[0])
    assert bits_seen == set(range(8)) and not observation["edges"].any()


def test_edges_in_copies_snapshots_and_final_observations():
    arguments = {"queue_window": 8, "victims": 4, "preempt": True, "graph": True, "horizon_s": 400.0, "threads": 2}
    envs = [gpu_env(owned(crowded(150, 0)), 5, autoreset_mode=AutoresetMode.SAME_STEP, **arguments) for _ in range(2)]
    random = np.random.default_rng(1)
    envs[0].reset(seed=3)
    envs[1].reset(seed=4)
    cut = False
    for step in range(60):
        if step == 20:
            envs[1].restore(envs[0].snapshot())
        before = [expected(envs[0], copy) for copy in range(5)]
        assert np.array_equal(envs[0].simulator.observed()["edges"], before)
        masks = envs[0].action_masks()
        actions = np.array([random.choice(np.flatnonzero(mask)) for mask in masks])
        steps = [vec.step(actions) for vec in envs[: 1 if step < 20 else 2]]
        assert all(np.array_equal(steps[0][0]["edges"], other[0]["edges"]) for other in steps[1:])
        if steps[0][3].any():
            cut = True
            last = steps[0][4]["final_obs"]
            there = (last["jobs"] != 0).any(axis=2)
            assert not (last["edges"].any(axis=1) & ~there)[steps[0][3]].any()
            assert (last["edges"][steps[0][3]].diagonal(axis1=1, axis2=2)[there[steps[0][3]]] & NEAR).all()
    assert cut


def test_no_edges_without_graph():
    vec = gpu_env(queue_window=8)
    observation, _ = vec.reset()
    assert "edges" not in observation and "edges" not in vec.observation_space.spaces
    assert not any("edges" in name for name in vec.snapshot())
