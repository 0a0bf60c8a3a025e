"""Methods on a frozen ViT beside methods that train a network of their own, in one comparison."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from prol.cli.compare import _backbone_of
from prol.runs import Plan
from prol.runs.comparison import compare, read_comparison
from runs.small_runs import small_plan, write_small_vit


@pytest.fixture(scope="module")
def vit(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_small_vit(tmp_path_factory.mktemp("weights"), "test_vit")


def replay_plan() -> Plan:
    return small_plan("resnet18_cifar@4", "er", options={"memory": 7, "replay": 4})


@pytest.fixture(scope="module")
def compared(vit: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compared")
    narrow = small_plan("resnet18_cifar@2", "er_ace", options={"memory": 7, "replay": 4})
    assert compare([replay_plan(), narrow, small_plan(vit)], [0], folder).failures == {}
    return folder


def test_the_headline_names_both_networks(vit: str, compared: Path) -> None:
    headline = read_comparison(compared).headline
    assert f"backbone {vit} " in headline
    assert "; er:memory=7,replay=4 on resnet18_cifar@4 trained from scratch, cpu float32" in headline
    assert headline in (compared / "comparison.md").read_text()


def test_samples_and_bytes_kept_are_those_of_the_results(compared: Path) -> None:
    rows = {row.name.partition(":")[0]: row for row in read_comparison(compared).rows}
    assert rows.keys() == {"er", "er_ace", "ncm"}
    for method, row in rows.items():
        folder = next(compared.glob(f"{method}-[ms]*"))
        footprint = json.loads((folder / "result.json").read_text())["footprint"]
        kept = [footprint[f"{kind}_stored"]["bytes"] for kind in ("parameters", "statistics", "samples")]
        assert row.bytes_kept == sum(kept)
    assert rows["er"].footprint["samples_stored"] == {"count": 7, "bytes": 7 * 3 * 32 * 32}
    assert rows["ncm"].footprint["samples_stored"] == {"count": 0, "bytes": 0}
    lines = (compared / "comparison.md").read_text().splitlines()
    head = next(line for line in lines if line.startswith("| ") and "samples stored" in line).split("|")
    for method, samples in (("er", "7 (21.5 kB)"), ("ncm", "none")):
        cells = next(line for line in lines if line.startswith(f"| `{method}")).split("|")
        found = {name.strip(): cell.strip() for name, cell in zip(head, cells, strict=True)}
        assert found["samples stored"] == samples
        assert found["bytes stored"]


def test_both_are_drawn_against_what_they_keep(command, compared: Path, tmp_path: Path) -> None:
    picture = tmp_path / "kept.svg"
    code, text, errors = command("compare", "--table", "--out", str(compared), "--plot-memory", str(picture))
    assert (code, errors) == (0, "")
    assert "resnet18_cifar@4 trained from scratch" in " ".join(text.split())
    drawn = picture.read_text()
    assert all(words in drawn for words in ("er:memory=7,replay=4", "ncm", "stores samples", "stores no sample"))


def test_two_frozen_networks_in_one_folder_are_refused(vit: str, compared: Path) -> None:
    before = sorted(path.name for path in compared.iterdir())
    with pytest.raises(ValueError, match=r"holds a run with backbone.*choose another --out"):
        compare([small_plan("tiny", "slda")], [0], compared)
    failures = compare([small_plan(vit), small_plan("tiny", "slda")], [0], compared).failures
    assert "its options make backbone" in failures["slda-seed0"]
    assert sorted(path.name for path in compared.iterdir()) == before


def test_a_replay_method_of_another_width_may_join(compared: Path) -> None:
    headline = read_comparison(compared).headline
    for network in ("resnet18_cifar@4", "resnet18_cifar@2"):
        assert f"on {network} trained from scratch" in headline


def test_weights_asked_for_are_not_for_methods_that_bring_their_own(vit: str) -> None:
    for method in ("er", "er_ace", "derpp", "gdumb", "ocm"):
        assert _backbone_of(method, vit) == "auto"
        assert _backbone_of(method, "builtin") == "auto"
        assert _backbone_of(method, "resnet18_cifar@4") == "resnet18_cifar@4"
        assert _backbone_of(method, "auto") == "auto"
    assert _backbone_of("ncm", vit) == vit
    assert _backbone_of("not_known", vit) == vit
