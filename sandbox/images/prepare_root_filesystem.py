"""Installs a profile's packages and readies a root file system for the sandbox; a script, needs nothing but Python.

    prepare_root_filesystem.py install REQUIREMENTS TARGET PLACE [PIP ARGUMENTS]  wheels into TARGET for PLACE
    prepare_root_filesystem.py compile DIRECTORY PLACE  bytecode of DIRECTORY for PLACE
    prepare_root_filesystem.py finish PACKAGES PLAIN_TMP  inside an image: links, no pip, no compiler

Bytecode is never checked against its source (the image is read-only), and names the place where it is used, so that
nothing in it tells where it was made.
"""

import compileall
import glob
import importlib.util
import os
import py_compile
import re
import shutil
import subprocess
import sys
import sysconfig

_UNUSED = re.compile(r"/(test|tests|idlelib|lib2to3|tkinter|turtledemo|ensurepip)/")
_COMPILER = re.compile(
    r"(.*-)?(cc|c\+\+|c[89]9|cpp|gcc|g\+\+|gcc-(ar|nm|ranlib)|clang|clang\+\+|tcc|as|ld|ld\.(bfd|gold|lld)|lld|gold|gfortran)"
    r"(-[0-9.]+)?"
)
_COMPILER_PARTS = ("/usr/lib/gcc", "/usr/libexec/gcc", "/usr/lib/gcc-cross", "/usr/lib/llvm-*/bin")
_LIST_FONTS = """
from matplotlib import font_manager
find = font_manager.findSystemFonts
font_manager.findSystemFonts = lambda paths=None, fontext="ttf": find(paths, fontext) if paths else []
font_manager._load_fontmanager(try_read_cache=False)
"""  # those of this machine are not there where the packages are used
_PIP_CONFIG = ("/etc/pip.conf", "/etc/xdg/pip", "/root/.pip", "/root/.config/pip", "/root/.cache/pip", "/root/.netrc")


def install(requirements: str, target: str, place: str, arguments: "list[str]") -> None:
    """Install wheels, those of the requirements and what they need, without their tests."""
    os.makedirs(target, exist_ok=True)
    with open(requirements) as file:
        wanted = [line for line in file if line.strip() and not line.startswith("#")]
    if not wanted:
        return
    pip = [*_pip(os.path.dirname(requirements)), "install", "--quiet", "--disable-pip-version-check", "--no-input"]
    pip += ["--only-binary", ":all:", "--no-compile", "--no-user", "--target", target]
    if subprocess.call([*pip, "-r", requirements, *arguments], cwd=target):
        sys.exit("pip could not install " + ", ".join(line.strip() for line in wanted))
    for name in ("bin", "share"):
        shutil.rmtree(os.path.join(target, name), ignore_errors=True)
    for directory, names, _ in os.walk(target):
        for name in [name for name in names if name in ("tests", "__pycache__")]:
            shutil.rmtree(os.path.join(directory, name))
            names.remove(name)
    _list_fonts(target)
    compile_directory(target, place)


def _list_fonts(packages: str) -> None:
    """Make matplotlib's list of its fonts, and have it find that list: a session could only make it anew each time."""
    source = os.path.join(packages, "matplotlib", "font_manager.py")
    if not os.path.exists(source):
        return
    with open(source) as file:
        text = file.read()
    with open(source, "w") as file:
        file.write(text.replace('mpl.get_cachedir(), f"fontlist', 'mpl.get_data_path(), f"fontlist'))
    environment = {**os.environ, "PYTHONPATH": packages, "MPLCONFIGDIR": packages, "PATH": ""}
    if subprocess.call([sys.executable, "-B", "-s", "-c", _LIST_FONTS], env=environment, cwd="/"):
        sys.exit("the fonts of matplotlib could not be listed")


def _pip(directory: str) -> "list[str]":
    """Return how pip is run: this Python's own, else a wheel of pip in a directory."""
    if importlib.util.find_spec("pip"):
        return [sys.executable, "-m", "pip"]
    wheels = glob.glob(directory + "/pip-*.whl")
    if not wheels:
        sys.exit("there is no pip; take a base with pip, lay a wheel of pip beside the Dockerfile, or use minimal.txt")
    return [sys.executable, wheels[0] + "/pip"]


def compile_directory(directory: str, place: str, leave_out: "re.Pattern[str] | None" = None) -> None:
    """Write bytecode beside the sources; what can not be compiled is left as it is."""
    compileall.compile_dir(
        directory,
        stripdir=directory,
        prependdir=place,
        quiet=2,
        rx=leave_out,
        workers=0,
        invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
    )


def finish(packages: str, plain_tmp: bool) -> None:
    """Ready the root file system of an image."""
    _link("/work", "/proc/self/fd/200")
    if not plain_tmp:
        _link("/tmp", "/work")
    elif not os.path.isdir("/tmp") or os.path.islink("/tmp"):
        _remove("/tmp")
        os.mkdir("/tmp")
        os.chmod("/tmp", 0o1777)
    _remove_tools()
    if os.listdir(packages):
        _put_first(packages)
    library = sysconfig.get_path("stdlib")
    compile_directory(library, library, _UNUSED)
    os.unlink(__file__)


def _link(path: str, target: str) -> None:
    _remove(path)
    os.symlink(target, path)


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)


def _remove_tools() -> None:
    """Remove pip, its configuration, and what makes machine code."""
    for pattern in (*_PIP_CONFIG, *_COMPILER_PARTS):
        for path in glob.glob(pattern):
            _remove(path)
    for directory in _site_directories():
        for path in glob.glob(directory + "/pip") + glob.glob(directory + "/pip-*"):
            _remove(path)
    _remove(os.path.join(sysconfig.get_path("stdlib"), "ensurepip"))
    for directory in {*os.environ.get("PATH", "").split(":"), "/usr/local/bin", "/usr/bin"}:
        for name in os.listdir(directory) if os.path.isdir(directory) else []:
            if _COMPILER.fullmatch(name) or re.fullmatch(r"pip[0-9.]*", name):
                _remove(os.path.join(directory, name))


def _site_directories() -> "list[str]":
    import site

    return [path for path in site.getsitepackages() if os.path.isdir(path)]


def _put_first(packages: str) -> None:
    """Have Python find the profile's packages, before those of the base."""
    import site

    directory = (_site_directories() or site.getsitepackages())[0]
    os.makedirs(directory, exist_ok=True)
    with open(os.path.join(directory, "arpo-sandbox.pth"), "w") as file:
        file.write(f"import sys; sys.path.insert(len(sys.path) - 1, {packages!r})\n")


if __name__ == "__main__":
    if sys.version_info < (3, 9):  # noqa: UP036
        sys.exit("Python 3.9 or newer is needed, this is " + sys.version.split()[0])
    verb, values = sys.argv[1], sys.argv[2:]
    if verb == "install":
        install(values[0], values[1], values[2], values[3:])
    elif verb == "compile":
        compile_directory(values[0], values[1])
    else:
        finish(values[0], values[1] == "1")
