"""Whether the service is being opened, at work, or stopping."""

from __future__ import annotations

from prol.serve.refusals import Refusal, starting, stopping
from prol.serve.service import Service


class Lifecycle:
    """The service once there is one, and what those are told who come too early or too late."""

    def __init__(self) -> None:
        self._service: Service | None = None
        self.is_stopping = False

    def opened(self, service: Service) -> None:
        self._service = service

    @property
    def service(self) -> Service:
        """Raises the refusal where there is none to be had."""
        refusal = self.refusal()
        if refusal is not None or self._service is None:
            raise refusal or starting()
        return self._service

    def refusal(self) -> Refusal | None:
        if self.is_stopping:
            return stopping()
        return starting() if self._service is None else None
