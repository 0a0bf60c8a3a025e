"""LayUP against ridge regression on the class tokens of all images at once."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import prol
from methods.small_streams import pictures
from prol.backbones import Network, Preprocessing, ViT, evaluation_input
from prol.methods.closed_form.layup import LARGEST, SHARE, STRENGTHS, LayUP, cross_validated
from prol.methods.closed_form.moments import Totals

KINDS = [0, 1, 2, 0, 1, 0, 2, 3, 1, 0, 3, 2]
IMAGES = pictures(KINDS)
TEST = pictures([0, 1, 2, 3], seed=7)


def taught(vit: ViT, **options: object) -> LayUP:
    learner = prol.create("layup", vit, **options)
    assert isinstance(learner, LayUP)
    for start in range(0, 12, 5):
        learner.learn(IMAGES[start : start + 5], KINDS[start : start + 5])
    return learner


def class_tokens(vit: ViT, images: object, blocks: int) -> Tensor:
    """Behind each of the last blocks, by the network's own blocks one after the other."""
    inputs = evaluation_input(vit.read(images), vit.preprocessing, torch.device("cpu"), torch.float64)
    tokens, found = vit.embed(inputs), []
    for block in vit.model.blocks:
        tokens = block(tokens)
        found.append(tokens[:, 0])
    return torch.cat(found[-blocks:], dim=1)


@pytest.mark.parametrize("blocks", [1, 2, 99])
def test_scores_are_those_of_ridge_regression_to_one_hot_targets(tiny: ViT, blocks: int) -> None:
    learner, read = taught(tiny, blocks=blocks, ridge=0.5), min(blocks, tiny.depth)
    x, y = class_tokens(tiny, IMAGES, read), torch.nn.functional.one_hot(torch.tensor(KINDS)).double()
    stacked = torch.cat([x, 0.5**0.5 * torch.eye(x.shape[1]).double()])
    weight = torch.linalg.lstsq(stacked, torch.cat([y, torch.zeros(x.shape[1], 4).double()])).solution
    expected = class_tokens(tiny, TEST, read) @ weight
    torch.testing.assert_close(learner.predict(TEST), expected.float(), rtol=1e-5, atol=1e-5)
    assert learner.predict(TEST).argmax(1).tolist() == [0, 1, 2, 3]


def test_the_ridge_is_a_tenth_of_the_one_with_the_least_error_and_never_above_the_mean_square(tiny: ViT) -> None:
    x, rows = class_tokens(tiny, IMAGES, tiny.depth), torch.tensor(KINDS)
    totals = Totals.of(x, rows, 4)
    unit = float(x.square().sum(0).mean())
    tried = [strength for strength in STRENGTHS if SHARE * strength <= LARGEST]
    errors = [cross_validated(totals, strength * unit) for strength in tried]
    best = SHARE * tried[errors.index(min(errors))] * unit
    torch.testing.assert_close(taught(tiny).predict(TEST), taught(tiny, ridge=best).predict(TEST), rtol=1e-5, atol=1e-6)
    once = prol.create("layup", tiny)
    once.learn(IMAGES[[0, 1, 2]], [0, 1, 2])  # nothing to judge by: every strength above the largest one is worse
    assert once.predict(TEST[:3]).argmax(1).tolist() == [0, 1, 2]


def test_of_other_networks_the_last_stages_are_read() -> None:
    import timm

    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = timm.create_model("test_resnet.r160_in1k", num_classes=0)
    network = Network(model.double(), name="r", sha256="r", preprocessing=Preprocessing(size=32), precision="float64")
    learner = prol.create("layup", network, blocks=2)
    learner.learn(IMAGES, KINDS)
    inputs = evaluation_input(network.read(TEST), network.preprocessing, torch.device("cpu"), torch.float64)
    torch.testing.assert_close(learner.encode_images(TEST), network.tapped(inputs, 2)[1])
    assert learner.familiarity(TEST) is not None
    assert learner.predict(TEST).argmax(1).tolist() == [0, 1, 2, 3]


def test_cross_validation_is_the_formula_on_samples(tiny: ViT) -> None:
    x, rows = class_tokens(tiny, IMAGES, 1), torch.tensor(KINDS)
    y = torch.nn.functional.one_hot(rows).double()
    for penalty in (5.0, 50.0, 500.0):
        hat = x @ torch.linalg.inv(x.T @ x + penalty * torch.eye(x.shape[1]).double()) @ x.T
        expected = float((y - hat @ y).square().sum()) / (1 - float(hat.trace()) / 12) ** 2
        found = cross_validated(Totals.of(x, rows, 4), penalty)
        assert found == pytest.approx(expected, rel=1e-4)
