"""The routes: they read parameters, call the service and describe themselves for OpenAPI. Errors are raised."""

from __future__ import annotations

from importlib.resources import files
from typing import Annotated, Any

from fastapi import APIRouter, Header, Path, Query, Request, Response
from fastapi.responses import PlainTextResponse, StreamingResponse
from starlette.convertors import StringConvertor, register_url_convertor

from prol.serve.errors import RequestError
from prol.serve.exports import Form
from prol.serve.jobs import Merge, Remove, Rename
from prol.serve.monitoring import METRICS_TYPE, metrics, status
from prol.serve.schemas import (
    MAX_LENGTH,
    Classes,
    IdsBody,
    Labelled,
    LateLabelsBody,
    Learnt,
    MergeBody,
    Predicted,
    PredictedAgain,
    Removed,
    RenameBody,
    Renamed,
    Status,
    Undone,
    checked_label,
    errors,
    form_body,
    json_body,
    read_json,
    text_label,
)
from prol.serve.service import Lifecycle
from prol.serve.settings import Limits

_MEDIA_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
_DOWNLOADS: dict[Form, str] = {"zip": "application/zip", "onnx": "application/octet-stream"}


class _AnyText(StringConvertor):
    """Class names may contain any character, slashes and line breaks included."""

    regex = "(?s:.*)"


register_url_convertor("name", _AnyText())

Result = dict[str, Any]
ClassName = Annotated[str, Path(min_length=1, max_length=MAX_LENGTH, description="The class, percent-encoded.")]
Integer = Annotated[bool, Query(description="Whether the name is an integer.")]
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
    """Learning, predicting, late labels and undoing; `read` and `write` are the security dependencies of the routes."""
    router = APIRouter()

    @router.post(
        "/learn",
        response_model=Learnt,
        responses=errors(401, 409, 415, 507),
        openapi_extra=form_body(limits.images, labels=True),
        dependencies=write,
    )
    async def learn(request: Request, key: IdempotencyKey = None) -> Result:
        """Learns images and their labels as one chunk; responds when that is durable."""
        return await lifecycle.service.learn(await request.body(), request.headers.get("content-type"), key)

    @router.post(
        "/predict",
        response_model=Predicted,
        responses=errors(401, 415),
        openapi_extra=form_body(limits.images),
        dependencies=read,
    )
    async def predict(request: Request, top: Annotated[int, Query(ge=1, le=100)] = 5) -> Result:
        """Predicts the labels of images, and assigns each image an id under which its true label may follow."""
        return await lifecycle.service.predict(await request.body(), request.headers.get("content-type"), top)

    @router.post(
        "/predict/again",
        response_model=PredictedAgain,
        responses=errors(401, 415),
        openapi_extra=json_body(IdsBody),
        dependencies=read,
    )
    async def predict_again(request: Request, top: Annotated[int, Query(ge=1, le=100)] = 5) -> Result:
        """Predicts images that were predicted before once more, under the same ids, without their being sent again."""
        ids = (await read_json(request, IdsBody)).ids
        _require_distinct(ids, lifecycle.service.limits)
        return await lifecycle.service.predict_again(ids, top)

    @router.post(
        "/labels",
        response_model=Labelled,
        responses=errors(401, 404, 409, 415, 507),
        openapi_extra=json_body(LateLabelsBody),
        dependencies=write,
    )
    async def late_labels(request: Request, key: IdempotencyKey = None) -> Result:
        """Learns images that were predicted before, now that their labels are known."""
        given = (await read_json(request, LateLabelsBody)).labels
        ids = [one.id for one in given]
        _require_distinct(ids, lifecycle.service.limits)
        return await lifecycle.service.late_labels(ids, [checked_label(one.label) for one in given], key)

    @router.post("/undo", response_model=Undone, responses=errors(401, 409, 507), dependencies=write)
    async def undo(key: IdempotencyKey = None) -> Result:
        """Undoes the last chunk that was learnt; responds when that is durable."""
        return await lifecycle.service.undo(key)

    return router


def _require_distinct(ids: list[str], limits: Limits) -> None:
    if len(ids) > limits.images:
        message = f"{len(ids)} ids in one request: send at most {limits.images}."
        raise RequestError(422, "too_many_images", message)
    if len(set(ids)) < len(ids):
        raise RequestError(422, "repeated_id", "An id occurs twice: name each image once.")


def export_routes(lifecycle: Lifecycle, read: list[Any]) -> APIRouter:
    """The learner as a file."""
    router = APIRouter()

    async def download(form: Form) -> StreamingResponse:
        made = await lifecycle.service.export(form)
        headers = {"Content-Disposition": f'attachment; filename="{made.name}"', "Content-Length": str(made.size)}
        return StreamingResponse(made.pieces(), media_type=_DOWNLOADS[form], headers=headers)

    @router.get("/export", response_class=StreamingResponse, responses=_download("zip"), dependencies=read)
    async def export() -> StreamingResponse:
        """An archive of the saved learner, in its last committed state; `prol.load` reads the folder in it."""
        return await download("zip")

    @router.get("/onnx", response_class=StreamingResponse, responses=_download("onnx"), dependencies=read)
    async def onnx() -> StreamingResponse:
        """The learner as an ONNX model, with the weights of its backbone. It takes up to minutes."""
        return await download("onnx")

    return router


def _download(form: Form) -> dict[int | str, dict[str, Any]]:
    content = {_DOWNLOADS[form]: {"schema": {"type": "string", "format": "binary"}}}
    return {200: {"content": content}, **errors(401, 409, 501, 507)}


def class_routes(lifecycle: Lifecycle, read: list[Any], write: list[Any]) -> APIRouter:
    """Listing, renaming, merging and removing classes."""
    router = APIRouter()

    @router.get("/classes", response_model=Classes, responses=errors(401), dependencies=read)
    async def classes() -> Result:
        """All classes in the order they were first seen, with the number of images where the method counts them."""
        committed = lifecycle.service.writer.committed
        counts = committed.counts or (None,) * len(committed.classes)
        listed = [{"label": label, "count": count} for label, count in zip(committed.classes, counts, strict=True)]
        return {"version": committed.version, "classes": listed}

    @router.delete("/classes/{name:name}", response_model=Removed, responses=errors(401, 404, 507), dependencies=write)
    async def remove(name: ClassName, integer: Integer = False) -> Result:
        """Removes a class, and says what of it is erased and what remains."""
        return await lifecycle.service.submit(Remove(text_label(name, integer)))

    @router.patch(
        "/classes/{name:name}",
        response_model=Renamed,
        responses=errors(401, 404, 409, 415, 507),
        openapi_extra=json_body(RenameBody),
        dependencies=write,
    )
    async def rename(request: Request, name: ClassName, integer: Integer = False) -> Result:
        """Renames a class."""
        new = checked_label((await read_json(request, RenameBody)).label)
        service = lifecycle.service
        return await service.submit(Rename(text_label(name, integer), new, service.pending))

    @router.post(
        "/classes/{name:name}/merge",
        response_model=Removed,
        responses=errors(401, 404, 415, 507),
        openapi_extra=json_body(MergeBody),
        dependencies=write,
    )
    async def merge(request: Request, name: ClassName, integer: Integer = False) -> Result:
        """Merges a class into another one."""
        into = checked_label((await read_json(request, MergeBody)).into)
        service = lifecycle.service
        return await service.submit(Merge(text_label(name, integer), into, service.pending))

    return router


def status_routes(lifecycle: Lifecycle, read: list[Any]) -> APIRouter:
    """Status, for the page and for Prometheus."""
    router = APIRouter()

    @router.get("/status", response_model=Status, responses=errors(401), dependencies=read)
    async def get_status() -> Result:
        """Everything the page shows."""
        return status(lifecycle.service)

    @router.get("/metrics", response_class=PlainTextResponse, responses=errors(401), dependencies=read)
    async def get_metrics() -> PlainTextResponse:
        """Metrics in Prometheus' text format."""
        return PlainTextResponse(metrics(lifecycle.service), media_type=METRICS_TYPE)

    return router


def health_routes(lifecycle: Lifecycle) -> APIRouter:
    """Health, for process supervisors."""
    router = APIRouter()

    @router.get("/healthz", responses={403: errors()[403]})
    async def healthy() -> Result:
        """200 while the process is alive."""
        return {"alive": True}

    @router.get("/readyz", responses={403: errors()[403], 503: errors()[503]})
    async def ready() -> Result:
        """200 while requests are served."""
        unavailable = lifecycle.unavailable()
        if unavailable is not None:
            raise unavailable
        return {"ready": True}

    return router


def page_routes(first: str) -> APIRouter:
    """The page, whose `first` file is at `/`: files of the package, read once. No name reaches the file system."""
    router = APIRouter(include_in_schema=False)
    folder = files("prol.serve").joinpath("page")
    contents = {part.name: part.read_bytes() for part in folder.iterdir() if part.is_file()}

    @router.get("/page/{name:path}")
    async def page_file(name: str) -> Response:
        if name not in contents:
            raise RequestError(404, "not_found", "The page has no such file.")
        media_type = _MEDIA_TYPES.get(name.rpartition(".")[2], "application/octet-stream")
        return Response(contents[name], media_type=media_type, headers={"Cache-Control": "no-cache"})

    @router.get("/")
    async def index() -> Response:
        return await page_file(first)

    return router
