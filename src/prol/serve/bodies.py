"""JSON bodies, read strictly."""

from __future__ import annotations

from typing import TypeVar

from pydantic import BaseModel, ValidationError
from starlette.requests import Request

from prol.serve.refusals import Refusal

Given = TypeVar("Given", bound=BaseModel)


async def read_json(request: Request, kind: type[Given]) -> Given:
    """The body as a `kind`: 415 for other content, 400 for what is no JSON, 422 for other JSON."""
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != "application/json":
        raise Refusal(415, "not_json", "Send JSON, with Content-Type: application/json.")
    try:
        return kind.model_validate_json(await request.body())
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        if first["type"] == "json_invalid":
            raise Refusal(400, "broken_json", f"The body is no JSON: {first['msg']}.") from None
        place = ".".join(str(part) for part in first["loc"][:3])
        raise Refusal(422, "invalid", f"The body does not fit at {place or 'its top'}: {first['msg']}.") from None
