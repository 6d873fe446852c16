"""Components of the algorithms: return scale, multiplier, projection, device transfer, checks."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kilowait.agents.rl import A2CSettings, D3QNSettings, PPOSettings, SACSettings
from kilowait.agents.rl.d3qn import project_returns
from kilowait.agents.rl.device import DeviceTransfer, TorchRng, use_device
from kilowait.agents.rl.env_protocol import EpisodeStatistics, ReturnScale, check_vector, final_observation
from kilowait.agents.rl.ppo import LagrangeMultiplier
from kilowait.agents.rl.sac import target_entropy
from kilowait.errors import InputError, TrainingError, UnknownNameError
from tests.agents.support.two_job_env import TwoJobs


def test_scale_is_standard_deviation_of_returns():
    random = np.random.default_rng(0)
    rewards, done = random.normal(3, 5, (50, 4)), random.random((50, 4)) < 0.1
    scale, observation, running = ReturnScale(4, 0.9), [], np.zeros(4)
    for reward, over in zip(rewards, done, strict=True):
        scale.step(reward, over)
        running = 0.9 * running + reward
        observation.append(running.copy())
        running[over] = 0
    assert scale.divisor == pytest.approx(np.std(observation))


def test_multiplier_follows_cost():
    dual = LagrangeMultiplier(limit=2.0, rate=0.1)
    dual.update(3.0)
    assert dual.multiplier == pytest.approx(0.05)
    dual.update(float("nan"))
    assert dual.multiplier == pytest.approx(0.05)
    dual.update(0.0)
    assert dual.multiplier == 0.0  # never below
    zero_limit = LagrangeMultiplier(limit=0.0, rate=0.1)
    zero_limit.update(5.0)
    assert zero_limit.multiplier == 0.5


def test_costs_are_summed_over_episodes():
    episodes = EpisodeStatistics(2, "watts")
    episodes.step({"watts": np.array([1.0, 2.0])}, np.array([False, False]))
    episodes.step({"watts": np.array([1.0, 2.0])}, np.array([True, False]))
    assert episodes.means()["cost"] == 2.0
    episodes.step({"watts": np.array([7.0, 2.0])}, np.array([True, True]))
    assert episodes.means()["cost"] == (7 + 6) / 2
    with pytest.raises(InputError, match="infos has no cost 'joules'; this environment gives watts"):
        EpisodeStatistics(2, "joules").step({"watts": np.zeros(2)}, np.zeros(2, bool))


def test_projection_keeps_probability_and_mean():
    support = torch.linspace(-10, 10, 51)
    random = torch.Generator().manual_seed(0)
    after = torch.rand(20, 51, generator=random).softmax(-1)
    rewards, discounts = torch.rand(20, generator=random), torch.full((20,), 0.5)
    result = project_returns(support, rewards, discounts, after)
    torch.testing.assert_close(result.sum(-1), torch.ones(20))
    torch.testing.assert_close(result @ support, rewards + 0.5 * (after @ support), atol=1e-4, rtol=1e-4)


def test_projection_beyond_the_last_atom_and_at_an_end():
    support = torch.tensor([-1.0, 0.0, 1.0])
    after = torch.tensor([[0.2, 0.3, 0.5]] * 2)
    result = project_returns(support, torch.tensor([9.0, -0.5]), torch.tensor([1.0, 0.0]), after)
    torch.testing.assert_close(result, torch.tensor([[0.0, 0.0, 1.0], [0.5, 0.5, 0.0]]))


def test_target_entropy_counts_allowed_actions():
    mask = torch.tensor([[1, 1, 1, 1], [1, 0, 0, 1], [0, 1, 0, 0]], dtype=torch.int8)
    assert target_entropy(mask, 0.5).tolist() == pytest.approx([0.5 * np.log(4), 0.5 * np.log(2), 0.0])


def test_final_observations_come_in_two_forms():
    rows = np.array([{"jobs": np.array([1.0])}, None, {"jobs": np.array([3.0])}])
    which = np.array([0, 2])
    assert final_observation({"final_obs": rows}, which)["jobs"].tolist() == [[1.0], [3.0]]
    stacked = {"final_obs": {"jobs": np.array([[1.0], [2.0], [3.0]])}}
    assert final_observation(stacked, which)["jobs"].tolist() == [[1.0], [3.0]]
    with pytest.raises(InputError, match="truncated .* no 'final_obs'"):
        final_observation({}, which)


def test_mask_without_action_is_an_error():
    observation, _ = TwoJobs(3).reset(seed=0)
    observation["mask"][1] = 0
    with pytest.raises(TrainingError, match="environment 1 has waiting jobs and allows no action at all"):
        DeviceTransfer(torch.device("cpu"))(observation)


def test_empty_queue_has_one_action():
    observation, _ = TwoJobs(3).reset(seed=0)
    observation["mask"][1], observation["jobs"][1] = 0, 0
    result = DeviceTransfer(torch.device("cpu"))(observation)["mask"]
    assert result[1].tolist() == [1] + [0] * 8 and not observation["mask"][1].any()
    assert result[[0, 2]].tolist() == observation["mask"][[0, 2]].tolist()


def test_unsupported_environments_are_errors():
    class NextStep(TwoJobs):
        metadata = {"autoreset_mode": "NEXT_STEP"}

    class Forgetful(TwoJobs):
        snapshot = property()  # type: ignore[assignment]

    check_vector(TwoJobs(1), checkpoints=True)
    check_vector(Forgetful(1), checkpoints=False)
    with pytest.raises(InputError, match="resets by NEXT_STEP; learning needs AutoresetMode.SAME_STEP"):
        check_vector(NextStep(1), checkpoints=False)
    with pytest.raises(InputError, match=r"Forgetful has no snapshot\(\) and restore\(\)"):
        check_vector(Forgetful(1), checkpoints=True)


def test_torch_rng_is_named_and_restorable():
    cpu = torch.device("cpu")
    one, same, other = TorchRng(0, "a", cpu), TorchRng(0, "a", cpu), TorchRng(0, "b", cpu)
    first = torch.rand(3, generator=one.generator)
    assert torch.equal(first, torch.rand(3, generator=same.generator))
    assert not torch.equal(first, torch.rand(3, generator=other.generator))
    state = one.state_dict()
    later = torch.rand(3, generator=one.generator)
    other.load_state_dict(state)
    assert torch.equal(torch.rand(3, generator=other.generator), later)


def test_devices_and_threads():
    with use_device("cpu", 1):
        assert torch.get_num_threads() == 1
    with pytest.raises(UnknownNameError, match="unknown device 'gpu'"), use_device("gpu", None):
        pass
    with pytest.raises(InputError, match="0 threads"), use_device("cpu", 0):
        pass
    if not torch.cuda.is_available():
        with pytest.raises(InputError, match="torch finds no CUDA here"), use_device("cuda", None):
            pass


@pytest.mark.parametrize("settings", [PPOSettings, A2CSettings, D3QNSettings, SACSettings])
def test_invalid_hyperparameters_are_errors(settings):
    length = "train_freq" if hasattr(settings(), "train_freq") else "n_steps"
    with pytest.raises(InputError, match=f"{length} is 0; it must be at least 1"):
        settings(**{length: 0})
    with pytest.raises(InputError, match="gamma is 1.5; it must be from 0 to 1"):
        settings(gamma=1.5)
    with pytest.raises(InputError, match="learning_rate is nan; it must be above 0"):
        settings(learning_rate=float("nan"))
    with pytest.raises(UnknownNameError, match="unknown precision 'fp8'"):
        settings(precision="fp8")
