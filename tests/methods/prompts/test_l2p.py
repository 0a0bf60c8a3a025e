"""L2P: prompts chosen from a pool by key."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import prol
from methods.naive_vit import outputs, tokens_of
from methods.small_streams import changed_rows, pictures, tensors
from prol.backbones import ViT, open_backbone
from prol.methods.prompts.l2p import L2P
from prol.testing import check_learner

KINDS = [0, 1, 2, 3]


def make(vit: ViT, **options: Any) -> L2P:
    given = {"augment": "none", "lr": 0.01, "lr_scaling": False, "picks": 2, "pool": 6, "length": 3, **options}
    learner = prol.create("l2p", vit, **given)
    assert isinstance(learner, L2P)
    return learner


def taught(vit: ViT, **options: Any) -> L2P:
    """Four classes learnt for a few steps, with keys put where the four images choose differently."""
    learner = make(vit, **options)
    learner.boundary(KINDS)
    learner.keys[:4] = queries(learner, KINDS) - queries(learner, KINDS).mean(0)
    for step in range(3):
        learner.learn(pictures(KINDS, step), KINDS)
    return learner


def queries(learner: L2P, kinds: list[int], seed: int = 0) -> Tensor:
    return torch.stack([outputs(learner.backbone, t)[0] for t in tokens_of(learner, pictures(kinds, seed))])


def chosen(learner: L2P, kinds: list[int], seed: int = 0) -> list[list[int]]:
    """The two rows whose keys have the highest cosine, for each image by itself."""
    cosines = F.cosine_similarity(queries(learner, kinds, seed)[:, None], learner.keys[None], dim=-1)
    return [sorted(range(6), key=lambda j, own=own: -own[j])[:2] for own in cosines.tolist()]


def expected_scores(learner: L2P, picks: list[list[int]], seed: int = 0, position: bool = True) -> Tensor:
    """Prompts after the class token, outputs at their places averaged, then the head; one image at a time."""
    place = learner.backbone.model.pos_embed[0, :1] if position else 0
    features = []
    for tokens, rows in zip(tokens_of(learner, pictures(KINDS, seed)), picks, strict=True):
        prompts = learner.prompts[rows].flatten(0, 1) + place
        longer = torch.cat([tokens[:1], prompts, tokens[1:]])
        features.append(outputs(learner.backbone, longer)[1 : 1 + len(prompts)].mean(0))
    weight, bias = tensors(learner)["head/weight"], tensors(learner)["head/bias"]
    return F.linear(torch.stack(features), weight, bias).float()


def test_each_image_is_judged_by_its_own_prompts_outputs(tiny: ViT) -> None:
    learner = taught(tiny)
    picks = chosen(learner, KINDS)
    assert len({tuple(sorted(pick)) for pick in picks}) > 1
    torch.testing.assert_close(learner.predict(pictures(KINDS)), expected_scores(learner, picks), rtol=0, atol=1e-6)


def test_prompts_may_go_without_a_position(tiny: ViT) -> None:
    learner = taught(tiny, prompt_position="none")
    expected = expected_scores(learner, chosen(learner, KINDS), position=False)
    torch.testing.assert_close(learner.predict(pictures(KINDS)), expected, rtol=0, atol=1e-6)


def test_a_batch_vote_is_asked_for_by_name_and_makes_answers_depend_on_the_batch(tiny: ViT) -> None:
    learner = taught(tiny, test_selection="batch_vote")
    votes = Counter(row for pick in chosen(learner, KINDS) for row in pick)
    winners = sorted(votes, key=lambda row: (-votes[row], row))[:2]
    found = learner.predict(pictures(KINDS))
    torch.testing.assert_close(found, expected_scores(learner, [winners] * 4), rtol=0, atol=1e-6)
    alone = torch.cat([learner.predict(pictures(KINDS)[i : i + 1]) for i in range(4)])
    assert (alone - found).abs().max() > 1e-3
    assert learner.exemptions().keys() == {"batch_independence"}
    assert learner.predict_batch == 10
    assert not make(tiny).exemptions()


@pytest.mark.slow
def test_with_a_batch_vote_all_other_promises_hold(tiny: ViT) -> None:
    results = check_learner(prol.create("l2p", tiny, pool=4, picks=2, test_selection="batch_vote"))
    assert [result.name for result in results if result.outcome == "exempt"] == ["batch_independence"]


def test_only_chosen_prompts_and_keys_move(tiny: ViT) -> None:
    learner = taught(tiny)
    learner.boundary([4, 5])
    learner.learn(pictures([4, 5]), [4, 5])  # the head's new rows leave zero
    learner.adam.reset()
    played = {row for pick in chosen(learner, [4, 5], 1) for row in pick}
    before = tensors(learner)
    learner.learn(pictures([4, 5], 1), [4, 5])
    for name in ("prompts", "keys"):
        assert changed_rows(before[name], tensors(learner)[name]) == played


def test_keys_learn_from_the_pull_alone_and_prompts_from_the_cross_entropy_alone(tiny: ViT) -> None:
    still = taught(tiny, pull=0.0)
    before = tensors(still)
    still.learn(pictures(KINDS, 7), KINDS)
    assert torch.equal(tensors(still)["keys"], before["keys"])
    assert not torch.equal(tensors(still)["prompts"], before["prompts"])
    pulled = make(tiny)  # at the very first step the head is zero, so that no prompt matters
    before = tensors(pulled)
    pulled.learn(pictures(KINDS), KINDS)
    assert torch.equal(tensors(pulled)["prompts"], before["prompts"])
    assert not torch.equal(tensors(pulled)["keys"], before["keys"])


def test_the_loss_rewards_the_sum_of_the_chosen_cosines(tiny: ViT) -> None:
    learner = taught(tiny, pull=0.3)
    picks = chosen(learner, KINDS, 5)
    cosines = F.cosine_similarity(queries(learner, KINDS, 5)[:, None], learner.keys[torch.tensor(picks)], dim=-1)
    learner.learn(pictures(KINDS, 5), KINDS)
    r = learner.report()
    assert r["pull"] == pytest.approx(cosines.sum(1).mean().item())
    assert r["total"] == pytest.approx(r["ce"] - 0.3 * r["pull"])


def test_the_pull_brings_keys_nearer(tiny: ViT) -> None:
    learner = make(tiny)
    history = []
    for step in range(6):
        learner.learn(pictures([0, 1], step), [0, 1])
        history.append(learner.report()["pull"])
    assert history[-1] > history[0]


def test_prompts_and_keys_are_drawn_wide_or_small(tiny: ViT) -> None:
    wide, small = make(tiny), make(tiny, init="small")
    for table in (wide.prompts, wide.keys):
        assert table.min() < -0.9
        assert table.max() > 0.9
    for table in (small.prompts, small.keys):
        assert 0 <= table.min() < 0.001
        assert 0.009 < table.max() <= 0.01


def test_new_head_rows_are_zero(tiny: ViT) -> None:
    learner = make(tiny)
    learner.boundary([0, 1])
    assert not learner.predict(pictures([0, 1])).any()


def test_the_count_is_the_papers() -> None:
    base = open_backbone("vit_base_patch16_224", shapes_only=True)
    assert list(L2P(base, L2P.read_options({})).paper_counts(200, 10).values()) == [199_880]


@pytest.mark.parametrize(
    ("options", "says"), [({"picks": 11}, "pool=6"), ({"length": 0}, "length"), ({"pull": -1.0}, "pull")]
)
def test_options_that_make_no_sense_are_refused(tiny: ViT, options: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        make(tiny, **options)
