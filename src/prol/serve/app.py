"""The HTTP application: routes, what is told of errors, and the layer at the entrance."""

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
from prol.serve.budget import Budget
from prol.serve.entrance import Entrance
from prol.serve.guard import Guard
from prol.serve.journal import Journal
from prol.serve.lifecycle import Lifecycle
from prol.serve.rate import Rate
from prol.serve.refusals import Refusal
from prol.serve.routes_classes import class_routes
from prol.serve.routes_learning import learning_routes
from prol.serve.routes_page import page_routes
from prol.serve.routes_status import status_routes
from prol.serve.settings import Limits
from prol.serve.tokens import Tokens

_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
}
_WORDS = {
    404: ("not_found", "There is no such route: /openapi.json lists those there are."),
    405: ("method_not_allowed", "This route takes other methods: /openapi.json lists them."),
}


def create_app(lifecycle: Lifecycle, limits: Limits, tokens: Tokens, journal: Journal, budget: Budget) -> FastAPI:
    app = FastAPI(
        title="prol",
        version=__version__,
        description="Learns an image classifier from a stream, keeps no sample, and can be asked at any moment.",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    read, write = _bearers() if tokens.needed else ([], [])
    routers = [
        learning_routes(lifecycle, limits, read, write),
        class_routes(lifecycle, read, write),
        status_routes(lifecycle, read),
        page_routes(),
    ]
    for router in routers:
        app.include_router(router)

    @app.exception_handler(Refusal)
    async def refused(_: Request, refusal: Refusal) -> JSONResponse:
        journal.count_refusal(refusal.code)
        if refusal.code not in ("starting", "stopping"):  # asked again and again by whoever watches over it
            journal.note("refused", refusal.message)
        return _told(refusal)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        place = " ".join(str(part) for part in first["loc"])
        return await refused(request, Refusal(422, "invalid", f"The request does not fit at {place}: {first['msg']}."))

    @app.exception_handler(HTTPException)
    async def failed(request: Request, error: HTTPException) -> JSONResponse:
        code, message = _WORDS.get(error.status_code, ("bad_request", f"The request cannot be read: {error.detail}."))
        refusal = Refusal(error.status_code, code, message)
        if error.status_code == 405:
            refusal.headers["Allow"] = ", ".join(_methods(routers, request))
        journal.count_refusal(refusal.code)
        return _told(refusal)

    @app.exception_handler(Exception)
    async def unforeseen(_: Request, error: Exception) -> JSONResponse:
        logging.getLogger("prol").error("a request has failed", exc_info=error)
        return _told(Refusal(500, "internal", "Something went wrong that should not have: the log says more."))

    guard = Guard(lifecycle, tokens, None if limits.rate is None else Rate(limits.rate))
    app.add_middleware(Entrance, guard=guard, limits=limits, budget=budget, journal=journal, headers=_HEADERS)
    return app


def _methods(routers: list[APIRouter], request: Request) -> list[str]:
    """Those that any route takes at the path of a request."""
    found = {
        method
        for router in routers
        for route in router.routes
        if isinstance(route, Route) and route.matches(request.scope)[0] is not Match.NONE
        for method in route.methods or ()
    }
    return sorted(found)


def _bearers() -> tuple[list[Any], list[Any]]:
    """What tells OpenAPI of the tokens; the guard at the entrance does the checking."""
    read = HTTPBearer(scheme_name="read", description="The read or the write token.", auto_error=False)
    write = HTTPBearer(scheme_name="write", description="The write token.", auto_error=False)
    return [Security(read)], [Security(write)]


def _told(refusal: Refusal) -> JSONResponse:
    return JSONResponse(refusal.content(), refusal.status, refusal.headers)
