"""What control groups count, by what kernels have written; who is charged for memory; how many processes there may be.

The files of version 2 are what kernels 5.15 and 6.0 have reported of containers; version 1's are from kernel 6.18.
"""

import os
import platform
import tempfile
from pathlib import Path
from typing import Any

import pytest

from sandbox import Limits
from sandbox.backends.docker import most_processes
from sandbox.options import SandboxOptions, unenforced_limits
from sandbox.server.channels import SessionHandle, Slot
from sandbox.server.limits import CgroupUsage, GroupMemory, charge, measure
from sandbox.server.processes import Process, out_of_memory_kills, roots_of

MB = 1 << 20
VERSION_2 = {
    "memory.current": "104857600\n",
    "memory.stat": "anon 104472576\nfile 0\nkernel 376832\nkernel_stack 16384\npagetables 282624\npercpu 0\nsock 0\n"
    "vmalloc 0\nshmem 0\nfile_mapped 0\ninactive_anon 104439808\ninactive_file 0\nactive_file 0\n"
    "slab_reclaimable 1824\nslab_unreclaimable 30040\nslab 31864\n",
    "memory.events": "low 0\nhigh 0\nmax 51\noom 1\noom_kill 1\noom_group_kill 0\n",
    "cpu.stat": "usage_usec 1534846127\nuser_usec 864642954\nsystem_usec 670203172\nnice_usec 151622449\n",
}
VERSION_2_BEFORE_5_18 = {
    "memory.current": "2481475584\n",
    "memory.events": "low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\n",
    "memory.stat": "anon 2472849408\nfile 57344\nkernel_stack 458752\npagetables 7061504\npercpu 0\nsock 4096\n"
    "shmem 0\ninactive_file 4096\nactive_file 53248\nslab_unreclaimable 435552\nslab 806672\n",
}
VERSION_1 = {
    "memory/memory.usage_in_bytes": "70107136\n",
    "memory/memory.kmem.usage_in_bytes": "2600960\n",
    "memory/memory.kmem.tcp.usage_in_bytes": "0\n",
    "memory/memory.stat": "cache 188416\nrss 66949120\nshmem 0\ninactive_file 0\nactive_file 188416\n"
    "total_cache 188416\ntotal_rss 66949120\ntotal_shmem 0\ntotal_inactive_file 0\ntotal_active_file 188416\n",
    "memory/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n",
    "cpuacct/cpuacct.usage": "564008424\n",
}


def written(root: Path, files: dict[str, str]) -> str:
    for name, text in files.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(text)
    return str(root)


@pytest.mark.parametrize(
    ("files", "used", "programs", "kernel", "caches", "seconds", "kills"),
    [
        (VERSION_2, 104857600, 104472576, 376832, 0, 1534.846127, 1),
        (VERSION_2_BEFORE_5_18, 2481475584, 2472849408, 458752 + 7061504 + 4096 + 806672, 57344, 0, 0),
        (VERSION_1, 70107136, 66949120, 2600960, 188416, 0.564008424, 3),
    ],
)
def test_the_parts_make_the_whole(
    tmp_path: Path, files: Any, used: int, programs: int, kernel: int, caches: int, seconds: float, kills: int
) -> None:
    root = written(tmp_path, files)
    account = CgroupUsage(True, root)
    assert account.counts_memory
    assert (account.used(), account.cpu(), out_of_memory_kills(root)) == (used, seconds, kills)
    assert account.parts() == {"programs": programs, "kernel": kernel, "caches": caches}
    assert programs + kernel + caches == pytest.approx(used, rel=0.01)


def test_an_account_that_is_not_the_sandbox_s_own_is_not_read(tmp_path: Path) -> None:
    account = CgroupUsage(False, written(tmp_path, VERSION_2))
    assert not account.counts_memory
    assert not account.counts_cpu
    assert (account.used(), account.cpu(), sum(account.parts().values())) == (0, 0, 0)


def test_what_nobody_can_hold_is_charged_to_nobody() -> None:
    idle, worker = GroupMemory(sure=120 * MB), GroupMemory()
    assert charge([idle, worker], 0, 600 * MB) == ([120 * MB, 0], 600 * MB)


def test_the_kernel_s_memory_is_charged_to_who_can_hold_it_and_no_more_than_that() -> None:
    neighbour, opener, few = GroupMemory(sure=120 * MB), GroupMemory(kernel=900 * MB), GroupMemory(kernel=3 * MB)
    shares, unknown = charge([neighbour, opener, few], 0, 500 * MB)
    assert shares[0] == 120 * MB
    assert 497 * MB < shares[1] <= 500 * MB
    assert shares[2] < 3 * MB
    assert unknown == 0
    assert charge([neighbour, few], 0, 500 * MB) == ([120 * MB, 3 * MB], 497 * MB)


def test_pages_that_forks_share_are_not_charged_twice() -> None:
    """One who has forked 120 MB eight times holds them once, if nothing was written since."""
    forked, splitter = GroupMemory(sure=120 * MB), GroupMemory(sure=10 * MB, pages=2000 * MB)
    shares, _ = charge([forked, splitter], 600 * MB, 0)
    assert shares == [120 * MB, 610 * MB]


def test_files_in_shared_memory_are_charged_to_their_user() -> None:
    user = os.getuid() or 54321
    nobody: Any = None
    handle = SessionHandle(1, {"output_bytes": 1}, nobody)
    handle.pid, handle.slot = -1, Slot("/proc", user)  # no process, no files in its directory
    before = measure([[handle]])[0].sure
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as file:
        os.write(file.fileno(), bytes(MB))
        os.chown(file.fileno(), user, -1)
        assert measure([[handle]])[0].sure == before + MB


def test_processes_are_found_below_their_roots() -> None:
    parents = {1: 0, 2: 1, 3: 2, 4: 3, 5: 1, 6: 5, 7: 99}
    processes = {pid: Process(parent, "S", 0, 0, 1, 0, 0) for pid, parent in parents.items()}
    assert roots_of(processes, {2, 4, 5}) == {2: 2, 3: 2, 4: 4, 5: 5, 6: 5}


def engine(**facts: Any) -> dict[str, Any]:
    return {"NCPU": 2, "MemTotal": 24 << 30, "KernelVersion": "of another machine", **facts}


@pytest.mark.parametrize(
    ("sessions", "processes", "containers", "most"),
    [(64, 256, 1, 16384), (64, 256, 4, 4096), (4, 16, 4, 128), (64, 256, 1000, 256)],
)
def test_processes_leave_the_machine_room(sessions: int, processes: int, containers: int, most: int) -> None:
    options = SandboxOptions(Limits(processes=processes), sessions=sessions, containers=containers)
    assert most_processes(options, engine()) == most


def test_the_limits_of_this_machine_s_kernel_are_read() -> None:
    options = SandboxOptions(Limits(processes=1 << 20), sessions=1, containers=1)
    machine = [int(Path("/proc/sys/kernel", name).read_text()) for name in ("pid_max", "threads-max")]
    assert most_processes(options, engine(KernelVersion=platform.release())) == min(16_384, min(machine) // 2)


def test_what_an_engine_lacks_is_named() -> None:
    fields = ("CpuCfsPeriod", "CpuCfsQuota", "MemoryLimit", "PidsLimit")
    assert unenforced_limits(dict.fromkeys(fields, True)) == []
    assert unenforced_limits(dict.fromkeys(fields[1:], False)) == ["cpus", "memory", "pids"]
    assert unenforced_limits(None) == ["cpus"]
