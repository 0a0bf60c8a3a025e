from __future__ import annotations

import json
from pathlib import Path

import pytest

from prol.cli.sweep import sort_words


def few_digits(vit: str) -> tuple[str, ...]:
    return ("--backbone", vit, "--device", "cpu", "--tasks", "2", "--limit-per-class", "3", "--threads", "1")


def test_the_best_settings_are_printed_and_written(command, micro_vit: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    asked = ("sweep", "ncm", "head_only", "digits", "--grid", "head_only.lr=0.1,1", "--seeds", "0", "--out", str(out))
    asked += ("--development", *few_digits(micro_vit))
    code, text, errors = command(*asked, "--dry-run")
    assert (code, errors) == (0, "")
    assert text.count("not begun  ") == 3
    assert f"3 runs in {out}: 0 finished, 0 to resume, 3 to start" in text.replace("\n", " ")
    assert not out.exists()
    code, text, errors = command(*asked)
    assert (code, errors) == (0, "")
    assert "finished (3 of 3 runs)" in text
    assert "forgetting seeds tried" in " ".join(text.split())
    assert "test images: such a choice" not in text
    content = json.loads((out / "sweep.json").read_text())
    assert {one["method"] for one in content["best"]} == {"ncm", "head_only"}
    assert content["chosen_on"] == "development split"
    assert "prol compare ncm head_only:lr=" in (out / "sweep.md").read_text()
    code, text, errors = command(*asked, "--dry-run")
    assert "3 finished, 0 to resume, 0 to start" in text


def test_a_file_and_flags_together_make_a_sweep(command, micro_vit: str, tmp_path: Path) -> None:
    file = tmp_path / "sweep.toml"
    file.write_text(
        "methods = ['head_only', 'ncm']\ndatasets = ['digits']\nseeds = [0, 1]\n"
        f"[grid]\nlr = [1e308, 0.1]\n[settings]\nbackbone = '{micro_vit}'\ndevice = 'cpu'\ntasks = 2\n"
    )
    asked = ("sweep", "--file", str(file), "--out", str(tmp_path / "out"), "--limit-per-class", "3", "--threads", "1")
    assert "6 runs in" in command(*asked, "--dry-run").out
    code, text, errors = command(*asked, "head_only", "--seeds", "4")
    assert code == 1
    assert errors.startswith("prol: head_only-lr=1e+308-digits-")
    assert "the loss is not finite" in errors
    assert "(2 of 2 runs)" in text
    assert "Chosen on the test images" in text


def test_flags_replace_what_the_file_says(command, tmp_path: Path) -> None:
    file = tmp_path / "sweep.toml"
    file.write_text(
        "methods = ['ncm']\ndatasets = ['cifar100']\nseeds = [0]\n[grid]\nchunk = [10, 20]\n"
        "[settings]\ndevelopment = true\ntasks = 2\n[data]\ncifar100 = '/nowhere'\n"
    )
    out = str(tmp_path / "out")
    asked = ("sweep", "--file", str(file), "digits", "--out", out, "--dry-run")
    assert command(*asked).out.count("development=true") == 2
    code, text, errors = command(*asked, "--chunk", "5", "--no-development", "--grid", "tasks=2,5")
    assert (code, errors) == (0, "")
    assert text.count("ncm-digits-chunk=5,tasks=") == 2
    assert "development" not in text
    assert "tasks=5" in text


def test_axes_of_a_file_go_with_what_flags_replace(command, tmp_path: Path) -> None:
    file = tmp_path / "sweep.toml"
    file.write_text(
        "methods = ['prol', 'head_only']\ndatasets = ['digits']\nseeds = [0]\n"
        "[grid]\nprol.length = [2, 3]\nhead_only.lr = [0.01, 0.1]\nprotocol.minor = [5, 10]\n"
        "[settings]\nprotocol = 'blurry'\n"
    )
    asked = ("sweep", "--file", str(file), "--out", str(tmp_path / "out"), "--dry-run")
    assert "8 runs in" in command(*asked).out
    text = command(*asked, "head_only", "--grid", "lr=0.5", "--protocol", "disjoint").out
    assert "head_only-lr=0.5-digits-seed0" in text
    assert "1 runs in" in text
    assert "8 runs in" in command(*asked, "prol", "head_only", "digits", "--protocol", "blurry").out
    file.write_text("methods = ['ncm']\ndatasets = ['digits']\n[grid]\nprool.length = [2, 3]\n")
    assert "'prool' is no method of this sweep" in command(*asked).err


def test_axes_of_a_file_stay_while_somebody_has_them(command, tmp_path: Path) -> None:
    file = tmp_path / "sweep.toml"
    file.write_text(
        "methods = ['prol', 'ncm']\ndatasets = ['generated', 'digits']\nseeds = [0]\n"
        "[grid]\nlength = [2, 3]\ndata.side = [8, 16]\n"
    )
    asked = ("sweep", "--file", str(file), "--out", str(tmp_path / "out"), "--dry-run")
    assert "9 runs in" in command(*asked).out
    assert "2 runs in" in command(*asked, "ncm", "generated").out, "length goes with prol, which alone has it"
    assert "4 runs in" in command(*asked, "prol", "generated").out
    assert "1 runs in" in command(*asked, "ncm", "digits").out, "side goes with the data that have it"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "a sweep needs at least one method, one data set and one seed"),
        (("ncm", "digit"), "'digit' is neither a method nor a data set; did you mean 'digits'?"),
        (("nmc:x=1", "digits"), "did you mean 'ncm'?"),
        (("ncm", "digits", "--grid", "lr=0.1"), "nothing in this sweep has 'lr' to try"),
        (("prol", "digits", "--grid", "lr"), "'lr' is not an axis"),
        (("prol:lr=1", "ncm", "digits", "--grid", "lr=2"), "each method that has it gives it after its colon"),
        (("prol", "digits", "--grid", "lr=1", "--grid", "lr=2"), "--grid lr is given twice"),
        (("prol:lenght=3", "digits"), "did you mean 'length'?"),
        (("ncm", "digits", "glyphs", "--data", "x"), "there are several data sets"),
        (("ncm", "--data", "x"), "no data set is named; `prol datasets` lists them"),
        (("ncm", "digits", "--grid", "class_order=label,lable"), "unknown class_order 'lable'"),
        (("ncm", "digits", "--grid", "precision=float32,float16"), "precision 'float16' is not known"),
        (("ncm", "digits", "--grid", "backbone=builtin,builtout"), "builtout"),
        (("ncm", "digits", "--backbone", "vit_tiny_patch16_224@random:x"), "take a whole number as seed, got 'x'"),
        (("ncm", "digits", "--chunk", "5", "--grid", "chunk=5,10"), "chunk is given as 5 and to be tried"),
        (("ncm", "digits", "--seeds", "a"), "is not a list of whole numbers"),
        (("ncm", "digits", "--executor", "slurm"), "executor 'slurm' is not known: use local or ray"),
        (("ncm", "digits", "--gpus-per-run", "0.5"), "--gpus-per-run is for --executor ray"),
        (("ncm", "digits", "--executor", "ray", "--gpus-per-run", "1.5"), "a fraction of one or a whole number"),
        (("ncm", "digits", "--jobs", "0"), "jobs must be at least 1, got 0"),
        (("ncm", "folder", "--data", "nowhere"), "nowhere"),
        (("ncm", "digits", "--file", "none.toml"), "none.toml does not exist"),
    ],
)
def test_a_mistake_is_told_in_one_line_before_anything_runs(
    command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    code, text, errors = command("sweep", *arguments)
    assert (code, text, errors.count("\n")) == (2, "", 1)
    assert message in errors
    assert list(tmp_path.iterdir()) == []


def test_words_are_told_apart_by_their_names() -> None:
    assert sort_words(["digits", "prol:lr=1", "ncm", "glyphs"]) == (["prol:lr=1", "ncm"], ["digits", "glyphs"])
