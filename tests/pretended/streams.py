"""Streams of a pretended GPU: work of two streams on the same memory needs an order between them.

Everything is computed when it is called, so nothing here is ever late. What CUDA would leave to chance is noted instead
(`races`): memory that one stream reads or writes while another may still write it, and memory that is given back while
another stream than its own may still use it. Each stream counts its operations, and knows up to which operation of the
others it has waited, by events or because the host has waited for them (vector clocks).
"""

import itertools
from typing import Any

import torch

Stream = tuple[int, int]  # device and number; 0 is the default stream
Clock = dict[Stream, int]  # how many operations of each stream are over

races: list[str] = []
_now: Clock = {}
_known: dict[Stream, Clock] = {}
_over: Clock = {}  # what the host has waited for
_numbers = itertools.count(1)
CUDA = 1  # c10's number of the device type


def reached(stream: Stream) -> Clock:
    """Return what is over when all that this stream has been given is over."""
    return {**_known.get(stream, {}), stream: _now.get(stream, 0)}


def given(device: int) -> Clock:
    """Return what is over when all that the streams of a device have been given is over."""
    return {stream: time for stream, time in _now.items() if stream[0] == device}


def wait(stream: Stream, clock: Clock) -> None:
    """Let what the stream is given from now on wait for this."""
    _merge(_known.setdefault(stream, {}), clock)


def wait_on_host(clock: Clock) -> None:
    """Whatever is called from now on comes after this."""
    _merge(_over, clock)


def _merge(clock: Clock, other: Clock) -> None:
    for stream, time in other.items():
        clock[stream] = max(clock.get(stream, 0), time)


def _after(stream: Stream, other: Stream, time: int) -> bool:
    return stream == other or max(_known.get(stream, {}).get(other, 0), _over.get(other, 0)) >= time


class Memory:
    """The memory of a tensor and its views: who uses it, and who has written it last.

    Args:
        stream: where it was allocated; it may be in use there when it is handed out.
        what: the operation.
    """

    def __init__(self, stream: Stream, what: str) -> None:
        self.owner, self.used, self.kept = stream, dict[Stream, tuple[int, str]](), set[Stream]()
        self.written: tuple[Stream, int, str] = (stream, _now.get(stream, 0), what)

    def use(self, stream: Stream, what: str, writes: bool) -> None:
        """Note an operation, and what it has not waited for."""
        before = [self.written, *((other, *use) for other, use in self.used.items() if writes)]
        for other, time, earlier in before:
            if not _after(stream, other, time):
                races.append(f"{what} on stream {stream} does not wait for {earlier} on stream {other}")
        if writes:
            self.written, self.used = (stream, _now[stream], what), {}
        self.used[stream] = (_now[stream], what)

    def __del__(self) -> None:
        for stream, (time, what) in self.used.items():
            if stream not in self.kept and not _after(self.owner, stream, time):
                races.append(f"{what} on stream {stream} may still run when stream {self.owner} has its memory again")


def launch(stream: Stream) -> None:
    _now[stream] = _now.get(stream, 0) + 1


def key(stream: Any) -> Stream:
    return stream.device_index, stream.stream_id


class StreamBase:
    @staticmethod
    def __new__(cls: Any, priority: int = 0, stream_id: int | None = None, device_index: int = -1, **_: Any) -> Any:
        made = object.__new__(cls)
        made.stream_id = next(_numbers) if stream_id is None else stream_id
        made.device_index = device_index if device_index >= 0 else torch.cuda.current_device()
        made.device_type, made.priority, made.cuda_stream = CUDA, priority, made.stream_id
        made.device = torch.device("cuda", made.device_index)
        return made

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def __eq__(self, other: Any) -> bool:
        return key(self) == key(other)

    def synchronize(self) -> None:
        wait_on_host(reached(key(self)))


class EventBase:
    clock: Clock

    @staticmethod
    def __new__(cls: Any, **_: Any) -> Any:
        return object.__new__(cls)

    def __init__(self, *_: Any, **__: Any) -> None:
        self.clock = {}

    def record(self, stream: Any) -> None:
        self.clock = reached(key(stream))

    def wait(self, stream: Any) -> None:
        wait(key(stream), self.clock)

    def synchronize(self) -> None:
        wait_on_host(self.clock)
