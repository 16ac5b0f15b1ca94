"""Pictures for models that see: what `read_file` attaches, what it refuses, and how the picture travels."""

import base64
import io
import json
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import arpo_env
from arpo_env import ToolEnv
from arpo_env.adapters.chat_episode import ChatEpisode
from arpo_env.registration import EnvFactory
from arpo_env.task_files.file_extractor import ExtractionFailed
from arpo_env.task_files.readers import LONGEST_SIDE, MOST_PICTURE_BYTES
from tests.arpo_env.chat_server import chat_server, reply
from tests.arpo_env.task_files.sample_files import FILES, saved, zipped

RED = (255, 0, 0)


def decoded(url: str) -> Image.Image:
    head, _, data = url.partition(",")
    content = base64.b64decode(data)
    picture = Image.open(io.BytesIO(content))
    picture.load()
    assert head == f"data:image/{picture.format.lower()};base64"
    assert len(content) <= MOST_PICTURE_BYTES
    assert picture.mode == "RGB"
    return picture


def half_red(form: str, mode: str = "RGB", size: tuple[int, int] = (80, 60), **options: Any) -> bytes:
    """A picture whose left half is red (or the darkest grey), the rest white (or transparent)."""
    picture = Image.new("RGBA", size, (0, 0, 0, 0) if mode in ("RGBA", "PA") else "white")
    picture.paste(RED if mode not in ("L", "1", "I;16") else (0, 0, 0), (0, 0, size[0] // 2, size[1]))
    if mode == "I;16":  # up to 4,095 of 65,535, as cameras and microscopes write
        small = picture.convert("L")
        data = b"".join(struct.pack("<H", 4095 * value // 255) for value in small.tobytes())
        picture = Image.frombytes("I;16", size, data)
    else:
        picture = picture.convert("P" if mode == "P" else mode)
    return saved(lambda file: picture.save(file, form, **options))


def noise(size: int) -> bytes:
    return saved(lambda file: Image.effect_noise((size, size), 90).convert("RGB").save(file, "PNG", compress_level=1))


FORMS = [
    *(("PNG", mode) for mode in ("RGB", "RGBA", "P", "1", "I;16")),
    *(("GIF", "P"), ("JPEG", "RGB"), ("JPEG", "CMYK"), ("WEBP", "RGBA"), ("TIFF", "L")),
]


@pytest.mark.parametrize(("kind", "mode"), FORMS)
def test_every_form_is_shown_as_it_looks(read: Any, kind: str, mode: str) -> None:
    found = read(half_red(kind, mode), "picture", seen=True)
    assert f"{kind} picture, 80 x 60 pixels" in found.label
    assert found.text == "(The picture is attached.)"
    picture = decoded(found.picture)
    assert picture.size == (80, 60)
    (_, *dark), bright = (picture.getpixel((x, 30)) for x in (10, 70))
    assert max(dark) < 30
    assert min(bright) > 225


def test_a_picture_is_upright_and_of_an_animation_the_first_frame_is_shown(read: Any) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was held upright
    picture = decoded(read(half_red("JPEG", exif=exif), "a.jpg", seen=True).picture)
    assert picture.size == (60, 80)
    assert picture.getpixel((30, 10))[1] < 30 < 225 < picture.getpixel((30, 70))[1]
    frames = [Image.new("RGB", (40, 40), color) for color in (RED, "blue")]
    moving = saved(lambda file: frames[0].save(file, "GIF", save_all=True, append_images=frames[1:]))
    found = read(moving, "a.gif", seen=True)
    assert found.text == "2 frames\n(The first frame is attached.)"
    assert decoded(found.picture).getpixel((5, 5)) == RED
    assert read(zipped(a_dot_gif=moving), "box.zip", inside="a.gif", seen=True).picture == found.picture


def test_large_and_narrow_pictures_are_made_to_fit(read: Any) -> None:
    wide = saved(lambda file: Image.new("1", (20_000, 400)).save(file, "PNG"))
    found = read(wide, "wide.png", seen=True)
    assert "20000 x 400 pixels" in found.label
    assert found.text == "(The picture is attached, scaled to 2,048 x 41 pixels.)"
    assert decoded(found.picture).size == (LONGEST_SIDE, 41)
    assert decoded(read(noise(1300), "noise.png", seen=True).picture).size == (1300, 1300)
    dot = saved(lambda file: Image.new("RGB", (3000, 1), RED).save(file, "PNG"))
    assert decoded(read(dot, "line.png", seen=True).picture).size == (LONGEST_SIDE, 28)


def bomb(side: int) -> bytes:
    """A PNG that says it has `side` x `side` pixels."""
    head = b"IHDR" + struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    content = FILES["photo.png"]
    return content[:12] + head + struct.pack(">I", zlib.crc32(head)) + content[33:]


def test_what_cannot_be_shown_says_why(read: Any) -> None:
    for content in (FILES["photo.png"][:60], half_red("GIF", "P")[:60]):
        with pytest.raises(ExtractionFailed, match="it is a picture that is broken or cut off"):
            read(content, "picture.png", seen=True)
    with pytest.raises(ExtractionFailed, match="40,000 x 40,000 pixels, and at most 89,478,485 are decoded"):
        read(bomb(40_000), "picture.png", seen=True)


# how it travels


@pytest.fixture
def factory(tmp_path: Path, own_names: None) -> EnvFactory:
    (tmp_path / "half.png").write_bytes(half_red("PNG"))
    (tmp_path / "ages.csv").write_text("name,age\nAnn,31\n")
    row = {"question": "Which colour?", "answer": "red", "files": ["half.png", "ages.csv"]}
    (tmp_path / "tasks.jsonl").write_text(json.dumps(row))
    arpo_env.register("mine/Seen-v0", tmp_path / "tasks.jsonl", tools=["read_file"], scorer="em")
    return EnvFactory("mine/Seen-v0", show_images=True)


LOOK = '<think>l</think><read_file>{"file": "half.png"}</read_file>'


def test_the_picture_is_in_the_info_and_a_fork_has_it(factory: EnvFactory) -> None:
    env = factory()
    assert "see a picture" in env.schemas[0]["function"]["description"]
    env.reset(seed=0)
    text, *_, info = env.step(LOOK)
    assert "half.png: PNG picture, 80 x 60 pixels, mode RGB\n(The picture is attached.)\n" in text
    assert decoded(info["images"][0]).size == (80, 60)
    twin = env.fork()
    env.withhold_result()
    assert (env.episode.turns[-1].images, twin.episode.turns[-1].images) == ([], info["images"])
    assert "images" not in twin.step('<think>t</think><read_file>{"file": "ages.csv"}</read_file>')[4]
    env.close()
    twin.close()


@pytest.mark.parametrize("protocol", ["arpo-tags", "hermes"])
def test_play_sends_the_picture_to_the_endpoint(factory: EnvFactory, protocol: str) -> None:
    call = {"id": "1", "function": {"name": "read_file", "arguments": '{"file": "half.png"}'}}

    def model(body: dict[str, Any]) -> tuple[int, Any]:
        content = body["messages"][-1]["content"]
        if isinstance(content, str):
            return 200, reply(LOOK) if protocol == "arpo-tags" else reply("<think>l</think>", tool_calls=[call])
        said = decoded(content[1]["image_url"]["url"]).getpixel((5, 5))
        answer = f"\\boxed{{{'red' if said == RED else 'no idea'}}}"
        return 200, reply(f"<think>a</think><answer>{answer}</answer>" if protocol == "arpo-tags" else answer)

    seeing = EnvFactory(factory.id, **{**factory.options, "protocol": protocol})
    with chat_server(model) as server:
        [played] = arpo_env.play(seeing, 1, base_url=server.address, model="m")
        with pytest.raises(ValueError, match="passes on text alone"):
            arpo_env.play(factory, 1, base_url=server.address, model="m", in_place=True)
    assert played.outcome == "answered", played.error
    assert played.info["answer"] == "red"
    roles = [message["role"] for message in server.bodies[-1]["messages"]]
    assert roles[3:] == (["user"] if protocol == "arpo-tags" else ["tool", "user"])  # OpenAI's tools return text


def test_the_option_is_refused_where_nothing_can_be_shown(factory: EnvFactory) -> None:
    with pytest.raises(ValueError, match="this adapter passes on text alone"):
        ChatEpisode(factory())
    with pytest.raises(ValueError, match="show_images= is given, but there is no tool read_file"):
        ToolEnv("arpo/Arithmetic-v0", show_images=True)
