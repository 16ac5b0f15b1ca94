"""The supervisor's event loop: timers, descriptors, and callbacks that fail."""

import os

import pytest

from sandbox.server.channels import EventLoop


def test_cancelled_timers_do_not_pile_up() -> None:
    loop = EventLoop()
    loop.call_later(0.0, loop.stop)
    for _ in range(10_000):  # as each cell has one, for its limit
        timer = loop.call_later(3600.0, print)
        timer.cancel()
        timer.cancel()  # does nothing
    assert len(loop._timers) < 1000
    loop.run_forever()


def test_a_descriptor_that_is_not_watched_any_more_is_left_alone() -> None:
    loop, seen = EventLoop(), list[str]()
    (first, to_first), (second, to_second) = os.pipe(), os.pipe()

    def read(name: str, other: int) -> None:
        seen.append(name)
        loop.remove_reader(other)  # both are ready in the same round
        loop.stop()

    loop.add_reader(first, read, "first", second)
    loop.add_reader(second, read, "second", first)
    for fd in (to_first, to_second):
        os.write(fd, b"x")
    loop.run_forever()
    assert len(seen) == 1
    for fd in (first, to_first, second, to_second):
        os.close(fd)


def test_a_callback_that_fails_does_not_end_the_loop(capsys: pytest.CaptureFixture[str]) -> None:
    loop, done = EventLoop(), list[bool]()

    def fail() -> None:
        raise ValueError("a session has done something unexpected")

    loop.call_later(0.0, fail)
    loop.call_later(0.01, done.append, True)
    loop.call_later(0.02, loop.stop)
    loop.run_forever()
    assert done == [True]
    assert "something unexpected" in capsys.readouterr().err
