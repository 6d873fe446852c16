"""The package can be imported without torch, and names the missing extra where torch is needed."""

from __future__ import annotations

import subprocess
import sys

import kilowait.agents
from kilowait.errors import install_command

WITHOUT = """
import sys

class No:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")

sys.meta_path.insert(0, No())
from kilowait.agents import LinearAgent
from kilowait.errors import MissingExtraError
for name in ("network", "train_ppo", "load_network"):
    try:
        getattr(__import__("kilowait.agents", fromlist=["x"]), name)
    except MissingExtraError as missing:
        print(missing)
"""


def test_without_torch():
    process = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, timeout=120, check=True)
    message = f"this needs torch, which is not installed: {install_command('learn')}"
    assert process.stdout.splitlines() == [message] * 3


def test_linear_agents_load_no_torch():
    code = "import sys; from kilowait.agents import LinearAgent; print('torch' in sys.modules)"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert process.stdout == "False\n"


def test_all_public_names_exist():
    assert set(dir(kilowait.agents)) == set(kilowait.agents.__all__) == set(kilowait.agents._HOME)
    for name in kilowait.agents.__all__:
        assert getattr(kilowait.agents, name) is not None
