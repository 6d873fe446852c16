"""Gymnasium knows our names however the two are imported."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "imports",
    [
        "import kilowait, gymnasium",
        "import gymnasium, kilowait",
        "import kilowait; kilowait.Cluster; kilowait.JobTable; import gymnasium",
        "import kilowait.envs, gymnasium",
    ],
)
def test_names_are_known(imports):
    code = f"{imports}; print('kilowait/Batch-v0' in gymnasium.registry)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "True"


def test_importing_kilowait_alone_brings_no_gymnasium():
    code = "import sys, kilowait; kilowait.Cluster; print('gymnasium' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "False"
