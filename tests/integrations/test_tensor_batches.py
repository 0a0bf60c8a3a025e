from __future__ import annotations

import math

import pytest
import torch
from torchvision.transforms.functional import to_tensor

from prol.integrations.tensor_batches import by_label, to_uint8


def test_what_to_tensor_made_of_bytes_becomes_these_bytes_again() -> None:
    images = torch.arange(256, dtype=torch.uint8).view(1, 1, 16, 16)
    made = to_tensor(images[0].movedim(0, -1).numpy()).unsqueeze(0)
    assert made.dtype == torch.float32
    assert torch.equal(to_uint8(made), images)
    assert to_uint8(images) is images


@pytest.mark.parametrize(
    ("value", "says"),
    [(-0.1, "leave out Normalize"), (1.1, "leave out Normalize"), (math.nan, "from 0 to 1"), (3, "uint8, or floats")],
)
def test_other_images_are_refused(value: float, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        to_uint8(torch.tensor([[[[value]]]]))


@pytest.mark.parametrize("name", ["cat", 3, -1])
def test_classes_that_are_no_column_are_refused(name: str | int) -> None:
    with pytest.raises(ValueError, match="no number from 0 to 2"):
        by_label(torch.zeros(1, 2), [0, name], 3, absent=0.0)
