"""Cross entropies and which classes compete in them; the clip against torch's."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from prol.engine import losses
from prol.engine.losses import Mask, allowed_classes, masked_cross_entropy


def test_intra_task_ignores_the_logits_of_older_tasks() -> None:
    logits = torch.randn(3, 6, generator=torch.Generator().manual_seed(0))
    rows = torch.tensor([4, 5, 4])
    changed = logits.clone()
    changed[:, :4] = 100.0
    own = torch.arange(6) >= 4
    assert torch.equal(losses.intra_task(logits, rows, own), losses.intra_task(changed, rows, own))
    torch.testing.assert_close(losses.intra_task(logits, rows, own), F.cross_entropy(logits[:, 4:], rows - 4))
    assert losses.inter_task(changed, rows) > losses.inter_task(logits, rows) + 10


@pytest.mark.parametrize("limit", [0.1, 1.0, 1e3])
def test_the_clip_is_torchs_clip_over_all_gradients_together(limit: float) -> None:
    random = torch.Generator().manual_seed(0)
    gradients = {
        name: torch.randn(shape, generator=random, dtype=torch.float64)
        for name, shape in {"a": (3, 4), "b": (5,), "c": ()}.items()
    }
    parameters = []
    for gradient in gradients.values():
        parameters.append(torch.zeros_like(gradient, requires_grad=True))
        parameters[-1].grad = gradient.clone()
    before = {name: gradient.clone() for name, gradient in gradients.items()}
    torch.nn.utils.clip_grad_norm_(parameters, limit)
    clipped = losses.clip_together(gradients, limit)
    assert list(clipped) == list(gradients)
    for found, parameter in zip(clipped.values(), parameters, strict=True):
        torch.testing.assert_close(found, parameter.grad, rtol=1e-12, atol=0)
    assert all(torch.equal(gradients[name], before[name]) for name in gradients)


def test_the_clip_counts_a_row_that_comes_twice_by_the_sum_of_its_gradients() -> None:
    table = torch.randn(4, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    whole = torch.stack([table[0] + table[2] + table[3], table[1]])
    expected = losses.clip_together({"table": whole}, 0.1)["table"]
    found = losses.clip_together({"table": table}, 0.1, {"table": torch.tensor([5, 2, 5, 5])})["table"]
    torch.testing.assert_close(torch.stack([found[0] + found[2] + found[3], found[1]]), expected)


# Which classes compete


def allowed(mask: Mask, rows: list[int], first_row: int = 4, classes: int = 7) -> set[int]:
    found = allowed_classes(mask, torch.tensor(rows), first_row, classes)
    assert found.shape == (classes,)
    assert found.dtype == torch.bool
    return set(found.nonzero().flatten().tolist())


def test_the_task_mask_allows_the_tasks_classes_present_or_not() -> None:
    assert allowed("task", [5, 5]) == {4, 5, 6}
    assert allowed("task", [0, 1], first_row=0) == set(range(7))


def test_the_batch_mask_allows_what_is_in_the_chunk() -> None:
    assert allowed("batch", [5, 6, 5, 2]) == {2, 5, 6}


def test_without_a_mask_every_class_met_competes() -> None:
    assert allowed("seen", [5]) == set(range(7))


@pytest.mark.parametrize("mask", ["task", "batch", "seen"])
def test_a_samples_own_class_is_always_allowed(mask: Mask) -> None:
    assert {1, 5} <= allowed(mask, [1, 5])


def test_a_class_that_comes_again_joins_the_task_and_no_other_old_class_does() -> None:
    assert allowed("task", [1, 5]) == {1, 4, 5, 6}


def test_the_loss_is_the_cross_entropy_over_the_allowed_columns() -> None:
    logits, rows = torch.randn(3, 7, generator=torch.Generator().manual_seed(0)), torch.tensor([4, 6, 5])
    found = masked_cross_entropy(logits, rows, allowed_classes("task", rows, 4, 7))
    torch.testing.assert_close(found, F.cross_entropy(logits[:, 4:], rows - 4))


def test_columns_outside_get_no_gradient_at_all() -> None:
    logits, rows = torch.zeros(3, 7, requires_grad=True), torch.tensor([4, 6, 5])
    masked_cross_entropy(logits, rows, allowed_classes("task", rows, 4, 7)).backward()
    assert logits.grad is not None
    assert torch.equal(logits.grad[:, :4], torch.zeros(3, 4))
    assert (logits.grad[:, 4:] != 0).all()


def test_a_chunk_of_one_class_teaches_nothing_under_the_batch_mask() -> None:
    logits, rows = torch.ones(2, 7, requires_grad=True), torch.tensor([5, 5])
    loss = masked_cross_entropy(logits, rows, allowed_classes("batch", rows, 4, 7))
    loss.backward()
    assert loss == 0
    assert logits.grad is not None
    assert not logits.grad.any()
