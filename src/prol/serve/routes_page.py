"""The page: a few files of the package, read once. No name of a request reaches the file system."""

from __future__ import annotations

from importlib.resources import files

from fastapi import APIRouter, Response

from prol.serve.refusals import Refusal

_KINDS = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".woff2": "font/woff2",
}


def page_routes() -> APIRouter:
    router = APIRouter(include_in_schema=False)
    folder = files("prol.serve").joinpath("page")
    contents = {part.name: part.read_bytes() for part in folder.iterdir() if part.is_file()}

    def answer(name: str) -> Response:
        if name not in contents:
            raise Refusal(404, "not_found", "There is no such file of the page.")
        kind = next((kind for end, kind in _KINDS.items() if name.endswith(end)), "application/octet-stream")
        return Response(contents[name], media_type=kind, headers={"Cache-Control": "no-cache"})

    @router.get("/")
    async def index() -> Response:
        return answer("index.html")

    @router.get("/page/{name:path}")
    async def part(name: str) -> Response:
        return answer(name)

    return router
