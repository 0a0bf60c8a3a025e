"""The application of a service with several learners: the routes of one below `/v1/NAME`, and those that manage them.

Each learner has tokens, limits and counters of its own, so an `Admission` of its own stands before the routes. They are
the same routes as those of a single learner; the service that they use is the one of the request at hand.
"""

from __future__ import annotations

import re
from contextlib import AsyncExitStack
from contextvars import ContextVar
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, PlainTextResponse
from starlette.types import Message, Receive, Scope, Send

from prol.serve.app import HEADERS, bearers, learner_app, put_together
from prol.serve.errors import RequestError
from prol.serve.learners import Learners
from prol.serve.middleware import Admission
from prol.serve.monitoring import METRICS_TYPE, Family, family, of_requests
from prol.serve.routes import health_routes, page_routes
from prol.serve.schemas import Created, Deleted, Listed, NewLearnerBody, NewTokensBody, errors, json_body, read_json
from prol.serve.security import AccessControl, RateLimiter, path_of, required_right
from prol.serve.service import Lifecycle, Service

_LEARNER_PATH = re.compile(r"(?s:/v1/([^/]*)/.*)")

_present: ContextVar[Service] = ContextVar("service")


class _Present(Lifecycle):
    """Leads to the service of the learner that the request at hand names."""

    def __init__(self, whole: Lifecycle) -> None:
        self._whole = whole

    @property
    def service(self) -> Service:
        if (unavailable := self.unavailable()) is not None:
            raise unavailable
        return _present.get()

    def unavailable(self) -> RequestError | None:
        return self._whole.unavailable()


class SeveralApp:
    """Sends each request to the learner that its path names, or to the routes that manage learners."""

    def __init__(self, learners: Learners) -> None:
        self._learners = learners
        secured, rate = learners.tokens.required, learners.limits.rate
        self._of_learners = learner_app(_Present(learners.lifecycle), learners.limits, secured)
        administrator = bearers()[1] if secured else []
        routers = [
            _managing_routes(learners, administrator),
            health_routes(learners.lifecycle),
            page_routes("several.html"),
        ]
        self._rate = None if rate is None else RateLimiter(rate)
        self._managing = self._admission(put_together(routers))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = _LEARNER_PATH.fullmatch(scope["path"])
        if found is None:
            await self._managing(scope, receive, send)
            return
        scope["root_path"] = f"/v1/{found[1]}"
        await self._admission(_Loading(self._learners, found[1], self._of_learners), found[1])(scope, receive, send)

    def _admission(self, app: Any, name: str = "") -> Admission:
        """Of a learner, or of the managing routes. Without the right token unknown names are refused as others are."""
        whole, entry = self._learners, self._learners.find(name)
        tokens, rate, limits, activity = whole.tokens, self._rate, whole.limits, whole.activity
        if entry is not None:
            tokens, rate, limits, activity = entry.tokens, entry.rate, entry.limits, entry.activity
        access = AccessControl(whole.lifecycle, tokens, rate)
        return Admission(app, access=access, limits=limits, budget=whole.budget, activity=activity, headers=HEADERS)


class _Loading:
    """Loads a learner for a request, and has it stay until the response begins: that may be read slowly."""

    def __init__(self, learners: Learners, name: str, app: Any) -> None:
        self._learners, self._name, self._app = learners, name, app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if required_right(scope["method"], path_of(scope)) == "none":  # the page needs no learner
            await self._app(scope, receive, send)
            return
        async with AsyncExitStack() as using:

            async def release_and_send(message: Message) -> None:
                await using.aclose()
                await send(message)

            try:
                service = await using.enter_async_context(self._learners.use(self._name))
            except RequestError as error:
                scope["activity"].count_refusal(error.code)
                await JSONResponse(error.content(), error.status, error.headers)(scope, receive, send)
                return
            _present.set(service)
            await self._app(scope, receive, release_and_send)


def _managing_routes(learners: Learners, administrator: list[Any]) -> APIRouter:
    router = APIRouter()

    @router.get("/v1", response_model=Listed, responses=errors(401), dependencies=administrator)
    async def listed() -> dict[str, Any]:
        """All learners, by name."""
        rows = [
            {"name": one.name, "method": one.method, "loaded": one.service is not None, "bytes": one.bytes}
            for _, one in sorted(learners.entries.items())
            if not one.is_going
        ]
        return {"backbone": learners.backbone_name, "learners": rows}

    @router.post(
        "/v1",
        status_code=201,
        response_model=Created,
        responses=errors(401, 409, 415, 507),
        openapi_extra=json_body(NewLearnerBody),
        dependencies=administrator,
    )
    async def create(request: Request) -> dict[str, Any]:
        """Creates a learner. Its tokens are in this response alone."""
        return await learners.create(await read_json(request, NewLearnerBody))

    @router.patch(
        "/v1/{name}",
        response_model=Created,
        responses=errors(401, 404, 409, 415, 507),
        openapi_extra=json_body(NewTokensBody),
        dependencies=administrator,
    )
    async def renew(request: Request, name: str) -> dict[str, Any]:
        """Gives a learner new tokens; the ones it had are refused from then on."""
        await read_json(request, NewTokensBody)
        return await learners.renew_tokens(name)

    @router.delete("/v1/{name}", response_model=Deleted, responses=errors(401, 404, 507), dependencies=administrator)
    async def delete(name: str) -> dict[str, Any]:
        """Deletes a learner with all of its files, after the requests for it that are in progress."""
        await learners.delete(name)
        return {"deleted": name}

    @router.get("/metrics", response_class=PlainTextResponse, responses=errors(401), dependencies=administrator)
    async def metrics() -> PlainTextResponse:
        """Metrics in Prometheus' text format; those of a learner are below its name."""
        return PlainTextResponse(_metrics(learners), media_type=METRICS_TYPE)

    return router


def _metrics(learners: Learners) -> str:
    loaded = learners.loaded()
    own: list[Family] = [
        ("learners", "gauge", "Learners of the folder.", len(learners.entries)),
        ("learners_loaded", "gauge", "Learners that are loaded.", len(loaded)),
        ("loaded_bytes", "gauge", "Memory they are estimated to take.", sum(entry.memory for entry in loaded)),
        ("loads_total", "counter", "Learners loaded.", learners.loads),
        ("load_seconds_total", "counter", "Time spent on loading.", learners.load_seconds),
        ("written_out_total", "counter", "Learners written out because memory was short.", learners.written_out),
    ]
    return "".join(family(*one) for one in [*of_requests(learners.activity), *own])
