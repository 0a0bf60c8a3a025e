from __future__ import annotations

import pytest
import torch

from methods.every_method import EXEMPT, METHODS, VARIANTS, WITH_MEMORY, cases, make
from prol.backbones import ViT
from prol.learner import Learner
from prol.testing import CheckResult, check_learner
from prol.testing.learner_checks import CHECKS
from prol.testing.stream import STREAM, teach
from testing.broken_learners import BROKEN, CentresTheBatch, WaitsForAnnouncements
from testing.colour_means import ColourMeans, ColourOptions, colour_means

LONG = ("mos", "finetune", "convprompt", "ease", "lae", "coda_prompt", "dualprompt", "l2p", "head_only", "logreg")
"""Methods whose checks take longest; they share their parts with methods that the fast tests check."""
FAST = [name for name in METHODS if name not in LONG]


@pytest.mark.parametrize("variant", cases((name for name in VARIANTS if name not in WITH_MEMORY), FAST))
def test_every_method_keeps_its_promises(variant: str) -> None:
    results = check_learner(make(variant, torch.float32))
    assert [result.name for result in results] == list(CHECKS)
    assert {result.name for result in results if result.outcome == "exempt"} == EXEMPT.get(variant, set())


def test_a_sound_learner_passes_every_check_and_is_not_changed(tiny: ViT) -> None:
    learner = colour_means(tiny)
    results = check_learner(learner)
    assert results == [CheckResult(name, "passed") for name in CHECKS]
    assert learner.classes == []
    assert learner.steps == 0


def test_a_function_that_makes_learners_will_do(tiny: ViT) -> None:
    assert len(check_learner(lambda: colour_means(tiny, seed=3))) == len(CHECKS)


@pytest.mark.parametrize(("broken", "check"), BROKEN.items(), ids=lambda value: getattr(value, "__name__", value))
def test_a_broken_promise_is_found_and_named(tiny: ViT, broken: type[Learner], check: str) -> None:
    with pytest.raises(AssertionError, match=f"check {check} failed: "):
        check_learner(broken(tiny, ColourOptions()))


def test_there_is_a_broken_learner_for_every_check() -> None:
    assert set(BROKEN.values()) == set(CHECKS)


def test_an_exempt_check_is_named_with_its_reason(tiny: ViT) -> None:
    class Exempt(CentresTheBatch):
        def exemptions(self) -> dict[str, str]:
            return {"batch_independence": "centres the scores of a batch"}

    results = check_learner(Exempt(tiny, ColourOptions()))
    assert CheckResult("batch_independence", "exempt", "centres the scores of a batch") in results
    assert sum(result.outcome == "passed" for result in results) == len(CHECKS) - 1


def test_a_learner_that_needs_announcements_is_checked_with_them(tiny: ViT) -> None:
    class Exempt(WaitsForAnnouncements):
        def exemptions(self) -> dict[str, str]:
            return {"classes_need_no_announcement": "rows are made when announced"}

    results = check_learner(Exempt(tiny, ColourOptions()))
    assert sum(result.outcome == "passed" for result in results) == len(CHECKS) - 1


def test_an_exemption_from_an_unknown_check_is_refused(tiny: ViT) -> None:
    class Mistaken(ColourMeans):
        def exemptions(self) -> dict[str, str]:
            return {"batch_size": "a slip"}

    with pytest.raises(ValueError, match="unknown check 'batch_size'"):
        check_learner(Mistaken(tiny, ColourOptions()))


def test_a_learner_that_has_learnt_is_refused(tiny: ViT) -> None:
    with pytest.raises(ValueError, match="has learnt nothing"):
        check_learner(teach(colour_means(tiny), STREAM[:1]))


def test_an_error_of_the_learner_itself_counts_as_a_failed_check(tiny: ViT) -> None:
    class Crashes(ColourMeans):
        def learn_pixels(self, pixels: list, rows: torch.Tensor) -> None:
            raise RuntimeError(f"no memory for {len(pixels)} images and {len(rows)} rows")

    with pytest.raises(AssertionError, match="check save_and_load failed: RuntimeError: no memory"):
        check_learner(Crashes(tiny, ColourOptions()))
