"""``kilowait export``: export a trained network to ONNX or TorchScript."""

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
        Path, typer.Argument(help="Network written by kilowait train: its folder or agent.pt.", show_default=False)
    ],
    to: Annotated[
        str, typer.Option("--to", metavar="FORMAT", help="Format: onnx, torchscript, or pt2 (torch.export).")
    ] = "onnx",
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="FILE", help="File to write; by default FOLDER.onnx, .ts or .pt2 next to the folder."
        ),
    ] = None,
    json: options.Json = False,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
) -> None:
    """Export a trained network so that other programs can run it without kilowait.

    The inputs are the arrays of the observation by name (jobs, mask, summary, and edges for gat), with any batch size;
    the output is one score per action. The agent takes the action with the largest score.
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
