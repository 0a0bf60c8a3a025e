"""The method on the page about methods of one's own: whole, checked, and run by its name."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import prol
from docs.pages import DOCS, blocks

PAGE = DOCS / "extending.md"
CODE = [block.text for block in blocks(PAGE) if block.kind == "python"]


def install(folder: Path) -> None:
    """What pip would write: the module, and its entry point as the page has it."""
    (folder / "fading_means.py").write_text(CODE[0])
    [declared] = [block.text for block in blocks(PAGE) if block.kind == "toml"]
    heading, entry = declared.strip().splitlines()
    assert heading == '[project.entry-points."prol.methods"]'
    metadata = folder / "fading_means-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: fading_means\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text("[prol.methods]\n" + entry.replace('"', "") + "\n")


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    install(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "fading_means", raising=False)
    return tmp_path


@pytest.mark.usefixtures("installed")
def test_it_keeps_what_a_learner_promises(tiny) -> None:
    from fading_means import FadingMeans, FadingMeansOptions

    results = prol.check_learner(FadingMeans(tiny, FadingMeansOptions(half_life=20)))
    assert len(results) > 10
    assert {result.outcome for result in results} == {"passed"}


@pytest.mark.slow
@pytest.mark.usefixtures("installed")
def test_the_lines_that_check_it_say_so(capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(CODE[1], str(PAGE), "exec"), {})
    outcomes = [line.split()[-1] for line in capsys.readouterr().out.splitlines()]
    assert set(outcomes) == {"passed"}


@pytest.mark.usefixtures("installed")
def test_its_means_fade_as_the_page_says(tiny) -> None:
    import torch
    from fading_means import FadingMeans, FadingMeansOptions

    learner = FadingMeans(tiny, FadingMeansOptions(half_life=2.0))
    random = torch.Generator().manual_seed(0)
    old, new = (torch.randint(0, 256, (n, 3, 16, 16), dtype=torch.uint8, generator=random) for n in (1, 2))
    learner.learn(old, ["cat"])
    learner.learn(new, ["cat", "cat"])
    expected = learner.fixed_features(old)[0] / 2 + learner.fixed_features(new).sum(0)
    assert torch.allclose(learner.sums.rows[0], expected.double())
    with pytest.raises(ValueError, match="half_life must be above 0"):
        FadingMeansOptions(half_life=0)


def test_its_file_is_short() -> None:
    assert len([line for line in CODE[0].splitlines() if line.strip()]) <= 75
