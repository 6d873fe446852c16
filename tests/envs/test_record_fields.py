"""Names of fields of records: interpreted, a field is an attribute of np.record, and its methods come first."""

import importlib
import pkgutil

import numpy as np
import pytest

import kilowait.engine
import kilowait.envs


def record_types():
    for package in (kilowait.engine, kilowait.envs):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            for name, value in vars(importlib.import_module(module.name)).items():
                if isinstance(value, np.dtype) and value.names is not None:
                    yield pytest.param(value, id=f"{module.name}.{name}")


@pytest.mark.parametrize("record", list(record_types()))
def test_record_fields_do_not_clash_with_numpy_methods(record):
    hidden = set(record.names) & set(dir(np.record))
    assert not hidden, f"interpreted, {hidden} would be numpy's"
