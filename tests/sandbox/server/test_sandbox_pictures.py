"""Pictures as results: figures of matplotlib, values that are pictures, and what code makes up. And random numbers."""

import struct
from collections.abc import Iterator

import pytest
from sandbox_under_test import open_or_skip

from sandbox import Limits, Sandbox, SandboxError, SyncInterpreter
from sandbox.server.wire import MOST_PICTURES, PICTURE_BYTES, WireError, pack_pictures, unpack_pictures

PNG = """
import struct, zlib
def png(width=4, height=3, padding=0):
    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
    rows = zlib.compress(bytes(min(height, 100) * (1 + min(width, 100))))
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    body = chunk(b"IDAT", rows) + chunk(b"teXt", bytes(padding)) + chunk(b"IEND", b"")
    return b"\\x89PNG\\r\\n\\x1a\\n" + head + body
class Picture:
    def __init__(self, picture): self.picture = picture
    def _repr_png_(self): return self.picture
    def __repr__(self): return "a picture"
"""


@pytest.fixture(scope="module", params=[pytest.param("docker", marks=pytest.mark.docker), "bubblewrap", "unsafe_local"])
def data_sandbox(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    """A sandbox with matplotlib."""
    try:
        opened = open_or_skip(request.param, Limits(), containers=1, profile="data")
    except SandboxError as error:
        if "cannot be installed" not in str(error):
            raise
        pytest.skip(f"NOT TESTED: {error}")
    yield opened
    opened.close_sync()


@pytest.fixture
def plots(data_sandbox: Sandbox) -> Iterator[SyncInterpreter]:
    with data_sandbox.interpreter_sync() as interpreter:
        assert interpreter.run("import matplotlib.pyplot as plt", timeout=60).text == ""
        yield interpreter


def size_of(picture: bytes) -> tuple[int, int]:
    assert picture.endswith(b"IEND\xaeB`\x82")  # whole
    width, height = struct.unpack_from(">II", picture, 16)
    return width, height


def test_an_open_figure_is_a_picture_and_is_closed(plots: SyncInterpreter) -> None:
    execution = plots.run("plt.plot([1, 3, 2])\nplt.title('$x^2$')\nprint('drawn')\nplt.show()", timeout=60)
    assert (execution.status, execution.stderr) == ("ok", "")
    assert execution.text == "drawn\n[picture 1: 640x480 PNG]"
    assert size_of(execution.pictures[0]) == (640, 480)
    assert plots.run("plt.get_fignums()").value == "[]"
    execution = plots.run("for _ in range(10): plt.figure(figsize=(1, 1), dpi=10)", timeout=60)
    assert len(execution.pictures) == MOST_PICTURES
    assert execution.text.endswith("\n[pictures left out: 2; at most 8 are kept, of 1 MiB together]")
    assert plots.run("1").pictures == ()


SLOW = "class Slow(plt.Figure):\n    def savefig(self, *a, **b):\n        while True: pass\n"


@pytest.mark.parametrize(
    ("code", "status", "told"),
    [
        ("plt.plot([1])\n1 / 0", "error", "ZeroDivisionError"),
        ("plt.title(r'$\\nothing$')", "error", "ValueError"),
        (SLOW + "plt.figure(FigureClass=Slow)", "timeout", "stopped after"),
    ],
)
def test_figures_of_a_cell_that_fails_are_closed_and_not_shown(
    plots: SyncInterpreter, code: str, status: str, told: str
) -> None:
    execution = plots.run(code, timeout=3)
    assert (execution.status, execution.alive, execution.pictures) == (status, True, ())
    assert told in str(execution.error)
    assert plots.run("plt.get_fignums()").value == "[]"
    assert plots.run("plt.plot([1])", timeout=60).pictures


def test_matplotlib_writes_nothing_in_a_session_and_says_nothing(plots: SyncInterpreter) -> None:
    execution = plots.run("plt.title('x'); plt.savefig('a.png'); plt.close(); plt.get_backend()", timeout=60)
    assert (execution.value, execution.stderr, execution.pictures) == ("'Agg'", "", ())
    assert [entry.name for entry in plots.ls()] == ["a.png"]
    assert size_of(plots.get("a.png")) == (640, 480)


def test_fresh_runs_and_forks_have_pictures(data_sandbox: Sandbox) -> None:
    setup = "import matplotlib.pyplot as plt"
    assert len(data_sandbox.run_sync("plt.plot([1])", setup=setup, timeout=60).pictures) == 1
    with data_sandbox.interpreter_sync(setup) as python:
        (copy,) = python.fork()
        assert len(copy.run("plt.plot([1])", timeout=60).pictures) == 1
        assert python.run("1").pictures == ()
        copy.close()


def test_a_value_that_is_a_picture_is_one(python: SyncInterpreter) -> None:
    python.run(PNG)
    execution = python.run("Picture(png())")
    assert execution.text == "a picture\n[picture 1: 4x3 PNG]"
    assert execution.pictures[0].startswith(b"\x89PNG\r\n\x1a\n")
    assert python.run("Picture((png(), {'width': 1}))").pictures == execution.pictures
    for none in ("Picture(None)", "Picture('text')", "Picture.__new__(Picture)"):  # the method of the last raises
        assert python.run(none).text == "a picture"
    assert python.run("Picture").pictures == ()


@pytest.mark.parametrize(
    "made_up", ["b'GIF89a' + bytes(100)", "png()[:20]", "png(0, 5)", "png(100_000, 100_000)", "png(padding=2 << 20)"]
)
def test_what_is_no_picture_or_too_large_is_left_out(python: SyncInterpreter, made_up: str) -> None:
    python.run(PNG)
    execution = python.run(f"Picture({made_up})")
    assert (execution.status, execution.pictures, execution.pictures_left_out) == ("ok", (), 1)
    assert execution.text.startswith("a picture\n[pictures left out: 1")


FORGE = """
import struct, sys
frame = sys._getframe()
while frame:
    if hasattr(frame.f_globals.get("wire"), "pack_pictures"):
        frame.f_globals["wire"].pack_pictures = lambda *_: forged
    frame = frame.f_back
"""


def test_forged_pictures_within_the_bounds_are_checked(python: SyncInterpreter) -> None:
    execution = python.run(f"{FORGE}\nforged = struct.pack('>III', 5, 3, 0) + b''")
    assert (execution.status, execution.alive) == ("killed", False)
    python.restart()
    execution = python.run(f"{FORGE}\nforged = struct.pack('>II', 5, 3) + b'abc' + bytes(4)")
    assert (execution.status, execution.pictures, execution.pictures_left_out) == ("ok", (), 7)


def test_the_wire_gives_back_what_was_packed_and_refuses_the_rest() -> None:
    for pictures, left_out in (([], 0), ([], 3), ([b"a", b""], 0), ([b"x" * (PICTURE_BYTES // 8)] * 8, 1)):
        assert unpack_pictures(pack_pictures(pictures, left_out)) == (pictures, left_out)
    too_many, too_large = pack_pictures([b"x"] * 9, 0), pack_pictures([bytes(PICTURE_BYTES + 1)], 0)
    for forged in (b"x", struct.pack(">II", 0, 100) + b"short", too_many, too_large):
        with pytest.raises(WireError):
            unpack_pictures(forged)


def test_sessions_draw_numbers_of_their_own(data_sandbox: Sandbox) -> None:
    """Sessions of this profile begin with numpy's generator as it was before them, if nothing is done."""
    assert len({data_sandbox.run_sync("import numpy; numpy.random.random()").value for _ in range(2)}) == 2
