"""PROL's parameters, counted as the paper counts them and as they are stored."""

from __future__ import annotations

from typing import Any

import pytest

from methods.small_streams import make_prol, pictures, tensors
from prol.backbones import ViT, open_backbone
from prol.learner import Amount
from prol.methods.prol.learner import PROL


@pytest.fixture(scope="module")
def base() -> ViT:
    return open_backbone("vit_base_patch16_224", shapes_only=True)


def counts(backbone: ViT, classes: int, **options: Any) -> tuple[int, int]:
    """Trainable during task 1, and ever trained, for ten tasks."""
    found = PROL(backbone, PROL.read_options(options)).paper_counts(classes, 10)
    first, ever = found.values()
    assert ["task 1" in name for name in found] == [True, False]
    assert ["ever trained" in name for name in found] == [False, True]
    return first, ever


@pytest.mark.parametrize(
    ("classes", "options", "expected"),
    [
        (200, {}, (213_396, 365_640)),
        (200, {"coefficients": "imagenet_r"}, (213_396, 365_640)),
        (200, {"tune_norms": False}, (174_996, 327_240)),
        (200, {"preset": "released"}, (213_396, 365_640)),
    ],
    ids=["default", "imagenet_r", "frozen norms", "released"],
)
def test_imagenet_r_has_the_papers_numbers(
    base: ViT, classes: int, options: dict[str, Any], expected: tuple[int, int]
) -> None:
    assert counts(base, classes, **options) == expected


def test_cifar100_and_cub_have_the_papers_numbers_in_the_first_task(base: ViT) -> None:
    assert counts(base, 100, coefficients="cifar100")[0] == 127_098
    assert counts(base, 200, coefficients="cub200")[0] == 213_588


def test_components_that_are_off_are_not_counted(base: ViT) -> None:
    full = counts(base, 200)[0]
    assert full - counts(base, 200, generator_bias=False)[0] == 120
    assert full - counts(base, 200, generator=False)[0] == 480
    assert full - counts(base, 200, scalers=False)[0] == 4_000
    assert full - counts(base, 200, scalers=False, keys=False)[0] == 157_600
    assert counts(base, 200, head="growing")[1] == 365_640 - 9 * 1_536


def test_the_count_of_the_first_task_is_that_of_a_learner_told_all_classes_of_one_task() -> None:
    learner = make_prol()
    learner.boundary([0, 1, 2, 3])
    learner.learn(pictures([0, 1, 2, 3]), [0, 1, 2, 3])
    first, ever = learner.paper_counts(4, 1).values()
    assert learner.footprint().trained_now.count == first == ever


def test_the_footprint_counts_what_is_stored_and_what_this_task_trains() -> None:
    learner = make_prol()
    learner.boundary([0, 1, 2, 3])
    learner.learn(pictures([0, 1, 2, 3]), [0, 1, 2, 3])
    generator, norms, head_norm = 3 * 2 * 4 * 4, 18 * 64, 2 * 64
    row, head_row = 64 + 2 * 2 * 5, 65
    found = learner.footprint()
    assert found.trained_now.count == generator + norms + head_norm + 4 * (row + head_row)
    assert found.parameters_stored == found.trained_now
    learner.boundary([4, 5])
    learner.learn(pictures([4, 5]), [4, 5])
    found = learner.footprint()
    assert found.parameters_stored.count == generator + norms + 2 * head_norm + 6 * (row + head_row)
    # The generator and old heads are frozen; L_ort still moves old keys, but nothing moves old scalers and shifters.
    assert found.trained_now.count == norms + head_norm + 2 * (row + head_row) + 4 * 64
    assert found.statistics_stored == found.samples_stored == Amount(0, 0)


def test_the_footprint_of_parameters_is_that_of_the_saved_state() -> None:
    learner = make_prol()
    for classes in ([0, 1, 2], [3, 4]):
        learner.boundary(classes)
        learner.learn(pictures(classes), classes)
    stored = [t for name, t in tensors(learner).items() if name.startswith(("source/", "head/", "norm/"))]
    assert learner.footprint().parameters_stored == Amount.of(*stored)


def test_thawed_heads_count_as_trained() -> None:
    frozen, thawed = make_prol(), make_prol(thaw_heads=True)
    for learner in (frozen, thawed):
        for classes in ([0, 1, 2], [3, 4]):
            learner.boundary(classes)
            learner.learn(pictures(classes), classes)
    difference = thawed.footprint().trained_now.count - frozen.footprint().trained_now.count
    assert difference == 3 * 65 + 2 * 64
