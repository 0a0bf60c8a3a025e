"""Writes what later versions must open: this script wrote tests/fixtures/v0_1_0, at version 0.1.0.

    python tools/write_fixtures.py tests/fixtures/v0_1_0

It runs at that version only (it stops a run and a service in the middle of their work, by their internals) and is kept
to show how the files came about. tests/compatibility/test_v0_1_0.py reads them:

- artifacts/NAME: a saved learner of each method, and of variants that store something else; expected.safetensors has
  its scores for fixed images, and those after one more chunk.
- runs/METHOD: a run stopped between two checkpoints; runs/METHOD.json is the result of the same run never stopped,
  and runs/METHOD.safetensors has scores of its learner.
- service: the folder of a service that was killed, with a class removed that older files still hold, and a saved
  learner older than its checkpoints; service.json says what it was sent and what it must answer.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from safetensors.torch import save_file

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import prol
from compatibility.small_network import open_small_vit, untrained_model
from prol import registry
from prol.evaluation import ChunkLearnt, Event, Measures
from prol.learner import Learner
from prol.runs import Plan, start

CLASSES = ["ant", 1, "1", "ünï", "bee", 7]
FIRST, SECOND, LATER = (0, 1, 2), (3, 4), (5, 0, 3, 4)
"""Places of the classes of the first task, of the second, and of the chunk that is learnt after loading."""

PROL = {"blocks": 3, "lr": 0.01, "lr_scaling": False, "chunk": 6}
PLUS = {"budget_mb": 1, "blocks": 1, "features": 20, "own": 6}
CONV = {"blocks": 2, "length": 2, "schedule": "2,1"}
REPLAY = {"memory": 12, "replay": 6}
LEARNERS: dict[str, tuple[str, dict[str, Any]]] = {
    "ncm": ("ncm", {}),
    "ncm-augmented": ("ncm", {"augment": "crop_flip"}),
    "slda": ("slda", {}),
    "ranpac": ("ranpac", {"features": 24}),
    "ranpac-ridge": ("ranpac", {"features": 24, "ridge": 0.5}),
    "ranpac-lda": ("ranpac", {"features": 24, "classifier": "lda"}),
    "ranpac-norms": ("ranpac", {"features": 24, "adapt": "norms"}),
    "ranpac-none": ("ranpac", {"features": 24, "memory": "none"}),
    "ranpac-reservoir": ("ranpac", {"features": 24, "memory": 2}),
    "ranpac-all": ("ranpac", {"features": 24, "memory": "all", "ridge": 0.5}),
    "randumb": ("randumb", {"features": 24}),
    "randumb-gamma": ("randumb", {"features": 24, "gamma": 0.05}),
    "randumb-reservoir": ("randumb", {"features": 24, "memory": 2}),
    "foal": ("foal", {"features": 24}),
    "prol_plus": ("prol_plus", PLUS),
    "prol_plus-untuned": ("prol_plus", {**PLUS, "adapt_steps": 0}),
    "prol": ("prol", PROL),
    "prol-thawed": ("prol", {**PROL, "thaw_heads": True}),
    "prol-growing": ("prol", {**PROL, "head": "growing"}),
    "prol-generator": ("prol", {**PROL, "ablation": "generator"}),
    "head_only": ("head_only", {}),
    "l2p": ("l2p", {}),
    "dualprompt": ("dualprompt", {"e_blocks": 2}),
    "coda_prompt": ("coda_prompt", {"blocks": 3}),
    "convprompt": ("convprompt", CONV),
    "convprompt-auto": ("convprompt", {**CONV, "generators": "auto", "auto_chunks": 1}),
    "finetune": ("finetune", {}),
    "mos": ("mos", {}),
    "mos-full": ("mos", {"covariance": "full"}),
    "ease": ("ease", {"bottleneck": 4}),
    "lae": ("lae", {"blocks": 3}),
    "er": ("er", REPLAY),
    "derpp": ("derpp", REPLAY),
    "er_ace": ("er_ace", REPLAY),
    "gdumb": ("gdumb", {"memory": 12, "epochs": 2, "batch": 6}),
    "mose": ("mose", REPLAY),
    "gsa": ("gsa", REPLAY),
    "esrm": ("esrm", REPLAY),
    "ocm": ("ocm", {**REPLAY, "rotations": 2}),
    "onpro": ("onpro", {**REPLAY, "rotations": 2, "close_pairs": 2}),
}
RUNS: dict[str, dict[str, Any]] = {"prol_plus": {**PLUS, "adapt_steps": 6}, "prol": {"blocks": 2}}
STOPPED_AFTER = 7
"""Chunks: checkpoints are written after every third one and at the end of a task."""


class Stopped(Exception):
    pass


def main(folder: Path) -> None:
    assert prol.__version__ == "0.1.0", "these are fixtures of 0.1.0: a later version writes files of its own"
    torch.set_num_threads(1)
    folder.mkdir(parents=True)
    write_artifacts(folder)
    write_runs(folder / "runs")
    write_service(folder)
    for card in folder.rglob("README.md"):
        card.unlink()  # for people: no version reads it


def pictures(places: Sequence[int], seed: int) -> NDArray[np.uint8]:
    """One 16 x 16 image for each place: the pattern of that class under some noise."""
    noise = np.random.default_rng([seed, *places])
    patterns = [np.random.default_rng([99, place]).integers(0, 256, (4, 4, 3)) for place in places]
    clean = np.stack(patterns).repeat(4, axis=1).repeat(4, axis=2)
    return np.clip(clean + noise.integers(-20, 21, clean.shape), 0, 255).astype(np.uint8)


def learn(learner: Learner, places: Sequence[int], seed: int) -> None:
    learner.learn(pictures(places, seed), [CLASSES[place] for place in places])


def write_artifacts(folder: Path) -> None:
    weights = folder / "small_vit.safetensors"
    with torch.random.fork_rng():
        torch.manual_seed(0)
        save_file(untrained_model().state_dict(), weights)
    asked, later = pictures(range(len(CLASSES)), seed=50), pictures(LATER, seed=60)
    expected = {"images": torch.from_numpy(asked), "chunk": torch.from_numpy(later)}
    for name, (method, options) in LEARNERS.items():
        from_scratch = registry.method(method).from_scratch
        backbone = "resnet18_cifar@1" if from_scratch else open_small_vit(weights)
        learner = prol.create(method, backbone, device="cpu", precision="float64", seed=3, **options)
        learner.boundary()
        learn(learner, FIRST * 2, seed=0)
        learn(learner, FIRST * 2, seed=1)
        learner.boundary([CLASSES[place] for place in SECOND])
        learn(learner, SECOND * 2, seed=2)
        learner.save(folder / "artifacts" / name)
        expected[f"{name}/scores"] = learner.predict(asked)
        learn(learner, LATER, seed=60)
        expected[f"{name}/resumed"] = learner.predict(asked)
    save_file({name: tensor.contiguous() for name, tensor in expected.items()}, folder / "expected.safetensors")
    labels = {"chunk_labels": [CLASSES[place] for place in LATER]}
    (folder / "expected.json").write_text(json.dumps(labels, ensure_ascii=False) + "\n", encoding="utf-8")


def write_runs(place: Path) -> None:
    for method, options in RUNS.items():
        plan = Plan(
            method,
            "digits",
            options=options,
            backbone="test_vit@random",
            device="cpu",
            precision="float64",
            tasks=3,
            chunk=5,
            limit_per_class=4,
            measures=Measures(points=3, prequential=True),
            threads=1,
            workers=1,
            checkpoint_every=3,
            checkpoint_share=1.0,
        )
        learnt = 0

        def stop(event: Event, seconds: float) -> None:
            nonlocal learnt
            del seconds
            learnt += isinstance(event, ChunkLearnt)
            if learnt == STOPPED_AFTER:
                raise Stopped

        try:
            start(plan, place / method, listeners=[stop])
        except Stopped:
            (place / method / ".lock").unlink()
        with tempfile.TemporaryDirectory() as elsewhere:
            whole = start(plan, Path(elsewhere, "whole"))
            (place / f"{method}.json").write_bytes(whole.result.read_bytes())
            scores = prol.load(whole.model, device="cpu").predict(pictures(range(len(CLASSES)), seed=50))
            save_file({"scores": scores}, place / f"{method}.safetensors")


PATCHED_SERVER = """
import sys
from prol.cli.app import main
from prol.serve.writer import Writer
Writer._write_out = lambda self: None  # removed classes stay in older files, as if it were killed just before
main(sys.argv[1:])
"""


@contextmanager
def killed_server(folder: Path, *flags: str) -> Iterator[httpx.Client]:
    command = [sys.executable, "-c", PATCHED_SERVER, "serve", str(folder), "--port", "0", "--device", "cpu", *flags]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
    try:
        assert server.stdout is not None
        url = next(line.split()[-1] for line in server.stdout if line.startswith("serving "))
        with httpx.Client(base_url=url, timeout=60) as client:
            yield client
    finally:
        server.kill()
        server.wait()


def write_service(folder: Path) -> None:
    images = folder / "images"
    images.mkdir()
    kinds = [0, 1, 2, 3, 0, 1, 2, 4]
    for number, kind in enumerate(kinds):
        file = io.BytesIO()
        Image.fromarray(pictures([kind], seed=70 + number)[0]).save(file, "PNG")
        (images / f"{number}.png").write_bytes(file.getvalue())

    def sent(*numbers: int) -> list[tuple[str, tuple[str, bytes]]]:
        return [("images", (f"{n}.png", (images / f"{n}.png").read_bytes())) for n in numbers]

    options = [f"--option={name}={value}" for name, value in PLUS.items()]
    service = folder / "service"
    with killed_server(service, "--method", "prol_plus", "--backbone", "test_vit@random", *options) as client:
        first = {"numbers": [0, 1, 2, 3], "labels": ["ant", "bee", "cat", "dog"], "key": "first"}
        answer = client.post(
            "/learn", files=sent(0, 1, 2, 3), data={"labels": first["labels"]}, headers={"Idempotency-Key": "first"}
        )
        first["answer"] = checked(answer)
        version = 0
        while version < first["answer"]["version"]:
            said = checked(client.post("/predict", files=sent(4, 5)))
            version = said["version"]
        ids = [one["id"] for one in said["predictions"]]
        late = [{"id": name, "label": label} for name, label in zip(ids, ("ant", "bee"), strict=True)]
        checked(client.post("/labels", json={"labels": late}))
        checked(client.request("PATCH", "/classes/cat", json={"label": "lion"}))
        checked(client.delete("/classes/dog"))
        last = checked(client.post("/learn", files=sent(6, 7), data={"labels": ["lion", "eel"]}))
        version = 0
        while version < last["version"]:
            said = checked(client.post("/predict", files=sent(*range(len(kinds)))))
            version = said["version"]
        status = checked(client.get("/status"))
        expected = {
            "first": first,
            "version": last["version"],
            "classes": checked(client.get("/classes"))["classes"],
            "predictions": [one["labels"] for one in said["predictions"]],
            "status": {name: status[name] for name in ("images_learnt", "prequential")},
        }
    (service / "service" / ".lock").unlink()
    (folder / "service.json").write_text(json.dumps(expected, indent=1) + "\n")


def checked(answer: httpx.Response) -> dict[str, Any]:
    assert answer.status_code == 200, answer.text
    content: dict[str, Any] = answer.json()
    return content


if __name__ == "__main__":
    main(Path(sys.argv[1]))
