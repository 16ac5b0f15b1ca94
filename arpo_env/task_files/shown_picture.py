"""Pictures as models that see get them: decoded, made smaller and encoded anew. Runs in the child process.

A model's server never gets the bytes of the file: what it would refuse (colours, sides, broken chunks) is gone by then.
"""

from __future__ import annotations

import base64
import io
from typing import TYPE_CHECKING

from arpo_env.task_files.file_kinds import UnreadableFile

if TYPE_CHECKING:
    from PIL.Image import Image

LONGEST_SIDE = 2048  # pixels
MOST_BYTES = 1 << 20  # of the encoded picture
MOST_PIXELS = 89_478_485  # of the file: Pillow's own limit, above which it warns of decompression bombs
# Qwen-VL refuses sides below 28 pixels, and pictures that are 200 times as wide as high
_SHORTEST_SIDE, _MOST_RATIO = 28, 100
_QUALITIES = (90, 75, 50)  # of JPEG


def shown_picture(image: Image) -> tuple[str, str]:
    """Return a picture as a data URL, and a line that says what the model gets.

    Args:
        image: the opened picture, not decoded yet; of an animation the first frame is taken.

    Raises:
        UnreadableFile: it has too many pixels.
        Exception: it is broken; Pillow raises many types.
    """
    if image.width * image.height > MOST_PIXELS:
        raise UnreadableFile(
            f"it is a picture of {image.width:,} x {image.height:,} pixels, and at most {MOST_PIXELS:,} are decoded"
        )
    longest, animated = max(image.size), image.format != "MPO" and getattr(image, "n_frames", 1) > 1
    forms = [("JPEG", quality) for quality in _QUALITIES]
    small = _shrunk(image)
    data, form, final = _encoded(small, forms if image.format in ("JPEG", "MPO") else [("PNG", 0), *forms])
    what = "first frame" if animated else "picture"
    scaled = f", scaled to {final.width:,} x {final.height:,} pixels" if max(final.size) < longest else ""
    url = f"data:image/{form.lower()};base64,{base64.b64encode(data).decode('ascii')}"
    return url, f"(The {what} is attached{scaled}.)"


def _shrunk(image: Image) -> Image:
    """Return the picture upright, with 8 bits a colour and no transparency, and no side above `LONGEST_SIDE`."""
    from PIL import ImageOps
    from PIL.Image import Resampling

    image.draft("RGB", (LONGEST_SIDE, LONGEST_SIDE))  # a JPEG is decoded at a smaller size at once
    image.load()
    small: Image = image
    # "transparency" is a single colour of a picture without an alpha channel
    clear = image.mode in ("P", "PA", "LA", "La", "RGBa") or "transparency" in image.info
    if clear or image.mode not in ("L", "RGB", "RGBA"):
        # first, for memory's sake: several copies with up to 4 bytes a pixel follow
        image.thumbnail((4 * LONGEST_SIDE, 4 * LONGEST_SIDE), Resampling.NEAREST)
        small = _eight_bits(image) if image.mode[0] in "IF" else image.convert("RGBA" if clear else "RGB")
    small.thumbnail((LONGEST_SIDE, LONGEST_SIDE), reducing_gap=2.0)
    return _on_white(ImageOps.exif_transpose(small))


def _eight_bits(image: Image) -> Image:
    """Return a picture of more than 8 bits in grey levels from its darkest to its brightest pixel."""
    deep = image.convert("F")
    low, high = deep.getextrema()
    scale = 255 / ((high - low) or 1)
    return deep.point(lambda value: value * scale - low * scale).convert("L")


def _on_white(image: Image) -> Image:
    """Return a picture without transparency, on a white ground that is not too narrow for a model."""
    from PIL import Image as pillow

    least = max(_SHORTEST_SIDE, -(-max(image.size) // _MOST_RATIO))
    ground = pillow.new("RGB", (max(image.width, least), max(image.height, least)), "white")
    ground.paste(image, (0, 0), image if image.mode == "RGBA" else None)
    return ground


def _encoded(image: Image, forms: list[tuple[str, int]]) -> tuple[bytes, str, Image]:
    """Return the first form that is small enough, with its name and the picture in it, which is halved if none is."""
    while True:
        for form, quality in forms:
            file = io.BytesIO()
            image.save(file, form, **({"quality": quality} if quality else {}))
            if file.tell() <= MOST_BYTES:
                return file.getvalue(), form, image
        image = image.reduce(2)
