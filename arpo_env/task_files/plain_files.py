"""Text files, ZIP archives, pictures and sounds as documents. Runs in the child process.

Of sounds only the facts are told (format, length). So it is with pictures, unless the model sees them.
"""

from __future__ import annotations

import base64
import io
import unicodedata
import wave
import zipfile
from typing import TYPE_CHECKING

from arpo_env.task_files.document import Document, UnreadableFile, decoded

if TYPE_CHECKING:
    from PIL.Image import Image


# Pictures as models that see get them: decoded, made smaller and encoded anew. Runs in the child process.
#
# A model's server never gets the bytes of the file: what it would refuse (colours, sides, broken chunks) is gone by
# then.

LONGEST_SIDE = 2048  # pixels
MOST_PICTURE_BYTES = 1 << 20  # of the encoded picture
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
            if file.tell() <= MOST_PICTURE_BYTES:
                return file.getvalue(), form, image
        image = image.reduce(2)


MOST_BYTES = 64 << 20  # of a member of an archive
DEEPEST = 3  # archives within each other
_MOST_MEMBERS = 2000
_LONGEST_NAME = 300  # characters
_BITRATES = (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320)  # kbit/s, MPEG-1 layer 3
_BITRATES_2 = (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160)  # MPEG-2 and 2.5
_RATES = {3: (44100, 48000, 32000), 2: (22050, 24000, 16000), 0: (11025, 12000, 8000)}  # Hz, by version bits
_TEXT_ONLY = "Tools answer with text only, so that {what} itself cannot be {done} here."


def text_document(data: bytes) -> Document:
    """Return the lines of a text file."""
    text, coding = decoded(data)
    lines = text.replace("\r\n", "\n").replace("\r", "\n").rstrip("\n").split("\n")
    note = " (it is not UTF-8, and was read as Windows-1252)" if coding == "Windows-1252" else ""
    return Document(f"text, {len(lines):,} line{'' if len(lines) == 1 else 's'}{note}", lambda _: lines)


def zip_document(data: bytes, name: str) -> Document:
    """Return the list of an archive's members; they are read by their path behind the archive's name."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = [member for member in archive.infolist() if not member.is_dir()]
    lines = [
        f"{name}/{_printable(member.filename)} ({member.file_size:,} bytes"
        f"{', locked with a password' * (member.flag_bits & 1)})"
        for member in members[:_MOST_MEMBERS]
    ]
    if len(members) > _MOST_MEMBERS:
        lines.append(f"... and {len(members) - _MOST_MEMBERS:,} more")
    return Document(f"ZIP archive, {len(members):,} files, each read by its path below", lambda _: lines)


def zip_member(data: bytes, path: str) -> tuple[bytes, str]:
    """Return the content of the member with which a path begins, and the rest of the path (inside that archive).

    Nothing is written anywhere, so that names with ".." lead nowhere.

    Raises:
        UnreadableFile: there is no such member, or it is locked, too large or broken.
    """
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        member, rest = _find(archive, path)
        name = _printable(member.filename)
        if member.flag_bits & 1:
            raise UnreadableFile(f"{name} in the archive is locked with a password")
        if member.file_size > MOST_BYTES:
            raise UnreadableFile(
                f"{name} in the archive is too large: {member.file_size:,} bytes unpacked, and at "
                f"most {MOST_BYTES:,} are read"
            )
        try:
            with archive.open(member) as file:
                content = file.read(MOST_BYTES + 1)
        except NotImplementedError as error:
            raise UnreadableFile(f"{name} in the archive has a compression that is not read here") from error
        except (zipfile.BadZipFile, EOFError, OSError, ValueError) as error:
            raise UnreadableFile(f"{name} in the archive is broken") from error
        except Exception as error:  # zlib, bz2 and lzma have errors of their own
            raise UnreadableFile(f"{name} in the archive cannot be unpacked") from error
    return content, rest


def check_office_size(data: bytes) -> None:
    """Refuse an Office file, which is an archive, whose unpacked members are too large.

    Raises:
        UnreadableFile: it is too large.
    """
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        total = sum(member.file_size for member in archive.infolist())
    if total > 4 * MOST_BYTES:
        raise UnreadableFile(f"it is too large: {total:,} bytes unpacked, and at most {4 * MOST_BYTES:,} are read")


def _find(archive: zipfile.ZipFile, path: str) -> tuple[zipfile.ZipInfo, str]:
    """Return the member with which a path begins, and the rest of the path. The names may be written as listed."""
    members = [member for member in archive.infolist() if not member.is_dir()]
    # Of two with the same name the last one counts, as it does for `zipfile`.
    named = {_plain(member.filename): member for member in members}
    parts = _plain(path).split("/")
    # The longest first: "a/b" is a member "a/b" before it is "b" in an archive "a".
    for end in range(len(parts), 0, -1):
        if member := named.get("/".join(parts[:end])):
            return member, "/".join(parts[end:])
    names = [_printable(member.filename) for member in members]
    more = f" and {len(names) - 20} more" if len(names) > 20 else ""
    raise UnreadableFile(f"the archive has no file {path[:100]!r}; it has {', '.join(names[:20])[:1000]}{more}")


def _plain(name: str) -> str:
    """Return a path as it may be written by a model that has read the list."""
    return unicodedata.normalize("NFKC", _one_line(name.strip().removeprefix("./").strip("/")))


def _printable(name: str) -> str:
    return _one_line(name)[:_LONGEST_NAME]


def _one_line(name: str) -> str:
    return "".join(each if each.isprintable() else " " if each.isspace() else "?" for each in name)


def image_document(data: bytes, seen: bool = False) -> Document:
    """Return format, size and colours of a picture; the picture itself, decoded, only if the model sees it."""
    from PIL import Image

    try:
        # Without decoding only the header is read; `shown_picture` has a limit of its own.
        Image.MAX_IMAGE_PIXELS = None
        with Image.open(io.BytesIO(data)) as image:
            facts = f"{image.format} picture, {image.width} x {image.height} pixels, mode {image.mode}"
            frames = getattr(image, "n_frames", 1) if image.format in ("GIF", "TIFF") else 1
            picture, said = shown_picture(image) if seen else ("", _TEXT_ONLY.format(what="the picture", done="seen"))
    except (UnreadableFile, MemoryError):
        raise
    except Exception as error:  # Pillow raises many types for broken files
        raise UnreadableFile("it is a picture that is broken or cut off") from error
    lines = [*([f"{frames} frames"] if frames > 1 else []), said]
    return Document(facts, lambda _: lines, picture=picture)


def wav_document(data: bytes) -> Document:
    """Return channels, sample rate and length of a WAV file."""
    try:
        with wave.open(io.BytesIO(data)) as sound:
            rate, count, channels = sound.getframerate(), sound.getnframes(), sound.getnchannels()
    except (wave.Error, EOFError, ValueError, ZeroDivisionError) as error:
        raise UnreadableFile("it is a WAV file that is broken or of an unknown coding") from error
    facts = f"WAV audio, {count / max(1, rate):.1f} seconds, {rate} Hz, {channels} channel{'s' * (channels > 1)}"
    return Document(facts, lambda _: [_TEXT_ONLY.format(what="the sound", done="heard")])


def mp3_document(data: bytes) -> Document:
    """Return sample rate, bit rate and estimated length of an MP3 file, from its first frame."""
    start = 0
    if data.startswith(b"ID3") and len(data) >= 10:  # the size has seven bits a byte
        start = 10 + sum((byte & 0x7F) << shift for byte, shift in zip(data[6:10], (21, 14, 7, 0), strict=True))
    facts = next((facts for at in range(start, min(len(data) - 4, start + 8192)) if (facts := _frame(data, at))), None)
    if facts is None:
        raise UnreadableFile("it is an MP3 file that is broken or cut off: no sound in it was found")
    bitrate, rate = facts
    seconds = (len(data) - start) * 8 / (bitrate * 1000)
    label = f"MP3 audio, about {seconds:.1f} seconds (if the bit rate is constant), {rate} Hz, {bitrate} kbit/s"
    return Document(label, lambda _: [_TEXT_ONLY.format(what="the sound", done="heard")])


def _frame(data: bytes, at: int) -> tuple[int, int] | None:
    """Return bit rate in kbit/s and sample rate in Hz of an MPEG layer 3 frame at this place, or None."""
    first, second, third = data[at : at + 3]
    version, layer, bitrate, rate = second >> 3 & 3, second >> 1 & 3, third >> 4, third >> 2 & 3
    if first != 0xFF or second >> 5 != 7 or version == 1 or layer != 1 or not 0 < bitrate < 15 or rate == 3:
        return None
    return (_BITRATES if version == 3 else _BITRATES_2)[bitrate], _RATES[version][rate]
