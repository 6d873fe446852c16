"""``kilowait clusters``: the preset clusters, GPU types and placements."""

from __future__ import annotations

from math import isnan
from typing import Annotated

import typer

from kilowait.cli import console, options

app = typer.Typer(add_completion=False, **console.PLAIN)

_EPILOG = """\b
Example:
  kilowait clusters
  kilowait clusters --gpus
  kilowait simulate lublin:1000:500:0.9 --cluster polaris"""


@app.command(epilog=_EPILOG)
def clusters(
    gpus: Annotated[bool, typer.Option("--gpus", help="List GPU types and placements instead.")] = False,
    json: options.Json = False,
) -> None:
    """List the preset clusters. Other clusters are nodes:N, a TOML file, or a CSV list of nodes.

    Node-level clusters are the GPU clusters: jobs are placed on individual nodes and GPUs and can share nodes.
    """
    from dataclasses import asdict

    if gpus:
        _show_gpus(json)
        return

    from kilowait.cluster.presets import PRESETS

    if json:
        console.json_document(
            [{"name": name, "groups": [asdict(g) for g in preset.groups]} for name, preset in PRESETS.items()]
        )
        return
    rows = [
        [
            name if index == 0 else "",
            group.name,
            f"{group.nodes:,}",
            f"{group.cores:,}",
            f"{group.memory_gb:,.1f} GB" if group.memory_gb else "-",
            f"{group.gpus} x {group.gpu_type}" if group.gpus else "-",
            "cores and GPUs" if group.node_level else "whole nodes",
        ]
        for name, preset in PRESETS.items()
        for index, group in enumerate(preset.groups)
    ]
    console.table(
        ["cluster", "group", "nodes", "cores per node", "memory per node", "GPUs per node", "allocates"], rows, left=2
    )


def _show_gpus(json: bool) -> None:
    from dataclasses import asdict

    from kilowait.cluster.gpu_catalogue import GPU_CATALOGUE
    from kilowait.engine.gpu.settings import PLACEMENTS

    kinds = [GPU_CATALOGUE[name] for name in sorted(GPU_CATALOGUE)]
    if json:
        console.json_document({"gpus": [asdict(kind) for kind in kinds], "placements": PLACEMENTS})
        return
    console.table(
        ["GPU type", "memory", "GB/s", "FP32 TFLOPS", "FP16 TFLOPS", "TDP", "also called"],
        [
            [
                kind.name,
                f"{kind.memory_gb:g} GB",
                console.number(kind.bandwidth_gb_per_s),
                console.number(kind.fp32_tflops),
                console.number(kind.fp16_tflops),
                "-" if isnan(kind.tdp_w) else f"{kind.tdp_w:g} W",
                ", ".join(kind.aliases),
            ]
            for kind in kinds
        ],
    )
    print()
    console.table(["placement", "where a job is placed"], [[name, text] for name, text in PLACEMENTS.items()], left=2)
