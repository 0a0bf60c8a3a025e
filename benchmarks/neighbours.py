"""The time of `prol run` alone, beside a busy loop, and beside a second run that starts at the same moment.

    python benchmarks/neighbours.py --out results/neighbours/cpu.json

Whole commands are timed, in turns; nothing else should be running. The environment reaches the runs: what threads cost
that spin while they wait shows `GOMP_SPINCOUNT=300000 python benchmarks/neighbours.py --threads 2`, libgomp's default.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from prol.bench.machine import FORMAT
from prol.files import write_json
from prol.runs.format import versions
from prol.runs.threads import available_processors, running_elsewhere

ALONE, LOOP, SECOND = "alone", "beside a busy loop", "beside a second run"


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--method", default="prol_plus", help="as for `prol run`")
    parser.add_argument("--dataset", default="digits", help="as for `prol run`")
    parser.add_argument("--limit-per-class", type=int, default=2, help="as for `prol run`")
    parser.add_argument("--threads", type=int, help="as for `prol run`")
    parser.add_argument("--rounds", type=int, default=3, help="turns; medians are compared")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    given = parser.parse_args(arguments)
    run = [sys.executable, "-m", "prol", "run", given.method, given.dataset, "--device", "cpu"]
    run += ["--limit-per-class", str(given.limit_per_class)]
    run += [] if given.threads is None else ["--threads", str(given.threads)]
    rows = []
    for _ in range(given.rounds):
        for case in (ALONE, LOOP, SECOND):
            rows.append(measure(case, run))
            print(json.dumps(rows[-1]), flush=True)
    content = {
        "format": FORMAT,
        "bench": "neighbours",
        "command": shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        "versions": versions(),
        "environment": {name: value for name, value in os.environ.items() if name.startswith(("OMP_", "GOMP_"))},
        "processors": available_processors(),
        "rows": rows,
        **ratios(rows),
    }
    for case, ratio in content["times_alone"].items():
        print(f"{case}: {ratio:.2f} times as long as alone ({content['median_seconds'][ALONE]:.1f} s)")
    if given.out is not None:
        write_json(given.out, content)
    return content


def measure(case: str, run: list[str]) -> dict[str, Any]:
    """One turn. Of two runs the slower one counts."""
    row: dict[str, Any] = {"case": case, "running_before": running_elsewhere()}
    loop = subprocess.Popen([sys.executable, "-c", "while True: pass"]) if case == LOOP else None
    try:
        with tempfile.TemporaryDirectory() as folder:
            outs = [Path(folder) / str(number) for number in range(2 if case == SECOND else 1)]
            began = time.perf_counter()
            runs = [subprocess.Popen([*run, "--out", str(out)], stdout=subprocess.DEVNULL) for out in outs]
            if any(codes := [one.wait() for one in runs]):
                raise SystemExit(f"{shlex.join(run)} ended with {codes}")
            row["seconds"] = time.perf_counter() - began
            row["threads"] = [json.loads((out / "config.json").read_text())["threads"] for out in outs]
    finally:
        if loop is not None:
            loop.kill()
            loop.wait()
    return row


def ratios(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The median time of each case, and how many times as long as alone that is."""
    seconds = {case: median(row["seconds"] for row in rows if row["case"] == case) for case in (ALONE, LOOP, SECOND)}
    return {
        "median_seconds": seconds,
        "times_alone": {case: value / seconds[ALONE] for case, value in seconds.items() if case != ALONE},
    }


if __name__ == "__main__":
    main()
