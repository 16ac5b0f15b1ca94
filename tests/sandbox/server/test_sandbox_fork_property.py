"""For any program: forking after n cells and running m more gives the same outputs in original and copy."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sandbox import Sandbox, SyncInterpreter

START = """
import os, random
random.seed(5)
a, b, s = 1, 2, "x"
items = [3, 1, 2]
table = {}
def numbers():
    n = 0
    while True:
        n += (yield n) or 1
g = numbers(); next(g)
out = open("out.txt", "w")
data = open("data.txt", "w+"); data.write("0123456789" * 50); data.seek(0)
"""

small = st.integers(min_value=-3, max_value=9)
statements = st.one_of(
    st.builds("a = a * {} + b".format, small),
    st.builds("b = len(items) - {}".format, small),
    st.builds("items.append(a % 97 + {})".format, small),
    st.just("items.sort()"),
    st.just("items.pop() if items else None"),
    st.builds("table[{}] = list(items)".format, small),
    st.builds("del table[{}]".format, small),
    st.builds("g.send({})".format, small),
    st.just("random.random()"),
    st.just("random.shuffle(items)"),
    st.just("(a, b, s, items, sorted(table))"),
    st.builds("s = (s + str({}))[-20:]".format, small),
    st.builds("out.write(s + '{}')".format, small),
    st.just("out.flush()"),
    st.just("open('out.txt').read()"),
    st.builds("data.read({})".format, st.integers(0, 9)),
    st.builds("data.seek({})".format, st.integers(0, 400)),
    st.just("os.write(data.fileno(), b'!')"),
    st.builds("os.makedirs('sub{0}', exist_ok=True); os.chdir('sub{0}')".format, st.integers(0, 2)),
    st.just("os.chdir('..') if os.path.basename(os.getcwd())[:3] == 'sub' else None"),
    st.just("sorted(os.listdir('.'))"),
    st.builds("print(a, {}); 1 // (a % 3)".format, small),
    st.just("hash(s), id(items) == id(items)"),
)
programs = st.lists(statements, max_size=8)


def outputs(session: SyncInterpreter, cells: list[str]) -> list[object]:
    executions = [session.run(cell) for cell in cells]
    return [(one.stdout, one.stderr, one.value, one.error, one.status) for one in executions]


@settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(before=programs, after=programs, diverging=programs)
def test_a_fork_behaves_as_its_original(
    sandbox: Sandbox, before: list[str], after: list[str], diverging: list[str]
) -> None:
    with sandbox.interpreter_sync(START) as original:
        outputs(original, before)
        copy, untouched = original.fork(2)
        with copy, untouched:
            expected = outputs(original, after)
            assert outputs(copy, after) == expected
            outputs(copy, [*diverging, "items.append('copy'); a = 'copy'; open('only-here', 'w').close()"])
            state = "a, b, s, items, table, random.getstate(), data.tell(), os.listdir('.')"
            assert "copy" not in str(original.run(state).value)
            assert "only-here" not in str(original.run(state).value)
            assert outputs(untouched, after) == expected
