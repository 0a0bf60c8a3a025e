"""The topology of the methods: what is frozen, what is trained, what is kept, family by family."""

from __future__ import annotations

from drawing import Drawing

WIDTH, HEIGHT = 500, 268
"""Of one panel."""
LEGEND = (
    ("frozen", "frozen"),
    ("trained", "trained"),
    ("made", "made for each image"),
    ("sums", "sums, solved in closed form"),
    ("kept", "samples stored"),
)


def topology() -> Drawing:
    d = Drawing(1060, 930, "The families of methods on one network: what is frozen, trained, summed up and kept")
    panels = (_pool, _generator, _adapters, _closed_form, _fine_tuning, _replay)
    for number, panel in enumerate(panels):
        x, y = 20 + (number % 2) * (WIDTH + 20), 20 + (number // 2) * (HEIGHT + 20)
        d.box(x, y, WIDTH, HEIGHT, kind="panel", radius=10)
        panel(d, x, y)
    x = 34.0
    for kind, text in LEGEND:
        d.box(x, 897, 22, 15, kind=kind, radius=3)
        d.text(x + 30, 909.5, text, size=13, kind="faint")
        x += 62 + 7.2 * len(text)
    return d


def _titles(d: Drawing, x: float, y: float, title: str, methods: str, kept: str) -> None:
    """`methods` may have two lines."""
    d.text(x + 18, y + 30, title, size=15.5, bold=True)
    for number, line in enumerate(methods.splitlines()):
        d.text(x + WIDTH - 18, y + 30 + 18 * number, line, size=12.5, anchor="end", kind="path")
    d.text(x + 18, y + HEIGHT - 14, kept, size=12, kind="faint")


def _network(
    d: Drawing, x: float, y: float, kind: str = "frozen", norms: bool = False, name: str = "frozen ViT", blocks: int = 7
) -> list[float]:
    """An image, the blocks of a network, and the feature; gives the middles of the blocks."""
    d.box(x + 18, y + 172, 44, 44, ["image"], "plain", size=11, bold=False)
    d.arrow((x + 62, y + 194), (x + 80, y + 194))
    middles = []
    for number in range(blocks):
        left = x + 82 + number * 30
        d.box(left, y + 166, 23, 56, kind=kind, radius=4)
        if norms:
            d.box(left + 3, y + 211, 17, 7, kind="trained", radius=2)
        middles.append(left + 11.5)
    d.text(x + 82 + blocks * 15 - 3, y + 237, name, size=11.5, anchor="middle", kind="faint")
    return middles


def _head(d: Drawing, x: float, y: float, lines: list[str], kind: str, left: float = 336, start: float = 287) -> None:
    d.arrow((x + start, y + 194), (x + left - 2, y + 194))
    d.box(x + left, y + 170, WIDTH - 18 - left - 50, 48, lines, kind, size=12)
    d.arrow((x + WIDTH - 66, y + 194), (x + WIDTH - 18, y + 194))
    d.text(x + WIDTH - 17, y + 184, "scores", size=11, anchor="end", kind="faint")


def _pool(d: Drawing, x: float, y: float) -> None:
    _titles(
        d,
        x,
        y,
        "Prompt pools",
        "L2P · DualPrompt · CODA-Prompt",
        "kept: prompts with their keys, in L2P as many throughout; a head",
    )
    blocks = _network(d, x, y)
    d.box(x + 18, y + 62, 116, 46, ["query feature", "of the same ViT"], "made", size=12)
    d.arrow((x + 40, y + 172), (x + 40, y + 110), kind="made")
    d.arrow((x + 134, y + 85), (x + 172, y + 85), kind="made")
    for number in range(4):
        d.box(x + 174 + number * 44, y + 54, 38, 26, [f"key {number + 1}"], "trained", size=11, bold=False, radius=4)
        d.box(x + 174 + number * 44, y + 84, 38, 28, ["prompt"], "trained", size=10.5, bold=False, radius=4)
    d.text(x + 360, y + 79, "nearest keys choose;", size=11.5, kind="faint")
    d.text(x + 360, y + 95, "or all, weighted", size=11.5, kind="faint")
    d.arrow((x + 237, y + 112), (x + 237, y + 136), (blocks[0], y + 136), (blocks[0], y + 164), kind="trained")
    for middle in blocks[1:4]:
        d.arrow((middle, y + 136), (middle, y + 164), kind="trained")
    d.text(x + 250, y + 140, "prompts, as tokens or prefixes", size=11.5, kind="faint")
    _head(d, x, y, ["linear head"], "trained")


def _generator(d: Drawing, x: float, y: float) -> None:
    _titles(
        d,
        x,
        y,
        "Prefix generators",
        "PROL · ConvPrompt",
        "kept: generator, keys, scalers and shifters a class, LayerNorms, heads",
    )
    blocks = _network(d, x, y, norms=True, name="ViT, LayerNorms trained")
    d.box(x + 18, y + 62, 116, 46, ["query feature", "of the same ViT"], "made", size=12)
    d.arrow((x + 40, y + 172), (x + 40, y + 110), kind="made")
    d.arrow((x + 134, y + 85), (x + 156, y + 85), kind="made")
    d.box(x + 158, y + 58, 108, 54, ["generator", "small convolutions"], "trained", size=12)
    d.arrow((x + 266, y + 85), (x + 288, y + 85), kind="made")
    d.box(x + 290, y + 58, 92, 54, ["prefix", "for this image"], "made", size=12)
    d.box(x + 404, y + 58, 78, 54, ["class key,", "scale, shift"], "trained", size=11, bold=False)
    d.arrow((x + 404, y + 85), (x + 384, y + 85), kind="trained")
    d.arrow((x + 336, y + 112), (x + 336, y + 136), (blocks[0], y + 136), (blocks[0], y + 164), kind="made")
    for middle in blocks[1:4]:
        d.arrow((middle, y + 136), (middle, y + 164), kind="made")
    d.text(x + 346, y + 134, "ConvPrompt: mixtures by", size=10.5, kind="faint")
    d.text(x + 346, y + 149, "each block's class token", size=10.5, kind="faint")
    _head(d, x, y, ["a head", "for each task"], "trained")


def _adapters(d: Drawing, x: float, y: float) -> None:
    _titles(
        d,
        x,
        y,
        "Adapters",
        "MOS · EASE · LAE",
        "kept: an adapter a task (LAE: a fast and a slow one), a head or class means",
    )
    blocks = _network(d, x, y)
    for row, (name, kind) in enumerate((("task 1", "frozen"), ("task 2", "frozen"), ("task 3, now", "trained"))):
        top = y + 54 + row * 28
        d.text(x + 76, top + 14, name, size=11.5, anchor="end", kind="faint")
        for middle in blocks:
            d.box(middle - 11.5, top + 2, 23, 16, kind=kind, radius=4)
    for middle in blocks:
        d.arrow((middle, y + 130), (middle, y + 164), kind="trained")
    d.text(x + 300, y + 72, "small modules in the blocks,", size=11.5, kind="faint")
    d.text(x + 300, y + 89, "trained one task at a time;", size=11.5, kind="faint")
    d.text(x + 300, y + 106, "at test one or all of them answer", size=11.5, kind="faint")
    _head(d, x, y, ["head, or", "class means"], "trained")


def _closed_form(d: Drawing, x: float, y: float) -> None:
    _titles(
        d,
        x,
        y,
        "Closed form",
        "PROL+ · NCM · SLDA · RanPAC · RanDumb · F-OAL",
        "kept: sums, the same in any order of the stream (F-OAL: their inverse)",
    )
    _network(d, x, y, norms=True, name="frozen; PROL+ tunes LayerNorms first", blocks=5)
    d.arrow((x + 227, y + 194), (x + 242, y + 194))
    d.box(x + 244, y + 170, 74, 48, ["φ", "wide feature"], "made", size=12)
    d.arrow((x + 281, y + 170), (x + 281, y + 128), kind="made")
    d.box(x + 222, y + 60, 118, 66, ["G += φφᵀ", "S_label += φ", "n_label += 1"], "sums", size=12.5)
    d.arrow((x + 340, y + 93), (x + 391, y + 93), (x + 391, y + 168), kind="sums")
    d.text(x + 402, y + 128, "solved", size=11.5, kind="faint")
    d.text(x + 402, y + 144, "when asked", size=11.5, kind="faint")
    d.text(x + 18, y + 84, "sums over the stream,", size=11.5, kind="faint")
    d.text(x + 18, y + 101, "no gradient, no rate to choose", size=11.5, kind="faint")
    _head(d, x, y, ["classifier"], "sums", left=344, start=318)


def _fine_tuning(d: Drawing, x: float, y: float) -> None:
    _titles(
        d,
        x,
        y,
        "Fine-tuning",
        "finetune · head only",
        "kept: the network or the head alone; nothing guards what was learnt before",
    )
    blocks = _network(d, x, y, kind="trained", name="ViT, all of it trained (head only: frozen)")
    _head(d, x, y, ["linear head"], "trained")
    d.arrow((x + 388, y + 170), (x + 388, y + 98), (x + 330, y + 98), kind="trained")
    d.box(x + 200, y + 76, 128, 44, ["cross entropy", "of the chunk"], "made", size=12)
    d.arrow((x + 200, y + 98), (blocks[0], y + 98), (blocks[0], y + 164), kind="trained", dashed=True)
    d.text(x + 104, y + 90, "gradient", size=11.5, kind="faint")


def _replay(d: Drawing, x: float, y: float) -> None:
    _titles(
        d,
        x,
        y,
        "Replay",
        "ER · DER++ · ER-ACE · OCM · GSA\nOnPro · ESRM · MOSE · GDumb",
        "kept: samples of earlier chunks beside the network: another game",
    )
    _network(d, x, y, kind="trained", name="ResNet, all of it trained")
    d.box(x + 82, y + 66, 116, 52, ["memory", "5,000 images"], "kept", size=12)
    d.arrow((x + 40, y + 172), (x + 40, y + 92), (x + 80, y + 92), kind="kept")
    d.text(x + 210, y + 96, "some images of each chunk are kept", size=11.5, kind="faint")
    d.arrow((x + 140, y + 118), (x + 140, y + 142), (x + 71, y + 142), (x + 71, y + 188), kind="kept")
    d.text(x + 150, y + 140, "old images join each chunk", size=11.5, kind="faint")
    _head(d, x, y, ["linear head"], "trained")
