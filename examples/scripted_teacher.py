"""Run a recipe of `arpo run` with a scripted teacher: a local endpoint that plays known solutions, with mistakes.

Run it: python examples/scripted_teacher.py path-arithmetic-cpu [--set output_dir=runs/mine train.max_steps=2]

The questions are those of the recipe's section `synth`. Half of them the teacher answers without tools, as if it knew;
in the others it is wrong then. With tools it plays the solution, but may give up at any turn. So `arpo synth` has
something to choose from: direct questions, questions that need the tool, and wrong answers.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

import gymnasium as gym

import arpo_env  # noqa: F401  (registers the environments)
from arpo_trainer.run.recipes import read_settings

KNOWN, GIVES_UP = 0.5, 0.1
_UNKNOWN = "unknown"
_NUMBER = re.compile(r"<result>\n(-?\d+)\n</result>")


class Teacher:
    """Says the next turn of an episode; the same messages and seed give the same turn.

    Args:
        source: tasks with `solution` and `solution_tool`.
        count: the number of tasks that may be asked.
        known: the share of questions that are answered without the tool.
        gives_up: the probability of a wrong answer instead of the next call or the right answer.
    """

    def __init__(self, source: Any, count: int, known: float = KNOWN, gives_up: float = GIVES_UP) -> None:
        self.source, self.known, self.gives_up = source, known, gives_up
        self.places = {source.task(place).question: place for place in range(count)}

    def turn(self, messages: list[dict[str, str]], seed: int) -> str:
        """Return the next turn after a system prompt, a question, and what was said and shown since."""
        (system, question), since = (message["content"] for message in messages[:2]), messages[2:]
        place, tool = self.places[question], self.source.solution_tool
        calls, played = self.source.solution(place), sum(message["role"] == "user" for message in since)
        if f"<{tool}>" not in system:
            right = random.Random(question).random() < self.known
        else:
            right = random.Random(f"{seed} {messages}").random() >= self.gives_up
            if right and played < len(calls):
                return f"<think>I use the tool.</think><{tool}>{calls[played]}</{tool}>"
        shown = _NUMBER.search(since[-1]["content"]) if since else None  # questions may hide what they are about
        answer = (shown[1] if shown else self.source.task(place).answers[0]) if right else _UNKNOWN
        return f"<think>I know it.</think><answer>\\boxed{{{answer}}}</answer>"


def handler(teacher: Teacher) -> type[BaseHTTPRequestHandler]:
    """Return a handler of /chat/completions that answers with a teacher's turns."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            message = {"role": "assistant", "content": teacher.turn(asked["messages"], asked.get("seed", 0))}
            body = json.dumps({"choices": [{"index": 0, "finish_reason": "stop", "message": message}]}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:  # one line for each turn otherwise
            pass

    return Handler


class Server(ThreadingHTTPServer):
    """Takes many connections at once."""

    request_queue_size = 256


def main() -> int:
    """Serve the teacher while `arpo run` works; return its exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", help="of `arpo run`, with an endpoint on this machine in its section synth")
    parser.add_argument("--set", nargs="+", action="extend", default=[], metavar="NAME=VALUE")
    given = parser.parse_args()
    synth = read_settings(given.recipe, given.set, command="run")["synth"]
    (name,) = synth["environments"]
    env: Any = gym.make(name, **synth.get("env_options", {}))
    teacher = Teacher(env.unwrapped.tasks, synth["tasks"])
    address = urlsplit(synth["endpoint"])
    with Server((str(address.hostname), int(address.port or 80)), handler(teacher)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        line = ["run", "--recipe", given.recipe, *(["--set", *given.set] if given.set else [])]
        status = subprocess.run([sys.executable, "-m", "arpo_trainer.cli", *line], check=False).returncode
        server.shutdown()
    env.close()
    return status


if __name__ == "__main__":
    sys.exit(main())
