"""PROL+: its scores against Gaussians written out, its random layer and its scale."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from prol.methods.prol_plus.class_covariances import ROUNDING
from prol.methods.prol_plus.mean_shrinkage import LEAST_FREEDOM, LEAST_SIGNAL
from torch import Tensor
from torch.distributions import MultivariateNormal

from methods.prol_plus.small_prol_plus import WHOLE, begin_early, blocks_of, expected_gains, make, predictions, teach
from methods.small_streams import pictures, same_state, tensors
from prol.backbones import ViT
from prol.methods.closed_form.cross_validation import STRENGTHS
from prol.methods.prol_plus import class_covariances
from prol.methods.prol_plus.block_features import Scale
from prol.methods.prol_plus.learner import PROLPlus

TEST = pictures(list(range(6)), seed=7)


@pytest.fixture(autouse=True)
def early(monkeypatch: pytest.MonkeyPatch) -> None:
    begin_early(monkeypatch)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"adapt_steps": 0},
        {"adapt_steps": 3},
        {"class_directions": 0},
        {"features": 0},
        {"blocks": 2},
        {"features": None, "class_directions": None},
        {"class_directions": 1},
        WHOLE,
        {"drift_correction": False},
        {"penalty": 0.01},
    ],
    ids=str,
)
def test_it_knows_the_classes_of_both_tasks(tiny: ViT, options: dict[str, Any]) -> None:
    assert predictions(teach(make(tiny, **options))) == [0, 1, 2, 3, 4, 5]


KINDS = [number % 3 if number < 40 else number % 4 for number in range(60)]
IMAGES = pictures(KINDS)
MUDDLED = pictures([kind if number % 5 > 2 else number * 7 % 5 for number, kind in enumerate(KINDS)])
"""Most of these images are of any kind, whatever their class: the means of classes are mostly noise."""


def taught_plainly(
    vit: ViT, order: list[int], edges: list[int], images: NDArray[np.uint8] = IMAGES, **options: Any
) -> PROLPlus:
    learner = make(vit, adapt_steps=0, **options)
    learner.boundary([0, 1, 2, 3])
    for start, end in pairwise(edges):
        learner.learn(images[order[start:end]], [KINDS[number] for number in order[start:end]])
    return learner


def embedded(learner: PROLPlus, linear: Tensor) -> Tensor:
    random = torch.cos(
        learner.options.bandwidth * (linear @ learner.layer["weight"].double()) + learner.layer["phase"].double()
    )
    return torch.cat([linear, random], dim=1)


def within(x: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Class means, and the covariance within classes."""
    means = torch.stack([x[rows == row].mean(0) for row in range(4)])
    return means, (x - means[rows]).T @ (x - means[rows]) / len(x)


def shrunk(covariance: Tensor, penalty: float, x: Tensor) -> Tensor:
    """With what is added to variances, also for the rounding of features x in float32."""
    added = penalty * covariance.diagonal().mean() + ROUNDING * x.square().mean()
    return covariance + added * torch.eye(len(covariance)).double()


def drawn_in(x: Tensor, rows: Tensor, covariance: Tensor) -> Tensor:
    """Class means as they are believed, half by James and Stein and half by Efron and Morris, where Σ is one."""
    (means, unshrunk), n = within(x, rows), torch.bincount(rows).double().unsqueeze(1)
    dimensions = float(torch.trace(torch.linalg.solve(covariance, unshrunk)))
    noise = dimensions / max(LEAST_FREEDOM, 1 - dimensions / len(x))
    lower, centre = torch.linalg.cholesky(covariance), x.mean(0)
    z = torch.linalg.solve_triangular(lower, (means - centre).T, upper=False).T
    lengths = z.square().sum(1, keepdim=True)
    signal = max(float((lengths - noise / n).clamp(min=0).mean()), LEAST_SIGNAL * float(lengths.mean()))
    left, values, right = torch.linalg.svd(n.sqrt() * z, full_matrices=False)
    shared = left * (values - noise / values.clamp(min=1e-9)).clamp(min=0) @ right / n.sqrt()
    return centre + (z * signal / (signal + noise / n) + shared) / 2 @ lower.T


def compared(scores: Tensor) -> Tensor:
    """With each other: without what all classes share."""
    return scores - scores.mean(1, keepdim=True)


def own_log_ratios(u: Tensor, rows: Tensor, probes: Tensor, trust: float, penalty: float) -> Tensor:
    """log N(u; m, A) - log N(u; m, P) of each class, from its samples, less what is to be expected."""
    means, pooled = within(u, rows)
    pooled, ratios, shares, covariances = shrunk(pooled, penalty, u), [], [], []
    for row in range(4):
        members = u[rows == row] - means[row]
        share = (
            len(members) / (len(members) + trust * u.shape[1]) * len(members) / (len(members) + class_covariances.DOUBT)
        )
        own = share * members.T @ members / len(members) + (1 - share) * pooled
        with_own, without = (MultivariateNormal(means[row], matrix).log_prob(probes) for matrix in (own, pooled))
        ratios.append(with_own - without)
        shares.append(share)
        covariances.append(own)
    counts = torch.bincount(rows, minlength=4).tolist()
    return torch.stack(ratios, dim=1) - torch.tensor(expected_gains(covariances, pooled, shares, counts))


@pytest.mark.parametrize("blocks", [1, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("images", [IMAGES, MUDDLED], ids=["clear", "muddled"])
@pytest.mark.parametrize(
    "options",
    [{"class_directions": 0}, {"class_directions": 6}, {"class_directions": 6, "penalty": 0.07}, WHOLE],
    ids=str,
)
def test_scores_are_log_densities_up_to_what_classes_share(
    tiny: ViT, monkeypatch: pytest.MonkeyPatch, blocks: int, images: NDArray[np.uint8], options: dict[str, Any]
) -> None:
    """The directions of class covariances are those of the first chunk, what they hold comes from the others.

    Where they are all directions, they hold the first chunk too. With the usual doubt, they would hardly matter here.
    """
    begin_early(monkeypatch, enough=20)
    monkeypatch.setattr(class_covariances, "DOUBT", 5)
    options = options | ({"budget_mb": 26} if blocks == 2 and options == WHOLE else {})
    options = {"blocks": blocks, "prior_weight": 0.5, "shrinkage_factor": 0.3} | options
    learner = taught_plainly(tiny, list(range(60)), [0, 20, 45, 60], images, **options)
    width, own = 2 * blocks * tiny.width, learner.widths.own
    assert own == (width if options["class_directions"] is None else options["class_directions"])
    taps, rows = list(range(tiny.depth - blocks, tiny.depth)), torch.tensor(KINDS)
    scale = Scale.of(blocks_of(tiny, images[:20], taps), tiny.tap_widths[-blocks:])
    linear, probes = (scale.apply(blocks_of(tiny, some, taps)) for some in (images, TEST))
    penalty = options.get("penalty", 0.3 * STRENGTHS[learner.strength])
    phi = embedded(learner, linear)
    means, covariance = within(phi, rows)
    shared = shrunk(covariance, penalty, phi)

    def log_densities(means: Tensor) -> Tensor:
        gaussians = [MultivariateNormal(mean, shared) for mean in means]
        return torch.stack([gaussian.log_prob(embedded(learner, probes)) for gaussian in gaussians], dim=1)

    expected, plain = (compared(log_densities(at)) for at in (drawn_in(phi, rows, shared), means))
    assert (expected - plain).std() > (0.5 if images is MUDDLED else 0.003) * expected.std()
    if own:
        begun = 0 if own == width else 20
        to_u = torch.linalg.svd(linear[:20] - linear[:20].mean(0))[2][:own].T
        ratios = own_log_ratios(linear[begun:] @ to_u, rows[begun:], probes @ to_u, 0.5, penalty)
        assert ratios.std() > 0.005 * expected.std()
        expected = compared(expected + ratios)
    found = compared(learner.predict(TEST).double())
    torch.testing.assert_close(found, expected, rtol=2e-4, atol=1e-4 * float(expected.abs().max()))


def test_the_random_layer_is_normal_over_the_root_of_its_inputs(tiny: ViT) -> None:
    learner = make(tiny, features=2000)
    assert float(learner.layer["weight"].std()) == pytest.approx((2 * tiny.width) ** -0.5, rel=0.01)
    assert float(learner.layer["weight"].mean()) == pytest.approx(0, abs=1e-3)
    assert 0 <= float(learner.layer["phase"].min()) < 0.1
    assert 2 * math.pi - 0.1 < float(learner.layer["phase"].max()) <= 2 * math.pi


def test_the_random_layer_is_redrawn_from_the_seed_and_not_stored(tiny: ViT) -> None:
    learner = teach(make(tiny, seed=3))
    assert all(tensor.shape != learner.layer["weight"].shape for tensor in tensors(learner).values())
    assert not torch.equal(make(tiny, seed=8).layer["weight"], learner.layer["weight"])
    twin = make(tiny, seed=8)
    twin.load_state(*learner.state())
    assert torch.equal(twin.predict(TEST), learner.predict(TEST))
    assert same_state(twin, learner)


@pytest.mark.parametrize("adapt_steps", [0, 200])
@pytest.mark.parametrize("blocks", [1, 2])
@pytest.mark.parametrize("count", [1, 4, 5, 9])
def test_the_first_chunk_alone_sets_the_scale(tiny: ViT, adapt_steps: int, blocks: int, count: int) -> None:
    """As the untouched backbone sees it, also where it is being tuned; of a few images, only by blocks."""
    learner = make(tiny, adapt_steps=adapt_steps, adapt_lr=0.1, blocks=blocks)
    learner.learn(IMAGES[:count], KINDS[:count])
    taps = list(range(tiny.depth - blocks, tiny.depth))
    expected = Scale.of(blocks_of(tiny, IMAGES[:count], taps).float(), tiny.tap_widths[-blocks:])
    assert learner.scale is not None
    torch.testing.assert_close(learner.scale.mean, expected.mean)
    torch.testing.assert_close(learner.scale.inverse, expected.inverse)
    assert len(learner.scale.mean.unique()) == blocks or count >= 5
    before = learner.scale
    teach(learner, steps=2)
    assert learner.scale is before


@pytest.mark.parametrize("options", [{}, WHOLE], ids=["some directions", "all directions"])
@given(cuts=st.sets(st.integers(13, 29), max_size=5), order=st.permutations(range(12, 30)))
@settings(max_examples=8, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_after_the_first_chunk_neither_chunks_nor_their_order_matter(
    tiny: ViT, options: dict[str, Any], cuts: set[int], order: list[int]
) -> None:
    first = list(range(12))
    whole = taught_plainly(tiny, list(range(30)), [0, 12, 30], **options)
    parts = taught_plainly(tiny, first + order, [0, 12, *sorted(cuts), 30], **options)
    expected = whole.predict(TEST)[:, :3]
    limit = 1e-3 * float(expected.abs().max())
    torch.testing.assert_close(parts.predict(TEST)[:, :3], expected, rtol=1e-3, atol=limit)


def test_one_image_chunks_give_the_same_statistics(tiny: ViT) -> None:
    whole = taught_plainly(tiny, list(range(60)), [0, 1, 12, 60])
    single = taught_plainly(tiny, list(range(60)), list(range(61)))
    assert single.seen == whole.seen == 60
    for name, tensor in tensors(whole).items():
        torch.testing.assert_close(tensors(single)[name], tensor, rtol=1e-4, atol=1e-4)
    assert predictions(single)[:4] == [0, 1, 2, 3]
