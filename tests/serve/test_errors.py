"""Requests that are refused, with their status and code: each time nothing is learnt."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from PIL import Image

from serve.running import counts, error, files, learn, picture

GOOD = picture(1)
FORM = {"content-type": "multipart/form-data; boundary=b"}


def encoded(kind: str, size: tuple[int, int] = (8, 8)) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", size).save(file, kind)
    return file.getvalue()


def part(disposition: str, content: bytes = b"") -> bytes:
    return b"--b\r\nContent-Disposition: form-data; " + disposition.encode() + b"\r\n\r\n" + content + b"\r\n"


LARGE = encoded("PNG", (999, 999))
BAD_IMAGES = {
    "empty": (b"", "unreadable_image"),
    "text": (b"this is no image at all", "unreadable_image"),
    "other kind": (encoded("TIFF"), "unreadable_image"),
    "cut PNG": (picture(1, 64)[:-2000], "unreadable_image"),
    "cut JPEG": (picture(1, 64, "JPEG")[:-1000], "unreadable_image"),
    "cut WebP": (picture(1, 64, "WEBP")[:-1000], "unreadable_image"),
    "cut GIF": (picture(1, 64, "GIF")[:-2000], "unreadable_image"),
    "header alone": (GOOD[:20], "unreadable_image"),
    "bomb": (encoded("PNG", (1001, 1000)), "too_many_pixels"),
    "bomb without end": (encoded("PNG", (20000, 10000)), "too_many_pixels"),
}

BAD_FORMS: dict[str, tuple[dict[str, Any], int, str]] = {
    "JSON": ({"json": {"images": []}}, 415, "not_a_form"),
    "nothing": ({}, 415, "not_a_form"),
    "no boundary": ({"content": b"x", "headers": {"content-type": "multipart/form-data"}}, 400, "broken_form"),
    "other boundary": ({"content": b"--c\r\n\r\n", "headers": FORM}, 400, "broken_form"),
    "no end": ({"content": part('name="images"; filename="x"', GOOD), "headers": FORM}, 400, "broken_form"),
    "no name": ({"content": part('filename="x"', GOOD) + b"--b--\r\n", "headers": FORM}, 400, "broken_form"),
    "no images": ({"files": [("labels", (None, "cat"))]}, 422, "no_images"),
    "images as text": ({"files": [("images", (None, "cat"))], "data": {"labels": "a"}}, 422, "not_a_file"),
    "labels as file": ({"files": [*files(GOOD), ("labels", ("x", b"cat"))]}, 422, "not_a_text"),
    "other field": ({"files": files(GOOD), "data": {"labels": "a", "x": "y"}}, 422, "unknown_field"),
    "no labels": ({"files": files(GOOD)}, 422, "bad_label"),
    "too few labels": ({"files": files(GOOD, GOOD, GOOD), "data": {"labels": ["a", "b"]}}, 422, "bad_label"),
    "empty label": ({"files": files(GOOD), "data": {"labels": ""}}, 422, "bad_label"),
    "long label": ({"files": files(GOOD), "data": {"labels": "x" * 501}}, 422, "bad_label"),
    "very long label": ({"files": files(GOOD), "data": {"labels": "x" * 10000}}, 422, "field_too_long"),
    "no number": ({"files": files(GOOD), "data": {"labels": "1.5", "integers": "true"}}, 422, "bad_label"),
    "large number": ({"files": files(GOOD), "data": {"labels": "9" * 19, "integers": "true"}}, 422, "bad_label"),
    "odd flag": ({"files": files(GOOD), "data": {"labels": "1", "integers": "maybe"}}, 422, "bad_field"),
    "no UTF-8": (
        {"content": part('name="labels"', b"\xff") + b"--b--\r\n", "headers": FORM},
        422,
        "bad_text",
    ),
    "many images": ({"files": files(*[GOOD] * 5), "data": {"labels": "a"}}, 422, "too_many_images"),
    "many parts": ({"files": files(*[GOOD] * 60), "data": {"labels": "a"}}, 422, "too_many_parts"),
    "many pixels": (
        {"files": files(*[encoded("PNG", (999, 999))] * 3), "data": {"labels": "a"}},
        422,
        "too_many_pixels",
    ),
    "large body": ({"files": files(b"x" * 3_000_000), "data": {"labels": "a"}}, 413, "too_large"),
}

BAD_JSON: dict[str, tuple[dict[str, Any], int, str]] = {
    "a form": ({"files": files(GOOD)}, 415, "not_json"),
    "no JSON": ({"content": b"{", "headers": {"content-type": "application/json"}}, 400, "broken_json"),
    "no UTF-8": ({"content": b'"\xff"', "headers": {"content-type": "application/json"}}, 400, "broken_json"),
    "a list": ({"json": []}, 422, "invalid"),
    "none": ({"json": {"labels": []}}, 422, "invalid"),
    "no id": ({"json": {"labels": [{"label": "a"}]}}, 422, "invalid"),
    "a truth": ({"json": {"labels": [{"id": "x", "label": True}]}}, 422, "invalid"),
    "a fraction": ({"json": {"labels": [{"id": "x", "label": 1.5}]}}, 422, "invalid"),
    "half a sign": (
        {
            "content": b'{"labels": [{"id": "x", "label": "\\ud800"}]}',
            "headers": {"content-type": "application/json"},
        },
        400,
        "broken_json",
    ),
    "a large number": ({"json": {"labels": [{"id": "x", "label": 2**63}]}}, 422, "bad_label"),
    "another field": ({"json": {"labels": [{"id": "x", "label": 1, "y": 2}]}}, 422, "invalid"),
    "an id twice": ({"json": {"labels": [{"id": "x", "label": 1}, {"id": "x", "label": 1}]}}, 422, "repeated_id"),
    "too many": ({"json": {"labels": [{"id": str(n), "label": 1} for n in range(5)]}}, 422, "too_many_images"),
    "unknown": ({"json": {"labels": [{"id": "x", "label": 1}]}}, 404, "unknown_ids"),
}


@pytest.fixture(autouse=True)
def nothing_is_learnt(client: httpx.Client) -> Iterator[None]:
    before = client.get("/classes").json()
    yield
    assert client.get("/classes").json() == before


@pytest.mark.parametrize("bad", BAD_IMAGES)
def test_a_bad_image_is_named_by_its_position(client: httpx.Client, bad: str) -> None:
    image, code = BAD_IMAGES[bad]
    for answer in (learn(client, [GOOD, image], ["a"]), client.post("/predict", files=files(GOOD, image))):
        assert error(answer) == (422, code)
        assert answer.json()["error"]["message"].startswith("Image 2 ")


@pytest.mark.parametrize("bad", BAD_FORMS)
def test_a_bad_form(client: httpx.Client, bad: str) -> None:
    request, status, code = BAD_FORMS[bad]
    assert error(client.post("/learn", **request)) == (status, code)


@pytest.mark.parametrize("bad", BAD_JSON)
def test_bad_json(client: httpx.Client, bad: str) -> None:
    request, status, code = BAD_JSON[bad]
    assert error(client.post("/labels", **request)) == (status, code)


def test_a_body_of_unknown_length_is_counted_while_it_comes(client: httpx.Client) -> None:
    def endless() -> Iterator[bytes]:
        for _ in range(100):
            yield b"x" * 50_000

    assert error(client.post("/learn", content=endless(), headers=FORM)) == (413, "too_large")


@pytest.mark.parametrize("key", ["", "two words", "x" * 201, "ümlaut"])
def test_a_key_must_be_visible_ascii(client: httpx.Client, key: str) -> None:
    headers = [(b"Idempotency-Key", key.encode())]
    answer = client.post("/learn", files=files(GOOD), data={"labels": "a"}, headers=headers)
    assert error(answer) == (422, "invalid")


@pytest.mark.parametrize("top", ["0", "101", "many"])
def test_top_has_limits(client: httpx.Client, top: str) -> None:
    assert error(client.post("/predict", files=files(GOOD), params={"top": top})) == (422, "invalid")


def test_routes_and_methods_that_do_not_exist(client: httpx.Client) -> None:
    assert error(client.get("/nothing")) == (404, "not_found")
    assert error(client.get("/docs")) == (404, "not_found")
    wrong = client.get("/learn")
    assert error(wrong) == (405, "method_not_allowed")
    assert wrong.headers["allow"] == "POST"
    assert client.put("/classes/x").headers["allow"] == "DELETE, PATCH"


def test_requests_for_routes_that_do_not_exist_are_counted(client: httpx.Client) -> None:
    def count() -> int:
        found = re.search(r'^prol_refused_total\{code="not_found"\} (\d+)$', client.get("/metrics").text, re.MULTILINE)
        return int(found[1]) if found else 0

    before = count()
    client.get("/nothing")
    assert count() == before + 1


def test_classes_that_do_not_exist(client: httpx.Client) -> None:
    assert error(client.delete("/classes/nobody")) == (404, "unknown_class")
    assert error(client.delete("/classes/5", params={"integer": "true"})) == (404, "unknown_class")
    assert error(client.delete("/classes/five", params={"integer": "true"})) == (422, "bad_label")
    assert error(client.patch("/classes/nobody", json={"label": "somebody"})) == (404, "unknown_class")
    assert error(client.post("/classes/nobody/merge", json={"into": "somebody"})) == (404, "unknown_class")
    assert error(client.post("/classes/nobody/merge", json={"into": "nobody"})) == (422, "same_class")
    assert error(client.patch("/classes/nobody", content=json.dumps({"label": "x"}))) == (415, "not_json")


def test_nothing_of_a_chunk_is_learnt_when_one_image_is_bad(client: httpx.Client) -> None:
    assert error(learn(client, [GOOD, b"no"], ["new", "newer"], key="same")) == (422, "unreadable_image")
    assert "new" not in counts(client)
