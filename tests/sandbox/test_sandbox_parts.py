"""The parts that need no sandbox."""

import sys
from pathlib import Path
from typing import Any

import pytest

import sandbox
from sandbox import Execution, Limits, Sandbox
from sandbox.options import parse_size
from sandbox.server.channels import OutputCapture
from scripts.draw_rooms import imported
from tests.test_layers import imports


@pytest.mark.parametrize("step", [1, 7, 1000])
@pytest.mark.parametrize("length", [0, 49, 50, 51, 100, 5000])
def test_a_capture_keeps_head_and_tail(length: int, step: int) -> None:
    text = "".join(f"{n:04} " for n in range(1000))[:length]
    capture = OutputCapture(100)
    for at in range(0, length, step):
        capture.add(text[at : at + step].encode())
    long = length > 100
    assert capture.truncated == long
    assert capture.text() == (f"{text[:50]}\n... [4900 bytes left out] ...\n{text[-50:]}" if long else text)


@pytest.mark.parametrize(
    ("size", "number"), [("2g", 2 << 30), ("512m", 512 << 20), (7, 7), ("64KB", 64 << 10), ("9", 9)]
)
def test_sizes(size: str | int, number: int) -> None:
    assert parse_size(size) == number


@pytest.mark.parametrize(
    ("stdout", "value", "stderr", "error", "text"),
    [("", None, "", None, ""), ("a\n", "1", "w\n", "E: x", "a\n1\nw\nE: x"), ("\n", "''", "", None, "''")],
)
def test_the_text_that_a_model_sees(stdout: str, value: str | None, stderr: str, error: str | None, text: str) -> None:
    execution = Execution(stdout, stderr, value, error, "ok", 0.0, False, True, "none")
    assert execution.text == text


def test_the_server_needs_only_the_standard_library() -> None:
    from sandbox.server.bundle import _MODULES

    here = Path(sandbox.__file__).parent / "server"
    for number, name in enumerate(_MODULES):
        for module in (imported(file := here / f"{name}.py") | imports(file)) - {"__future__", "sympy"}:
            of_server = module.removeprefix("sandbox.server.") in ("sandbox", "sandbox.server", *_MODULES[:number])
            assert module in sys.stdlib_module_names or of_server, (name, module)


NONSENSE = {
    "timeout": (float("inf"), -1),
    "grace": (float("nan"),),
    "processes": (1.5,),
    "cpus": (0, True),
    "open_files": (10,),
    "memory": (0, "1k", "much"),
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in NONSENSE.items() for value in values])
def test_limits_that_make_no_sense_are_refused(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=r"Limits\.|is not a size"):
        Limits(**{name: value})


@pytest.mark.parametrize(
    "options",
    [
        *({"sessions": number} for number in (0, 2.5, 1000)),
        {"wait": 0},
        {"containers": 0},
        {"profile": "maths"},
        {"packages": "networkx"},
        {"packages": ["--index-url=http://a"]},
        {"packages": ["networkx"], "image": "mine:1"},
        {"image": "python:3.12-slim", "backend": "unsafe_local"},
        {"backend": "dockre"},
        *({"command": words, "backend": "command"} for words in ("docker 'run", ["sleep", 5], [""], ["sleep\0"])),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        Sandbox.open_sync(**options)
