"""Synthetic jobs in training: sampling, data leakage of generators, networks trained on them."""

from dataclasses import replace

import numpy as np
import pytest

import kilowait as kw
from kilowait.agents.training_data import SyntheticMix, joined_table
from kilowait.envs.vector_env import BatchVectorEnv
from kilowait.errors import InputError
from kilowait.experiments.env_factory import SyntheticCurriculum
from kilowait.experiments.inputs import Workload
from kilowait.experiments.synthetic_training import SyntheticTraining, data_overlap, sample_synthetic
from kilowait.experiments.train_rl import RLTraining, train_network
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
    hyperparameters={
        "n_steps": 16,
        "n_minibatches": 2,
        "n_epochs": 1,
        "validate_every": 2,
        "checkpoint_every": 2,
    },
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A generator fitted to the first 60 % of the log."""
    place = tmp_path_factory.mktemp("models") / "ours"
    fit_generator(JOBS[:540], "bootstrap", seed=0).save(place)
    return str(place)


def drawn(folder, machine=MACHINE, **asked):
    return sample_synthetic(
        SyntheticTraining((folder,), **asked), Workload(JOBS), machine, seed=4, trace="log.swf"
    )


def test_number_of_sampled_jobs(folder):
    one = drawn(folder)
    assert [len(table) for table in one.mixture.generated] == [540] and not one.warnings
    assert len(drawn(folder, jobs=100).mixture.generated[0]) == 100
    again = drawn(folder).mixture.generated[0]
    assert np.array_equal(one.mixture.generated[0]["submit_s"], again["submit_s"])
    told = one.record["generators"][0]
    assert (told["generator"], told["jobs"], told["seed"]) == ("bootstrap", 540, 4)
    assert told["saw"] == "training jobs only" and told["fitted_jobs"] == 540


@pytest.mark.parametrize(
    ("rows", "saw", "verb"),
    [(720, "validation jobs", "selected"), (900, "judged jobs", "evaluated")],
)
def test_data_leakage_warning_names_remedy(tmp_path, rows, saw, verb):
    fit_generator(JOBS[:rows], "bootstrap", seed=0).save(tmp_path / "seen")
    found = drawn(str(tmp_path / "seen"))
    assert found.record["generators"][0]["saw"] == saw
    (warning,) = found.warnings
    assert f"the agent is {verb} on its jobs from day" in warning
    assert "kilowait synth fit log.swf --jobs 540" in warning


def test_data_overlap_with_dates_and_other_logs():
    dated = kw.jobs.JobTable(
        meta={"source": "a.swf", "unix_start_s": 843480031}, **{n: JOBS[n] for n in JOBS.columns}
    )
    told = data_overlap(log_schema(dated), dated, same=True)
    assert told["fitted_from"] == "1996-09-23" and told["saw"] == "judged jobs"
    assert data_overlap(log_schema(dated), dated, same=False)["saw"] == "another log"


def test_errors(folder, tmp_path):
    with pytest.raises(InputError, match=r"has no card\.json; give a folder written by kilowait synth fit"):
        drawn(str(tmp_path / "nothing"))
    with pytest.raises(InputError, match=r"generates jobs of up to \d+ nodes, and the machine has 2;"):
        drawn(folder, kw.Cluster.from_nodes(2))
    with pytest.raises(InputError, match=r"the share of synthetic jobs is 1\.5"):
        drawn(folder, share=1.5)
    with pytest.raises(InputError, match="is a node-level GPU cluster"):
        drawn(folder, kw.Cluster.preset("gpu-mixed"))
    with pytest.raises(InputError, match=r"--synthetic-share 0\.5 applies to synthetic jobs"):
        SyntheticTraining.from_options(None, 0.5, None, None)
    with pytest.raises(InputError, match="name folders"):
        SyntheticTraining.from_options(" , ", None, None, None)


def learned(folder, mixture, how=QUICK, jobs=JOBS[:540], **more):
    return train_network(jobs, JOBS[540:], MACHINE, how, folder=folder, mixture=mixture, **more)[0]


def weights(agent):
    return {name: tensor.numpy().copy() for name, tensor in agent.network.state_dict().items()}


def alike(one, other):
    one, other = weights(one), weights(other)
    return all(np.array_equal(one[name], other[name]) for name in one)


def test_ppo_with_mixed_and_synthetic_only_jobs(folder, tmp_path):
    mixture = drawn(folder).mixture
    mixed = learned(tmp_path / "mixed", mixture)
    assert not alike(mixed, learned(tmp_path / "real", None))
    assert mixed.provenance["synthetic_share"] == 0.5
    alone = replace(mixture, share=1.0)
    assert alike(
        learned(tmp_path / "alone", alone),
        learned(tmp_path / "others", alone, jobs=kw.lublin(540, 32, load=0.7, seed=9)),
    )


class Killed(Exception):
    pass


@pytest.mark.parametrize(("algo", "ease"), [("ppo", 1.0), ("ppo", 0.5), ("d3qn", 1.0)])
def test_resumed_after_kill_equals_uninterrupted(folder, tmp_path, algo, ease):
    mixture = replace(drawn(folder).mixture, curriculum="synthetic-first")
    settings = dict(QUICK.hyperparameters) if algo == "ppo" else {
        "train_freq": 16, "gradient_steps": 2, "batch_size": 16, "learning_starts": 64, "buffer_size": 500,
        "validate_every": 2, "checkpoint_every": 2,
    }  # fmt: skip
    how = replace(QUICK, algo=algo, load_curriculum=ease, hyperparameters=settings)
    whole = learned(tmp_path / "whole", mixture, how)

    def kill(at):
        def hears(update):
            if update.number == at:
                raise Killed

        return hears

    for name, at in (("before", 3), ("after", 5)):  # the turn from generated to real jobs is in the fourth
        with pytest.raises(Killed):
            learned(tmp_path / name, mixture, how, progress=kill(at))
        assert alike(whole, learned(tmp_path / name, mixture, how, resume=True))
    with pytest.raises(InputError, match="was begun with synthetic_share"):
        learned(tmp_path / "after", replace(mixture, share=0.75), how, resume=True)
    with pytest.raises(InputError, match=r"was begun with generated \(1\) jobs"):
        other = SyntheticMix((JOBS[:540],), 0.5, "synthetic-first")
        learned(tmp_path / "after", other, how, resume=True)


def test_synthetic_first_goes_from_synthetic_to_log_jobs(folder):
    mixture = replace(drawn(folder).mixture, share=0.25, curriculum="synthetic-first")
    laid = joined_table(JOBS[:540], mixture)
    inner = BatchVectorEnv(
        4,
        jobs=laid.jobs,
        cluster=MACHINE,
        episode_jobs=40,
        queue_window=16,
        autoreset_mode="SameStep",
        threads=1,
    )
    vec = SyntheticCurriculum(inner, laid, mixture, steps=400)
    seen, _ = vec.reset(seed=0)
    for done in range(0, 400, 4):  # decisions of all four copies so far
        begins = inner.simulator.buffers.copies["next_first"]
        assert ((begins >= 540) if done < 100 else (begins < 540)).all()
        seen = vec.step(seen["mask"].argmax(axis=1))[0]
    inner.close()


def test_parts_shorter_than_episode_are_errors(folder, tmp_path):
    mixture = SyntheticMix((drawn(folder).mixture.generated[0][:30],), 0.5)
    with pytest.raises(InputError, match=r"there are 30 generated \(1\) jobs, and an episode has 40"):
        learned(tmp_path / "short", mixture)
