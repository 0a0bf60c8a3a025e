"""The README keeps its word: its ten lines run, its links lead somewhere, its numbers have their files."""

from __future__ import annotations

import json
import re
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import prol
from prol import registry
from prol.backbones.built_in import find_built_in

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_ten_lines_learn_from_a_folder_of_photos(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shades = {"dark": 30, "light": 220}
    for name, shade in shades.items():
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(6):
            noise = np.random.default_rng(number).integers(-20, 20, (40 + number, 50, 3)) + shade
            Image.fromarray(noise.astype(np.uint8)).save(tmp_path / "photos" / name / f"{number}.jpg")
    monkeypatch.chdir(tmp_path)
    code = re.search(r"```python\n(.*?)```", README, re.DOTALL)
    assert code is not None
    exec(compile(code.group(1), "README.md", "exec"), {})
    assert capsys.readouterr().out.strip() == "dark"
    assert sorted(map(str, prol.load(tmp_path / "my-model").classes)) == sorted(shades)


def test_every_link_leads_to_a_file() -> None:
    targets = [target for target in re.findall(r"\]\(([^)#]+)", README) if "://" not in target]
    assert targets
    assert not [target for target in targets if not (ROOT / target).exists()]


def test_every_row_of_results_equals_its_files() -> None:
    numbers = r"(\S+) ± (\S+) \| (\S+) ± \S+ \| (\S+) ± \S+ \|"
    rows = re.findall(r"\| `prol run (\S+) (glyphs|cifar100)([^`]*) --backbone (\S+)` \| " + numbers, README)
    assert {dataset for _, dataset, *_ in rows} == {"glyphs", "cifar100"}
    for method, dataset, options, backbone, faa, deviation, caa, forgetting in rows:
        folders = [
            folder
            for folder in (ROOT / "results" / dataset).iterdir()
            if folder.is_dir()
            and _is_run_of(json.loads((folder / "config.json").read_text()), method, dataset, options.split(), backbone)
        ]
        assert len(folders) == 3
        metrics = [json.loads((folder / "result.json").read_text())["metrics"] for folder in folders]
        assert f"{statistics.mean(m['faa'] for m in metrics):.1f}" == faa
        assert f"{statistics.stdev(m['faa'] for m in metrics):.1f}" == deviation
        assert f"{statistics.mean(m['caa'] for m in metrics):.1f}" == caa
        assert f"{statistics.mean(m['forgetting'] for m in metrics):.1f}" == forgetting


def _is_run_of(config: dict[str, Any], method: str, dataset: str, options: list[str], backbone: str) -> bool:
    """Whether a run's resolved options and weights are those of the command."""
    if config["method"] != method or config["backbone"]["sha256"] != find_built_in(backbone).sha256:
        return False
    kind = registry.method(method)
    implied = {"coefficients": dataset} if method == "prol" else {}
    wanted = kind.read_options(implied | dict(pair.split("=") for pair in options))
    return wanted == kind.read_options(config["options"])
