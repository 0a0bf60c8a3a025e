"""Settings of the service: limits on requests, and the learner to serve."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MIB = 2**20


@dataclass(frozen=True)
class Limits:
    """Upper limits on everything that a client can demand.

    Args:
        body_bytes: bytes of one request.
        body_seconds: seconds in which a request must have arrived.
        header_seconds: seconds in which its headers must have arrived, from the first byte or the connection on.
        connections: open connections in all; fewer if the system allows fewer open files.
        connections_per_address: open connections from one address. A proxy has one address.
        images: images in one request.
        pixels: pixels of one image, read from its header before it is decoded.
        request_pixels: pixels of all images of one request.
        memory_bytes: bytes of all requests in progress together, encoded and decoded.
        queue: requests that wait to be learnt.
        rate: requests per second from one client; unlimited by default.
        pending_images: images that wait for a late label.
        pending_bytes: bytes of these images.
        pending_seconds: seconds for which they wait.
        keys: idempotency keys that are remembered.
        learners: learners of a service with several.
        loaded_bytes: memory of those of them that are loaded.
    """

    body_bytes: int = 64 * MIB
    body_seconds: float = 60.0
    header_seconds: float = 10.0
    connections: int = 512
    connections_per_address: int = 128
    images: int = 256
    pixels: int = 25_000_000
    request_pixels: int = 100_000_000
    memory_bytes: int = 1024 * MIB
    queue: int = 64
    rate: float | None = None
    pending_images: int = 10_000
    pending_bytes: int = 256 * MIB
    pending_seconds: float = 600.0
    keys: int = 10_000
    learners: int = 1000
    loaded_bytes: int = 1024 * MIB

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value is not None and not (value > 0 and math.isfinite(value)):
                raise ValueError(f"{field.name} must be above 0, got {value}")


@dataclass(frozen=True)
class ServeOptions:
    """The learner to serve; `method`, `options` and `seed` apply to a new learner only.

    With `journal` false, each commit writes the whole state.
    """

    method: str | None = None
    backbone: str | None = None
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    seed: int = 0
    device: str = "auto"
    checkpoints: int = 2
    journal: bool = True

    def __post_init__(self) -> None:
        if self.checkpoints < 2:
            raise ValueError(f"checkpoints must be at least 2, so that one may be damaged, got {self.checkpoints}")
