"""The packages of prol in layers, and the way of an image from its file to a prediction."""

from __future__ import annotations

from drawing import Drawing

LEFT, RIGHT = 130, 1010
STEPS = (
    "Files are listed; a chunk's images are decoded.",
    "A protocol decides which samples come when.",
    "The loop passes on one chunk; it comes once.",
    "Input is validated; new classes get a row.",
    "Pixels become the network's input and features.",
    "The method updates its state; the chunk is gone.",
    "At any moment: scores, one column per class.",
)


def packages() -> Drawing:
    d = Drawing(1120, 800, "The packages of prol, and the way of an image from its file to a prediction")
    _walls(d)
    _upper_floors(d)
    _ground_floor(d)
    _foundation(d)
    for number, text in enumerate(STEPS):
        x, y = 148 + (number % 2) * 450, 662 + (number // 2) * 30
        d.dot(x, y, number + 1)
        d.text(x + 20, y + 4.5, text, size=13)
    return d


def _walls(d: Drawing) -> None:
    middle = (LEFT + RIGHT) / 2
    d.shape(f"M{LEFT - 34} 128 L{middle} 22 L{RIGHT + 34} 128 Z", "panel")
    d.box(LEFT, 128, RIGHT - LEFT, 496, kind="panel", radius=0)
    d.box(middle - 128, 68, 256, 48, ["cli", "parses the command, nothing else"], "plain", size=14)
    for y, name in ((150, "users"), (258, "around it"), (368, "the stream"), (588, "foundation")):
        d.text(LEFT - 16, y + 16, name, size=12, anchor="end", kind="faint", italic=True)
    for y in (246, 354, 576):
        d.arrow((LEFT, y), (RIGHT, y), head=False, width=1)


def _upper_floors(d: Drawing) -> None:
    above = (
        ("serve", "HTTP, page"),
        ("integrations", "scikit-learn, river, ONNX, hubs"),
        ("paper", "prol reproduce"),
        ("bench", "speed, growth"),
    )
    widths = (150, 262, 240, 152)
    x = LEFT + 20.0
    for (name, what), width in zip(above, widths, strict=True):
        d.box(x, 158, width, 66, [name, what], "plain", size=14)
        x += width + 12
    d.box(LEFT + 20, 270, 190, 62, ["testing", "check_learner, audit"], "plain", size=14)
    d.box(LEFT + 300, 270, 250, 62, ["runs", "folders, artifacts, many runs"], "plain", size=14)
    d.box(LEFT + 640, 270, 220, 62, ["report", "tables, plots from files"], "plain", size=14)
    d.arrow((LEFT + 300, 301), (LEFT + 212, 301))
    d.arrow((LEFT + 550, 301), (LEFT + 638, 301))
    d.text(LEFT + 594, 292, "result.json", size=11.5, anchor="middle", kind="faint")


def _ground_floor(d: Drawing) -> None:
    top, height = 398, 66
    d.box(20, top + 8, 76, 50, ["image file"], "made", size=12, bold=False)
    d.box(LEFT + 20, top, 126, height, ["data", "images, labels"], "plain", size=14)
    d.box(LEFT + 186, top, 126, height, ["streams", "order, chunks"], "plain", size=14)
    d.box(LEFT + 352, top, 146, height, ["evaluation", "the loop, exams"], "plain", size=14)
    d.box(LEFT + 538, 374, 322, 184, kind="made", radius=8)
    d.text(LEFT + 554, 396, "learner", size=14, bold=True)
    d.text(LEFT + 844, 396, "learn() · predict() · state()", size=12, anchor="end", kind="faint")
    d.box(LEFT + 556, 410, 128, 54, ["methods", "one class each"], "trained", size=14)
    d.box(LEFT + 716, 410, 128, 54, ["engine", "optimisers, steps"], "trained", size=14)
    d.box(LEFT + 556, 490, 288, 50, ["backbones", "a ViT with prefixes and taps"], "frozen", size=14)
    d.arrow((LEFT + 684, 437), (LEFT + 714, 437))
    d.arrow((LEFT + 620, 464), (LEFT + 620, 488))
    d.arrow((LEFT + 780, 464), (LEFT + 780, 488))
    y = top + height / 2
    for start, end in ((96, LEFT + 18), (LEFT + 146, LEFT + 184), (LEFT + 312, LEFT + 350), (LEFT + 498, LEFT + 536)):
        d.arrow((start, y), (end, y), kind="path", width=2.4)
    d.arrow((LEFT + 425, top), (LEFT + 425, 334), kind="line")
    d.text(LEFT + 433, 372, "events", size=11.5, kind="faint")
    d.arrow((RIGHT - 20, 520), (RIGHT + 24, 520), kind="path", width=2.4)
    d.box(RIGHT + 26, 492, 74, 56, ["scores", "[N, C]"], "made", size=13)
    for number, (x, at) in enumerate(
        (
            (112, y - 20),
            (LEFT + 165, y - 20),
            (LEFT + 331, y - 20),
            (LEFT + 517, y - 20),
            (LEFT + 602, 477),
            (LEFT + 699, 421),
            (RIGHT + 2, 500),
        )
    ):
        d.dot(x, at, number + 1)
    d.text(LEFT + 20, 500, "data, streams and backbones do not import each other;", size=12, kind="faint")
    d.text(LEFT + 20, 518, "the loop sees a learner only through its interface", size=12, kind="faint")


def _foundation(d: Drawing) -> None:
    names = ("state registry", "classes", "registry", "labels", "options", "answers", "calibration")
    x = LEFT + 20.0
    for name in names:
        width = 40 + 8.6 * len(name)
        d.box(x, 586, width, 28, [name], "plain", size=12.5, bold=False)
        x += width + 12
