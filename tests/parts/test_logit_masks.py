"""Which classes compete in a step."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from prol.engine.losses import Mask, allowed_classes, masked_cross_entropy


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
