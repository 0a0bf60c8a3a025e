"""The model card: `README.md` of a saved learner, written from its `meta.json`."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any

from prol.backbones.terms import WeightsTerms, weights_terms
from prol.classes import Label
from prol.runs.format import JOINED

_MOST_NAMED = 100
_BUILT_IN_TERMS = "prol-built-in-weights"


def model_card(meta: Mapping[str, Any], title: str, size: int, citation: str, from_scratch: bool = False) -> str:
    """The card of a saved learner in a folder called `title`, whose tensors take `size` bytes.

    With `from_scratch` the network has no pre-trained weights, and samples are stored as images.
    """
    terms = weights_terms(meta["backbone"]["name"])
    parts = [
        _header(meta["method"], terms),
        _opening(meta, title, citation, terms, from_scratch),
        _use(title, meta["backbone"]["name"], terms),
        _seen(meta["seen"], meta["run"], meta["classes"]) + _changed(meta),
        _measured(meta["run"], meta["precision"]),
        _keeps(meta["footprint"], meta["seen"]["per_class"], size, "images" if from_scratch else "features"),
        _limits(meta["preprocessing"]["size"], terms, from_scratch),
    ]
    return "\n\n".join(parts) + "\n"


def _header(method: str, terms: WeightsTerms) -> str:
    """What model hubs read. JSON is valid YAML, so no name can break out of its line."""
    lines = ["---", "library_name: prol", "pipeline_tag: image-classification"]
    lines += ["tags:", "- prol", "- image-classification", "- continual-learning", f"- {json.dumps(method)}"]
    if terms.licence is not None:
        lines.append(f"license: {json.dumps(terms.licence)}")
        lines += [f"license_name: {_BUILT_IN_TERMS}"] if terms.licence == "other" else []
    if terms.hub is not None:
        lines += [f"base_model: {json.dumps(terms.hub)}", "base_model_relation: adapter"]
    return "\n".join([*lines, "---"])


def _opening(meta: Mapping[str, Any], title: str, citation: str, terms: WeightsTerms, from_scratch: bool) -> str:
    stands_on = (
        f"It uses the weights `{terms.title}` (SHA-256 `{meta['backbone']['sha256']}`), which are not part of "
        f"this folder. Terms of those weights: {terms.words}."
    )
    if from_scratch:
        stands_on = f"It trains its network, `{terms.title}`, from scratch: no other weights are needed."
    return (
        f"# {_plain(title)}\n\n"
        f"An image classifier for {_counted(meta['seen']['classes'], 'class', 'classes')}, learnt from a stream in one "
        f"pass by the method `{meta['method']}` ({_plain(citation)}) of prol {meta['prol']}. {stands_on}"
    )


def _use(title: str, backbone: str, terms: WeightsTerms) -> str:
    # Weights in a file are named without their folder, which differs from machine to machine.
    elsewhere = terms.title != backbone and "@" in backbone
    argument = f", {json.dumps(terms.title)}" if elsewhere else ""
    option = f" --backbone {shlex.quote(terms.title)}" if elsewhere else ""
    return (
        "## Use\n\n"
        "```python\nimport prol\n"
        f"learner = prol.load({json.dumps(title, ensure_ascii=False)}{argument})\n"
        "print(learner.classes[learner.predict([image]).argmax()])  # image: a PIL image or a uint8 array [H, W, 3]\n"
        "```\n\n"
        f"```\nprol predict {shlex.quote(title)} photo.jpg{option}\n```\n\n"
        "`learner.learn(images, labels)` continues learning, old classes or new ones. No code in this folder is run."
    )


def _seen(seen: Mapping[str, Any], run: Mapping[str, Any] | None, classes: list[Label]) -> str:
    images = "An uncounted number of images" if seen["images"] is None else _counted(seen["images"], "image", "images")
    text = f"## Training data\n\n{images}, of {_counted(seen['classes'], 'class', 'classes')}"
    text += "." if run is None else _stream(run)
    if not classes:
        return text
    counts = seen["per_class"] or [None] * len(classes)
    both = list(zip(classes, counts, strict=True))[:_MOST_NAMED]
    named = [_plain(str(name)) + ("" if count is None else f" ({count:,})") for name, count in both]
    if len(classes) > _MOST_NAMED:
        named.append(f"and {len(classes) - _MOST_NAMED:,} more, which `meta.json` names")
    heading = "Classes" if seen["per_class"] is None else "Classes, and how many images of each"
    return f"{text}\n\n{heading}: {', '.join(named)}."


def _changed(meta: Mapping[str, Any]) -> str:
    """Later operations on classes, and omitted classes."""
    done, left_out, text = dict(meta.get("operations") or {}), meta.get("left_out"), ""
    done.pop(JOINED, None)
    if meta.get("merged"):
        text += (
            f"\n\nIt was merged from {len(meta['merged']['learners'])} learners that learnt separately (`meta.json`)."
        )
    if done:
        counted = ", ".join(f"{_counted(count, 'class', 'classes')} {what}" for what, count in done.items())
        text += f"\n\nChanged afterwards: {counted} (`operations.jsonl`)."
        text += " What was measured, and the images counted, are those of before." if meta["run"] else ""
    if left_out is not None and left_out["classes"]:
        text += (
            f"\n\n{_counted(left_out['classes'], 'class', 'classes')} of fewer than {left_out['least_count']} images "
            "left out."
        )
        text += f" Of them there remains: {'; '.join(left_out['remains'])}." if left_out["remains"] else ""
    return text


def _stream(run: Mapping[str, Any]) -> str:
    data, protocol = run["dataset"], run["protocol"]
    part = ["a development split of its training images"] if data["development"] else []
    part += [] if data["limit_per_class"] is None else [f"at most {data['limit_per_class']} images per class"]
    text = (
        f", from the data set `{data['name']}`{' (' + ', '.join(part) + ')' if part else ''} in the order of the "
        f"protocol `{protocol['name']}`: {_counted(protocol['tasks'], 'task', 'tasks')}, chunks of "
        f"{protocol['chunk']}, seed {run['seed']}."
    )
    ended = f" The run is unfinished: {run['tasks_ended']} of the tasks had ended."
    return text if run["finished"] else text + ended


def _measured(run: Mapping[str, Any] | None, precision: str) -> str:
    if run is None or run["result"] is None:
        return "## Measured\n\nNothing yet."
    result = run["result"]
    return (
        f"## Measured\n\nOn {_counted(result['test_images'], 'test image', 'test images')} of the same data set, in "
        f"{precision}, with no hint of the task:\n\n"
        "| | % |\n|---|---|\n"
        f"| accuracy over all test images at the end (FAA) | {result['faa']:.2f} |\n"
        f"| mean of that accuracy after each task (CAA) | {result['caa']:.2f} |\n"
        f"| forgetting | {result['forgetting']:.2f} |"
    )


def _keeps(footprint: Mapping[str, Any], per_class: list[int] | None, size: int, form: str) -> str:
    stored = {name: footprint[f"{name}_stored"]["count"] for name in ("parameters", "statistics", "samples")}
    text = (
        f"## What it stores\n\n`model.safetensors` ({size:,} bytes) holds what was learnt (by the method's own count "
        f"{stored['parameters']:,} parameters and {stored['statistics']:,} statistics) and what is needed to continue "
        "learning: optimiser, schedule and random state. `meta.json` holds the class names and the options. "
    )
    if stored["samples"]:
        return (
            text + f"**It stores {stored['samples']:,} samples** as {form}: think of whose they are before sharing it."
        )
    text += "It stores no image and no single sample"
    if per_class is not None and 1 in per_class:
        text += ", though the statistics of a class with one image are those of that image"
    return text + "."


def _limits(pixels: int, terms: WeightsTerms, from_scratch: bool) -> str:
    weights = (
        "- It needs exactly the weights named above and refuses others by their hash. Their terms hold for it too"
        f"{'.' if terms.licence is not None else '; prol does not know them.'}"
    )
    if from_scratch:
        weights = "- It was trained on its stream alone: it knows nothing beyond those images."
    return (
        "## Limits\n\n"
        "- It predicts one of its classes whatever an image shows: unknown classes are not rejected.\n"
        "- Probabilities are calibrated on predictions made before learning; they hold for images like those learnt.\n"
        f"- It sees the middle square of an image, at {pixels} x {pixels} pixels.\n{weights}"
    )


def _counted(count: int, one: str, several: str) -> str:
    return f"{count:,} {one if count == 1 else several}"


def _plain(text: str) -> str:
    """A name on one line, with Markdown characters escaped."""
    shown = (character for character in " ".join(text.split()) if character.isprintable())
    return "".join(f"\\{character}" if character in "\\`*_[]<>|#" else character for character in shown)
