"""The HTTP endpoint, as a client of SandboxFusion sees it."""

import base64
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import requests
from sandbox_under_test import fastest, open_or_skip, served

from sandbox.http.sandbox_server import make_server, serve

TOKEN = {"Authorization": "Bearer open-sesame"}


@pytest.fixture(scope="module")
def urls() -> Iterator[tuple[str, str]]:
    with open_or_skip(fastest()) as sandbox, served(sandbox) as free, served(sandbox, token="open-sesame") as guarded:
        yield f"{free}/run_code", f"{guarded}/run_code"


@pytest.fixture
def url(urls: tuple[str, str]) -> str:
    return urls[0]


def post(url: str, **request: Any) -> dict[str, Any]:
    answer: dict[str, Any] = requests.post(url, json={"language": "python", **request}, timeout=60).json()
    return answer


def test_the_answer_has_the_fields_of_sandbox_fusion(url: str) -> None:
    fields = {"compile_timeout": 10, "run_timeout": 10, "memory_limit_MB": -1, "files": {}, "fetch_files": []}
    answer = post(url, code="print('hello')", stdin="", **fields)
    assert requests.get(url.replace("run_code", "v1/ping"), timeout=60).json()["isolation"]
    assert 0 < answer["run_result"].pop("execution_time") < 10
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
        ("import sys; sys.exit('9' * 5000)", "Finished", 1),
        ("import os; os.abort()", "Finished", -9),
        ("while True: pass", "TimeLimitExceeded", None),
    ],
)
def test_the_codes_fault_is_failed(url: str, code: str, status: str, returned: int | None) -> None:
    answer = post(url, code=code, run_timeout=1)
    result = answer["run_result"]
    assert (answer["status"], result["status"], result["return_code"]) == ("Failed", status, returned)
    assert returned != 1 or "Error" in result["stderr"] or "Exit" in result["stderr"]


def test_files_and_less_memory(url: str) -> None:
    files = {"in/a.bin": base64.b64encode(bytes(range(256))).decode()}
    code = "print(sum(open('in/a.bin', 'rb').read()))\nx = bytearray(150 << 20)"
    result = post(url, code=code, files=files, memory_limit_MB=100)["run_result"]
    assert result["stdout"] == f"{sum(range(256))}\n"
    assert "MemoryError" in result["stderr"]


def test_many_at_once_share_nothing(url: str) -> None:
    code = "import os; print({0}, 'x' in globals(), os.listdir()); x = 1; open('left', 'w').close(); x"
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda n: post(url, code=code.format(n))["run_result"]["stdout"], range(16)))
    assert answers == [f"{n} False []\n" for n in range(16)]  # and a last expression is not printed


@pytest.mark.parametrize(
    ("request_", "complaint"),
    [
        ({"code": 3}, "'code' has to be a string"),
        ({"code": "1", "language": "cpp"}, "use python"),
        ({"code": "1", "run_timeout": -1}, "'run_timeout'"),
        ({"code": "1", "files": {"a": "?"}}, "file 'a' is not base64"),
        ({"code": "1", "files": {"\ud800": ""}}, "not a file name"),
        ({"code": "1", "fetch_files": ["a"]}, "'fetch_files' is not supported"),
        (["code"], "JSON object"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(url: str, request_: Any, complaint: str) -> None:
    answer = requests.post(url, json=request_, timeout=60)
    assert answer.status_code == 400
    assert complaint in answer.json()["message"]


@pytest.mark.parametrize("kind", [None, "text/plain", "application/json"])
@pytest.mark.parametrize("origin", ["", "null", "http://rebound.example:8080"])
def test_what_a_page_in_a_browser_could_send_is_refused(url: str, kind: str | None, origin: str) -> None:
    headers = {"Origin": origin, "Host": "rebound.example:8080"} if origin else {}
    answer = requests.post(url, data=b'{"code": "1"}', headers={"Content-Type": kind, **headers}, timeout=60)
    assert answer.status_code == (403 if origin else 200 if kind == "application/json" else 415)
    answer = requests.get(url.replace("run_code", "health"), headers=headers, timeout=60)
    assert answer.status_code == (403 if origin else 200)


@pytest.mark.parametrize("given", ["Bearer", "Bearer open-sesam", "open-sesame", "Basic ?", "Bearer \xe9"])
def test_without_the_token_nothing_is_run(urls: tuple[str, str], given: str) -> None:
    headers = {"Authorization": given.encode("latin-1")} if given else {}
    answer = requests.post(urls[1], json={"code": "1"}, headers=headers, timeout=60)
    assert answer.status_code == 401
    assert "token" in answer.json()["message"]
    for url, right in ((urls[1], TOKEN), (urls[1].replace("//", "//any:open-sesame@"), {})):
        answer = requests.post(url, json={"code": "print(6 * 7)"}, headers=right, timeout=60)
        assert answer.json()["run_result"]["stdout"] == "42\n"


@pytest.mark.parametrize("host", ["0.0.0.0", "", "example.com"])
def test_beyond_loopback_it_takes_a_token(host: str) -> None:
    with pytest.raises(ValueError, match="ARPO_SANDBOX_TOKEN"):
        make_server(None, host, 0)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="ARPO_SANDBOX_TOKEN"):
        serve(host, backend="unsafe_local")
    with pytest.raises(ValueError, match="visible ASCII"):  # which a header could carry
        make_server(None, host, 0, token="two words")  # type: ignore[arg-type]
