"""The image is made once, without a registry, and holds what Python and the profile need and nothing of its builder."""

import ensurepip
import importlib.util
import json
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sandbox_under_test import open_or_skip

from sandbox import Sandbox, SandboxError, build_image, default_sandbox
from sandbox.docker_engine import connect
from sandbox.images import profiles
from sandbox.images.build import checked_preload, host_tag

pytestmark = pytest.mark.docker
SECRET = "hunter2-of-the-builder"


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    open_or_skip("docker").close_sync()
    made = connect()
    yield made
    for image in made.images.list("arpo-sandbox-test"):
        if "arpo-sandbox-test:base" not in image.tags:
            made.images.remove(image.id, force=True)
    made.close()


@pytest.fixture(scope="module")
def empty(client: Any) -> str:
    """An image with nothing in it."""
    client.api.import_image_from_data(b"\0" * 10240, repository="arpo-sandbox-test", tag="empty")
    return "arpo-sandbox-test:empty"


def run_in(client: Any, image: str, code: str) -> Any:
    """Run code in a plain container, without our server; returns the JSON that it prints."""
    output = client.containers.run(
        image,
        ["python3", "-I", "-c", code],
        entrypoint="",
        remove=True,
        read_only=True,
        network_mode="none",
        user="65534:65534",
        cap_drop=["ALL"],
        tmpfs={"/slots": ""},
        working_dir="/slots",
    )
    return json.loads(output)


def derive(client: Any, folder: Path, tag: str, base: str, *lines: str, **files: str) -> str:
    """Build an image on another that is here; the files lie in the context."""
    for name, text in files.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    (folder / "Dockerfile").write_text("\n".join([f"FROM {base}", *lines]))
    client.images.build(path=str(folder), tag=tag, rm=True, forcerm=True, network_mode="none")
    return tag


@pytest.fixture(scope="module")
def base(client: Any, tmp_path_factory: pytest.TempPathFactory) -> str:
    """An image such as users have: another user, pip and its configuration, and a compiler."""
    pip = importlib.util.find_spec("pip")
    if pip is None or pip.origin is None:
        pytest.skip("NOT TESTED: this Python has no pip to make a base image with")
    folder = tmp_path_factory.mktemp("base")
    shutil.copytree(Path(pip.origin).parent, folder / "pip", ignore=shutil.ignore_patterns("__pycache__"))
    return derive(
        client,
        folder,
        "arpo-sandbox-test:base",
        build_image(profile="minimal", plain_tmp=True),
        f"COPY pip {profiles.SITE_PACKAGES}/pip",
        "COPY gcc /usr/bin/gcc-12",
        "COPY gcc /usr/bin/x86_64-linux-gnu-ld.bfd",
        "COPY conf /etc/pip.conf",
        "USER 65534",
        gcc="#!/bin/sh\n",
        conf=f"[global]\nindex-url = https://user:{SECRET}@127.0.0.1:1/simple\n",
    )


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def fresh_cache(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and a builder with a secret."""
    monkeypatch.setenv("ARPO_CACHE", str(cache))
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", f"https://user:{SECRET}@127.0.0.1:1/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    return cache


@pytest.mark.parametrize("profile", ["minimal", "math", "data"])
def test_a_profile_has_exactly_what_is_pinned(client: Any, profile: str) -> None:
    code = (
        "import importlib.metadata as m, json; print(json.dumps([f'{d.name}=={d.version}' for d in m.distributions()]))"
    )
    pins = [line for line in profiles.requirements(profile).splitlines() if not line.startswith("#")]
    assert sorted(run_in(client, build_image(profile=profile), code)) == pins


def test_every_package_and_modules_with_shared_libraries_can_be_imported(client: Any) -> None:
    modules = "numpy, sympy, scipy.linalg, scipy.stats, scipy.optimize, mpmath, pandas, tabulate, zoneinfo"
    modules += ", ssl, sqlite3, ctypes, lzma, bz2, zlib, hashlib, decimal, multiprocessing, asyncio, venv, unittest"
    code = f"import {modules}; print(pandas.Series([1], index=[zoneinfo.ZoneInfo('Europe/Paris').key]).sum())"
    assert run_in(client, build_image(profile="data"), code) == 1


IMPORTED_FROM_BYTECODE = """
import json, os, sys
import asyncio, unittest, numpy, sympy
specs = [(name, module.__spec__) for name, module in list(sys.modules.items()) if getattr(module, "__spec__", None)]
from_source = [name for name, spec in specs if (spec.origin or "").endswith(".py") and not os.path.exists(spec.cached)]
flags = {open(spec.cached, "rb").read(8)[4] for _, spec in specs if spec.cached}
print(json.dumps([len(specs) > 500, from_source, list(flags), numpy.array_equal.__wrapped__.__code__.co_filename]))
"""


@pytest.mark.parametrize(("own", "packages"), [(True, profiles.SITE_PACKAGES), (False, "/opt/arpo/packages")])
def test_everything_is_imported_from_bytecode_that_is_not_checked(
    own: bool, packages: str, client: Any, request: pytest.FixtureRequest
) -> None:
    tag = build_image() if own else build_image(request.getfixturevalue("base"))
    many, from_source, flags, place = run_in(client, tag, IMPORTED_FROM_BYTECODE)
    assert (many, from_source, flags) == (True, [], [1])
    assert place.startswith(packages)


def test_tmp_is_a_directory_only_where_it_is_asked_for(client: Any) -> None:
    code = "import json, os; print(json.dumps([os.path.islink('/tmp'), os.readlink('/work'), os.stat('/tmp').st_mode]))"
    assert run_in(client, build_image(profile="minimal", plain_tmp=True), code) == [False, "/proc/self/fd/200", 0o41777]
    linked = "import json, os; print(json.dumps(os.readlink('/tmp')))"
    assert run_in(client, build_image(profile="minimal"), linked) == "/work"


def test_another_profile_other_pins_or_another_tmp_is_another_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tags = {host_tag(profile, plain) for profile in ("minimal", "math", "data") for plain in (False, True)}
    assert len(tags) == 6
    shutil.copytree(profiles.IMAGES, tmp_path / "images")
    monkeypatch.setattr(profiles, "IMAGES", tmp_path / "images")
    assert host_tag("math", False) in tags
    with (tmp_path / "images" / "math.txt").open("a") as file:
        file.write("six==1.17.0\n")
    assert host_tag("math", False) not in tags


def test_the_packages_are_installed_once_when_many_ask(fresh_cache: Path) -> None:
    code = (
        "import logging, sandbox.images.profiles as p; logging.basicConfig(level=20); "
        "print(p.packages_directory('math'))"
    )
    pair = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    answers = [process.communicate() for process in pair]
    (place,) = {Path(answer[0].strip()) for answer in answers}
    assert "".join(answer[1] for answer in answers).count("installed the packages") == 1
    assert [path.name for path in place.parent.iterdir() if not path.name.startswith(".")] == [place.name]
    assert (place / "numpy").is_dir()
    assert not list(place.rglob("tests"))


FIND = """
import json, os
found = []
for top, folders, names in os.walk("/"):
    folders[:] = [name for name in folders if os.path.join(top, name) not in ("/proc", "/sys", "/dev")]
    for path in [os.path.join(top, name) for name in names]:
        if os.path.isfile(path) and any(word.encode() in open(path, "rb").read() for word in WORDS):
            found.append(path)
print(json.dumps([found, [name for name in os.environ if name not in ("PATH", "LANG", "HOSTNAME", "HOME")]]))
"""


def test_nothing_of_the_builder_gets_into_the_image(client: Any, base: str, fresh_cache: Path) -> None:
    tag = host_tag("math", plain_tmp=True)
    for container_image in client.images.list(tag):
        client.images.remove(container_image.id, force=True)
    assert build_image(plain_tmp=True) == tag
    words = [SECRET, str(fresh_cache), str(Path(__file__).parent)]
    assert run_in(client, base, f"WORDS = {words!r}\n{FIND}") == [["/etc/pip.conf"], []]
    assert run_in(client, tag, f"WORDS = {words!r}\n{FIND}") == [[], []]
    assert SECRET not in str(client.api.history(tag)) + str(client.api.inspect_image(tag))


NO_TOOLS = """
import importlib.util, json, os, re, shutil
names = {name for folder in os.get_exec_path() if os.path.isdir(folder) for name in os.listdir(folder)}
tools = [name for name in names if re.search(r"(^|-)(cc|gcc|g\\+\\+|ld|as|clang|tcc)\\b|^pip", name)]
pip = importlib.util.find_spec("pip") is not None
print(json.dumps([sorted(tools), pip, os.path.exists("/etc/pip.conf"), shutil.which("python3")]))
"""


def test_no_compiler_and_no_pip_is_in_it(client: Any, base: str) -> None:
    clean = [[], False, False, "/usr/local/bin/python3"]
    assert run_in(client, build_image(), NO_TOOLS) == clean
    assert run_in(client, build_image(base, "minimal"), NO_TOOLS) == clean
    found = [["gcc-12", "x86_64-linux-gnu-ld.bfd"], True, True, "/usr/local/bin/python3"]
    assert run_in(client, base, NO_TOOLS) == found


def test_an_image_on_a_base_has_the_profile_and_is_root_for_the_supervisor(client: Any, base: str) -> None:
    tag = build_image(base)
    assert checked_preload(client, tag) == ["numpy", "sympy"]
    assert client.api.inspect_image(tag)["Config"]["User"] == "0:0"
    assert "PIP_ARGS" not in str(client.api.history(tag))
    with Sandbox.open_sync("docker", image=tag) as opened, opened.interpreter_sync() as python:
        assert python.run("import os; os.getcwd()").value == "'/work'"
        (copy,) = python.fork()
        assert copy.run("import tempfile; tempfile.gettempdir()").value == "'/work'"


def test_a_base_that_can_not_be_had_is_an_error_of_the_machinery(client: Any) -> None:
    with pytest.raises(SandboxError, match="no-such-image"):
        build_image("localhost:1/no-such-image:none")


def test_a_base_without_python_is_refused_and_leaves_no_container(client: Any, empty: str) -> None:
    assert checked_preload(client, empty) == []  # an image of others asks for nothing to be imported
    with pytest.raises(SandboxError, match=r"has no python3.*python:3\.12-slim"):
        build_image(empty)
    assert client.containers.list(all=True, filters={"ancestor": empty}) == []


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What pip finds: itself, and two packages, of which the first needs the second."""
    (pip,) = Path(ensurepip.__file__).parent.glob("_bundled/pip-*.whl")
    shutil.copy(pip, tmp_path)
    for name, needs in (("arpo_first", "Requires-Dist: arpo-second\n"), ("arpo_second", "")):
        with zipfile.ZipFile(tmp_path / f"{name}-1.0-py3-none-any.whl", "w") as wheel:
            about = f"{name}-1.0.dist-info"
            wheel.writestr(f"{name}.py", f"{'import arpo_second' if needs else ''}\nvalue = 42\n")
            wheel.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{needs}")
            wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            wheel.writestr(f"{about}/RECORD", "")
    for name, value in (("NO_INDEX", "1"), ("FIND_LINKS", str(tmp_path)), ("CONFIG_FILE", "/dev/null")):
        monkeypatch.setenv(f"PIP_{name}", value)


@pytest.mark.parametrize("where", ["docker", "unsafe_local", "docker on a base", "docker on a base without pip"])
def test_packages_are_added_to_the_profile_with_what_they_need(
    where: str, wheels: None, base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "on a base" in where:
        without = build_image(profile="minimal") if "without" in where else base
        monkeypatch.setenv("ARPO_SANDBOX_BASE_IMAGE", without)
    settings = {"backend": where.split()[0], "profile": "minimal", "packages": ["arpo-first == 1.0"], "sessions": 2}
    with default_sandbox(settings) as opened:
        assert default_sandbox({**settings}) is opened
        assert opened.run_sync("import arpo_first; arpo_first.value").value == "42"
    with pytest.raises(SandboxError, match=r"No matching distribution found for arpo-third[\s\S]*check the names"):
        default_sandbox({**settings, "packages": ["arpo-third"]}).run_sync("1")


def test_an_image_with_a_volume_is_refused(client: Any, tmp_path: Path) -> None:
    tag = derive(client, tmp_path, "arpo-sandbox-test:volume", build_image(profile="minimal"), "VOLUME /data")
    with pytest.raises(SandboxError, match="declares the volumes /data"):
        checked_preload(client, tag)


@pytest.mark.parametrize("image", ["no-such-image:none", "no such image"])
def test_an_image_that_is_not_there_is_named(client: Any, image: str) -> None:
    with pytest.raises(SandboxError, match=f"image {image!r}"):
        checked_preload(client, image)
