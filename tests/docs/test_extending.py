"""The methods on the page about methods of one's own: whole, short, checked, and run by their names."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import prol
from docs.pages import DOCS, blocks
from methods.small_streams import pictures
from prol import registry
from prol.learner import Learner

PAGE = DOCS / "extending.md"
CODE = [block.text for block in blocks(PAGE) if block.kind == "python"]
LINES = {"naive_bayes": 45, "prefix_tuning": 100}
"""The modules in the order of the page, and how many lines each may have."""


def install(folder: Path) -> None:
    """What pip would write: the modules, and their entry points as the page has them."""
    for name, text in zip(LINES, CODE, strict=False):
        (folder / f"{name}.py").write_text(text)
    [declared] = [block.text for block in blocks(PAGE) if block.kind == "toml"]
    heading, *entries = declared.strip().splitlines()
    assert heading == '[project.entry-points."prol.methods"]'
    metadata = folder / "mine-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text("\n".join(["[prol.methods]", *entries]).replace('"', "") + "\n")


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    install(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in LINES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


@pytest.fixture
def learner(method: str, installed: Path, tiny) -> Learner:  # noqa: ARG001
    options = {"lr": 0.5, "augment": "none"} if method == "prefix_tuning" else {}
    return registry.method(method)(tiny, registry.method(method).read_options(options))


def teach(learner: Learner, classes: range, steps: int = 3) -> np.ndarray:
    images = pictures([*classes, *classes], seed=1)
    for _ in range(steps):
        learner.learn(images, [*classes, *classes])
    return images


@pytest.mark.parametrize("method", LINES)
def test_its_file_is_short(method: str) -> None:
    code = CODE[list(LINES).index(method)]
    assert f'name, family, citation = "{method}"' in code or f'name = "{method}"' in code
    assert len(code.splitlines()) <= LINES[method]


@pytest.mark.parametrize("method", LINES)
def test_it_does_what_a_learner_promises(learner: Learner) -> None:
    results = prol.check_learner(learner)
    assert len(results) > 10
    assert {result.outcome for result in results} == {"passed"}


@pytest.mark.parametrize("method", LINES)
def test_it_learns_and_resumes_from_a_file(learner: Learner, tmp_path: Path) -> None:
    images = teach(learner, range(4), steps=20)
    assert learner.predict(images).argmax(1).tolist() == [*range(4), *range(4)]
    learner.save(tmp_path / "saved")
    loaded = prol.load(tmp_path / "saved", backbone=learner.backbone)
    assert torch.equal(loaded.predict(images), learner.predict(images))
    for one in (learner, loaded):
        teach(one, range(6), steps=1)
    assert torch.equal(loaded.predict(images), learner.predict(images))


@pytest.mark.parametrize("method", ["naive_bayes"])
def test_sums_forget_exactly_and_add_up(learner: Learner) -> None:
    images = teach(learner, range(4), steps=1)
    without = learner.clone()
    removal = without.remove_class(3)
    expected = type(learner)(learner.backbone, learner.options)
    expected.learn(images[[0, 1, 2, 4, 5, 6]], [0, 1, 2, 0, 1, 2])
    assert removal.exact
    assert without.classes == [0, 1, 2]
    assert torch.allclose(without.predict(images), expected.predict(images), rtol=1e-4)
    unlearnt = learner.clone()
    assert unlearnt.unlearn(images[[3, 7]], [3, 3]).exact
    assert torch.allclose(unlearnt.predict(images), expected.predict(images), rtol=1e-4)
    other = type(learner)(learner.backbone, learner.options)
    other.learn(images[[3, 7]], [3, 3])
    assert torch.allclose(prol.merge([expected, other]).predict(images), learner.predict(images), rtol=1e-4)


@pytest.mark.parametrize("method", ["naive_bayes"])
def test_scores_are_log_densities_with_variances_between_class_and_pool(learner: Learner) -> None:
    images = teach(learner, range(3), steps=1)
    features, weight = learner.encode_images(images).double(), learner.options.prior_weight
    by_class = [features[[c, c + 3]] for c in range(3)]
    spreads = torch.stack([(own - own.mean(0)).square().sum(0) for own in by_class])
    pooled = spreads.sum(0) / 6 + 1e-6
    expected = torch.stack(
        [
            torch.distributions.Normal(own.mean(0), ((spread + weight * pooled) / (2 + weight)).sqrt())
            .log_prob(features)
            .sum(1)
            for own, spread in zip(by_class, spreads, strict=True)
        ],
        dim=1,
    )
    constant = features.shape[1] / 2 * np.log(2 * np.pi)
    assert torch.allclose(learner.predict(images).double(), expected + constant, rtol=1e-4)


@pytest.mark.parametrize("method", ["prefix_tuning"])
def test_a_removed_class_leaves_the_prefix_as_the_page_says(learner: Learner) -> None:
    images, before = teach(learner, range(4)), learner.state()[0]["prefix"]
    fresh = type(learner)(learner.backbone, learner.options)
    assert not torch.equal(before, fresh.state()[0]["prefix"])
    removal = learner.remove_class(1)
    assert "the prefix, which all classes share, was trained with it" in removal.remains
    assert torch.equal(learner.state()[0]["prefix"], before)
    assert learner.predict(images).shape == (8, 3)


@pytest.mark.slow
@pytest.mark.usefixtures("installed")
def test_the_lines_that_check_it_say_so(capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(CODE[2], str(PAGE), "exec"), {})
    outcomes = [line.split()[-1] for line in capsys.readouterr().out.splitlines()]
    assert set(outcomes) == {"passed"}
