"""Components shared by the RL algorithms: buffers, checkpoints, statistics, validation (not the training loops)."""

try:
    import torch  # noqa: F401
except ModuleNotFoundError as missing:
    if missing.name != "torch":
        raise
    from kilowait.errors import MissingExtraError

    raise MissingExtraError("torch", "learn") from None

from kilowait.agents.rl.agent_file import load_network, save_network
from kilowait.agents.rl.distributions import greedy_actions
from kilowait.agents.rl.training_result import TrainingError, TrainingResult, Update

__all__ = ["TrainingResult", "TrainingError", "Update", "greedy_actions", "load_network", "save_network"]
