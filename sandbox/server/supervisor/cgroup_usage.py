"""Reads what the container's control group counts: memory and CPU time, versions 1 and 2. Runs inside the sandbox.

The files stay open, so that a reading takes a few microseconds; the watchdog reads twenty times a second.
"""

from __future__ import annotations

import os

# in pairs: the name in version 2 of control groups, then in version 1; `_KERNEL` is of version 1 only
_USAGE = ("memory.current", "memory/memory.usage_in_bytes")
_STAT = ("memory.stat", "memory/memory.stat")
_KERNEL = ("memory/memory.kmem.usage_in_bytes", "memory/memory.kmem.tcp.usage_in_bytes")
_CPU = ("cpu.stat", "cpuacct/cpuacct.usage")
_CACHES = ("inactive_file", "active_file")
_PROGRAMS = (("anon", "shmem"), ("rss", "shmem"))
_KERNEL_FIELDS = ("slab", "sock", "kernel_stack", "pagetables", "percpu", "vmalloc")


class CgroupUsage:
    """What a container uses.

    Args:
        own: whether the control group is the sandbox's own. If not, nothing is read, and everything is 0.
        root: where the control groups are mounted.

    Attributes:
        counts_memory: whether the memory in use is known.
        counts_cpu: whether the CPU time is known.
    """

    def __init__(self, own: bool, root: str = "/sys/fs/cgroup") -> None:
        self._files = {name: _opened(os.path.join(root, name)) if own else -1 for name in (*_USAGE, *_CPU)}
        self._root = root
        self._usage = next((name for name in _USAGE if self._files[name] >= 0), "")
        self._cpu = next((name for name in _CPU if self._files[name] >= 0), "")
        self._stat = _STAT[_USAGE.index(self._usage)] if self._usage else ""
        self.counts_memory = bool(self._usage)
        self.counts_cpu = bool(self._cpu)

    def used(self) -> int:
        """Return the bytes of memory in use, including cached files."""
        return _first_number(self._read(self._usage)) if self._usage else 0

    def parts(self) -> dict[str, int]:
        """Return what the memory is used for, in bytes.

        "caches" are cached files, "programs" the memory of processes and what is in tmpfs, "kernel" what the kernel
        keeps for them: buffers, tables, stacks, inodes.
        """
        fields = _fields(_text(os.path.join(self._root, self._stat))) if self._stat else {}
        total = "total_" if "total_inactive_file" in fields else ""  # version 1: includes child groups
        names = next((names for names in _PROGRAMS if total + names[0] in fields), ())
        kernel = fields.get("kernel", sum(fields.get(name, 0) for name in _KERNEL_FIELDS))
        # version 1 counts this memory in files of their own
        if self._stat == _STAT[1]:
            kernel = sum(_first_number(_text(os.path.join(self._root, name))) for name in _KERNEL)
        return {
            "caches": sum(fields.get(total + name, 0) for name in _CACHES),
            "programs": sum(fields.get(total + name, 0) for name in names),
            "kernel": kernel,
        }

    def cpu(self) -> float:
        """Return the seconds of CPU time so far."""
        if not self._cpu:
            return 0.0
        text = self._read(self._cpu)
        return _first_number(text) / 1e9 if self._cpu == _CPU[1] else _fields(text).get("usage_usec", 0) / 1e6

    def _read(self, name: str) -> str:
        try:
            return os.pread(self._files[name], 1 << 12, 0).decode("ascii", "replace")
        except OSError:
            return ""


def available_memory() -> int:
    """Return the bytes of memory that the machine has available; 0 where it does not say."""
    for line in _text("/proc/meminfo").splitlines()[:3]:
        name, _, rest = line.partition(":")
        if name == "MemAvailable":
            return _first_number(rest) << 10
    return 0


def others_running() -> bool:
    """Whether anything besides this process is running or runnable on this machine."""
    # the fourth word is "runnable/all"; this process itself is running while it reads it
    words = _text("/proc/loadavg").split()
    return len(words) < 4 or _first_number(words[3].replace("/", " ")) > 1


def _opened(path: str) -> int:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return -1


def _text(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _first_number(text: str) -> int:
    word = text.split(None, 1)[:1]
    return int(word[0]) if word and word[0].isdigit() else 0


def _fields(text: str) -> dict[str, int]:
    pairs = (line.split() for line in text.splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}
