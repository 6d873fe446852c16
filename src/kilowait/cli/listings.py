"""``kilowait policies`` and ``kilowait clusters``: the policies, preset clusters, GPU types and placements."""

from __future__ import annotations

import inspect
from dataclasses import asdict
from math import isnan
from typing import TYPE_CHECKING, Annotated

import typer

from kilowait.cli import console
from kilowait.cli.options import Json, verb
from kilowait.settings import Option

if TYPE_CHECKING:
    from kilowait.policies.round_based import RoundBasedPolicy

app = typer.Typer(add_completion=False, **console.PLAIN)

_POLICIES = """\b
Example:
  kilowait policies
  kilowait simulate lublin:1000:128:0.9 --policy multifactor:age=500:size=0"""
_CLUSTERS = """\b
Example:
  kilowait clusters
  kilowait clusters --gpus
  kilowait simulate lublin:1000:500:0.9 --cluster polaris"""


@verb(app, epilog=_POLICIES)
def policies(json: Json = False) -> None:
    """List the scheduling policies. Parameters are appended to the name: random:seed=3."""
    from kilowait.policies import POLICIES, describe_policies, resolve
    from kilowait.policies.round_based import ROUND_BASED_POLICIES

    meanings = {**describe_policies(), **{name: _first_line(rounds) for name, rounds in ROUND_BASED_POLICIES.items()}}
    # Parameters that are mappings cannot be written on a command line.
    parameters = {
        name: [
            key for key, each in inspect.signature(maker).parameters.items() if "Mapping" not in str(each.annotation)
        ]
        for name, maker in POLICIES.items()
    }
    parameters |= {name: [] for name in ROUND_BASED_POLICIES}
    node_level = {name: name in ROUND_BASED_POLICIES or resolve(name).node_level for name in meanings}
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


@verb(app, epilog=_CLUSTERS)
def clusters(
    gpus: Annotated[bool, Option(None, "List GPU types and placements instead.")] = False, json: Json = False
) -> None:
    """List the preset clusters. Other clusters are nodes:N, a TOML file, or a CSV list of nodes.

    Node-level clusters are the GPU clusters: jobs are placed on individual nodes and GPUs and can share nodes.
    """
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
