"""Attacks on the kernel's surface: calls and files that turn into rights, or into bugs, if they are let through."""

CODE = r"""
== sysrq_and_core_pattern | blocked: /proc/sysrq-trigger
for path in ("/proc/sysrq-trigger", "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/kcore",
             "/proc/sys/vm/overcommit_memory", "/proc/self/uid_map", "/proc/1/oom_score_adj",
             "/proc/irq/default_smp_affinity", "/proc/sys/fs/binfmt_misc/register"):
    refused(path, os.open, path, os.O_WRONLY, also=(21,))

== cgroup_release_agent | blocked: release_agent|no cgroup
import glob
names = "release_agent cgroup.procs notify_on_release memory.limit_in_bytes memory.max tasks pids.max devices.allow"
files = [path for pattern in names.split()
         for path in glob.glob("/sys/fs/cgroup/" + pattern) + glob.glob("/sys/fs/cgroup/*/" + pattern)]
for path in files:
    refused("release_agent " + path, os.open, path, os.O_WRONLY)
refused("mkdir", os.mkdir, "/sys/fs/cgroup/x")
refused("mkdir", os.mkdir, "/sys/fs/cgroup/memory/x")
if not files: print("no cgroup")

== namespaces | blocked: unshare | needs="seccomp"
for flag in (0x10000000, 0x20000, 0x40000000, 0x20000000, 0x4000000, 0x8000000, 0x2000000, 0x80):
    refused(f"unshare {flag:#x}", syscall, "unshare", flag)
    if flag == 0x80: continue
    def clone(flag=flag):
        child = syscall("clone", flag | signal.SIGCHLD, 0, 0, 0, 0)
        if child == 0: os._exit(0)
        os.waitpid(child, 0)
        return child
    refused(f"clone {flag:#x}", clone)
def clone3():
    child = syscall("clone3", struct.pack("8Q", 0x10000000, 0, 0, 0, signal.SIGCHLD, 0, 0, 0), 64)
    if child == 0: os._exit(0)
    return child
refused("clone3", clone3)
for name in ("user", "mnt", "net", "pid", "ipc", "uts", "cgroup"):
    refused("setns", lambda: syscall("setns", os.open("/proc/1/ns/" + name, os.O_RDONLY), 0))
    refused("setns", lambda: syscall("setns", os.open("/proc/self/ns/" + name, os.O_RDONLY), 0))
refused("setns", lambda: syscall("setns", syscall("pidfd_open", 1, 0), 0x20000))

== children_of_another | blocked: clone | needs="seccomp"
def clone():
    child = syscall("clone", 0x8000 | signal.SIGCHLD, 0, 0, 0, 0)  # CLONE_PARENT
    if child == 0: nap()
    return child
refused("clone", clone)

== users_changed | blocked: setuid EPERM | needs="uid"
for name, arguments in (("setuid", (0,)), ("setgid", (0,)), ("setgroups", ([0],)), ("setreuid", (0, 0)),
                        ("setresuid", (0, 0, 0)), ("setresgid", (0, 0, 0))):
    refused(name, getattr(os, name), *arguments)
for victim in VICTIMS:
    uid = os.stat(os.path.dirname(victim["directory"])).st_gid  # the number of its user, too
    refused("setuid", os.setuid, uid or 1)

== capabilities | blocked: capset
header = struct.pack("Ii", 0x20080522, 0)
refused("capset", syscall, "capset", header, struct.pack("6I", *[0xFFFFFFFF] * 6))
for number in range(41):
    if _libc.prctl(47, 2, number, 0, 0) == 0: escaped("ambient capability", number)
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
for name in ("CapEff", "CapPrm", "CapInh", "CapAmb"):
    if int(status[name], 16): escaped(name, status[name])
if int(status["NoNewPrivs"]) != 1: escaped("NoNewPrivs", 0)

== calls_of_32_bits | blocked: int80 socket | needs="seccomp", machine="x86_64"
import mmap
page = mmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE | 0x20 | 0x40, prot=7)
start = ctypes.addressof(ctypes.c_char.from_buffer(page))
page.seek(2048)
page.write(b"name\0")
page.seek(0)
page.write(b"\x53\x89\xf8\x89\xf3\x89\xd1\xcd\x80\x5b\xc3")
old_call = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int)(start)
def old(what, number, first, second):
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        result = old_call(number, first, second)
        if result < 0: say(f"blocked: {what} {errno.errorcode.get(-result)}")
        else: escaped(what, result)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status): say(f"blocked: {what} {signal.Signals(os.WTERMSIG(status)).name}")
name = start + 2048
old("int80 socket", 359, 40, 1)
old("int80 memfd_create", 356, name, 0)
old("int80 unshare", 310, 0x10000000, 0)
old("int80 ptrace", 26, 0, 0)
old("int80 keyctl", 288, 0, -3)
old("int80 shmget", 395, 0, 4096)

== calls_of_x32 | blocked: x32 memfd_create | needs="seccomp", machine="x86_64"
bit = 0x40000000
refused("x32 memfd_create", syscall_number, bit | 319, b"m", 0)
refused("x32 socket", syscall_number, bit | 41, 40, 1, 0)
refused("x32 unshare", syscall_number, bit | 272, 0x10000000)
refused("x32 ptrace", syscall_number, bit | 521, 0, 0, 0, 0)
refused("x32 getpid", syscall_number, bit | 39)

== numbers_with_high_bits | blocked: memfd_create | needs="seccomp"
for high in (1 << 32, 0xFFFFFFFF << 32):
    refused("memfd_create", syscall_number, high | NUMBERS["memfd_create"], b"m", 0)
    refused("unshare", syscall_number, high | NUMBERS["unshare"], 0x10000000)
    refused("vsock", syscall_number, 41 if platform.machine() == "x86_64" else 198, high | 40, 1, 0)
    refused("prlimit64", syscall, "prlimit64", high | 1, 7, struct.pack("QQ", 3, 3), 0)
refused("clone", syscall, "clone", 0x10000000 | (1 << 32) | signal.SIGCHLD, 0, 0, 0, 0)
"""
