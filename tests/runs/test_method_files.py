"""Methods in files: run, resumed, compared, swept, saved and loaded by `FILE.py:Class`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import prol
from docs.test_extending import CODE
from prol import registry
from prol.runs import resume, start
from prol.runs.export import audit_folder, export
from runs.small_runs import contents, small_plan
from runs.test_resume import interrupted

FLAGS = ("--tasks", "2", "--limit-per-class", "2", "--threads", "1", "--device", "cpu")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The closed-form method of the page, in a file of its own."""
    path = tmp_path / "naive_bayes.py"
    path.write_text(CODE[0])
    return path


@pytest.fixture
def word(file: Path) -> str:
    return f"{file}:NaiveBayes"


@pytest.fixture
def saved(word: str, tiny, tmp_path: Path) -> Path:
    learner = prol.create(word, tiny, prior_weight=5)
    learner.learn(images(), [0, 1, 2, 3])
    learner.save(tmp_path / "saved")
    return tmp_path / "saved"


def images() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (4, 16, 16, 3), dtype=np.uint8)


def test_a_run_records_the_file_and_its_hash(command, file: Path, word: str, micro_vit: str, tmp_path: Path) -> None:
    words = ("run", word, "digits", "prior_weight=5", "--out", str(tmp_path / "run"))
    code, out, err = command(*words, *FLAGS, "--backbone", micro_vit)
    assert (code, err) == (0, "")
    assert "naive_bayes.NaiveBayes on digits" in out
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (config["method"], config["method_file"]) == ("naive_bayes.NaiveBayes", word)
    assert config["options"]["prior_weight"] == 5
    sha256 = registry.MethodFile.named(word).sha256
    assert config["method_sha256"] == sha256
    meta = json.loads((tmp_path / "run" / "model" / "meta.json").read_text())
    assert (meta["method"], meta["method_file"], meta["method_sha256"]) == (
        "naive_bayes",
        "naive_bayes.py:NaiveBayes",
        sha256,
    )
    assert str(file.parent) not in (tmp_path / "run" / "model" / "meta.json").read_text()
    assert command("show", str(tmp_path / "run")).code == 0


def test_a_run_resumes_bit_for_bit(word: str, micro_vit: str, tmp_path: Path) -> None:
    whole = start(small_plan(micro_vit, word), tmp_path / "whole").path
    stopped = interrupted(small_plan(micro_vit, word), tmp_path / "stopped", 9)
    assert contents(resume(stopped).path) == contents(whole)


@pytest.mark.parametrize("what", ["changed", "gone"])
def test_a_run_whose_file_is_not_what_it_was_does_not_resume(
    what: str, file: Path, word: str, micro_vit: str, tmp_path: Path
) -> None:
    stopped = interrupted(small_plan(micro_vit, word), tmp_path / "stopped", 9)
    ran = file.parent / "ran"
    if what == "gone":
        file.unlink()
    else:
        file.write_text(f"open({str(ran)!r}, 'w')\n" + CODE[0])
    with pytest.raises((ValueError, OSError), match="restore it, or start" if what == "changed" else "no file"):
        resume(stopped)
    assert not ran.exists()
    file.write_text(CODE[0])
    assert resume(stopped).status() == "finished"


def test_the_functions_of_the_package_take_a_file(word: str, micro_vit: str, tmp_path: Path) -> None:
    small = {"tasks": 2, "limit_per_class": 2, "threads": 1, "device": "cpu", "backbone": micro_vit, "progress": False}
    found = prol.run(f"{word}:prior_weight=5", "digits", tmp_path / "run", **small)
    assert found.learner.name == "naive_bayes"
    compared = prol.compare(["ncm", word, f"{word}:prior_weight=5"], "digits", tmp_path / "all", seeds=(0,), **small)
    names = {"ncm", "naive_bayes.NaiveBayes", "naive_bayes.NaiveBayes:prior_weight=5"}
    assert {row.name for row in compared.rows} == names
    assert (tmp_path / "all" / "naive_bayes.NaiveBayes-prior_weight=5-seed0").is_dir()
    again = prol.compare([word], "digits", tmp_path / "all", seeds=(0,), **small)
    assert len(again.rows) == 3  # its run is found there again


def test_a_comparison_with_another_version_of_the_file_is_refused(
    file: Path, word: str, micro_vit: str, tmp_path: Path
) -> None:
    small = {"tasks": 2, "limit_per_class": 2, "threads": 1, "device": "cpu", "backbone": micro_vit, "progress": False}
    prol.compare([word], "digits", tmp_path / "all", seeds=(0,), **small)
    file.write_text(CODE[0] + "\n# another version\n")
    with pytest.raises(ValueError, match="method_sha256"):
        prol.compare([word], "digits", tmp_path / "all", seeds=(0,), **small)


def test_a_sweep_takes_a_file(command, word: str, micro_vit: str, tmp_path: Path) -> None:
    words = ("sweep", word, "ncm", "digits", "--grid", f"{word}.prior_weight=1,5", "--seeds", "0")
    code, out, err = command(*words, "--out", str(tmp_path / "sweep"), *FLAGS, "--backbone", micro_vit)
    assert (code, err) == (0, "")
    assert len(list((tmp_path / "sweep").glob("*/result.json"))) == 3
    assert "prior_weight" in out


def test_options_are_listed(command, word: str) -> None:
    code, out, _ = command("methods", word)
    assert code == 0
    assert "prior_weight" in out
    assert "pooled variance" in out, "the meaning, from the string after the field"


def test_a_saved_learner_executes_its_file_only_where_the_caller_names_it(
    file: Path, word: str, saved: Path, tiny
) -> None:
    with pytest.raises(ValueError, match=r"naive_bayes\.py:NaiveBayes, a file that is executed only if you name it"):
        prol.load(saved, tiny)
    with pytest.raises(ValueError, match="not by the method 'ncm'"):
        prol.load(saved, tiny, method="ncm")
    loaded = prol.load(saved, tiny, method=word)
    assert loaded.options.prior_weight == 5
    moved = file.rename(file.with_name("moved.py"))
    assert torch.equal(prol.load(saved, tiny, method=f"{moved}:NaiveBayes").predict(images()), loaded.predict(images()))
    ran = file.parent / "ran"
    moved.write_text(f"open({str(ran)!r}, 'w')\n" + CODE[0])
    with pytest.raises(ValueError, match="restore the file, or pass the class"):
        prol.load(saved, tiny, method=f"{moved}:NaiveBayes")
    assert not ran.exists()
    assert prol.load(saved, tiny, method=type(loaded)).classes == [0, 1, 2, 3]


def test_a_loaded_learner_is_saved_with_its_file_again(word: str, saved: Path, tiny, tmp_path: Path) -> None:
    prol.load(saved, tiny, method=word).save(tmp_path / "again")
    for name in ("model.safetensors", "meta.json"):
        assert (tmp_path / "again" / name).read_bytes() == (saved / name).read_bytes()
    assert ', method="naive_bayes.py:NaiveBayes")' in (saved / "README.md").read_text()


def test_commands_on_a_saved_learner_take_the_file(word: str, micro_vit: str, tmp_path: Path) -> None:
    run = start(small_plan(micro_vit, word), tmp_path / "run").path
    with pytest.raises(ValueError, match=r"--method PATH/naive_bayes\.py:NaiveBayes"):
        export(run, tmp_path / "exported", print)
    assert export(run, tmp_path / "exported", print, method=word).name == "naive_bayes"
    assert audit_folder(tmp_path / "exported", print, method=word)["keeps_no_samples"]
    stopped = interrupted(small_plan(micro_vit, word), tmp_path / "stopped", 9)
    with pytest.raises(ValueError, match="executed only if you name it"):
        export(stopped, tmp_path / "half", print)
    assert export(stopped, tmp_path / "half", print, method=word).classes


def test_files_from_elsewhere_choose_nothing_to_execute(
    word: str, file: Path, saved: Path, tiny, micro_vit: str, tmp_path: Path
) -> None:
    stopped = interrupted(small_plan(micro_vit, word), tmp_path / "stopped", 9)
    ran = tmp_path / "ran"
    file.write_text(f"open({str(ran)!r}, 'w')\n" + CODE[0])
    for place in (saved / "meta.json", stopped / "config.json"):
        content = json.loads(place.read_text())
        del content["method_sha256"], content["method_file"]
        place.write_text(json.dumps(content | {"method": word}))
    with pytest.raises(ValueError, match="unknown method"):
        prol.load(saved, tiny)
    with pytest.raises(ValueError, match="without its hash"):
        resume(stopped)
    with pytest.raises(ValueError, match="unknown method"):
        export(stopped, tmp_path / "half", print)
    assert not ran.exists()


MISTAKES = {
    "nothing.py:NaiveBayes": "there is no file",
    "naive_bayes.py": "names a file and no class",
    "naive_bayes.py:NaiveBay": "has no class 'NaiveBay'; did you mean 'NaiveBayes'",
    "naive_bayes.py:NaiveBayesOptions": "is not a method: inherit from prol.Learner",
    "naive_bayes.py:torch": "is not a method",
    "broken.py:NaiveBayes": r"cannot be executed \(SyntaxError",
    "failing.py:NaiveBayes": r"cannot be executed \(RuntimeError: not today\)",
    "leaving.py:NaiveBayes": r"cannot be executed \(SystemExit: 3\)",
    "nameless.py:Nameless": "has no name",
}


@pytest.mark.parametrize("given", MISTAKES)
def test_a_mistake_is_named(given: str, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(file.parent)
    Path("broken.py").write_text("class NaiveBayes(:\n")
    Path("failing.py").write_text("raise RuntimeError('not today')\n")
    Path("leaving.py").write_text("raise SystemExit(3)\n")
    Path("nameless.py").write_text("from prol import Learner\nclass Nameless(Learner):\n    pass\n")
    with pytest.raises((ValueError, OSError), match=MISTAKES[given]):
        prol.create(given)


def test_a_service_refuses_a_file(command, word: str, tmp_path: Path) -> None:
    code, _, err = command("serve", str(tmp_path / "service"), "--method", word)
    assert code == 2
    assert "executes no file" in err


def test_a_file_is_executed_once_for_each_content(file: Path, word: str) -> None:
    assert registry.method(word) is registry.method(word)
    before = registry.method(word)
    file.write_text(CODE[0] + "\n# another version\n")
    assert registry.method(word) is not before
