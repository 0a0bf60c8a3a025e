"""PROL's data flow: from an image to logits and losses."""

from __future__ import annotations

from drawing import Drawing

BLOCKS = 12
PROMPTED = 5


def prol() -> Drawing:
    d = Drawing(1080, 760, "PROL: how an image becomes a prefix, a feature, logits and losses")
    d.text(28, 36, "PROL, one step", size=19, bold=True)
    sizes = "D width of the ViT, H heads, d = D / H, l positions of a prefix, L prompted blocks, C classes"
    d.text(28, 57, sizes, kind="faint", size=12.5)
    _query(d)
    _prefix(d)
    _working(d)
    _losses(d)
    _legend(d)
    return d


def _query(d: Drawing) -> None:
    d.box(28, 300, 86, 92, ["image x", "augmented", "in training"], "plain", size=12.5)
    d.arrow((71, 300), (71, 130), (132, 130))
    d.box(134, 92, 196, 76, ["query network", "the same ViT, never changed", "class token, final norm"], "frozen")
    d.arrow((330, 130), (398, 130))
    d.box(400, 104, 96, 52, ["f", "[D]"], "made")


def _prefix(d: Drawing) -> None:
    d.arrow((496, 118), (560, 118), kind="made")
    d.box(562, 84, 208, 68, ["keys K  [C, D]", "c* = nearest key by cosine", "s = cos(f, K of c*)"], "trained")
    d.text(666, 75, "training: keys of the task · test: of all classes", size=11, anchor="middle", kind="faint")
    d.arrow((448, 156), (448, 206), kind="made")
    d.box(376, 208, 144, 46, ["r = f[0], f[H], …", "[d]: each H-th number"], "made", size=12)
    d.arrow((520, 231), (560, 231), kind="made")
    d.box(
        562,
        196,
        208,
        70,
        ["generator", "a convolution of 3, with bias, for", "each block, K or V, and head"],
        "trained",
    )
    d.text(666, 282, "learns in the first task only", size=11, anchor="middle", kind="faint")
    d.arrow((770, 231), (816, 231), kind="made")
    d.text(793, 224, "g", size=12.5, anchor="middle", italic=True)
    d.arrow((770, 118), (892, 118), (892, 206), kind="made")
    d.text(800, 110, "s, c*", size=12.5, italic=True)
    d.box(818, 208, 148, 46, ["u = s · g", "for each image"], "made")
    d.arrow((892, 254), (892, 290), kind="made")
    d.box(800, 292, 184, 82, ["prefix of l positions", "1:  u", "i:  a_i u + b_i ,  i = 2 … l"], "made")
    d.box(
        800,
        398,
        184,
        60,
        ["scalers a, shifters b", "of c*, clamped to", "1 ± 0.001 and ± 0.0001"],
        "trained",
        size=12.5,
    )
    d.arrow((892, 398), (892, 376), kind="trained")


def _working(d: Drawing) -> None:
    left, top, width, gap = 232, 470, 27, 7
    d.box(214, 404, 444, 178, kind="frozen", dashed=True, radius=10)
    d.text(left + 2, 568, "working network", size=13, bold=True)
    d.text(left + 142, 568, "weights frozen, LayerNorms trained", size=12.5, kind="faint")
    d.arrow((71, 392), (71, 505), (228, 505))
    for number in range(BLOCKS):
        x = left + number * (width + gap)
        d.box(x, top, width, 62, str(number), "plain", size=11.5, radius=4)
        d.box(x + 3, top + 50, width - 6, 8, kind="trained", radius=2)
        if number < PROMPTED:
            d.arrow((x + width / 2, 440), (x + width / 2, top - 2), kind="made")
    end = left + BLOCKS * (width + gap) - gap
    middle = left + PROMPTED * (width + gap) / 2 - gap / 2
    d.arrow((800, 333), (middle, 333), (middle, 440), kind="made", head=False)
    d.arrow((left + width / 2, 440), (left + (PROMPTED - 1) * (width + gap) + width / 2, 440), kind="made", head=False)
    d.text(middle + 10, 326, "block λ gets its own prefix + that of block λ \u2212 1", size=11.5, kind="faint")
    d.text(left + PROMPTED * (width + gap) + 4, 434, "first L blocks:", size=12, kind="faint")
    d.text(left + PROMPTED * (width + gap) + 4, 454, "K' = [P_K ; K],  V' = [P_V ; V]", size=12.5)
    d.arrow((end, 505), (694, 505))
    d.box(696, 480, 70, 50, ["h", "[D]"], "made")
    d.arrow((731, 530), (731, 596))
    d.box(
        560,
        598,
        342,
        58,
        ["heads: LayerNorm + Linear, one a task", "earlier heads frozen · logits side by side  [C]"],
        "trained",
    )


def _losses(d: Drawing) -> None:
    d.text(28, 624, "L  =  L_intra + λ₂ L_inter + L_sim + L_ort + λ₅ L_gen", size=14.5, bold=True)
    rows = [
        ("L_intra, L_inter", "cross entropy of the task's logits, and of all"),
        ("L_sim", "\u2212 cos(f, key of the label)"),
        ("L_ort", "cosine of that key to the nearest old key"),
        ("L_gen", "agreement of f and h, coordinate by coordinate"),
    ]
    for number, (name, meaning) in enumerate(rows):
        d.text(28, 650 + 20 * number, name, size=12, bold=True)
        d.text(140, 650 + 20 * number, meaning, size=12, kind="faint")
    d.text(28, 650 + 20 * len(rows), "Adam, anew each task", size=12, bold=True)
    rates = "constant rate (hard) until L_intra + λ₂ L_inter of a chunk falls below a threshold, then a cosine (soft)"
    d.text(188, 650 + 20 * len(rows), rates, size=12, kind="faint")
    d.arrow((902, 627), (1000, 627))
    d.text(1008, 631, "scores", size=12.5, bold=True)


def _legend(d: Drawing) -> None:
    x = 560
    for kind, text in (("frozen", "never changes"), ("trained", "trained"), ("made", "made anew for each image")):
        d.box(x, 680, 20, 14, kind=kind, radius=3)
        d.text(x + 27, 692, text, size=12, kind="faint")
        x += 27 + 8 * len(text) + 20
