"""The HTTP endpoint, as a client of SandboxFusion sees it."""

from __future__ import annotations

import base64
import http.client
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests
from sandbox_under_test import open_or_skip, served

from sandbox.http.sandbox_server import make_server, serve

pytestmark = pytest.mark.docker


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with open_or_skip("docker") as sandbox, served(sandbox) as address:
        yield f"{address}/run_code"


def post(url: str, **request: Any) -> dict[str, Any]:
    answer: dict[str, Any] = requests.post(url, json={"language": "python", **request}, timeout=60).json()
    return answer


def test_the_answer_has_the_fields_of_sandbox_fusion(url: str) -> None:
    answer = post(url, code="print('hello')", compile_timeout=10, run_timeout=10, memory_limit_MB=-1, stdin="")
    seconds = answer["run_result"].pop("execution_time")
    assert 0 < seconds < 10
    assert answer == {
        "status": "Success",
        "message": "",
        "compile_result": None,
        "run_result": {"status": "Finished", "return_code": 0, "stdout": "hello\n", "stderr": ""},
        "executor_pod_name": None,
        "files": {},
    }


@pytest.mark.parametrize("code", ["print(input() + input())", "import sys; print(sys.stdin.read().replace('\\n', ''))"])
def test_standard_input_is_there(url: str, code: str) -> None:
    assert post(url, code=code, stdin="a\nb\n")["run_result"]["stdout"] == "ab\n"


@pytest.mark.parametrize(
    ("code", "status", "returned"),
    [
        ("1 / 0", "Finished", 1),
        ("import sys; sys.exit(3)", "Finished", 3),
        ("raise SystemExit('no')", "Finished", 1),
        ("import os; os.abort()", "Finished", -9),
        ("def", "Finished", 1),
        ("while True: pass", "TimeLimitExceeded", None),
    ],
)
def test_the_codes_fault_is_failed(url: str, code: str, status: str, returned: int | None) -> None:
    answer = post(url, code=code, run_timeout=1)
    result = answer["run_result"]
    assert (answer["status"], result["status"], result["return_code"]) == ("Failed", status, returned)


def test_a_traceback_is_in_stderr(url: str) -> None:
    assert "ZeroDivisionError" in post(url, code="1 / 0")["run_result"]["stderr"]


def test_files_go_in_and_out(url: str) -> None:
    code = "data = open('in/a.bin', 'rb').read(); open('out.bin', 'wb').write(data[::-1]); 6 * 7"
    files = {"in/a.bin": base64.b64encode(bytes(range(256))).decode()}
    answer = post(url, code=code, files=files, fetch_files=["out.bin", "missing"])
    assert {name: base64.b64decode(data) for name, data in answer["files"].items()} == {
        "out.bin": bytes(reversed(range(256)))
    }


def test_memory_can_be_limited_further(url: str) -> None:
    answer = post(url, code="x = bytearray(150 << 20)", memory_limit_MB=100)
    assert "MemoryError" in answer["run_result"]["stderr"]


def test_many_at_once_share_nothing(url: str) -> None:
    code = "import os; print({0}, 'x' in globals(), os.listdir()); x = 1; open('left', 'w').close(); x"
    with ThreadPoolExecutor(32) as pool:
        answers = list(pool.map(lambda n: post(url, code=code.format(n))["run_result"]["stdout"], range(64)))
    assert answers == [f"{n} False []\n" for n in range(64)]  # and a last expression is not printed


@pytest.mark.parametrize(
    ("request_", "complaint"),
    [
        ({"code": 3}, "'code' has to be a string"),
        ({"code": "1", "language": "cpp"}, "use python"),
        ({"code": "1", "run_timeout": -1}, "'run_timeout'"),
        ({"code": "1", "files": {"a": "?"}}, "file 'a' is not base64"),
        ({"code": "1", "files": ["a"]}, "'files'"),
        ({"code": "1", "fetch_files": "a"}, "'fetch_files'"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(url: str, request_: dict[str, Any], complaint: str) -> None:
    answer = requests.post(url, json=request_, timeout=60)
    assert answer.status_code == 400
    assert complaint in answer.json()["message"]


def test_what_is_no_json_is_refused(url: str) -> None:
    json_type = {"Content-Type": "application/json; charset=utf-8"}
    assert requests.post(url, data=b"{", headers=json_type, timeout=60).status_code == 400


def test_another_path_is_not_there(url: str) -> None:
    answer = requests.post(url.replace("run_code", "run"), json={}, timeout=60)
    assert answer.status_code == 404
    assert "there is no path /run" in answer.json()["message"]


def test_health(url: str) -> None:
    assert requests.get(url.replace("run_code", "v1/ping"), timeout=60).json()["isolation"].startswith("docker(")


@pytest.mark.parametrize("code", ["import sys; sys.exit('²')", "import sys; sys.exit('9' * 5000)"])
def test_an_exit_with_a_text_is_a_failure_of_the_code(url: str, code: str) -> None:
    answer = post(url, code=code)
    assert (answer["status"], answer["run_result"]["return_code"]) == ("Failed", 1)


@pytest.mark.parametrize("length", ["abc", "-1", "99999999999"])
def test_a_length_that_makes_no_sense_is_refused(url: str, length: str) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", urlsplit(url).port or 0, timeout=10)
    connection.putrequest("POST", "/run_code")
    connection.putheader("Content-Type", "application/json")
    connection.putheader("Content-Length", length)
    connection.endheaders()
    assert connection.getresponse().status in (400, 411, 413)
    connection.close()


def test_a_name_that_can_not_be_encoded_is_refused(url: str) -> None:
    answer = requests.post(url, json={"code": "1", "fetch_files": ["\ud800"]}, timeout=60)
    assert answer.status_code == 400
    assert post(url, code="print(1)")["status"] == "Success"


@pytest.mark.parametrize("kind", [None, "text/plain", "application/x-www-form-urlencoded", "text/json"])
def test_what_a_page_in_a_browser_could_send_is_refused(url: str, kind: str | None) -> None:
    answer = requests.post(url, data=b'{"code": "1"}', headers={"Content-Type": kind}, timeout=60)
    assert answer.status_code == 415
    assert "application/json" in answer.json()["message"]


@pytest.mark.parametrize("origin", ["https://example.com", "null", "http://127.0.0.1:1", "http://rebound.example:8080"])
def test_pages_in_a_browser_are_refused(url: str, origin: str) -> None:
    headers = {"Origin": origin, "Host": "rebound.example:8080"}
    assert requests.post(url, json={"code": "1"}, headers=headers, timeout=60).status_code == 403
    assert requests.get(url.replace("run_code", "health"), headers=headers, timeout=60).status_code == 403


@pytest.fixture(scope="module")
def guarded() -> Iterator[str]:
    with open_or_skip("docker", sessions=4) as sandbox, served(sandbox, token="open-sesame") as address:
        yield f"{address.removeprefix('http://')}/run_code"


@pytest.mark.parametrize(
    "given", ["", "Bearer", "Bearer open-sesam", "Bearer open-sesame2", "open-sesame", "Basic ?", "Bearer \xe9"]
)
def test_without_the_token_nothing_is_run(guarded: str, given: str) -> None:
    headers = {"Authorization": given.encode("latin-1")} if given else {}
    answer = requests.post(f"http://{guarded}", json={"code": "1"}, headers=headers, timeout=60)
    assert answer.status_code == 401
    assert "token" in answer.json()["message"]


def test_with_the_token_code_is_run(guarded: str) -> None:
    headers = {"Authorization": "Bearer open-sesame"}
    request = {"json": {"code": "print(6 * 7)"}, "timeout": 60}
    for answer in (
        requests.post(f"http://{guarded}", headers=headers, **request),
        requests.post(f"http://any:open-sesame@{guarded}", **request),
    ):
        assert answer.json()["run_result"]["stdout"] == "42\n"


@pytest.mark.parametrize("host", ["0.0.0.0", "", "192.168.0.7", "example.com"])
def test_beyond_loopback_it_takes_a_token(host: str) -> None:
    with pytest.raises(ValueError, match="ARPO_SANDBOX_TOKEN"):
        make_server(None, host, 0)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="ARPO_SANDBOX_TOKEN"):
        serve(host, backend="unsafe_local")


def test_a_token_that_no_header_could_carry_is_refused() -> None:
    with pytest.raises(ValueError, match="visible ASCII"):
        make_server(None, port=0, token="two words")  # type: ignore[arg-type]
