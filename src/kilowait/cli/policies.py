"""``kilowait policies``: the rules, one line each."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

import typer

from kilowait.cli import console, options

if TYPE_CHECKING:
    from kilowait.policies.round_based import Rounds

app = typer.Typer(add_completion=False, **console.PLAIN)

_EPILOG = """\b
Example:
  kilowait policies
  kilowait simulate lublin:1000:128:0.9 --policy multifactor:age=500:size=0"""


@app.command(epilog=_EPILOG)
def policies(json: options.Json = False) -> None:
    """List the rules one can simulate. Parameters, where a rule has some, go behind its name: random:seed=3."""
    from kilowait.policies import POLICIES, describe_policies, resolve
    from kilowait.policies.round_based import ROUNDS

    meanings = {**describe_policies(), **{name: _first_line(who) for name, who in ROUNDS.items()}}
    parameters = {name: list(inspect.signature(maker).parameters) for name, maker in POLICIES.items()}
    parameters |= {name: [] for name in ROUNDS}
    placed = {name: name in ROUNDS or resolve(name).node_level for name in meanings}
    # Those that take a mapping cannot be written on a command line.
    parameters = {name: [p for p in known if not p.endswith("_factor")] for name, known in parameters.items()}
    if json:
        console.json_document(
            [
                {
                    "name": name,
                    "meaning": meanings[name],
                    "parameters": parameters[name],
                    "placed_nodes_only": placed[name],
                }
                for name in meanings
            ]
        )
        return
    rows = [
        [name, "GPU clusters" if placed[name] else "", meanings[name], ", ".join(parameters[name])]
        for name in meanings
    ]
    console.table(["policy", "only on", "who goes first", "parameters"], rows, left=4, wrapped=2)


def _first_line(who: Rounds) -> str:
    """What a policy that plays in rounds shares out."""
    return f"In rounds: {(who.shares.__doc__ or '').strip().splitlines()[0]}"
