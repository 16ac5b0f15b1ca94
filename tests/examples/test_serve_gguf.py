"""A GGUF is served by llama.cpp, where its wheel is installed (`pip install xllamacpp`), and answers as an endpoint."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from arpo_env.chat_model import ChatModel
from tests.arpo_trainer.test_models import write_gguf

pytest.importorskip("xllamacpp")
SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "serve_gguf.py"


def test_a_gguf_answers_as_an_endpoint(tmp_path: Path) -> None:
    write_gguf(tmp_path / "tiny.gguf")
    template = tmp_path / "chat.jinja"
    template.write_text("{% for message in messages %}{{ message['content'] }}{% endfor %}")
    options = ["--port", "0", "--rows", "2", "--threads", "1", "--context", "64", "--template", str(template)]
    command = [sys.executable, str(SCRIPT), str(tmp_path / "tiny.gguf"), *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            name, _, address = server.stdout.readline().split()
            # it has random weights
            asked = ChatModel(name, address).complete([{"role": "user", "content": "he"}], max_tokens=8)
            assert asyncio.run(asked)
        finally:
            server.terminate()
