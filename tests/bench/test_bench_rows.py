"""What each benchmark gives: the right rows, ratios and errors. Measured times are not checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from golden_files import tiny_vit
from prol.backbones import ViT, open_backbone
from prol.backbones.base import Acceleration
from prol.bench import ladder as ladders
from prol.bench.ladder import bare_passes
from prol.bench.machine import PeakMemory, copy_peak, document, matrix_peak, peak
from prol.bench.throughput import files, growth, limit, speed, with_growth_ratios
from prol.bench.timing import Pace
from prol.bench.workload import MethodSpec, Workload
from prol.data import ArraySplit, Dataset

QUICK = Pace(warmup=0, repeats=2, steps=1)
PROL = MethodSpec("prol", {"blocks": "3"})


@pytest.fixture(autouse=True)
def no_full_collections(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are slow in a process with so many modules."""
    monkeypatch.setattr("gc.collect", lambda: 0)


@pytest.fixture
def vit() -> ViT:
    return tiny_vit(torch.float32)


def test_speed_has_a_row_for_each_method_chunk_and_batch(vit: ViT) -> None:
    rows = list(speed([PROL, MethodSpec("ncm")], vit, [2, 3], [4], Workload(12), QUICK, peak=1e9))
    assert [(row["method"], row["what"], row["images"]) for row in rows] == [
        ("prol:blocks=3", "train", 2),
        ("prol:blocks=3", "train", 3),
        ("prol:blocks=3", "predict", 4),
        ("ncm", "train", 2),
        ("ncm", "train", 3),
        ("ncm", "predict", 4),
    ]
    for row in rows:
        assert len(row["seconds"]) == 2
        assert row["images_per_second"] == row["images"] / row["median"]
        assert row["share_of_peak"] == row["flop_per_image"] * row["images_per_second"] / 1e9
    train, _, predict = rows[:3]
    assert predict["flop_per_image"] < train["flop_per_image"]


def test_operations_are_what_is_counted_by_hand(vit: ViT) -> None:
    """NCM makes one pass in which the last block computes the class token alone, and compares with 12 classes."""
    tokens, width = 1 + vit.model.patch_embed.num_patches, vit.width
    hidden, patch = vit.model.blocks[0].mlp.fc1.out_features, 3 * vit.model.patch_embed.patch_size[0] ** 2
    by_hand = 2 * (tokens - 1) * patch * width + 2 * width * 12
    for block in range(vit.depth):
        rows = 1 if block == vit.depth - 1 else tokens
        maps = width * (rows + 2 * tokens) + rows * width + 2 * rows * hidden
        by_hand += 2 * width * maps + 2 * 2 * rows * tokens * width
    train, predict = speed([MethodSpec("ncm")], vit, [2], [2], Workload(12), QUICK, peak=1e9)
    assert predict["flop_per_image"] == by_hand
    assert train["flop_per_image"] == by_hand - 2 * width * 12


def test_without_a_peak_nothing_is_counted(vit: ViT) -> None:
    [train, predict] = speed([MethodSpec("ncm")], vit, [2], [2], Workload(12), QUICK)
    assert "flop_per_image" not in train | predict


def test_a_step_that_fails_leaves_its_error_and_the_others_continue(vit: ViT, monkeypatch: pytest.MonkeyPatch) -> None:
    from prol.methods.closed_form.ncm import NCM

    def out_of_memory(*_: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(NCM, "update", out_of_memory)
    rows = list(speed([MethodSpec("ncm"), PROL], vit, [2], [2], Workload(4), QUICK))
    assert [row.get("error") for row in rows] == ["OutOfMemoryError: CUDA out of memory"] * 2 + [None, None]


def test_invalid_options_are_refused_before_anything_is_timed(vit: ViT) -> None:
    with pytest.raises(ValueError, match="unknown option 'rate'"):
        next(speed([MethodSpec("ncm"), MethodSpec("prol", {"rate": 1})], vit, [2], [2], Workload(4), QUICK))


def test_growth_compares_with_100_classes() -> None:
    def row(classes: int, seconds: float) -> dict[str, Any]:
        return {"classes": classes, "train": {"median": seconds}, "predict": {"median": 2 * seconds}}

    rows = with_growth_ratios([row(10, 1.0), row(100, 2.0), {"classes": 1000, "error": "x"}, row(10000, 3.0)])
    assert [each.get("train_ratio") for each in rows] == [0.5, 1.0, None, 1.5]
    assert rows[3]["predict_ratio"] == 1.5
    assert with_growth_ratios([row(10, 1.0), row(20, 2.0)])[1]["train_ratio"] == 2.0
    assert with_growth_ratios([{"classes": 10, "error": "x"}]) == [{"classes": 10, "error": "x"}]


def test_growth_has_a_row_for_each_number_of_classes_fewest_first(vit: ViT) -> None:
    rows = list(growth(PROL, vit, [40, 8, 40], 2, 3, QUICK))
    assert [row["classes"] for row in rows] == [8, 40]
    assert all(row["memory_bytes"] > 0 and "resident" in row["memory"] for row in rows)
    assert (rows[0]["train"]["images"], rows[0]["predict"]["images"]) == (2, 3)


def test_the_ladder_of_a_gpu_goes_from_float32_to_compiled_and_captured_bf16() -> None:
    ways = ladders.rungs(torch.device("cuda"))
    assert [(way.precision, way.acceleration) for way in ways] == [
        ("float32", Acceleration(False, False)),
        ("bf16", Acceleration(False, False)),
        ("bf16", Acceleration(False, True)),
        ("bf16", Acceleration(True, True)),
    ]
    assert [way.name for way in ladders.rungs(torch.device("cpu"))] == ["float32"]


def test_learners_of_the_ladder_are_made_on_a_backbone_of_their_rung(
    small_vit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[tuple[str, Acceleration]] = []
    original = MethodSpec.learner

    def spy(self: MethodSpec, backbone: ViT, chunk: int) -> Any:
        made.append((backbone.precision, backbone.acceleration))
        return original(self, backbone, chunk)

    ways = [
        ladders.Rung("float64", "float64", Acceleration()),
        ladders.Rung("other", "float32", Acceleration(captured=True)),
    ]
    monkeypatch.setattr(MethodSpec, "learner", spy)
    monkeypatch.setattr(ladders, "rungs", lambda _: ways)
    rows = ladders.ladder(MethodSpec("ncm"), small_vit, "cpu", 2, Workload(4), QUICK)
    assert made == [("float64", Acceleration()), ("float32", Acceleration(captured=True))]
    assert [(row["rung"], row["precision"], row["captured"]) for row in rows] == [
        ("float64", "float64", False),
        ("other", "float32", True),
    ]


def test_the_ladder_of_prol_begins_with_the_plain_step_and_ends_with_the_bare_passes(small_vit: str) -> None:
    calls: list[tuple[Any, ...]] = []

    def plain(backbone: ViT, options: Any, earlier: int, current: int) -> Any:
        calls.append((backbone.precision, options.blocks, earlier, current))
        return lambda images, labels: calls.append((images.shape, sorted(set(labels))[0] >= earlier))

    rows = ladders.ladder(PROL, small_vit, "cpu", 2, Workload(30), QUICK, plain)
    assert [row["rung"] for row in rows] == ["plain float32", "float32", "bare passes"]
    assert calls == [("float32", 3, 20, 10), *[((2, 32, 32, 3), True)] * 2]
    assert [row["ratio"] for row in rows] == [rows[0]["median"] / row["median"] for row in rows]
    assert ladders.times_bare(rows) == rows[1]["median"] / rows[2]["median"]


def test_ratios_are_against_the_first_way_that_works() -> None:
    def row(rung: str, median: float) -> dict[str, Any]:
        return {"rung": rung, "median": median}

    failed = {"rung": "b", "error": "no compiler"}
    assert ladders.with_ratios([row("a", 6.0), failed, row("c", 2.0)])[1:] == [failed, row("c", 2.0) | {"ratio": 3}]
    assert ladders.with_ratios([failed, row("c", 2.0)])[1]["ratio"] == 1
    assert ladders.times_bare([row("a", 6.0), failed, row(ladders.BARE, 2.0)]) is None
    assert ladders.times_bare([row("a", 6.0)]) is None
    assert ladders.times_bare([failed | {"rung": ladders.BARE}]) is None


@pytest.mark.parametrize("tune_norms", [True, False])
def test_bare_passes_reach_the_prefixes_and_trained_norms(vit: ViT, tune_norms: bool) -> None:
    gradients: Sequence[torch.Tensor] = bare_passes(vit, 2, blocks=3, length=5, tune_norms=tune_norms)()  # type: ignore[assignment]
    assert [tuple(g.shape) for g in gradients[:6]] == [(2, vit.heads, 5, 16)] * 6
    assert len(gradients) == 6 + 18 * tune_norms
    assert all(bool(g.abs().sum() > 0) for g in gradients[:6])


def small_dataset(images: int = 7) -> Dataset:
    pixels = np.random.default_rng(0).integers(0, 256, (images, 16, 16, 3), dtype=np.uint8)
    train = ArraySplit(pixels, np.arange(images) % 3)
    return Dataset("made up", ("a", "b", "c"), train, train)


@pytest.mark.parametrize("workers", [0, 2])
def test_files_are_decoded_learnt_and_both(vit: ViT, workers: int) -> None:
    learner = PROL.learner(vit, 2)
    rows = files(small_dataset(), learner, 2, 100, workers, 2)
    assert [(row["what"], row["images"], len(row["seconds"])) for row in rows] == [
        ("decoding", 6, 2),
        ("learning", 6, 2),
        ("both", 6, 2),
    ]
    assert set(learner.classes) <= {"a", "b", "c"}
    assert limit(rows)["limit"] in ("decoding", "learning")


def test_the_slower_of_decoding_and_learning_is_the_limit() -> None:
    def rows(*speeds: float) -> list[dict[str, Any]]:
        return [{"images_per_second": speed} for speed in speeds]

    assert limit(rows(50, 100, 45)) == {"limit": "decoding", "share_of_limit": 0.9}
    assert limit(rows(100, 50, 50)) == {"limit": "learning", "share_of_limit": 1.0}


def test_too_few_images_for_a_chunk_are_refused(vit: ViT) -> None:
    with pytest.raises(ValueError, match="3 training images, fewer than a chunk of 5"):
        files(small_dataset(3), PROL.learner(vit, 5), 5, 100, 0, 1)


def test_peaks_are_operations_and_bytes_a_second() -> None:
    cpu = torch.device("cpu")
    before = torch.get_float32_matmul_precision()
    for precision in ("float32", "tf32", "float64"):
        row = matrix_peak(cpu, precision, QUICK, side=8)
        assert row["flop_per_second"] == 2 * 8**3 / row["median"]
        assert row["what"] == f"matrix product, {precision}"
    assert torch.get_float32_matmul_precision() == before
    row = copy_peak(cpu, QUICK, size=1000)
    assert row["bytes_per_second"] == 2000 / row["median"]


def test_only_the_float32_peak_of_a_cpu_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prol.bench.machine._SIDE", {"cpu": 8})
    monkeypatch.setattr("prol.bench.machine._COPIED_BYTES", {"cpu": 100})
    assert [row["what"] for row in peak(torch.device("cpu"), QUICK)] == ["matrix product, float32", "copy"]


def test_a_document_says_on_what_and_with_what_it_was_measured() -> None:
    content = document("speed", torch.device("cpu"), "prol bench speed", {"classes": 10})
    assert (content["format"], content["bench"], content["rows"]) == (1, "speed", [])
    assert content["versions"].keys() == {"prol", "torch", "timm", "python"}
    assert content["machine"]["device"] == "cpu"
    assert content["machine"]["processor"]


def test_memory_that_cannot_be_set_back_is_said_to_be_of_the_whole_process(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("prol.bench.machine._CLEAR", tmp_path / "no" / "clear_refs")
    memory = PeakMemory(torch.device("cpu"))
    assert "since it started" in memory.kind
    assert memory.read() > 1 << 20
    monkeypatch.setattr("prol.bench.machine._STATUS", tmp_path / "no" / "status")
    assert memory.read() > 1 << 20


def test_a_backbone_by_name_is_opened_in_the_precision_of_its_rung(small_vit: str) -> None:
    rung = ladders.Rung("x", "float64", Acceleration(captured=True))
    opened = ladders._open(small_vit, "cpu", rung)
    assert (opened.precision, opened.acceleration) == ("float64", rung.acceleration)
    assert open_backbone(small_vit, device="cpu").acceleration == Acceleration()
