"""kilowait train --algo ppo, and kilowait evaluate."""

import json

import numpy as np
import pytest

import kilowait as kw

TRACE = "lublin:1200:32:0.95:7"
SMALL = ("--num-envs", "4", "--episode-jobs", "40", "--queue-window", "16", "--window", "100", "--windows", "2")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("trained")


@pytest.mark.slow
def test_train_resume_evaluate(kilowait, folder):
    out = folder / "ppo"
    first = kilowait("train", TRACE, "--algo", "ppo", "--total-timesteps", "512", *SMALL, "--out", str(out))
    assert "agent.pt" in first.out and (out / "agent.pt").exists() and (out / "results.json").exists()
    again = kilowait("train", TRACE, "--algo", "ppo", "--total-timesteps", "512", *SMALL, "--out", str(out)).error()
    assert "--resume" in again
    more = kilowait("train", TRACE, "--algo", "ppo", "--total-timesteps", "1024", *SMALL, "--out", str(out), "--resume")
    assert "update 4," in more.err and "update 2," not in more.err
    report = kilowait("evaluate", str(out), TRACE, "--windows", "3", "--window", "100", "--json").json()
    assert "agent" in str(report["judged"]) and report["agent"]["training"]["algo"] == "ppo"
    compared = kilowait(
        "compare", TRACE, "--policies", f"saf,agent:{out / 'agent.pt'}", "--windows", "2", "--window", "100"
    )
    assert "agent" in compared.out


@pytest.mark.slow
def test_preference_conditioned_agent(kilowait, folder):
    out = folder / "both"
    objectives = ("--objectives", "slowdown,fairness")
    result = kilowait(
        "train", TRACE, "--algo", "ppo", "--total-timesteps", "512", *SMALL, *objectives, "--out", str(out)
    )
    assert "weight slowdown" in result.out and ":prefer=slowdown=0.3+fairness=0.7" in result.out
    front = kilowait("pareto", str(out), TRACE, "--window", "100", "--grid-steps", "2", "--json").json()["front"]
    assert [point["preference"]["slowdown"] for point in front["points"]] == [1.0, 0.5, 0.0]
    agent = f"agent:{out / 'agent.pt'}"
    policies = f"saf,{agent}:prefer=slowdown=1,{agent}:prefer=fairness=1"
    compared = kilowait("compare", TRACE, "--policies", policies, "--windows", "2", "--window", "100")
    assert "agent slowdown=1" in compared.out and "agent fairness=1" in compared.out
    windows = ("--windows", "2", "--window", "100")
    assert (
        "needs a preference between slowdown and fairness, and none is set"
        in kilowait("evaluate", str(out), TRACE, *windows).error()
    )
    assert "agent" in kilowait("evaluate", str(out), TRACE, *windows, "--preference", "slowdown=1+fairness=1").out


def test_graph_network_on_a_gpu_cluster(kilowait, folder):
    out, trace = folder / "graph", "gpu:400:gpu-mixed:1.2:0"
    args = ("--cluster", "gpu-mixed", "--algo", "ppo", "--network", "gat", "--total-timesteps", "128")
    options = ("--num-envs", "2", "--episode-jobs", "20", "--queue-window", "8", "--window", "40", "--windows", "2")
    result = kilowait("train", trace, *args, *options, "--out", out)
    assert "The agent is " in result.out and "update 1," in result.err
    cluster = kw.Cluster.preset("gpu-mixed")
    jobs, agent = kw.synth.gpu_workload(60, cluster, load=1.2, seed=1), kw.load_agent(out)
    assert (
        agent.decision_settings.graph
        and np.isfinite(kw.simulate(jobs, cluster, agent, backfill="none").jobs()["end_s"]).all()
    )


def test_error_messages(kilowait, folder):
    nothing = kilowait("train", TRACE, "--algo", "ppo", "--out", str(folder / "new"), "--resume").error()
    assert "no training to resume" in nothing
    wrong = kilowait("train", TRACE, "--algo", "pppo", "--out", str(folder / "x")).error()
    assert "did you mean" in wrong
    reward = kilowait("train", TRACE, "--algo", "ppo", "--objective", "slowdown", "--out", str(folder / "y")).error()
    assert "term=weight" in reward
    preferences = kilowait("train", TRACE, "--objectives", "slowdown,wait", "--out", str(folder / "z")).error()
    assert "use --algo ppo" in preferences
    features = kilowait("train", TRACE, "--request-features", "--out", str(folder / "z")).error()
    assert "--request-features is for networks; add --algo ppo" in features
    missing = kilowait("evaluate", str(folder / "none.pt"), TRACE).error()
    assert "none.pt" in missing


def test_expert_is_cloned_before_training(kilowait, folder):
    out = folder / "cloned"
    args = ("train", TRACE, "--algo", "ppo", "--total-timesteps", "512", *SMALL, "--out", out)
    result = kilowait(*args, "--expert", "saf", "--expert-steps", "512")
    assert result.status == 0 and "behavior cloning of saf, 512 decisions" in result.err and "update 2," in result.err
    warm_start = json.loads((out / "results.json").read_text())["warm_start"]
    assert warm_start["expert"] == "saf" and len(warm_start["updates"]) == 4
    assert "did you mean 'saf'" in kilowait(*args, "--expert", "saff", "--force").err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--device", "cuda:7"), "the device is 'cuda:7'"),
        (("--device", "tpu"), "unknown device 'tpu'"),
        (("--queue-window", "50000000"), "use a smaller --queue-window or a smaller --num-envs"),
        (("--episode-jobs", "5000"), "use shorter episodes (--episode-jobs)"),
        (("--window", "1000"), "are fewer than a window of 1,000; use shorter windows"),
        (("--expert", "lookahead:width=0"), "width of look-ahead is 0"),
        (("--out", "/proc/kilowait"), "cannot write"),
    ],
)
def test_training_start_errors(kilowait, tmp_path, options, message):
    error = kilowait("train", TRACE, "--algo", "ppo", *SMALL, "--out", tmp_path / "x", *options).error()
    assert message in error and not list(tmp_path.iterdir())


def test_invalid_checkpoints_are_reported_and_kept(kilowait, tmp_path):
    args = ("train", TRACE, "--algo", "ppo", "--total-timesteps", "256", *SMALL, "--out", tmp_path / "x")
    assert kilowait(*args).status == 0
    state = tmp_path / "x.training" / "last.safetensors"
    good = state.read_bytes()
    for broken, result in (
        (good[:3000], "cut off"),
        (good[:-50] + b"x" + good[-49:], "is damaged"),
        (good.replace(b'\\"version\\": 2', b'\\"version\\": 9'), "of version 9"),
        (tmp_path.joinpath("x", "agent.pt").read_bytes(), "is a kilowait network, not a kilowait checkpoint"),
    ):
        state.write_bytes(broken)
        assert result in kilowait(*args, "--resume").err.splitlines()[-1]
        assert state.read_bytes() == broken
    state.write_bytes(good)
    assert "algorithm ppo, not a2c" in kilowait(*args, "--resume", "--algo", "a2c").err
    hot = tmp_path / "hot.toml"
    hot.write_text("[hyperparameters]\nlearning_rate = 1e30\n")
    result = kilowait(
        "train", TRACE, "--total-timesteps", "512", *SMALL, "--out", tmp_path / "hot", "--hyperparameters", hot
    ).error()
    assert "policy is nan" in result and "lower the learning rate" in result
    assert "is for networks" in kilowait("train", TRACE, "--expert", "saf", "--out", tmp_path / "es").error()
