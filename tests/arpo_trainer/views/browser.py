"""A headless Chromium driven over its DevTools pipe: no port, no library."""

import fcntl
import json
import os
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
_FLAGS = (
    *("--headless", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage"),
    "--remote-debugging-pipe",
)


class Browser:
    """One page. `logs` has what it wrote to the console and what it threw, `requests` what it asked for."""

    def __init__(self, profile: Path) -> None:
        (their_in, our_out), (our_in, their_out) = os.pipe(), os.pipe()
        # Chromium reads commands from descriptor 3 and writes to 4; above 9 there is no overlap with those
        given = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, 10) for descriptor in (their_in, their_out)]
        move = "import os, sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4); "
        shim = move + "os.execv(sys.argv[3], sys.argv[3:])"
        root = ["--no-sandbox"] if os.geteuid() == 0 else []
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-c", shim, *map(str, given)),
                *(str(CHROMIUM), *_FLAGS, *root, f"--user-data-dir={profile}", "about:blank"),
            ],
            pass_fds=given,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for descriptor in (their_in, their_out, *given):
            os.close(descriptor)
        self._out, self._in, self._held, self._number = our_out, our_in, b"", 0
        self.logs: list[str] = []
        self.requests: list[str] = []
        targets = self.send("Target.getTargets", session=None)["targetInfos"]
        target = next(one["targetId"] for one in targets if one["type"] == "page")
        attached = self.send("Target.attachToTarget", session=None, targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def open(self, address: str) -> None:
        """Load a page and wait until it has drawn itself."""
        self.logs.clear()
        self.requests.clear()
        self.send("Page.navigate", url=address)
        self.wait('document.documentElement?.dataset.ready === "yes"')

    def size(self, width: int, height: int, *, dark: bool = False) -> None:
        self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])

    def value(self, expression: str) -> Any:
        """Evaluate JavaScript, awaiting promises; an exception is an error."""
        answer = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(json.dumps(answer["exceptionDetails"])[:2000])
        return answer["result"].get("value")

    def wait(self, condition: str, seconds: float = 60.0) -> float:
        """Wait until an expression is true; return how long that took."""
        begun = time.monotonic()
        while not self.value(f"Boolean({condition})"):
            if time.monotonic() - begun > seconds:
                raise TimeoutError(f"{condition}; console: {self.logs}")
            time.sleep(0.01)
        return time.monotonic() - begun

    def key(self, key: str) -> None:
        text = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
        code = {"Enter": 13, "Escape": 27, "ArrowDown": 40, "ArrowUp": 38, "End": 35}.get(key, 0)
        self.send("Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=code, **text)
        self.send("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    def close(self) -> None:
        for descriptor in (self._out, self._in):
            os.close(descriptor)
        self._process.terminate()
        self._process.wait(timeout=20)

    def send(self, method: str, session: str | None = "own", **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = self._session
        line = json.dumps(message).encode() + b"\0"
        while line:
            line = line[os.write(self._out, line) :]
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self._note(answer)

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._held:
            if not select.select([self._in], [], [], 60.0)[0]:
                raise TimeoutError("Chromium does not answer")
            more = os.read(self._in, 1 << 20)
            if not more:
                raise RuntimeError("Chromium ended")
            self._held += more
        line, _, self._held = self._held.partition(b"\0")
        return json.loads(line)

    def _note(self, event: dict[str, Any]) -> None:
        method, about = event.get("method"), event.get("params", {})
        if method == "Network.requestWillBeSent":
            self.requests.append(about["request"]["url"])
        elif method == "Log.entryAdded":
            self.logs.append(about["entry"]["text"])
        elif method in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled"):
            self.logs.append(json.dumps(about)[:500])
