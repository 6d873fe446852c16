"""Registration of the environments with Gymnasium."""

import subprocess
import sys

import pytest


def run_python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.parametrize(
    "imports",
    [
        "import kilowait.envs, gymnasium",
        "import gymnasium, kilowait.envs",
        "import gymnasium, kilowait.envs; gymnasium.register_envs(kilowait.envs)",
        "import kilowait.envs, gymnasium; kilowait.envs.register()",
    ],
)
def test_importing_kilowait_envs_registers_the_environments(imports):
    code = f"{imports}; print([name for name in gymnasium.registry if name.startswith('kilowait/')])"
    assert run_python(code) == "['kilowait/Batch-v0', 'kilowait/Energy-v0', 'kilowait/Gpu-v0']"


def test_gymnasium_make_imports_the_module_named_before_the_colon():
    code = """
import gymnasium, kilowait as kw
jobs = kw.lublin(jobs=100, nodes=16, seed=1)
env = gymnasium.make("kilowait.envs:kilowait/Batch-v0", jobs=jobs, cluster=kw.Cluster.from_nodes(16), episode_jobs=20)
env.reset(seed=0)
print(type(env.unwrapped).__name__)
"""
    assert run_python(code) == "BatchEnv"


def test_importing_kilowait_alone_imports_no_gymnasium_and_installs_no_import_hook():
    code = (
        "import sys; before = list(sys.meta_path); import kilowait; kilowait.Cluster; "
        "print('gymnasium' in sys.modules, sys.meta_path == before)"
    )
    assert run_python(code) == "False True"


def test_registration_imports_neither_numba_nor_the_engine():
    code = (
        "import sys, kilowait.envs; print([name for name in sys.modules "
        "if name.partition('.')[0] in ('numba', 'llvmlite', 'scipy') or name.startswith('kilowait.engine')])"
    )
    assert run_python(code) == "[]"
