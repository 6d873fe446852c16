"""Synthetic jobs in training: sampling, data leakage of generators, networks trained on them."""

from dataclasses import replace

import numpy as np
import pytest

import kilowait as kw
from kilowait.agents.training_data import SyntheticMix, joined_table
from kilowait.envs.batch_env import BatchVectorEnv
from kilowait.errors import InputError
from kilowait.experiments.scenario_inputs import Workload
from kilowait.experiments.training.environments import SyntheticCurriculum
from kilowait.experiments.training.network import train_network
from kilowait.experiments.training.rl_settings import RLTraining
from kilowait.experiments.training.synthetic import SyntheticTraining, data_overlap, sample_synthetic
from kilowait.synth import fit_generator
from kilowait.synth.log_schema import log_schema

MACHINE = kw.Cluster.from_nodes(32)
JOBS = kw.lublin(900, 32, load=1.0, seed=3)
QUICK = RLTraining(
    total_timesteps=16 * 4 * 6,
    num_envs=4,
    episode_jobs=40,
    queue_window=16,
    windows=3,
    window_jobs=60,
    hyperparameters={"n_steps": 16, "n_minibatches": 2, "n_epochs": 1, "validate_every": 2, "checkpoint_every": 2},
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A generator fitted to the first 60 % of the log."""
    path = tmp_path_factory.mktemp("models") / "bootstrap"
    fit_generator(JOBS[:540], "bootstrap", seed=0).save(path)
    return str(path)


def sampled(folder, machine=MACHINE, **options):
    return sample_synthetic(SyntheticTraining((folder,), **options), Workload(JOBS), machine, seed=4, trace="log.swf")


def test_number_of_sampled_jobs(folder):
    synthetic = sampled(folder)
    assert [len(table) for table in synthetic.mixture.generated] == [540] and not synthetic.warnings
    assert len(sampled(folder, jobs=100).mixture.generated[0]) == 100
    again = sampled(folder).mixture.generated[0]
    assert np.array_equal(synthetic.mixture.generated[0]["submit_s"], again["submit_s"])
    record = synthetic.record["generators"][0]
    assert (record["generator"], record["jobs"], record["seed"]) == ("bootstrap", 540, 4)
    assert record["overlap"] == "training jobs only" and record["fitted_jobs"] == 540


@pytest.mark.parametrize(
    ("rows", "overlap", "verb"), [(720, "validation jobs", "selected"), (900, "test jobs", "evaluated")]
)
def test_data_leakage_warning_names_remedy(tmp_path, rows, overlap, verb):
    fit_generator(JOBS[:rows], "bootstrap", seed=0).save(tmp_path / "seen")
    leaking = sampled(str(tmp_path / "seen"))
    assert leaking.record["generators"][0]["overlap"] == overlap
    (warning,) = leaking.warnings
    assert f"the agent is {verb} on its jobs from day" in warning
    assert "kilowait synth fit log.swf --jobs 540" in warning


def test_data_overlap_with_dates_and_other_logs():
    dated = kw.jobs.JobTable(meta={"source": "a.swf", "unix_start_s": 843480031}, **{n: JOBS[n] for n in JOBS.columns})
    overlap = data_overlap(log_schema(dated), dated, same=True)
    assert overlap["fitted_from"] == "1996-09-23" and overlap["overlap"] == "test jobs"
    assert data_overlap(log_schema(dated), dated, same=False)["overlap"] == "another log"


def test_errors(folder, tmp_path):
    with pytest.raises(InputError, match=r"has no card\.json; give a folder written by kilowait synth fit"):
        sampled(str(tmp_path / "nothing"))
    with pytest.raises(InputError, match=r"generates jobs of up to \d+ nodes, but the machine has 2;"):
        sampled(folder, kw.Cluster.from_nodes(2))
    with pytest.raises(InputError, match=r"the share of synthetic jobs is 1\.5"):
        sampled(folder, share=1.5)
    with pytest.raises(InputError, match="is a node-level GPU cluster"):
        sampled(folder, kw.Cluster.preset("gpu-mixed"))
    with pytest.raises(InputError, match=r"--synthetic-share 0\.5 applies to synthetic jobs"):
        SyntheticTraining.from_options(None, 0.5, None, None)
    with pytest.raises(InputError, match="name folders"):
        SyntheticTraining.from_options(" , ", None, None, None)


def trained(folder, mixture, training=QUICK, jobs=JOBS[:540], **options):
    return train_network(jobs, JOBS[540:], MACHINE, training, folder=folder, mixture=mixture, **options)[0]


def weights(agent):
    return {name: tensor.numpy().copy() for name, tensor in agent.network.state_dict().items()}


def same_weights(one, other):
    left, right = weights(one), weights(other)
    return all(np.array_equal(left[name], right[name]) for name in left)


def test_ppo_with_mixed_and_synthetic_only_jobs(folder, tmp_path):
    mixture = sampled(folder).mixture
    mixed = trained(tmp_path / "mixed", mixture)
    assert not same_weights(mixed, trained(tmp_path / "real", None))
    assert mixed.provenance["synthetic_share"] == 0.5
    synthetic_only = replace(mixture, share=1.0)
    assert same_weights(
        trained(tmp_path / "alone", synthetic_only),
        trained(tmp_path / "others", synthetic_only, jobs=kw.lublin(540, 32, load=0.7, seed=9)),
    )


class Killed(Exception):
    pass


@pytest.mark.parametrize(("algo", "load_curriculum"), [("ppo", 1.0), ("ppo", 0.5), ("d3qn", 1.0)])
def test_resumed_after_kill_equals_uninterrupted(folder, tmp_path, algo, load_curriculum):
    mixture = replace(sampled(folder).mixture, curriculum="synthetic-first")
    settings = dict(QUICK.hyperparameters) if algo == "ppo" else {
        "train_freq": 16, "gradient_steps": 2, "batch_size": 16, "learning_starts": 64, "buffer_size": 500,
        "validate_every": 2, "checkpoint_every": 2,
    }  # fmt: skip
    training = replace(QUICK, algo=algo, load_curriculum=load_curriculum, hyperparameters=settings)
    uninterrupted = trained(tmp_path / "uninterrupted", mixture, training)

    def kill_at(number):
        def progress(update):
            if update.number == number:
                raise Killed

        return progress

    for name, number in (("before", 3), ("after", 5)):  # real jobs are mixed in from the fourth update on
        with pytest.raises(Killed):
            trained(tmp_path / name, mixture, training, progress=kill_at(number))
        assert same_weights(uninterrupted, trained(tmp_path / name, mixture, training, resume=True))
    with pytest.raises(InputError, match="was started with synthetic_share"):
        trained(tmp_path / "after", replace(mixture, share=0.75), training, resume=True)
    with pytest.raises(InputError, match=r"was started with generated \(1\) jobs"):
        other = SyntheticMix((JOBS[:540],), 0.5, "synthetic-first")
        trained(tmp_path / "after", other, training, resume=True)


def test_synthetic_first_goes_from_synthetic_to_log_jobs(folder):
    mixture = replace(sampled(folder).mixture, share=0.25, curriculum="synthetic-first")
    table = joined_table(JOBS[:540], mixture)
    inner = BatchVectorEnv(
        4, jobs=table.jobs, cluster=MACHINE, episode_jobs=40, queue_window=16, autoreset_mode="SameStep", threads=1
    )
    vec = SyntheticCurriculum(inner, table, mixture, steps=400)
    observation, _ = vec.reset(seed=0)
    for steps in range(0, 400, 4):  # steps of all four sub-environments so far
        first_jobs = inner.simulator.buffers.copies["next_first"]
        assert ((first_jobs >= 540) if steps < 100 else (first_jobs < 540)).all()
        observation = vec.step(observation["mask"].argmax(axis=1))[0]
    inner.close()


def test_parts_shorter_than_episode_are_errors(folder, tmp_path):
    mixture = SyntheticMix((sampled(folder).mixture.generated[0][:30],), 0.5)
    with pytest.raises(InputError, match=r"there are 30 generated \(1\) jobs, but an episode has 40"):
        trained(tmp_path / "short", mixture)
