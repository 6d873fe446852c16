"""``kilowait clusters``: the machines known by name."""

from __future__ import annotations

import typer

from kilowait.cli import options, show

app = typer.Typer(add_completion=False, **show.PLAIN)

_EPILOG = """\b
Example:
  kilowait clusters
  kilowait simulate lublin:1000:500:0.9 --cluster polaris"""


@app.command(epilog=_EPILOG)
def clusters(json: options.Json = False) -> None:
    """List the machines known by name. Others are written nodes:N, or described in a TOML file."""
    from dataclasses import asdict

    from kilowait.cluster.presets import PRESETS

    if json:
        show.json_document(
            [{"name": name, "groups": [asdict(g) for g in known.groups]} for name, known in PRESETS.items()]
        )
        return
    rows = [
        [
            name if place == 0 else "",
            group.name,
            f"{group.nodes:,}",
            f"{group.cores:,}",
            f"{group.memory_gb:,.1f} GB" if group.memory_gb else "-",
            f"{group.gpus} x {group.gpu_type}" if group.gpus else "-",
        ]
        for name, known in PRESETS.items()
        for place, group in enumerate(known.groups)
    ]
    show.table(["cluster", "group", "nodes", "cores a node", "memory a node", "GPUs a node"], rows, left=2)
