"""The FastAPI application: routes, error responses and middleware, put together."""

from __future__ import annotations

import logging
from typing import Any

from fastapi import APIRouter, FastAPI, Security
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.security import HTTPBearer
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.routing import Match, Route

from prol import __version__
from prol.serve.errors import RequestError
from prol.serve.middleware import Admission
from prol.serve.monitoring import Activity
from prol.serve.routes import (
    class_routes,
    export_routes,
    health_routes,
    learning_routes,
    page_routes,
    status_routes,
)
from prol.serve.security import AccessControl, RateLimiter, Tokens
from prol.serve.service import Lifecycle
from prol.serve.settings import Limits
from prol.serve.uploads import MemoryBudget

HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
}
_HTTP_ERRORS = {
    404: ("not_found", "There is no such route: /openapi.json lists all routes."),
    405: ("method_not_allowed", "This route does not accept the method: /openapi.json lists those it accepts."),
}


def create_app(
    lifecycle: Lifecycle, limits: Limits, tokens: Tokens, activity: Activity, budget: MemoryBudget
) -> FastAPI:
    """The application of a service with one learner."""
    app = learner_app(lifecycle, limits, secured=tokens.required)
    access = AccessControl(lifecycle, tokens, None if limits.rate is None else RateLimiter(limits.rate))
    app.add_middleware(Admission, access=access, limits=limits, budget=budget, activity=activity, headers=HEADERS)
    return app


def learner_app(lifecycle: Lifecycle, limits: Limits, secured: bool) -> FastAPI:
    """The routes of one learner, behind which `Admission` must stand."""
    read, write = bearers() if secured else ([], [])
    return put_together(
        [
            learning_routes(lifecycle, limits, read, write),
            class_routes(lifecycle, read, write),
            status_routes(lifecycle, read),
            health_routes(lifecycle),
            export_routes(lifecycle, read),
            page_routes("index.html"),
        ]
    )


def put_together(routers: list[APIRouter]) -> FastAPI:
    """An application of these routes, with the error responses that all of them share."""
    app = FastAPI(
        title="prol",
        version=__version__,
        description="Learns an image classifier from a stream, stores no sample, and predicts at any moment.",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    for router in routers:
        app.include_router(router)

    @app.exception_handler(RequestError)
    async def refused(request: Request, error: RequestError) -> JSONResponse:
        _activity(request).count_refusal(error.code)
        if error.code not in ("starting", "stopping"):  # health checks repeat these
            _activity(request).add_event("refused", error.message)
        return _response(error)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        place = " ".join(str(part) for part in first["loc"])
        message = f"The request does not fit at {place}: {first['msg']}."
        return await refused(request, RequestError(422, "invalid", message))

    @app.exception_handler(HTTPException)
    async def failed(request: Request, error: HTTPException) -> JSONResponse:
        default = ("bad_request", f"The request cannot be read: {error.detail}.")
        found = RequestError(error.status_code, *_HTTP_ERRORS.get(error.status_code, default))
        if error.status_code == 405:
            found.headers["Allow"] = ", ".join(_methods(routers, request))
        _activity(request).count_refusal(found.code)
        return _response(found)

    @app.exception_handler(Exception)
    async def unexpected(_: Request, error: Exception) -> JSONResponse:
        logging.getLogger("prol").error("a request has failed", exc_info=error)
        return _response(RequestError(500, "internal", "An unexpected error occurred: the log says more."))

    return app


def _activity(request: Request) -> Activity:
    """That of the learner, if there are several; `Admission` has put it there."""
    activity: Activity = request.scope["activity"]
    return activity


def _methods(routers: list[APIRouter], request: Request) -> list[str]:
    """The methods that any route accepts at the path of a request."""
    found = {
        method
        for router in routers
        for route in router.routes
        if isinstance(route, Route) and route.matches(request.scope)[0] is not Match.NONE
        for method in route.methods or ()
    }
    return sorted(found)


def bearers() -> tuple[list[Any], list[Any]]:
    """Describe the tokens for OpenAPI; `AccessControl` checks them."""
    read = HTTPBearer(scheme_name="read", description="The read or the write token.", auto_error=False)
    write = HTTPBearer(scheme_name="write", description="The write token.", auto_error=False)
    return [Security(read)], [Security(write)]


def _response(error: RequestError) -> JSONResponse:
    return JSONResponse(error.content(), error.status, error.headers)
