"""The paper's items from one call: runs by content, kept, taken up again, and missing ones told."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paper.reproducing import Noting, Recording, small_scale
from prol import registry
from prol.backbones import Backbone, open_backbone
from prol.methods.prol.options import ABLATIONS
from prol.paper.grid import run_name
from prol.paper.item_files import Reproduced, make_sheet
from prol.paper.items import ITEMS, pick
from prol.paper.reproduction import render, reproduce
from prol.paper.scale import SCALES, PaperScale, read_scale
from prol.paper.tables import printed_tables, read_printed
from prol.runs import Plan
from prol.runs.executors import LocalProcesses
from prol.runs.setup import set_up
from runs.small_runs import environment


@pytest.fixture(scope="module")
def scale(micro_vit: str) -> PaperScale:
    return small_scale(micro_vit)


@pytest.fixture(scope="module")
def made_once(scale: PaperScale, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reproduced")
    [done], recording = again(["main"], scale, folder)
    assert (len(recording.asked), done.failed) == (2, False)
    return folder


@pytest.fixture
def reproduced(made_once: Path, tmp_path: Path) -> Path:
    """A copy of the main table in two rows."""
    return Path(shutil.copytree(made_once, tmp_path / "reproduced"))


def again(items: list[str], scale: PaperScale, out: Path) -> tuple[list[Reproduced], Recording]:
    recording = Recording()
    return reproduce(pick(items), scale, out, recording, recording), recording


def written_at(out: Path) -> dict[str, int]:
    return {path.parent.name: path.stat().st_mtime_ns for path in out.glob("runs/*/result.json")}


def results(out: Path) -> dict[str, bytes]:
    return {path.parent.name: path.read_bytes() for path in out.glob("runs/*/result.json")}


def test_an_item_writes_its_table_its_figures_and_its_runs(reproduced: Path) -> None:
    assert {path.name for path in (reproduced / "main").iterdir()} == {
        *("runs.json", "table.json", "table.csv", "table.md", "main-digits.png", "main-digits.svg")
    }
    [table] = json.loads((reproduced / "main/table.json").read_text())["tables"]
    rows = {row["name"]: row for row in table["rows"]}
    assert rows.keys() == {"PROL", "NCM"}
    assert rows["PROL"]["pairs"][0]["paper"] == 86.32
    result = json.loads(next(reproduced.glob("runs/ncm-*/result.json")).read_text())
    assert rows["NCM"]["pairs"][0]["ours"]["values"] == [result["metrics"]["faa"]]
    for run in reproduced.glob("runs/*"):
        assert {"config.json", "result.json", "timing.json", "events.jsonl"} <= {path.name for path in run.iterdir()}
        assert not (run / "model").exists()
        assert not (run / "checkpoint").exists()


def test_a_second_call_runs_nothing_and_other_items_share_the_runs(scale: PaperScale, reproduced: Path) -> None:
    before, page = written_at(reproduced), (reproduced / "main/table.md").read_text()
    for items in (["main"], ["history"]):
        _, recording = again(items, scale, reproduced)
        assert recording.asked == []
    assert written_at(reproduced) == before
    assert (reproduced / "main/table.md").read_text() == page
    for other, word in ((replace(scale, seeds=(0, 1)), "-seed1-"), (replace(scale, limit_per_class=1), "-seed0-")):
        noting = Noting()
        reproduce(pick(["main"]), other, reproduced, noting, noting)
        assert len(noting.asked) == 2  # another stream is another run
        assert all(word in name for name in noting.asked)


@pytest.mark.usefixtures("no_figures")
def test_the_last_row_of_the_ablation_is_the_run_of_the_main_table(scale: PaperScale, tmp_path: Path) -> None:
    only = replace(scale, picked={"PROL": {}, "+ M (gen) = PROL": {}})
    noting = Noting()
    reproduce(pick(["main", "ablation"]), only, tmp_path, noting)
    assert len(noting.asked) == 1


def test_the_name_of_a_run_is_its_config_without_versions(micro_vit: str) -> None:
    config = set_up(Plan("ncm", "digits", backbone=micro_vit, limit_per_class=2)).config
    name = run_name(config)
    assert name.startswith("ncm-digits-seed0-")
    assert run_name({**config, "versions": {"prol": "9"}}) == name
    assert run_name(dict(reversed(config.items()))) == name
    assert run_name({**config, "precision": "bf16"}) != name
    first = {"name": "builtin", "sha256": "63"}
    by_name = [
        run_name({**config, "backbone": first | {"name": stored}, "told": {**config["told"], "weights": stored}})
        for stored in ("builtin", "vit_tiny_patch8_64.tiny_imagenet", "vit_small_patch16_128.distilled")
    ]
    assert by_name[0] == by_name[1] != by_name[2]
    assert run_name({**config, "options": {**config["options"], "distance": "euclidean"}}) != name


@pytest.mark.usefixtures("no_figures")
def test_threads_left_to_the_machine_are_no_part_of_a_run(
    scale: PaperScale, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asked(threads: int | None) -> list[str]:
        noting = Noting()
        reproduce(pick(["main"]), replace(scale, threads=threads), tmp_path, noting)
        return noting.asked

    here, with_one = asked(None), asked(1)
    monkeypatch.setattr("torch.get_num_threads", lambda: 64)
    monkeypatch.setattr("os.cpu_count", lambda: 64)
    assert asked(None) == here
    assert asked(1) == with_one
    assert not set(here) & set(with_one)


@pytest.mark.usefixtures("no_figures")
def test_learners_are_kept_where_asked_and_those_that_are_gone_are_told(scale: PaperScale, tmp_path: Path) -> None:
    for keep_models, gone in ((False, False), (True, True)):
        said: list[str] = []
        only = replace(scale, picked={"ncm": {}})
        reproduce(pick(["main"]), only, tmp_path / "out", say=said.append, keep_models=keep_models)
        assert ("1 finished runs were made without --keep-models and have no learner" in said) is gone
    said.clear()
    for _ in range(2):
        reproduce(pick(["main"]), only, tmp_path / "kept", say=said.append, keep_models=True)
    assert "1 of 1 runs are finished already" in said
    assert not any("have no learner" in line for line in said)
    assert len(list(tmp_path.glob("kept/runs/*/model/model.safetensors"))) == 1


def test_tables_are_written_again_from_files_alone(reproduced: Path, tmp_path: Path) -> None:
    kept = {path.name: path.read_bytes() for path in (reproduced / "main").iterdir() if path.name != "runs.json"}
    assert {Path(name).suffix for name in kept} == {".md", ".csv", ".json", ".png", ".svg"}
    for name in kept:
        (reproduced / "main" / name).unlink()
    [done] = render(pick(["all"]), reproduced)
    assert done.folder == reproduced / "main"
    assert {path.name: path.read_bytes() for path in done.folder.iterdir() if path.name != "runs.json"} == kept
    with pytest.raises(ValueError, match="holds none of ablation"):
        render(pick(["ablation"]), reproduced)
    with pytest.raises(FileNotFoundError, match="give the --out of a reproduction"):
        render(pick(["main"]), tmp_path / "nowhere")


def test_a_setting_that_runs_do_not_record_is_left_out(reproduced: Path) -> None:
    [before] = render(pick(["main"]), reproduced)
    for file in reproduced.glob("runs/*/config.json"):
        config = json.loads(file.read_text())
        del config["preprocessing"], config["dataset"]["notes"], config["dataset"]["limit_per_class"]
        file.write_text(json.dumps(config))
    [after] = render(pick(["main"]), reproduced)
    missing = {what for what, _, _ in before.sheet.settings} - {what for what, _, _ in after.sheet.settings}
    assert missing == {"image size", "limit per class"}
    assert after.sheet.tables == before.sheet.tables


@pytest.mark.usefixtures("no_figures")
def test_the_appendix_is_put_together_from_items_run_at_scales_of_their_own(
    scale: PaperScale, reproduced: Path
) -> None:
    tmp_path = reproduced
    with pytest.raises(ValueError, match="holds none of appendix"):
        render(pick(["appendix"]), tmp_path)
    small = {"generated": {"classes": 10, "side": 32, "test_per_class": 1}}
    timed = replace(scale, precision="float64", dataset_options=small, picked={"PROL": {"blocks": "2"}})
    again(["throughput"], timed, tmp_path)
    [done] = render(pick(["appendix"]), tmp_path)
    tables = {table.name: [row.name for row in table.rows] for table in done.sheet.tables}
    assert tables.pop("accuracy-digits") == ["PROL", "NCM"]
    assert tables.pop("forgetting-digits") == ["PROL", "NCM"]
    assert set(map(tuple, tables.values())) == {("PROL",)}
    assert ("precision", "float32 on cpu, float64 on cpu", "not said; one A100 of 40 GB") in done.sheet.settings
    again(["main"], replace(scale, picked={"ncm": {}}), tmp_path)
    [later] = render(pick(["appendix"]), tmp_path)  # what it is made of was written again
    assert [row.name for row in later.sheet.tables[0].rows] == ["NCM"]


@pytest.mark.parametrize("name", SCALES)
def test_items_made_of_others_want_what_those_want(name: str) -> None:
    scale = read_scale(name)
    for item in ITEMS.values():
        if item.made_of:
            assert item.wants(scale) == [want for part in item.made_of for want in ITEMS[part].wants(scale)]
    assert ITEMS["appendix"].made_of == ("main", "throughput")


@pytest.mark.slow
@pytest.mark.usefixtures("no_figures")
def test_each_network_is_opened_once_to_find_out_what_runs_need(
    scale: PaperScale, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []

    def counting(name: str, **where: Any) -> Backbone:
        if not where.get("shapes_only"):
            opened.append(name)
        return open_backbone(name, **where)

    monkeypatch.setattr("prol.runs.inspection.open_backbone", counting)
    reproduce(pick(["main", "ablation"]), replace(scale, picked=None), tmp_path, Noting(), Noting())
    assert opened == [scale.backbone]


@pytest.mark.usefixtures("no_figures")
def test_data_and_methods_that_are_not_to_be_had_are_told_and_stop_nothing(
    scale: PaperScale, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(registry._BUILT_IN["methods"], "er", raising=False)
    said: list[str] = []
    asked = replace(scale, datasets=("cub200", "digits"), data={"cub200": str(tmp_path / "none")}, picked={"ncm": {}})
    main, without = reproduce(
        pick(["main", "non-ptm"]), replace(asked, picked={"ncm": {}, "er": {}}), tmp_path / "out", say=said.append
    )
    cub, digits = main.sheet.tables
    assert cub.rows[0].remark.startswith("not run: ")
    assert str(tmp_path / "none") in cub.rows[0].remark
    assert digits.rows[0].pairs[0].ours is not None
    assert without.sheet.tables[0].rows[0].remark == "not run: there is no method 'er' in this version"
    assert without.finished_runs == 0
    assert not main.failed
    assert sum("cub200 is not available" in line for line in said) == 1


def test_data_that_are_missing_stop_it_before_anything_runs(scale: PaperScale, tmp_path: Path) -> None:
    asked = replace(scale, datasets=("cub200",), data={"cub200": str(tmp_path / "none")})
    with pytest.raises(ValueError, match=r"nothing can be run: cub200 is not available: .*none") as stopped:
        again(["main"], asked, tmp_path / "out")
    assert "\n" not in str(stopped.value)
    assert not (tmp_path / "out" / "main").exists()


@pytest.mark.usefixtures("no_figures")
def test_a_run_that_fails_on_the_way_is_told_and_the_rest_goes_on(scale: PaperScale, tmp_path: Path) -> None:
    [done], _ = again(["main"], replace(scale, picked={"ncm": {}, "PROL": {"lr": "1e308", "blocks": "2"}}), tmp_path)
    rows = {row.name: row for row in done.sheet.tables[0].rows}
    assert "the loss is not finite" in rows["PROL"].remark
    assert rows["NCM"].pairs[0].ours is not None
    assert done.failed


@pytest.mark.slow
def test_a_killed_reproduction_goes_on_where_it_stopped(scale: PaperScale, micro_vit: str, tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    rows = ("FT (inter)", "+ G", "norms only", "null prefix")
    command = [sys.executable, "-m", "prol", "reproduce", "ablation", "--scale", "smoke", "--backbone", micro_vit]
    command += [word for row in rows for word in ("--methods", row)]
    command += ["--threads", "1", "--device", "cpu", "--out", str(killed)]
    process = subprocess.Popen(command, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 120
    try:
        while not written_at(killed):  # three of four are still to come
            assert process.poll() is None, process.stderr and process.stderr.read().decode()
            assert time.monotonic() < deadline
            time.sleep(0.005)
    finally:
        process.kill()
        process.communicate()
    before = written_at(killed)
    assert 1 <= len(before) < 4
    asked = replace(scale, picked={row: {} for row in rows}, device="cpu")
    _, recording = again(["ablation"], asked, killed)
    assert len(recording.asked) == 4 - len(before)
    after = written_at(killed)
    assert before.items() <= after.items()
    again(["ablation"], asked, whole)
    assert results(killed) == results(whole)


def test_copied_rows_are_of_classes_in_an_order_drawn_by_the_seed() -> None:
    orders = {want.row: want.plan.class_order for want in ITEMS["non-ptm"].wants(read_scale("full"))}
    assert orders.pop("PROL") == "label"
    assert set(orders.values()) == {"shuffled"}
    assert {want.plan.class_order for want in ITEMS["main"].wants(read_scale("full"))} == {"label"}


@pytest.mark.slow
def test_runs_side_by_side_give_the_same_tables(scale: PaperScale, tmp_path: Path) -> None:
    scale = replace(scale, picked={"ncm": {}})
    [one] = reproduce(pick(["main"]), scale, tmp_path / "one")
    [other] = reproduce(pick(["main"]), scale, tmp_path / "other", LocalProcesses(2))
    assert one.finished_runs == 1
    assert one.sheet == other.sheet


def test_without_any_run_complexity_has_no_table_of_later_tasks() -> None:
    assert [table.name for table in make_sheet("complexity", []).tables] == ["complexity-images", "complexity-chunks"]


def test_what_is_timed_runs_alone_and_computes_every_feature_anew(scale: PaperScale) -> None:
    for item in ITEMS.values():
        for want in item.wants(scale):
            assert want.timed is not want.plan.measures.reuse_features
            assert want.timed is (want.plan.checkpoint_every is None)
    timed = {name for name, item in ITEMS.items() if any(want.timed for want in item.wants(scale))}
    assert timed == {"throughput", "appendix", "complexity"}


@pytest.mark.parametrize("name", SCALES)
def test_every_row_of_the_paper_is_in_its_item(name: str) -> None:
    scale = read_scale(name)
    tables = {
        "main": "main",
        "history": "accuracy_cifar100",
        "throughput": "throughput",
        "appendix": "forgetting_cub200",
        "non-ptm": "non_ptm",
        "ablation": "ablation",
        "robustness-length": "robustness_length",
        "robustness-layers": "robustness_layers",
    }
    for item, table in tables.items():
        wants = ITEMS[item].wants(scale)
        printed = read_printed(table)
        assert {want.beside for want in wants if want.beside} == printed.rows.keys()
        for dataset in {want.plan.dataset for want in wants}:
            settings = [(want.row, want.setting) for want in wants if want.plan.dataset == dataset and not want.timed]
            assert len(set(settings)) == len(settings)
    assert set(tables) | {"complexity"} == ITEMS.keys()
    assert len(sorted(printed_tables())) == 17
    lengths = {want.setting for want in ITEMS["robustness-length"].wants(scale)}
    assert {f"{length} FAA" for length in lengths} <= set(read_printed("robustness_length").columns)
    rows = {want.plan.options.get("ablation") for want in ITEMS["ablation"].wants(scale)}
    assert rows - {None} == set(ABLATIONS) - {"full"}  # which is PROL as it is


def test_the_full_scale_is_the_papers_setting() -> None:
    full = read_scale("full")
    for want in ITEMS["main"].wants(full):
        assert want.plan.backbone == "vit_base_patch16_224.augreg_in21k"
        assert (want.plan.chunk, want.plan.tasks, want.plan.limit_per_class) == (10, None, None)
    assert {want.plan.dataset for want in ITEMS["main"].wants(full)} == {
        *("cifar100", "imagenet_r", "imagenet_a", "cub200")
    }
    own = {want.row: want.plan.backbone for want in ITEMS["non-ptm"].wants(full)}
    assert own.pop("PROL") == "vit_tiny_patch16_224.augreg_in21k"
    assert set(own.values()) == {"resnet18_cifar"}
    for item in ("ablation", "throughput", "robustness-length", "complexity"):
        assert {want.plan.dataset for want in ITEMS[item].wants(full)} == {"imagenet_r"}


@pytest.mark.slow
def test_every_item_at_the_smoke_scale(tmp_path: Path) -> None:
    scale = replace(read_scale("smoke"), threads=1)
    for done in reproduce(list(ITEMS.values()), scale, tmp_path):
        assert done.sheet.tables, done.sheet.item
        for table in done.sheet.tables:
            for row in table.rows:
                assert not row.remark, (done.sheet.item, row.name, row.remark)
                assert any(pair.ours for pair in row.pairs)
        drawn = {path.suffix for path in done.folder.iterdir()}
        assert drawn >= {".png", ".svg", ".md", ".csv", ".json"}
