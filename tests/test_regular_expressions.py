"""Every regular expression that may see a policy's text takes linear time: `re` holds the GIL until it is done.

The patterns are found, not listed: all that the modules compile, and those that functions give to `re`. Each is run on
texts that are made from the pattern itself: what its repetitions repeat, and what may stand before them, again and
again, with an end that does not match.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import random
import re
import signal
import string
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
# Where text of a policy, or of a page that it opens, is read; the command line reads our own.
FILES = [
    path
    for package in ("arpo_env", "arpo_trainer")
    for path in sorted((ROOT / package).rglob("*.py"))
    if path.relative_to(ROOT).parts[1] != "cli"
]
LENGTH = 4096  # characters of a text
SECONDS = 0.05  # of CPU
_STUCK = 0.15  # seconds of CPU after which a match is given up
_MOST_TEXTS = 16  # per pattern
_METHODS = ("match", "fullmatch", "search", "sub", "subn", "split", "findall", "finditer")
_OTHERS = "a0 .x-\n中"  # for sets that name what they do not contain
_CONSTANTS = re._constants  # type: ignore[attr-defined]
_REPEATS = (_CONSTANTS.MAX_REPEAT, _CONSTANTS.MIN_REPEAT, _CONSTANTS.POSSESSIVE_REPEAT)


class Stuck(Exception):
    """A match was given up."""


def sample(items: Iterable[Any], rng: random.Random, more: int = 1) -> str:
    """Return a text that about matches a parsed pattern; assertions and references are left out."""
    return "".join(_sample(operator, value, rng, more) for operator, value in items)


def _sample(operator: Any, value: Any, rng: random.Random, more: int) -> str:
    match operator:
        case _CONSTANTS.LITERAL:
            return chr(value)
        case _CONSTANTS.NOT_LITERAL:
            return next(letter for letter in _OTHERS if ord(letter) != value)
        case _CONSTANTS.ANY:
            return rng.choice("a0 ")
        case _CONSTANTS.IN:
            return rng.choice(letters_of(value))
        case _CONSTANTS.BRANCH:
            return sample(rng.choice(value[1]), rng, more)
        case _CONSTANTS.SUBPATTERN:
            return sample(value[-1], rng, more)
        case _CONSTANTS.ATOMIC_GROUP:
            return sample(value, rng, more)
        case _ if operator in _REPEATS:
            low, high, body = value
            times = min(high, max(low, rng.randint(0, more)))
            return "".join(sample(body, rng, more) for _ in range(min(times, 40)))
    return ""


def letters_of(items: Any) -> str:
    """Return a few letters of a set."""
    alone = re._parser.SubPattern(re._parser.State(), [(_CONSTANTS.IN, items)])  # type: ignore[attr-defined]
    inside = re._compiler.compile(alone, re.UNICODE).match  # type: ignore[attr-defined]
    found = [letter for letter in _OTHERS + string.printable if inside(letter)]
    found += [chr(value) for operator, value in items if operator is _CONSTANTS.LITERAL]
    found += [chr(value[0]) for operator, value in items if operator is _CONSTANTS.RANGE]
    return "".join(dict.fromkeys(found[:6] + found[-3:])) or "?"


def pumps(tree: Any, rng: random.Random, before: str = "") -> Iterator[tuple[str, str]]:
    """Yield (start, part to repeat) for every repetition of a pattern, and for its sequences as wholes."""
    items = list(tree)
    for place, (operator, value) in enumerate(items):
        start = before + sample(items[:place], rng)
        if operator in _REPEATS:
            _, high, body = value
            if high > 8:
                for _ in range(3):
                    yield start, sample(body, rng)
                # what follows may compete for the same letters
                yield start, sample(body, rng) + sample(items[place + 1 : place + 4], rng)
                yield before, sample(items[place : place + 4], rng, 2)
            yield from pumps(body, rng, start)
        elif operator is _CONSTANTS.BRANCH:
            for branch in value[1]:
                yield start, sample(branch, rng)
                yield from pumps(branch, rng, start)
        elif operator is _CONSTANTS.ATOMIC_GROUP:
            yield from pumps(value, rng, start)
        elif operator in (_CONSTANTS.SUBPATTERN, _CONSTANTS.ASSERT, _CONSTANTS.ASSERT_NOT):
            yield from pumps(value[-1], rng, start)
    for more in (0, 1, 2):
        yield before, sample(items, rng, more)


def hostile_texts(pattern: str, flags: int, length: int, spaces: bool) -> list[str]:
    """Return texts that may take a pattern long."""
    rng = random.Random(pattern)
    tree = re._parser.parse(pattern, flags)  # type: ignore[attr-defined]
    found: dict[tuple[str, str], None] = {}
    for start, part in pumps(tree, rng):
        found[start[:200], part] = None
        found["", part] = None
    letters = list(dict.fromkeys("".join(part for _, part in found)))
    rng.shuffle(letters)
    found |= dict.fromkeys(("", letter) for letter in [" ", *letters[:12]])
    pairs = [(one, other) for one in [" ", *letters[:2]] for other in [" ", *letters[:2]] if one != other]
    texts = [one * (length // 2) + other * (length // 2) for one, other in pairs]
    cases = list(found)
    cases = rng.sample(cases, _MOST_TEXTS) if len(cases) > _MOST_TEXTS else cases
    for start, part in cases:
        if part:
            repeated = (start + part * ((length - len(start)) // len(part)))[:length]
            texts += [repeated + "\x00", repeated]
    return texts if spaces else [re.sub(r"\s+", lambda run: run[0][0], text) for text in texts]


def seconds(run: Callable[[Any], object], text: Any) -> float:
    """Return the CPU time of a match, infinite if it was given up."""
    start = time.thread_time()
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, _STUCK)
        try:
            run(text)
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    except Stuck:  # outside: the signal may arrive while the timer is being stopped
        return float("inf")
    return time.thread_time() - start


def too_slow(pattern: re.Pattern[Any], methods: Iterable[str], spaces: bool = True) -> str:
    """Return a text that takes a pattern too long, "" if none was found.

    Args:
        pattern: the pattern.
        methods: how it is used.
        spaces: whether it may see runs of spaces.
    """
    search = not set(methods) <= {"match", "fullmatch"}
    runs: list[Callable[[Any], object]] = []
    if search:
        runs.append(lambda text: sum(1 for _ in pattern.finditer(text)))
    if "fullmatch" in methods:
        runs.append(pattern.fullmatch)
    elif not search:
        runs.append(pattern.match)
    source = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")
    flags = pattern.flags if isinstance(pattern.pattern, str) else pattern.flags & ~re.LOCALE
    for text in hostile_texts(source, flags, LENGTH, spaces):
        given = text if isinstance(pattern.pattern, str) else text.encode("latin-1", "ignore")
        for run in runs:
            # The shortest of three: this measures the pattern and not the machine.
            if seconds(run, given) > SECONDS and min(seconds(run, given) for _ in range(2)) > SECONDS:
                return text
    return ""


class _Word(str):
    """What only a running function knows: a word, whatever is done with it."""

    def __getitem__(self, key: Any) -> _Word:
        return self

    def __call__(self, *args: Any, **options: Any) -> _Word:
        return self

    def __getattr__(self, name: str) -> _Word:
        return self


class _Names(dict[str, Any]):
    """The names of a module, and the texts that its functions write; any other name is a word."""

    def __init__(self, module: Any, tree: ast.Module) -> None:
        super().__init__(vars(module))
        self.written = {
            target.id: node.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.JoinedStr | ast.Constant)
            for target in node.targets
            if isinstance(target, ast.Name)
        }

    def __missing__(self, name: str) -> Any:
        if name in self.written:
            return self.read(self.written[name])
        return getattr(builtins, name, _Word("word"))

    def read(self, node: ast.expr) -> Any:
        """Evaluate an expression."""
        return eval(compile(ast.Expression(node), "<pattern>", "eval"), {}, self)


Found = tuple[str, re.Pattern[Any], frozenset[str]]  # where it stands, the pattern, the methods with which it is used


def patterns_of(path: Path) -> Iterator[Found]:
    """Yield a module's own patterns, and those of its functions."""
    source = path.read_text(encoding="utf-8")
    if not re.search(r"^import re$", source, re.MULTILINE):
        return
    place = str(path.relative_to(ROOT))
    module = importlib.import_module(place.removesuffix(".py").replace("/", ".").removesuffix(".__init__"))
    tree = ast.parse(source)
    names = _Names(module, tree)
    functions = [
        part for part in ast.walk(tree) if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
    ]
    inside = {below for part in functions for below in ast.walk(part)}
    used: dict[str, set[str]] = {}
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        owner, method = node.func.value, node.func.attr
        if isinstance(owner, ast.Name) and owner.id == "re":
            if method in _METHODS or (method == "compile" and node in inside):
                yield f"{place}:{node.lineno}", _written(node, method, names), frozenset({method})
        elif method in _METHODS and isinstance(owner, ast.Name | ast.Attribute):
            used.setdefault(owner.id if isinstance(owner, ast.Name) else owner.attr, set()).add(method)
    # in a table of patterns, each is used as the variable of its loop is, or of some loop; `str` has a `split` as well
    looped = {method for name, methods in used.items() if name not in vars(module) for method in methods} - {"split"}
    loops: dict[str, set[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.For | ast.comprehension):
            methods = {m for name in _names_in(node.target) for m in used.get(name, ()) if name not in vars(module)}
            for name in _names_in(node.iter):
                loops.setdefault(name, set()).update(methods)
    for name, value in list(vars(module).items()):
        for pattern in _patterns_in(value):
            yield f"{place}: {name}", pattern, frozenset(used.get(name) or loops.get(name) or looped)


def _names_in(node: ast.expr) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def _written(call: ast.Call, method: str, names: _Names) -> re.Pattern[Any]:
    """Return the pattern that a function gives to `re`; what only the function knows of it is a word."""
    place = {"sub": 4, "subn": 4, "split": 3}.get(method, 1 if method == "compile" else 2)
    flags = [word.value for word in call.keywords if word.arg == "flags"] or call.args[place:][:1]
    return re.compile(names.read(call.args[0]), names.read(flags[0]) if flags else 0)


def _patterns_in(value: Any) -> Iterator[re.Pattern[Any]]:
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, type):
        yield from (one for one in vars(value).values() if isinstance(one, re.Pattern))
    elif isinstance(value, dict | list | tuple):
        for one in value.values() if isinstance(value, dict) else value:
            if isinstance(one, re.Pattern | list | tuple):
                yield from _patterns_in(one)


@pytest.fixture(autouse=True)
def give_up() -> Iterator[None]:
    """Let `re`, which looks for signals from time to time, raise `Stuck`."""

    def stuck(number: int, frame: object) -> None:
        raise Stuck

    before = signal.signal(signal.SIGVTALRM, stuck)
    yield
    signal.signal(signal.SIGVTALRM, before)


def test_every_regular_expression_takes_linear_time() -> None:
    for known in (r"(?:a+)+b", r"[A-H](?:(?:\s*(?:,\s*(?:and\s+)?|and)\s*|\s*)[A-H])+", r"(\d*\.?\d+|\d+/\d+)%?"):
        assert too_slow(re.compile(known), {"fullmatch", "search"}, spaces=False)
    found: dict[tuple[Any, int], tuple[str, re.Pattern[Any], set[str]]] = {}
    for path in FILES:
        for where, pattern, methods in patterns_of(path):
            found.setdefault((pattern.pattern, pattern.flags), (where, pattern, set()))[2].update(methods)
    assert len(found) > 350
    # the graders' texts have passed `prepare` or `normalise_words`, which leave single spaces
    slow = {
        where: text
        for where, pattern, methods in found.values()
        if (text := too_slow(pattern, methods, spaces=not where.startswith("arpo_env/grading")))
    }
    assert not slow
