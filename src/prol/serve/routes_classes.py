"""The classes: listing, renaming, merging, removing."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import JSONResponse
from starlette.convertors import StringConvertor, register_url_convertor

from prol.serve.bodies import read_json
from prol.serve.lifecycle import Lifecycle
from prol.serve.naming import LONGEST, json_label, text_label
from prol.serve.schemas import INTO_BODY, NAME_BODY, Classes, IntoGiven, NameGiven, Removed, Renamed, errors


class _AnySigns(StringConvertor):
    """A name of any signs: slashes and line ends too."""

    regex = "(?s:.*)"


register_url_convertor("name", _AnySigns())

ClassName = Annotated[str, Path(min_length=1, max_length=LONGEST, description="The class, percent-encoded.")]
Integer = Annotated[bool, Query(description="Whether the name is a whole number.")]


def class_routes(lifecycle: Lifecycle, read: list[Any], write: list[Any]) -> APIRouter:
    """`read` and `write` are what the routes depend on."""
    router = APIRouter(default_response_class=JSONResponse)

    @router.get("/classes", response_model=Classes, responses=errors(401), dependencies=read)
    async def classes() -> JSONResponse:
        """All classes in the order they were met, with the number of images where the method keeps count."""
        view = lifecycle.service.writer.view
        counts = view.counts or (None,) * len(view.classes)
        listed = [{"label": label, "count": count} for label, count in zip(view.classes, counts, strict=True)]
        return JSONResponse({"version": view.version, "classes": listed})

    @router.delete("/classes/{name:name}", response_model=Removed, responses=errors(401, 404, 507), dependencies=write)
    async def remove(name: ClassName, integer: Integer = False) -> JSONResponse:
        """Takes a class away, and says what of it is erased and what remains."""
        return _without_classes(await lifecycle.service.remove(text_label(name, integer)))

    @router.patch(
        "/classes/{name:name}",
        response_model=Renamed,
        responses=errors(401, 404, 409, 415, 507),
        openapi_extra=NAME_BODY,
        dependencies=write,
    )
    async def rename(request: Request, name: ClassName, integer: Integer = False) -> JSONResponse:
        """Gives a class another name."""
        new = json_label((await read_json(request, NameGiven)).label)
        return _without_classes(await lifecycle.service.rename(text_label(name, integer), new))

    @router.post(
        "/classes/{name:name}/merge",
        response_model=Removed,
        responses=errors(401, 404, 415, 507),
        openapi_extra=INTO_BODY,
        dependencies=write,
    )
    async def merge(request: Request, name: ClassName, integer: Integer = False) -> JSONResponse:
        """Makes a class part of another."""
        into = json_label((await read_json(request, IntoGiven)).into)
        return _without_classes(await lifecycle.service.merge(text_label(name, integer), into))

    return router


def _without_classes(answer: dict[str, Any]) -> JSONResponse:
    return JSONResponse({name: value for name, value in answer.items() if name != "classes"})
