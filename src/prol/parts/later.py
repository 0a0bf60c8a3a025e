"""Numbers that a device is still computing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor


class Later(Mapping[str, float]):
    """Numbers by name, which are waited for when one is first read.

    From a GPU they are copied to the host behind the work under way, whatever becomes of `values` `[K]` afterwards.
    """

    def __init__(self, names: Sequence[str], values: Tensor) -> None:
        self._names = tuple(names)
        self._numbers: dict[str, float] | None = None
        self._on_host, self._copied = values, None
        if values.is_cuda:
            self._on_host = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
            self._on_host.copy_(values, non_blocking=True)
            self._copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._copied.record(torch.cuda.current_stream(values.device))

    @property
    def ready(self) -> bool:
        """Whether reading would not have to wait."""
        return self._numbers is not None or self._copied is None or bool(self._copied.query())  # type: ignore[no-untyped-call]

    def _read(self) -> dict[str, float]:
        if self._numbers is None:
            if self._copied is not None:
                self._copied.synchronize()
            self._numbers = dict(zip(self._names, self._on_host.tolist(), strict=True))
            self._on_host, self._copied = torch.empty(0), None  # memory that a GPU copies to is scarce
        return self._numbers

    def __getitem__(self, name: str) -> float:
        return self._read()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __repr__(self) -> str:
        return repr(self._read())
