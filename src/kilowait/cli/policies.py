"""``kilowait policies``: the scheduling policies, one line each."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

import typer

from kilowait.cli import console, options

if TYPE_CHECKING:
    from kilowait.policies.round_based import RoundBasedPolicy

app = typer.Typer(add_completion=False, **console.PLAIN)

_EPILOG = """\b
Example:
  kilowait policies
  kilowait simulate lublin:1000:128:0.9 --policy multifactor:age=500:size=0"""


@app.command(epilog=_EPILOG)
def policies(json: options.Json = False) -> None:
    """List the scheduling policies. Parameters are appended to the name: random:seed=3."""
    from kilowait.policies import POLICIES, describe_policies, resolve
    from kilowait.policies.round_based import ROUND_BASED_POLICIES

    meanings = {**describe_policies(), **{name: _first_line(rounds) for name, rounds in ROUND_BASED_POLICIES.items()}}
    parameters = {name: list(inspect.signature(maker).parameters) for name, maker in POLICIES.items()}
    parameters |= {name: [] for name in ROUND_BASED_POLICIES}
    node_level = {name: name in ROUND_BASED_POLICIES or resolve(name).node_level for name in meanings}
    # Parameters that are mappings cannot be written on a command line.
    parameters = {name: [p for p in names if not p.endswith("_factor")] for name, names in parameters.items()}
    if json:
        console.json_document(
            [
                {
                    "name": name,
                    "meaning": meanings[name],
                    "parameters": parameters[name],
                    "placed_nodes_only": node_level[name],
                }
                for name in meanings
            ]
        )
        return
    rows = [
        [name, "GPU clusters" if node_level[name] else "", meanings[name], ", ".join(parameters[name])]
        for name in meanings
    ]
    console.table(["policy", "only on", "order of the wait queue", "parameters"], rows, left=4, wrapped=2)


def _first_line(rounds: RoundBasedPolicy) -> str:
    """The summary of a round-based policy."""
    return f"In rounds: {(rounds.shares.__doc__ or '').strip().splitlines()[0]}"
