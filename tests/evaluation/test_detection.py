from __future__ import annotations

import pytest
import torch
from sklearn.metrics import roc_auc_score, roc_curve

from prol.evaluation.detection import auroc, fpr_at_tpr


@pytest.mark.parametrize("levels", [4, 1000])
def test_both_are_those_of_scikit_learn(levels: int) -> None:
    """Four levels are mostly ties."""
    random = torch.Generator().manual_seed(levels)
    unknown = torch.rand(300, generator=random) < 0.3
    scores = ((torch.rand(300, generator=random) + 0.4 * unknown) * levels).floor()
    false, true, _ = roc_curve(unknown.numpy(), scores.numpy(), drop_intermediate=False)
    assert auroc(scores, unknown) == pytest.approx(roc_auc_score(unknown.numpy(), scores.numpy()))
    for share in (0.5, 0.95, 1.0):
        assert fpr_at_tpr(scores, unknown, share) == pytest.approx(false[true >= share][0])


def test_images_of_both_kinds_are_needed() -> None:
    for measure in (auroc, fpr_at_tpr):
        with pytest.raises(ValueError, match="both images of known and of unknown classes"):
            measure(torch.rand(3), torch.ones(3, dtype=torch.bool))
