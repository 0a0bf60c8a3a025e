"""The README keeps its word: its code and commands run, its links lead somewhere, its numbers have their files."""

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
from docs.pages import Block, blocks
from docs.shell import INSTALLING, run_block, words_of
from prol import registry
from prol.backbones.built_in import find_built_in

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
SHADES = {"photos/dark": 30, "photos/light": 220, "new/okapi": 120}


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with what the README speaks of; photo.jpg is an okapi."""
    for name, shade in SHADES.items():
        (tmp_path / name).mkdir(parents=True)
        for number in range(6):
            noise = np.random.default_rng(number).integers(-20, 20, (40 + number, 50, 3)) + shade
            Image.fromarray(noise.astype(np.uint8)).save(tmp_path / name / f"{number}.jpg")
    (tmp_path / "photo.jpg").write_bytes((tmp_path / "new" / "okapi" / "5.jpg").read_bytes())
    monkeypatch.chdir(tmp_path)
    return tmp_path


def shell_blocks() -> list[Block]:
    return [block for block in blocks(ROOT / "README.md") if block.kind == "sh"]


def test_it_is_short_and_says_first_what_people_search_for() -> None:
    assert len(README.split()) <= 900
    assert README.index("Add a class with only its own images; the old ones are gone") < 30


def test_its_lines_learn_two_folders_and_predict(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = re.search(r"```python\n(.*?)```", README, re.DOTALL)
    assert code is not None
    exec(compile(code.group(1), "README.md", "exec"), {})
    printed = capsys.readouterr().out.splitlines()
    assert [line for line in printed if line.startswith("accuracy 100.0 % on ")]
    assert printed[-1].startswith("okapi ")
    assert sorted(map(str, prol.load(photos / "my-model").classes)) == ["dark", "light", "okapi"]


def prol_blocks() -> list[Block]:
    return [block for block in shell_blocks() if any(words[0] not in INSTALLING for words in words_of(block))]


def test_its_commands_and_flags_are_known(command: Any) -> None:
    commands = [words for block in prol_blocks() for words in words_of(block)]
    assert [words[:2] for words in commands] == [["prol", "run"], ["prol", "compare"], ["prol", "predict"]]
    for _, verb, *words in commands:
        code, out, _ = command(verb, "--help")
        assert code == 0
        assert [word for word in words if word.startswith("-") and word not in out] == []
        methods = [word for word in words if word in prol.list_methods()]
        assert len(methods) == {"run": 1, "compare": 2, "predict": 0}[verb]


@pytest.mark.slow
def test_its_commands_run(photos: Path, command: Any) -> None:
    learner = prol.create("ncm", "tiny", device="cpu")
    learner.learn([photos / "photo.jpg"], ["okapi"])
    learner.save("my-model")
    for block in prol_blocks():
        assert block.mark.startswith("run with: ")
        run_block(block, command)


def test_its_targets_are_in_the_makefile() -> None:
    made = [words[1] for block in shell_blocks() for words in words_of(block) if words[0] == "make"]
    assert made == ["demo", "test"]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in made)


def test_every_link_leads_to_a_file() -> None:
    targets = [target for target in re.findall(r"\]\(([^)#]+)", README) if "://" not in target]
    assert targets
    assert not [target for target in targets if not (ROOT / target).exists()]


def cells(line: str) -> list[str]:
    return [cell.strip().strip("`") for cell in line.strip().strip("|").split("|")]


def test_its_rows_are_those_of_the_file_that_it_names() -> None:
    found = re.search(r"<!-- results: (\S+), ([\w ]+) -->\n(.*?)<!-- end -->", README, re.DOTALL)
    assert found is not None
    titles, _, *rows = [cells(line) for line in found[3].strip().splitlines()]
    head, _, *lines = [cells(line) for line in (ROOT / found[1]).read_text(encoding="utf-8").splitlines()]
    wanted = [dict(zip(titles, row, strict=True)) for row in rows]
    there = [dict(zip(head, line, strict=False)) for line in lines]
    assert len(wanted) == 6
    for row in wanted:
        [same] = [
            one for one in there if all(one.get(k) == v for k, v in {**row, "order": found[2]}.items() if "±" not in v)
        ]
        assert {name: same[name] for name in row} == row


RESULTS = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
OLD_BACKBONE = "vit_tiny_patch8_64.tiny_imagenet"


def measured_rows() -> list[list[str]]:
    """Data set, method with options, backbone, three measures and the number of seeds, of each row of the page."""
    rows = []
    for mark, dataset in (("CIFAR", "cifar100"), ("CUB", "cub200")):
        table = RESULTS.partition(f"<!-- {mark} -->\n")[2].partition("<!-- end -->")[0]
        for line in table.strip().splitlines()[2:]:
            method, *numbers = cells(line)
            rows.append([dataset, method, OLD_BACKBONE, *numbers])
    for command, *numbers in map(cells, re.findall(r"^\| `prol run .*$", RESULTS, re.MULTILINE)):
        method, dataset, *options = command.removeprefix("prol run ").partition(" --backbone ")[0].split()
        rows.append([dataset, " ".join([method, *options]), command.split()[-1], *numbers, "3"])
    return rows


@pytest.mark.parametrize("dataset", ["cifar100", "cub200", "glyphs"])
def test_every_row_of_the_measured_tables_equals_its_files(dataset: str) -> None:
    rows = [row for row in measured_rows() if row[0] == dataset]
    assert len(rows) >= 5
    configs = {
        folder: json.loads((folder / "config.json").read_text())
        for folder in (ROOT / "results" / dataset).iterdir()
        if (folder / "result.json").is_file()
    }
    for _, named, backbone, *numbers, seeds in rows:
        method, *options = named.split()
        runs = [folder for folder in configs if _is_run_of(configs[folder], method, dataset, options, backbone)]
        assert len(runs) == int(seeds), named
        metrics = [json.loads((folder / "result.json").read_text())["metrics"] for folder in runs]
        for name, number in zip(("faa", "caa", "forgetting"), numbers, strict=True):
            values = [one[name] for one in metrics]
            mean, _, deviation = number.partition(" ± ")
            assert f"{statistics.mean(values):.1f}" == mean, named
            assert not deviation or f"{statistics.stdev(values):.1f}" == deviation, named


def _is_run_of(config: dict[str, Any], method: str, dataset: str, options: list[str], backbone: str) -> bool:
    """Whether a run's resolved options and weights are those of the row."""
    if config["method"] != method or config["backbone"]["sha256"] != find_built_in(backbone).sha256:
        return False
    kind = registry.method(method)
    implied = {"coefficients": dataset} if method == "prol" else {}
    wanted = kind.read_options(implied | dict(pair.split("=") for pair in options))
    return wanted == kind.read_options(config["options"])
