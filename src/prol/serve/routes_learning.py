"""Learning, now or later, and predicting."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import JSONResponse

from prol.serve.bodies import read_json
from prol.serve.lifecycle import Lifecycle
from prol.serve.naming import json_label
from prol.serve.refusals import Refusal
from prol.serve.schemas import LABELS_BODY, Labelled, LabelsGiven, Learnt, Predicted, errors, form_body
from prol.serve.settings import Limits

IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=200,
        pattern="^[!-~]+$",
        description="A request sent again with the same key is not applied again.",
    ),
]


def learning_routes(lifecycle: Lifecycle, limits: Limits, read: list[Any], write: list[Any]) -> APIRouter:
    """`read` and `write` are what the routes depend on."""
    router = APIRouter(default_response_class=JSONResponse)
    labels = {"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 1, "maxItems": limits.images}
    lesson = form_body(limits.images, labels=labels, integers={"type": "string", "enum": ["true", "false"]})

    @router.post(
        "/learn",
        response_model=Learnt,
        responses=errors(401, 409, 415, 507),
        openapi_extra=lesson,
        dependencies=write,
    )
    async def learn(request: Request, key: IdempotencyKey = None) -> JSONResponse:
        """Learns images and their labels as one chunk; answers when that is durable."""
        content_type = request.headers.get("content-type")
        return JSONResponse(await lifecycle.service.learn(await request.body(), content_type, key))

    @router.post(
        "/predict",
        response_model=Predicted,
        responses=errors(401, 415),
        openapi_extra=form_body(limits.images),
        dependencies=read,
    )
    async def predict(request: Request, top: Annotated[int, Query(ge=1, le=100)] = 5) -> JSONResponse:
        """Says what images show, and gives each an id under which its label may follow."""
        content_type = request.headers.get("content-type")
        return JSONResponse(await lifecycle.service.predict(await request.body(), content_type, top))

    @router.post(
        "/labels",
        response_model=Labelled,
        responses=errors(401, 404, 409, 415, 507),
        openapi_extra=LABELS_BODY,
        dependencies=write,
    )
    async def late_labels(request: Request, key: IdempotencyKey = None) -> JSONResponse:
        """Learns images that were predicted before, now that their labels are known."""
        given = (await read_json(request, LabelsGiven)).labels
        if len(given) > limits.images:
            raise Refusal(422, "too_many_images", f"{len(given)} labels in one request: send at most {limits.images}.")
        ids = [one.id for one in given]
        if len(set(ids)) < len(ids):
            raise Refusal(422, "repeated_id", "An id comes twice: each image has one label.")
        names = [json_label(one.label) for one in given]
        return JSONResponse(await lifecycle.service.late_labels(ids, names, key))

    return router
