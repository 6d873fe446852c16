"""``kilowait export``: a trained network for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kilowait.cli import console, options

app = typer.Typer(add_completion=False, **console.PLAIN)

_EPILOG = """\b
Examples:
  kilowait export runs/ppo --out ppo.onnx
  kilowait export runs/ppo/agent.pt --to torchscript --out ppo.ts"""


@app.command(epilog=_EPILOG)
def export(
    agent: Annotated[
        Path,
        typer.Argument(
            help="A network that kilowait train wrote: its folder or agent.pt.", show_default=False
        ),
    ],
    to: Annotated[
        str, typer.Option(metavar="F", help="onnx, torchscript, or pt2 (torch.export's own file).")
    ] = "onnx",
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help="The file to write; else FOLDER.onnx, .ts or .pt2 beside its folder.",
        ),
    ] = None,
    json: options.Json = False,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it is there.")] = False,
) -> None:
    """Write a trained network so that other programs can run it, without kilowait.

    It takes the arrays of an observation by their names (jobs, mask, summary, and edges for gat), any number of rows
    at once, and gives scores, one an action; the action of the largest score is the agent's choice.
    """
    from kilowait.experiments.export import export_agent

    written, inputs = export_agent(agent, to=to, out=out, force=force)
    if json:
        console.json_document({"out": written, "format": to, "inputs": inputs, "outputs": ["scores"]})
        return
    for name, shape in inputs.items():
        print(f"{name:<10}{shape}")
    print(f"{'-> scores':<10}float32 (batch, {inputs['mask'].partition(', ')[2]}")
    print(f"\nwritten to {written}")
