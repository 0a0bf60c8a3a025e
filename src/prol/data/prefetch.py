"""Loads batches ahead of their use, in threads, and yields them in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from prol.data.base import Loaded, Split


def prefetched(
    split: Split, batches: Iterable[NDArray[np.int64]], workers: int, most_bytes: int = 1 << 29
) -> Generator[Loaded, None, None]:
    """The loaded batches of a split; the same ones in the same order for any number of workers.

    Decoders release the GIL, so threads load concurrently and share memory. At most twice as many batches as workers
    are taken from `batches` and loaded ahead, fewer if decoded images are large. Closing the generator, or an error,
    waits for the batches being loaded and leaves no thread behind.

    Args:
        split: the images; its `load` must be thread-safe.
        batches: image indices of each batch, taken one by one, in the caller's thread.
        workers: the number of threads. 0 loads each batch when it is requested, in the caller's thread.
        most_bytes: approximate limit on the bytes of decoded images that wait, estimated from the largest batch so far;
            one batch may always wait.

    >>> from prol.data.base import ArraySplit
    >>> four = ArraySplit(np.zeros((4, 2, 2, 3), np.uint8), np.zeros(4, np.int64))
    >>> [loaded.indices.tolist() for loaded in prefetched(four, [np.array([3, 0]), np.array([1])], workers=2)]
    [[3, 0], [1]]
    """
    if workers < 0:
        raise ValueError(f"workers must be 0 or more, got {workers}")
    if most_bytes < 0:
        raise ValueError(f"most_bytes must be 0 or more, got {most_bytes}")
    return _ahead(split, batches, workers, most_bytes) if workers else (split.load(batch) for batch in batches)


def _ahead(
    split: Split, batches: Iterable[NDArray[np.int64]], workers: int, most_bytes: int
) -> Generator[Loaded, None, None]:
    source = iter(batches)
    waiting: deque[Future[Loaded]] = deque()
    most, largest = 1, 1  # the size of batches is known only after the first
    pool = ThreadPoolExecutor(workers, thread_name_prefix="prol-prefetch")
    try:
        more = _submit(pool, split, source, waiting)
        while waiting:
            first = waiting.popleft()
            while more and len(waiting) < most:
                more = _submit(pool, split, source, waiting)
            loaded = first.result()
            largest = max(largest, sum(image.nbytes for image in loaded.images))
            most = max(1, min(2 * workers, most_bytes // largest))
            del first  # it holds the images too
            yield loaded
            del loaded  # or they would stay in memory while the next ones are awaited
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _submit(
    pool: ThreadPoolExecutor, split: Split, source: Iterator[NDArray[np.int64]], waiting: deque[Future[Loaded]]
) -> bool:
    """Submits the next batch; False if there is none."""
    try:
        batch = next(source)
    except StopIteration:
        return False
    except Exception as error:
        # Raised in its turn, after the batches before it, as without threads.
        waiting.append(Future())
        waiting[-1].set_exception(error)
        return False
    waiting.append(pool.submit(split.load, batch))
    return True
