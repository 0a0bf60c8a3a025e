from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import prol
from prol.evaluation import Event, RunStarted
from prol.files import json_text
from prol.runs import Plan, start
from prol.runs.display import Silent
from prol.runs.run import dispatch
from runs.small_runs import contents, small_plan

METHODS = ("ncm", "head_only", "prol")


def read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())


@pytest.mark.parametrize("method", METHODS)
def test_a_run_leaves_everything_about_itself_in_its_folder(
    finished: Callable[[str], Path], micro_vit: str, method: str
) -> None:
    folder = finished(method)
    config, result, timing = (read(folder / f"{name}.json") for name in ("config", "result", "timing"))
    assert (config["method"], config["dataset"]["name"], config["seed"]) == (method, "digits", 0)
    assert (config["device"], config["precision"], config["threads"]) == ("cpu", "float32", 1)
    assert config["backbone"]["name"] == micro_vit
    assert config["backbone"]["sha256"] == hashlib.sha256(Path(micro_vit.partition("@")[2]).read_bytes()).hexdigest()
    assert set(config["versions"]) == {"prol", "torch", "timm", "numpy", "python", "processor"}
    assert config["preprocessing"]["size"] == 32
    assert np.shape(result["accuracy_matrix"]) == (3, 3)
    assert result["test_sizes"] == [16, 12, 12]
    assert result["task_classes"] == [["0", "1", "2", "3"], ["4", "5", "6"], ["7", "8", "9"]]
    assert result["told"]["task_boundaries"]
    assert result["told"]["samples_stored"] == 0
    load, processors = config.pop("load_start"), config.pop("processors")
    assert (config.pop("options_given"), config.pop("side_by_side")) == (
        small_plan(micro_vit, method).options,
        False,
    )
    assert load >= 0
    assert processors >= 1
    assert timing["load_end"] >= 0
    assert result["config_sha256"] == hashlib.sha256(json_text(config).encode()).hexdigest()
    assert 0 <= result["metrics"]["faa"] <= 100
    assert [task["train_images"] for task in timing["tasks"]] == [16, 12, 12]
    assert [task["test_images"] for task in timing["tasks"]] == [16, 28, 40]
    assert all(task["train_seconds"] > 0 and task["test_seconds"] > 0 for task in timing["tasks"])
    lines = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    assert [line["event"] for line in lines][:3] == ["RunStarted", "TaskStarted", "ChunkLearnt"]
    assert lines[-1]["event"] == "Finished"
    assert lines[-1]["result"]["metrics"] == result["metrics"]
    assert prol.load(folder / "model", device="cpu").classes == [str(digit) for digit in range(10)]


@pytest.mark.parametrize(
    "method", ["head_only", *(pytest.param(one, marks=pytest.mark.slow) for one in ("ncm", "prol"))]
)
def test_the_same_plan_gives_the_same_files_bit_for_bit(
    tmp_path: Path, finished: Callable[[str], Path], micro_vit: str, method: str
) -> None:
    again = start(small_plan(micro_vit, method), tmp_path / "again").path
    assert contents(again) == contents(finished(method))


def test_another_seed_gives_another_stream(tmp_path: Path, micro_vit: str) -> None:
    one, other = (start(small_plan(micro_vit, seed=seed), tmp_path / str(seed)).path for seed in (1, 2))
    assert (one / "model/model.safetensors").read_bytes() != (other / "model/model.safetensors").read_bytes()


def test_a_method_hears_of_chunk_size_and_data_unless_told_otherwise(
    tmp_path: Path, finished: Callable[[str], Path], micro_vit: str
) -> None:
    folder = finished("prol")
    assert (
        read(folder / "config.json")["options"]["chunk"],
        read(folder / "config.json")["options"]["coefficients"],
    ) == (
        5,
        "digits",
    )
    plan = small_plan(micro_vit, "prol", options={"blocks": "2", "chunk": "64", "coefficients": "cub200"})
    folder = start(plan, tmp_path / "given").path
    options = read(folder / "config.json")["options"]
    assert (options["chunk"], options["coefficients"], options["threshold"]) == (64, "cub200", 0.3)


def test_surplus_classes_are_left_out_only_as_the_published_code_does(tmp_path: Path, micro_vit: str) -> None:
    options = {"blocks": 2, "preset": "released"}
    folder = start(small_plan(micro_vit, "prol", options=options), tmp_path / "released").path
    assert [len(task) for task in read(folder / "result.json")["task_classes"]] == [3, 3, 3]


def test_a_run_without_boundaries_says_so(tmp_path: Path, micro_vit: str) -> None:
    folder = start(small_plan(micro_vit, "prol", boundaries=False), tmp_path / "run").path
    told = read(folder / "result.json")["told"]
    assert (told["task_boundaries"], told["classes_of_next_task"]) == (False, False)
    assert '"told": true' not in (folder / "events.jsonl").read_text()


def test_the_number_of_threads_is_set_for_the_run_alone(tmp_path: Path, micro_vit: str) -> None:
    before, seen = torch.get_num_threads(), []

    class StopAtOnce(Silent):
        def __call__(self, event: Event, seconds: float) -> None:
            seen.append((type(event), seconds >= 0, torch.get_num_threads()))
            raise InterruptedError

    with pytest.raises(InterruptedError):
        start(small_plan(micro_vit, threads=before + 1), tmp_path / "run", StopAtOnce())
    assert seen == [(RunStarted, True, before + 1)]
    assert torch.get_num_threads() == before
    assert read(tmp_path / "run/config.json")["threads"] == before + 1


def test_runs_get_folders_of_their_own_by_default(
    tmp_path: Path, micro_vit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    plan = small_plan(micro_vit, limit_per_class=1, seed=7)
    assert [start(plan).path for _ in range(3)] == [
        Path("runs/ncm-digits-seed7"),
        Path("runs/ncm-digits-seed7-2"),
        Path("runs/ncm-digits-seed7-3"),
    ]


def test_a_folder_in_use_is_refused_and_left_as_it_is(
    tmp_path: Path, finished: Callable[[str], Path], micro_vit: str
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(ValueError, match="already holds something else: choose another --out"):
        start(small_plan(micro_vit), tmp_path / "mine")
    shutil.copytree(finished("ncm"), tmp_path / "run")
    before = contents(tmp_path / "run")
    with pytest.raises(ValueError, match="already holds a finished run: choose another --out"):
        start(small_plan(micro_vit), tmp_path / "run")
    (tmp_path / "run/result.json").unlink()
    with pytest.raises(ValueError, match="prol resume"):
        start(small_plan(micro_vit), tmp_path / "run")
    (tmp_path / "run/result.json").write_bytes(before["result.json"])
    assert contents(tmp_path / "run") == before
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"options": {"lr": "1"}}, "unknown option 'lr'"),
        ({"tasks": 11}, "from 1 to the number of classes, 10, got 11"),
        ({"protocol": "sideways"}, "unknown protocol 'sideways'"),
        ({"class_order": "random"}, "unknown class_order 'random'"),
        ({"device": "tpu"}, "device 'tpu'"),
        ({"precision": "float8"}, "precision 'float8' is not known"),
        ({"backbone": "vit_tiny_patch16_224@nowhere.safetensors"}, r"nowhere\.safetensors does not exist"),
        ({"data": "somewhere"}, "somewhere"),
    ],
)
def test_a_plan_that_cannot_be_carried_out_leaves_no_folder(
    tmp_path: Path, micro_vit: str, changes: dict[str, Any], message: str
) -> None:
    plan = small_plan(micro_vit, **changes)
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        start(plan, tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["chunk", "tasks", "limit_per_class", "threads", "checkpoint_every"])
def test_counts_below_one_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name.replace('_', '-')} must be at least 1, got 0"):
        Plan("ncm", "digits", **{name: 0})


def test_unreadable_images_of_a_folder_are_counted_and_named(tmp_path: Path, micro_vit: str) -> None:
    random = np.random.default_rng(0)
    for half, count in (("train", 4), ("test", 2)):
        for name in ("cat", "dog"):
            (tmp_path / "pets" / half / name).mkdir(parents=True)
            for number in range(count):
                pixels = random.integers(0, 256, (9, 11, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(tmp_path / "pets" / half / name / f"{number}.png")
        (tmp_path / "pets" / half / "cat" / "0.png").write_bytes(b"not a picture")
    plan = Plan("ncm", "folder", data=str(tmp_path / "pets"), backbone=micro_vit, device="cpu", tasks=2)
    folder = start(plan, tmp_path / "run").path
    result = read(folder / "result.json")
    assert result["skipped"] == {"train": 1, "test": 1}
    assert result["test_sizes"] == [1, 2]
    lines = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    skipped = [line for line in lines if line["event"] == "ImagesSkipped"]
    assert [line["half"] for line in skipped] == ["train", "test"]
    assert all(line["paths"][0].endswith("0.png") for line in skipped)


def test_listeners_get_the_time_an_event_took_without_their_own() -> None:
    now = [0.0]

    def events() -> Any:
        for seconds in (2.0, 5.0):
            now[0] += seconds
            yield RunStarted(1, 1, 1, 1)

    heard = []

    def slow(event: Event, seconds: float) -> None:
        assert isinstance(event, RunStarted)
        heard.append(seconds)
        now[0] += 100.0

    dispatch(events(), [slow, slow], clock=lambda: now[0])
    assert heard == [2.0, 2.0, 5.0, 5.0]


@pytest.mark.parametrize("changes", [{"class_order": "shuffled"}, {"options": {"preset": "released", "chunk": "3"}}])
def test_the_released_preset_refuses_other_orders_and_batches(
    tmp_path: Path, micro_vit: str, changes: dict[str, Any]
) -> None:
    plan = small_plan(micro_vit, "prol", **({"options": {"preset": "released", "blocks": "2"}} | changes))
    with pytest.raises(ValueError, match="preset released needs --class-order label"):
        start(plan, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_config_says_under_which_licence_the_data_are(finished: Callable[[str], Path]) -> None:
    assert "CC BY 4.0" in json.loads((finished("ncm") / "config.json").read_text())["dataset"]["licence"]
