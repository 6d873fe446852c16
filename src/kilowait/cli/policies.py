"""``kilowait policies``: the rules, one line each."""

from __future__ import annotations

import inspect

import typer

from kilowait.cli import options, show

app = typer.Typer(add_completion=False, **show.PLAIN)

_EPILOG = """\b
Example:
  kilowait policies
  kilowait simulate lublin:1000:128:0.9 --policy multifactor:age=500:size=0"""


@app.command(epilog=_EPILOG)
def policies(json: options.Json = False) -> None:
    """List the rules one can simulate. Parameters, where a rule has some, go behind its name: random:seed=3."""
    from kilowait.policies import POLICIES, describe_policies

    meanings = describe_policies()
    parameters = {name: list(inspect.signature(maker).parameters) for name, maker in POLICIES.items()}
    # Those that take a mapping cannot be written on a command line.
    parameters = {name: [p for p in known if not p.endswith("_factor")] for name, known in parameters.items()}
    if json:
        show.json_document(
            [{"name": name, "meaning": meanings[name], "parameters": parameters[name]} for name in POLICIES]
        )
        return
    rows = [[name, meanings[name], ", ".join(parameters[name])] for name in POLICIES]
    show.table(["policy", "who goes first", "parameters"], rows, left=3, wrapped=1)
