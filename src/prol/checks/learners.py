"""Checks of what a learner was built from, stores and has seen: labels, preprocessing, order of the classes, budget."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from prol.backbones.built_in import saved_built_in
from prol.backbones.opening import open_backbone, split_image_size
from prol.checks.finding import Outcome, Status, check, listed
from prol.checks.subject import Learnt, Subject
from prol.prequential.label_issues import LabelIssues

IMPROBABLE, CERTAIN = 0.01, 0.9
"""A label is improbable below the one, another class certain above the other, in predictions made before learning."""
MANY = 0.01
"""Share of judged images of which such predictions are seldom wrong."""
NEAR_BUDGET, OVER_BUDGET = 0.99, 1.05
_FEWEST_CLASSES = 5
"""Fewer classes are in alphabetical order by chance, once in 24 times or more often."""
_OF_VALUES = ("mean", "std")


@check("PC103", "Labels that contradict their images")
def contradicting_labels(subject: Subject) -> Outcome:
    judged, places = 0, list[str]()
    for learner in subject.learners:
        if (learner.values or {}).get("prequential", {}).get("capacity"):
            found = LabelIssues.of(learner.values or {}, learner.classes, share=1.0)
            judged += found.judged
            certain = [one for one in found if one.probability < IMPROBABLE and one.other_probability > CERTAIN]
            places += [f"{one.id}: {one.label}, predicted {one.other}" for one in certain]
    if not judged:
        return Outcome.absent("no predictions were recorded before learning: call enable_prequential(record_ids=True)")
    if not places:
        return Outcome("passed", f"no label contradicts a certain prediction, of {judged:,} images")
    message = f"{len(places):,} of {judged:,} labels contradict a certain prediction: {listed(places)}"
    return Outcome("issue" if len(places) > MANY * judged else "tip", message, tuple(places))


@check("PC201", "Preprocessing that does not fit the weights")
def preprocessing(subject: Subject) -> Outcome:
    known = [learner for learner in subject.learners if learner.preprocessing is not None]
    if not known:
        return Outcome.absent("there is no learner with recorded preprocessing")
    wanted: dict[tuple[str, str], dict[str, Any]] = {}
    found: dict[str, list[str]] = {}
    values_differ = False
    for learner in known:
        name, sha256 = learner.backbone["name"], learner.backbone["sha256"]
        if (name, sha256) not in wanted:
            try:
                wanted[name, sha256] = _trained_with(name, sha256, subject)
            except (ValueError, OSError) as error:
                return Outcome.absent(f"the preprocessing of the weights is not known here ({error})")
        for part, trained in wanted[name, sha256].items():
            used = (learner.preprocessing or {}).get(part)
            if used != trained:
                values_differ |= part in _OF_VALUES
                found.setdefault(f"{part} {used}, trained with {trained}", []).append(learner.name)
    if not found:
        return Outcome("passed", "images are prepared as for the training of the weights")
    places = tuple(f"{', '.join(names)}: {what}" for what, names in found.items())
    return Outcome("issue" if values_differ else "tip", f"images are prepared otherwise: {listed(places)}", places)


def _trained_with(name: str, sha256: str, subject: Subject) -> dict[str, Any]:
    """The preprocessing for which the weights were trained, at the size at which they were."""
    opened = saved_built_in(split_image_size(name)[0], sha256, subject.path) or split_image_size(name)[0]
    plain: dict[str, Any] = json.loads(json.dumps(asdict(open_backbone(opened, shapes_only=True).preprocessing)))
    return plain


@check("PC202", "State near its budget")
def budget(subject: Subject) -> Outcome:
    worst: tuple[float, str] | None = None
    for learner in subject.learners:
        most = learner.options.get("budget_mb")
        if most is None or learner.bytes_stored is None:
            continue
        share, size = learner.bytes_stored / (most * 1e6), learner.bytes_stored / 1e6
        said = f"{learner.name} stores {size:,.1f} MB of budget_mb={most:g} with {len(learner.classes):,} classes"
        worst = max(worst or (0.0, ""), (share, said))
    if worst is None:
        return Outcome.absent("no method here has the option budget_mb")
    status: Status = "issue" if worst[0] > OVER_BUDGET else "tip" if worst[0] >= NEAR_BUDGET else "passed"
    return Outcome(status, worst[1])


@check("PC203", "Classes in label order")
def label_order(subject: Subject) -> Outcome:
    if subject.runs:
        sorted_ones = [run.folder for run in subject.runs if run.config["protocol"]["class_order"] == "label"]
    elif subject.learners:
        sorted_ones = [one.name for one in subject.learners if _is_sorted(one)]
    else:
        return Outcome.absent("nothing was learnt here: prol.stream draws the order of a folder by its seed")
    if not sorted_ones:
        return Outcome("passed", "classes came in another order than that of their labels")
    message = f"classes came in the order of their labels, whatever the seed, in {listed(sorted_ones)}"
    return Outcome("tip", message, tuple(sorted_ones))


def _is_sorted(learner: Learnt) -> bool:
    names: list[Any] = list(learner.classes)
    if all(name.isdecimal() for name in names):
        names = [int(name) for name in names]
    return len(names) >= _FEWEST_CLASSES and names == sorted(names)
