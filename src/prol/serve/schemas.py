"""What goes in and out as JSON, for checking it and for the OpenAPI document."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, StrictInt, StrictStr

from prol.serve.naming import HIGHEST, LONGEST

Name = StrictStr | StrictInt


class _Given(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class LateLabel(_Given):
    id: str = Field(min_length=1, max_length=100)
    label: Name


class LabelsGiven(_Given):
    labels: list[LateLabel] = Field(min_length=1)


class NameGiven(_Given):
    label: Name


class IntoGiven(_Given):
    into: Name


class Learnt(BaseModel):
    learnt: int
    version: int
    classes: int
    repeated: bool


class Labelled(Learnt):
    correct: int
    unknown_ids: list[str]


class RankedLabel(BaseModel):
    label: Name
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


class ClassCount(BaseModel):
    label: Name
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
    label: Name


class Status(BaseModel):
    method: str
    backbone: str
    version: int
    classes: int
    images_learnt: int
    prequential: dict[str, Any]
    throughput: dict[str, float]
    memory: dict[str, float]
    queue: dict[str, int]
    events: list[dict[str, str]]
    limits: dict[str, float | None]


class ErrorText(BaseModel):
    code: str
    message: str


class ErrorAnswer(BaseModel):
    error: ErrorText


_LABEL = {
    "anyOf": [
        {"type": "string", "minLength": 1, "maxLength": LONGEST},
        {"type": "integer", "minimum": -HIGHEST, "maximum": HIGHEST},
    ]
}


def object_of(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def json_body(schema: dict[str, Any]) -> dict[str, Any]:
    """As `openapi_extra` takes it."""
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def form_body(most_images: int, **texts: dict[str, Any]) -> dict[str, Any]:
    """A form with images and the given fields of text."""
    image = {"type": "string", "format": "binary"}
    images = {"type": "array", "items": image, "minItems": 1, "maxItems": most_images}
    schema = object_of(images=images, **texts) | {"required": ["images", *(["labels"] if texts else [])]}
    return {"requestBody": {"required": True, "content": {"multipart/form-data": {"schema": schema}}}}


NAME_BODY = json_body(object_of(label=_LABEL))
INTO_BODY = json_body(object_of(into=_LABEL))
LABELS_BODY = json_body(
    object_of(
        labels={
            "type": "array",
            "minItems": 1,
            "items": object_of(id={"type": "string", "minLength": 1, "maxLength": 100}, label=_LABEL),
        }
    )
)


def errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """As `responses` takes it; those that any request may meet are among them."""
    common = (400, 403, 408, 413, 422, 429, 500, 503)
    return {status: {"model": ErrorAnswer} for status in sorted({*common, *statuses})}
