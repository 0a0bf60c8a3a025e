"""How the service is, for its page, for Prometheus and for whoever watches over it."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse, PlainTextResponse

from prol.serve.lifecycle import Lifecycle
from prol.serve.metrics import CONTENT_TYPE, metrics
from prol.serve.schemas import Status, errors
from prol.serve.status import status


def status_routes(lifecycle: Lifecycle, read: list[Any]) -> APIRouter:
    """`read` is what the routes depend on that tell of the learner."""
    router = APIRouter(default_response_class=JSONResponse)

    @router.get("/status", response_model=Status, responses=errors(401), dependencies=read)
    async def tell_status() -> JSONResponse:
        """All that the page shows."""
        return JSONResponse(status(lifecycle.service))

    @router.get("/metrics", response_class=PlainTextResponse, responses=errors(401), dependencies=read)
    async def tell_metrics() -> PlainTextResponse:
        """Numbers in Prometheus' text format."""
        return PlainTextResponse(metrics(lifecycle.service), media_type=CONTENT_TYPE)

    @router.get("/healthz", responses={403: errors()[403]})
    async def healthy() -> JSONResponse:
        """200 while the process is alive."""
        return JSONResponse({"alive": True})

    @router.get("/readyz", responses={403: errors()[403], 503: errors()[503]})
    async def ready() -> JSONResponse:
        """200 while requests are served."""
        refusal = lifecycle.refusal()
        if refusal is not None:
            raise refusal
        return JSONResponse({"ready": True})

    return router
