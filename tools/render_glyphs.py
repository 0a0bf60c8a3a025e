"""Renders the masks behind the built-in `glyphs` data set from the DejaVu and STIX fonts that matplotlib brings along.

    python tools/render_glyphs.py src/prol/data/arrays/glyphs.npz

Each character is drawn large, cut to its ink, and shrunk so that its longer side fills the mask inside its margin.
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.ft2font import FT2Font
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

# Left out: what only size, slant or a serif tells apart (o O 0 θ, l I 1, s S, Λ A, n π, И H, ∀ V, × X, Г Γ, З 3 ...).
GROUPS = (
    "0123456789",
    "ABCDEFGHJKLMNPQRSTUVWXYZÆ",
    "abdefhmqrt",
    "ΓΔΞΣΦΨΩαβγδελμξπω",
    "БДЖЦЧШЫЮЯ",
    "&@#%?!{§¶‡£€©*+÷=≈∞∫√∠∇∃⊕→←↑↓",
)
CHARACTERS = "".join(GROUPS)
FONTS = (
    "DejaVuSans",
    "DejaVuSans-Bold",
    "DejaVuSans-Oblique",
    "DejaVuSansMono",
    "DejaVuSerif",
    "DejaVuSerif-Bold",
    "STIXGeneral",
    "STIXGeneralBol",
)
SIDE, MARGIN, DRAWN_AT = 36, 2, 256
GREY_STEP = 17  # sixteen grey levels look the same and halve the file


def main(target: Path) -> None:
    folder = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    masks = np.stack([_masks_of_font(folder / f"{font}.ttf") for font in FONTS], axis=1)
    np.savez_compressed(target, masks=masks, characters=np.array(list(CHARACTERS)), fonts=np.array(FONTS))
    print(f"{target}: {masks.shape[0]} characters in {masks.shape[1]} fonts, {target.stat().st_size} bytes")


def _masks_of_font(path: Path) -> NDArray[np.uint8]:
    known = FT2Font(str(path)).get_charmap()
    missing = [character for character in CHARACTERS if ord(character) not in known]
    if missing:
        raise ValueError(f"{path.name} has no glyph for {' '.join(missing)}: drop the characters or the font")
    font = ImageFont.truetype(path, DRAWN_AT, layout_engine=ImageFont.Layout.BASIC)
    return np.stack([_mask(font, character) for character in CHARACTERS])


def _mask(font: ImageFont.FreeTypeFont, character: str) -> NDArray[np.uint8]:
    canvas = Image.new("L", (3 * DRAWN_AT, 3 * DRAWN_AT))
    ImageDraw.Draw(canvas).text((DRAWN_AT, DRAWN_AT), character, font=font, fill=255)
    ink = canvas.crop(canvas.getbbox())
    shrink = (SIDE - 2 * MARGIN) / max(ink.size)
    width, height = (max(1, round(side * shrink)) for side in ink.size)
    small = ink.resize((width, height), Image.Resampling.BOX)
    mask = Image.new("L", (SIDE, SIDE))
    mask.paste(small, ((SIDE - width) // 2, (SIDE - height) // 2))
    return np.asarray(mask) // np.uint8(GREY_STEP) * np.uint8(GREY_STEP)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
