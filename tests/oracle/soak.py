"""Compare engine and reference on many random workloads.

python -m tests.oracle.soak --cases 100000 --first 0 --processes 2
python -m tests.oracle.soak --kind power
python -m tests.oracle.soak --kind gpu
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Iterator
from multiprocessing import get_context

from tests.oracle import gpu_workloads, power_workloads, workloads

BLOCK = 50
SHOWN = 5


def differs(kind: str, seed: int) -> str | None:
    """Where the logs of engine and reference differ in the case of this seed; None: nowhere."""
    from tests.oracle import conversion, gpu_conversion

    if kind == "gpu":
        case = gpu_workloads.soak_case(seed)
        return gpu_conversion.difference(
            case, gpu_workloads.run_reference(case), gpu_conversion.run_engine(case, steps=seed % 7 == 0)
        )
    other = power_workloads.power_case(seed) if kind == "power" else workloads.random_case(seed)
    return conversion.difference(other, workloads.run_reference(other), conversion.run_engine(other))


def check(first: int, last: int, kind: str = "plain") -> list[str]:
    """A message for every seed of the block whose logs differ or where a simulator failed."""
    found = []
    for seed in range(first, last):
        try:
            said = differs(kind, seed)
        except Exception:
            said = f"seed {seed}: {traceback.format_exc()}"
        if said is not None:
            found.append(said)
    return found


def _check_block(block: tuple[int, int, str]) -> tuple[int, list[str]]:
    return block[1] - block[0], check(*block)


def _blocks(first: int, cases: int, kind: str) -> Iterator[tuple[int, int, str]]:
    for begin in range(first, first + cases, BLOCK):
        yield begin, min(begin + BLOCK, first + cases), kind


def main(arguments: list[str] | None = None) -> int:
    """Exit code 0: all equal; 1: some differ; 130: interrupted."""
    parser = argparse.ArgumentParser(description="Compare the engine with the reference simulator on random workloads.")
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--kind", choices=("plain", "power", "gpu"), default="plain", help="of workloads")
    options = parser.parse_args(arguments)
    began_s = time.monotonic()
    done, differing = 0, 0
    # Fresh processes: what the parent has compiled or opened is not carried along.
    with get_context("spawn").Pool(options.processes) as pool:
        try:
            blocks = _blocks(options.first, options.cases, options.kind)
            for count, found in pool.imap_unordered(_check_block, blocks):
                done += count
                for words in found[: max(0, SHOWN - differing)]:
                    print(f"\n{words}", flush=True)
                differing += len(found)
                rate = done / (time.monotonic() - began_s)
                line = f"{done:,} of {options.cases:,} cases, {differing} differ, {rate:.0f}/s"
                if sys.stdout.isatty():
                    print(f"\r{line}  ", end="", flush=True)
                elif done * 20 // options.cases > (done - count) * 20 // options.cases:
                    print(line, flush=True)
        except KeyboardInterrupt:
            print(f"\nINTERRUPTED after {done:,} cases from seed {options.first}: {differing} differ")
            return 130
    summary = "SAME" if not differing else "DIFFERENT"
    took = time.monotonic() - began_s
    print(f"\n{summary}: {done:,} cases from seed {options.first}, {differing} differ, {took:.0f} s")
    return 1 if differing or done != options.cases else 0


if __name__ == "__main__":
    raise SystemExit(main())
