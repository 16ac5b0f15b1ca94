"""Landlock: what a session may write to, and whom it may signal, enforced by the kernel. Runs inside the sandbox.

A session may write to its slot, /dev/shm and harmless devices, whatever file permissions say. It can send signals and
connect to abstract sockets only within its own domain (Linux 6.12, ABI 6). Each fork enters a domain of its own within
that of its origin, so that branches cannot kill each other. Domains nest 16 deep.
"""

from __future__ import annotations

import ctypes
import os
import struct
from functools import lru_cache

_CREATE, _ADD_RULE, _RESTRICT = 444, 445, 446
_VERSION = 1
_PATH_BENEATH = 1
_SCOPES = 3  # abstract Unix sockets, and signals
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR, _TRUNCATE, _IOCTL = 1, 2, 4, 8, 1 << 14, 1 << 15
_MAKE_DIR = 1 << 7  # not in /dev/shm, where the contents of directories would not be counted
_REFER = 1 << 13  # to link and to move between directories
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_WRITE = _WRITE_FILE | _TRUNCATE | _IOCTL
_DEVICES = ("/dev/null", "/dev/full", "/dev/random", "/dev/urandom")  # no terminals: they are few
_ZEROS = "/dev/zero"  # to read: a shared mapping for writing is memory that stays when nobody maps it any more
_ALL_OF_ABI = (0, 0x1FFF, 0x3FFF, 0x7FFF, 0x7FFF, 0xFFFF)

DEEPEST = 16
"""How many domains can be nested."""
_libc = ctypes.CDLL(None, use_errno=True)


def _call(number: int, *arguments: object) -> int:
    result: int = _libc.syscall(ctypes.c_long(number), *arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), f"Landlock: {os.strerror(ctypes.get_errno())}")
    return result


@lru_cache(maxsize=None)  # noqa: UP033  (Python 3.8 has no functools.cache)
def abi() -> int:
    """Return the version of Landlock that the kernel offers here; 0 if it does not."""
    try:
        return _call(_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint32(_VERSION))
    except OSError:
        return 0


def separates_branches() -> bool:
    """Whether domains restrict signals."""
    return abi() >= 6


def _ruleset(access: int, scopes: int) -> int:
    # older versions know only the first field, and refuse a longer struct
    attributes = struct.pack("=QQQ", access, 0, scopes)[: 24 if abi() >= 6 else 8]
    return _call(_CREATE, attributes, ctypes.c_size_t(len(attributes)), ctypes.c_uint32(0))


@lru_cache(maxsize=None)  # noqa: UP033
def ruleset_for(slot: str) -> int:
    """Return a descriptor of the rules for sessions in a slot; created once for each slot."""
    everything = _ALL_OF_ABI[min(abi(), len(_ALL_OF_ABI) - 1)]
    ruleset = _ruleset(everything, _SCOPES if separates_branches() else 0)
    rules = {"/": _READ_DIR, **dict.fromkeys(_readable(slot), _READ)}
    rules.update(dict.fromkeys(_DEVICES, _READ_FILE | _WRITE))
    rules.update({_ZEROS: _READ_FILE, "/dev/shm": everything & ~_MAKE_DIR, slot: everything})
    for path, access in rules.items():
        _allow(ruleset, path, access & everything)
    return ruleset


def _readable(slot: str) -> list[str]:
    """Return the top-level directories that sessions may read: not devices, and not the slots of others."""
    own = os.path.join("/", slot.split("/")[1])
    places = [os.path.join("/", name) for name in os.listdir("/")]
    return [path for path in places if path not in ("/dev", own) and os.path.isdir(path) and not os.path.islink(path)]


def _allow(ruleset: int, path: str, access: int) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        rule = struct.pack("=Qi", access, place)
        _call(_ADD_RULE, ctypes.c_int(ruleset), ctypes.c_int(_PATH_BENEATH), rule, ctypes.c_uint32(0))
    finally:
        os.close(place)


def restrict(ruleset: int) -> None:
    """Enter the domain of a ruleset; this cannot be undone.

    Raises:
        OSError: the kernel refuses, E2BIG when the domain is nested too deeply.
    """
    _call(_RESTRICT, ctypes.c_int(ruleset), ctypes.c_uint32(0))


def enter_branch() -> None:
    """Enter a new domain within the present one; processes outside it cannot be signalled any more.

    Raises:
        OSError: as in `restrict`.
    """
    ruleset = _ruleset(_REFER, _SCOPES)  # every domain denies it where no rule allows it
    try:
        _allow(ruleset, "/", _REFER)
        restrict(ruleset)
    finally:
        os.close(ruleset)
