"""Threads that predict, decode and export, and turns for those that learn: several services may share them."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from typing import Self

import torch

from prol.serve.batches import MAX_IMAGES

THREADS = 2
"""That predict, and as many that decode training images: more would compete with learning for cores and memory."""
SHARED_IMAGES = 64
"""Images of a batch at most where learners take turns: the next one should not wait long for its own."""


class Turns:
    """Lets so many threads proceed at a time, in the order in which they came.

    >>> turns = Turns(1)
    >>> with turns:
    ...     pass
    """

    def __init__(self, at_once: int) -> None:
        self._at_once, self._tickets, self._ended = at_once, 0, 0
        self._changed = threading.Condition()

    def __enter__(self) -> Self:
        with self._changed:
            ticket = self._tickets
            self._tickets += 1
            self._changed.wait_for(lambda: ticket < self._ended + self._at_once)
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._ended += 1
            self._changed.notify_all()


class Workers:
    """What services need of the processor.

    Args:
        device: where the backbone is.
        learning: batches that are learnt at a time; without a limit by default, as one service has one writer.
        solving: snapshots that are made at a time, likewise.
    """

    def __init__(self, device: torch.device, learning: int | None = None, solving: int | None = None) -> None:
        # CUDA graphs must not be captured while another thread uses the device. On a CPU threads run side by side.
        self.device_lock: AbstractContextManager[object] = threading.Lock() if device.type == "cuda" else nullcontext()
        self.batch_images = MAX_IMAGES if learning is None else SHARED_IMAGES
        self.learning: AbstractContextManager[object] = nullcontext() if learning is None else Turns(learning)
        self.solving: AbstractContextManager[object] = nullcontext() if solving is None else Turns(solving)
        # Two pools, so that no prediction waits behind training images that are being decoded.
        self.predicting = ThreadPoolExecutor(THREADS, thread_name_prefix="prol-predict")
        self.decoding = ThreadPoolExecutor(THREADS, thread_name_prefix="prol-decode")
        self.exporting = ThreadPoolExecutor(THREADS, thread_name_prefix="prol-export")

    def stop(self) -> None:
        for pool in (self.exporting, self.predicting, self.decoding):
            pool.shutdown()
