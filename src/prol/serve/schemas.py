"""Labels and JSON bodies: what clients send, what they receive, and how OpenAPI describes both.

A label is text or an integer; 1 and "1" are different classes.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    ValidationError,
    WithJsonSchema,
)
from starlette.requests import Request

from prol.classes import Label
from prol.serve.errors import RequestError
from prol.serve.settings import Limits

MAX_LENGTH = 500
MAX_INTEGER = 2**63 - 1

_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
_LABEL_SCHEMA = {
    "anyOf": [
        {"type": "string", "minLength": 1, "maxLength": MAX_LENGTH},
        {"type": "integer", "minimum": -MAX_INTEGER, "maximum": MAX_INTEGER},
    ]
}

Number = int | float
OptionIn = StrictBool | StrictInt | StrictFloat | Annotated[StrictStr, Field(max_length=MAX_LENGTH)] | None
LabelOut = StrictStr | StrictInt
LabelIn = Annotated[LabelOut, WithJsonSchema(_LABEL_SCHEMA)]
"""Described with its limits; `checked_label` enforces them, with its own error code."""


def text_label(text: str, integer: bool) -> Label:
    """A label out of a form or a path, where everything is text."""
    if not integer:
        return checked_label(text)
    if not _INTEGER.fullmatch(text.strip()):
        raise bad_label("A label is not an integer: leave out integers=true, or send digits.")
    return checked_label(int(text))


def checked_label(label: Label) -> Label:
    if isinstance(label, int):
        if abs(label) > MAX_INTEGER:
            raise bad_label(f"A label is out of range: integers go from -{MAX_INTEGER} to {MAX_INTEGER}.")
        return label
    if not 1 <= len(label) <= MAX_LENGTH:
        raise bad_label(f"A label has {len(label)} characters: it must have 1 to {MAX_LENGTH}.")
    try:
        label.encode()
    except UnicodeEncodeError:
        raise bad_label("A label is not valid Unicode: it holds a lone surrogate.") from None
    return label


def bad_label(message: str) -> RequestError:
    return RequestError(422, "bad_label", message)


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


Id = Annotated[str, Field(min_length=1, max_length=100)]


class LateLabel(_Body):
    id: Id
    label: LabelIn


_LATE_LABELS_SCHEMA = {"type": "array", "minItems": 1, "items": LateLabel.model_json_schema()}


class LateLabelsBody(_Body):
    labels: Annotated[list[LateLabel], Field(min_length=1), WithJsonSchema(_LATE_LABELS_SCHEMA)]


class IdsBody(_Body):
    ids: Annotated[list[Id], Field(min_length=1)]


class RenameBody(_Body):
    label: LabelIn


class MergeBody(_Body):
    into: LabelIn


Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
PositiveInt = Annotated[StrictInt, Field(gt=0)]


class OwnLimits(_Body):
    """Limits of one of several learners, of those in `Limits`; none is above that of the service."""

    body_bytes: PositiveInt | None = None
    images: PositiveInt | None = None
    pixels: PositiveInt | None = None
    request_pixels: PositiveInt | None = None
    queue: PositiveInt | None = None
    rate: Positive | None = None
    pending_images: PositiveInt | None = None
    pending_bytes: PositiveInt | None = None
    pending_seconds: Positive | None = None

    def require_within(self, limits: Limits) -> None:
        for name, value in self.model_dump(exclude_none=True).items():
            most = getattr(limits, name)
            if most is not None and value > most:
                message = f"The limit {name} must be at most that of the service, {most:g}."
                raise RequestError(422, "bad_limit", message)

    def within(self, limits: Limits) -> Limits:
        """The limits of a learner; those of the service may have become lower since these were chosen."""
        given = self.model_dump(exclude_none=True)
        most = {name: getattr(limits, name) for name in given}
        return replace(limits, **{name: min(value, most[name] or value) for name, value in given.items()})


class NewLearnerBody(_Body):
    name: Annotated[str, Field(max_length=MAX_LENGTH)]
    method: Annotated[str, Field(max_length=100)] = "prol_plus"
    options: Annotated[dict[Annotated[str, Field(max_length=100)], OptionIn], Field(max_length=100)] = {}
    seed: Annotated[int, Field(ge=0, le=MAX_INTEGER)] = 0
    limits: OwnLimits = OwnLimits()


class NewTokensBody(_Body):
    tokens: Literal["new"]


Body = TypeVar("Body", bound=BaseModel)


async def read_json(request: Request, kind: type[Body]) -> Body:
    """The body as a `kind`: 415 for other content types, 400 for invalid JSON, 422 for JSON that does not fit.

    FastAPI's own body parameters are not used: they accept lone surrogates, and any content type ending in +json.
    """
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != "application/json":
        raise RequestError(415, "not_json", "Send JSON, with Content-Type: application/json.")
    try:
        return kind.model_validate_json(await request.body())
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        if first["type"] == "json_invalid":
            raise RequestError(400, "broken_json", f"The body is not JSON: {first['msg']}.") from None
        place = ".".join(str(part) for part in first["loc"][:3])
        message = f"The body does not fit at {place or 'the top level'}: {first['msg']}."
        raise RequestError(422, "invalid", message) from None


def json_body(kind: type[BaseModel]) -> dict[str, Any]:
    """The description of a JSON body, as `openapi_extra` takes it."""
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": kind.model_json_schema()}}}}


def form_body(max_images: int, labels: bool = False) -> dict[str, Any]:
    """The description of a form with images, and with labels if so wished, as `openapi_extra` takes it."""
    image = {"type": "string", "format": "binary"}
    properties: dict[str, Any] = {"images": {"type": "array", "items": image, "minItems": 1, "maxItems": max_images}}
    if labels:
        text = {"type": "string", "minLength": 1}
        properties["labels"] = {"type": "array", "items": text, "minItems": 1, "maxItems": max_images}
    required = list(properties)
    if labels:
        properties["integers"] = {"type": "string", "enum": ["true", "false"]}
    schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return {"requestBody": {"required": True, "content": {"multipart/form-data": {"schema": schema}}}}


class Learnt(BaseModel):
    learnt: int
    version: int
    classes: int
    repeated: bool


class Undone(BaseModel):
    undone: int
    version: int
    classes: int
    repeated: bool


class Labelled(Learnt):
    correct: int
    unknown_ids: list[str]


class RankedLabel(BaseModel):
    label: LabelOut
    score: float
    probability: float


class Prediction(BaseModel):
    id: str
    labels: list[RankedLabel]
    unknown: float | None


class Predicted(BaseModel):
    version: int
    expires_in: float
    predictions: list[Prediction]


class PredictedAgain(BaseModel):
    version: int
    predictions: list[Prediction]
    unknown_ids: list[str]


class ClassCount(BaseModel):
    label: LabelOut
    count: int | None


class Classes(BaseModel):
    version: int
    classes: list[ClassCount]


class Removed(BaseModel):
    version: int
    erased: list[str]
    remains: list[str]
    exact: bool


class Renamed(BaseModel):
    version: int
    label: LabelOut


class Status(BaseModel):
    method: str
    backbone: str
    version: int
    snapshot_version: int
    undo_images: int
    classes: int
    images_learnt: int
    prequential: dict[str, Any]
    throughput: dict[str, float]
    memory: dict[str, Number]
    queue: dict[str, int]
    events: list[dict[str, str]]
    limits: dict[str, Number | None]


class ListedLearner(BaseModel):
    name: str
    method: str | None
    loaded: bool
    bytes: int


class Listed(BaseModel):
    backbone: str
    learners: list[ListedLearner]


class Created(BaseModel):
    name: str
    read_token: str | None
    write_token: str | None


class Deleted(BaseModel):
    deleted: str


class ErrorText(BaseModel):
    code: str
    message: str


class ErrorResponse(BaseModel):
    error: ErrorText


def errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The description of errors, as `responses` takes it; those that any request may meet are among them."""
    common = (400, 403, 408, 413, 422, 429, 500, 503)
    return {status: {"model": ErrorResponse} for status in sorted({*common, *statuses})}
