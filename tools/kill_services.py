"""Kills services at random instants, several hundred times, and logs what was lost, doubled or left on disk: nothing.

    OMP_NUM_THREADS=1 python tools/kill_services.py --kills 400 --out results/kills/services.jsonl

Each line of the log is a story of ten kills of one service. What is in the log is not repeated: if the script is
stopped, it resumes after the last line. `tests/serve/service_kills.py` has what is done.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from runs.small_runs import write_small_vit
from serve.running import Nursery
from serve.service_kills import LAYOUTS, kill_and_compare

KILLS = 10
"""Of a story."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=400, help="in all, those of the log included")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="no story begins after so many minutes")
    parser.add_argument("--out", type=Path, required=True, help="log to which each story is added as a line of JSON")
    given = parser.parse_args()
    until, nursery = time.monotonic() + 60 * given.minutes, Nursery()
    done = [json.loads(line) for line in given.out.read_text().splitlines()] if given.out.exists() else []
    with tempfile.TemporaryDirectory() as place:
        backbone = write_small_vit(Path(place))
        while sum(len(story["kills"]) for story in done) < given.kills and time.monotonic() < until:
            seed = max((story["seed"] for story in done), default=-1) + 1
            layout = LAYOUTS[seed % len(LAYOUTS)]
            folder = Path(place) / f"served{seed}"
            story = kill_and_compare(nursery, folder, backbone, seed, layout, KILLS)
            done.append(story.line())
            with given.out.open("a", encoding="utf-8") as log:
                log.write(json.dumps(done[-1]) + "\n")
            print(f"{seed} {layout}: {len(story.kills)} kills, {story.wrong or 'nothing wrong'}", flush=True)
    nursery.close()
    met = [kill for story in done for kill in story["kills"]]
    wrong = [one for story in done for one in story["wrong"]]
    in_checkpoint = sum(kill["in_checkpoint"] for kill in met)
    print(f"{len(met)} kills, {in_checkpoint} of them in a checkpoint; wrong: {wrong or 'nothing'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
