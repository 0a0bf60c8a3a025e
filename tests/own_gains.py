"""What a class may expect of a covariance of its own, class by class in plain numbers."""

from __future__ import annotations

from torch import Tensor
from torch.distributions import MultivariateNormal, kl_divergence


def expected_gains(own: list[Tensor], pooled: Tensor, shares: list[float], counts: list[int]) -> list[float]:
    """For covariances A of classes with so many samples, which weigh so much in them, and P `[K, K]` of all."""
    width = len(pooled)
    zero = pooled.new_zeros(width)
    apart = [float(kl_divergence(MultivariateNormal(zero, a), MultivariateNormal(zero, pooled))) for a in own]
    rows = list(zip(apart, shares, counts, strict=True))
    differ = sum((4 * kl / a**2 - width**2 / n) * n * a**2 for kl, a, n in rows) / sum(n * a**2 for _, a, n in rows)
    differ = max(0.0, differ)
    return [max(0.0, a * differ / 2 - a**2 * (differ + width**2 / n) / 4) for _, a, n in rows]
