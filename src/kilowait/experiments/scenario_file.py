"""Scenario files: the scenario.toml of a run folder, from which the run can be repeated, and files written by hand."""

from __future__ import annotations

from dataclasses import asdict, fields
from os import PathLike
from pathlib import Path

from kilowait.errors import InputError, UnknownNameError
from kilowait.experiments.settings import GpuOptions, PowerSettings, Scenario
from kilowait.files.documents import read_toml
from kilowait.files.fields import Either, Flag, Number, Record, Text, Values, check_fields

_FLAGS = ("exclusive_nodes", "dependencies", "strict", "repeat_signals", "preempt", "migrate")
_OWN = {
    "backfill": Either(Text(), Number(minimum=0, whole=True)),
    "cores_per_node": Number(minimum=1, whole=True),
    "load": Number(),
    "cluster": Either(Text(), Record({})),
    "power": Values(Either(Text(), Flag())),
    "gpu": Values(Either(Text(), Flag())),
}


def is_scenario_file(trace: str) -> bool:
    """Whether a trace is named like a scenario file; no log format is TOML.

    >>> is_scenario_file("runs/x/scenario.toml"), is_scenario_file("log.swf")
    (True, False)
    """
    return trace.lower().endswith(".toml")


def read_scenario(path: str | PathLike[str]) -> Scenario:
    """The settings of a scenario file; files that it names are relative to the working directory, as in the command.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "my.toml"
    >>> _ = file.write_text('trace = "lublin:20:8"\\npolicy = "sjf"\\ncluster = "nodes:8"')
    >>> scenario = read_scenario(file)
    >>> scenario.trace, scenario.policy, scenario.backfill
    ('lublin:20:8', 'sjf', None)
    """
    try:
        content = read_toml(path)
    except OSError as problem:
        raise InputError(f"cannot read the scenario {path}: {problem.strerror or problem}") from None
    for table, kind in ((None, Scenario), ("power", PowerSettings), ("gpu", GpuOptions)):
        values = content if table is None else content.get(table, {})
        known = [each.name for each in fields(kind)]
        for name in values if isinstance(values, dict) else ():
            if name not in known:
                where = f"key of {path}" if table is None else f"key of [{table}] in {path}"
                raise UnknownNameError(f"{where}, which must be the scenario of one run:", name, known)
    described = {each.name: _OWN.get(each.name, Flag() if each.name in _FLAGS else Text()) for each in fields(Scenario)}
    required = {"trace": described.pop("trace")}
    check_fields(content, Record(required, described), path)
    settings = dict(content)
    if isinstance(settings.get("cluster"), dict):
        settings["cluster"] = str(path)  # the table is read by `kilowait.cluster.toml`
    for table, kind in (("power", PowerSettings), ("gpu", GpuOptions)):
        if table in settings:
            inner = {name: Flag() if name in _FLAGS else Text() for name in settings[table]}
            check_fields(settings[table], Record(inner), f"[{table}] in {path}")
            settings[table] = kind(**settings[table])
    return Scenario(**settings)


def scenario_of_file(given: Scenario) -> Scenario:
    """The scenario in the file that `given` names as its trace; an error if `given` has settings beside it.

    >>> scenario_of_file(Scenario("missing.toml", policy="sjf"))
    Traceback (most recent call last):
    ...
    kilowait.errors.InputError: --policy is given beside missing.toml, which states all settings; change them there ...
    """
    defaults = asdict(Scenario(given.trace))
    changed = [name for name, value in asdict(given).items() if value != defaults[name]]
    if changed:
        option = changed[0].replace("_", "-")
        raise InputError(
            f"--{option} is given beside {given.trace}, which states all settings; change them there (in a copy of the "
            "file), or name the log instead of the file"
        )
    return read_scenario(Path(given.trace))
