"""Attacks with signals, and with what else one process can do to another that it is allowed to name."""

OPTIONS = {"needs": "uid"}

CODE = r"""
== supervisor | blocked: kill 9 EPERM
for number in [*range(1, 32), 34, 64]: refused(f'kill {number}', os.kill, 1, number)

== everything_by_a_daemon | shows="", status="ok|timeout|killed", timeout=2
def strike():
    while True:
        os.kill(-1, signal.SIGSTOP)
daemon(strike)
print("started", flush=True)
time.sleep(0.5)

== each_process_and_group | (?s)blocked: kill.*blocked: killpg
for pid in {*others(), *victims(), 1}:
    for number in (signal.SIGSTOP, signal.SIGKILL, signal.SIGINT, 0):
        refused(f"kill {number}", os.kill, pid, number)
    with contextlib.suppress(ProcessLookupError):
        group = os.getpgid(pid)
        if group > 1: refused("killpg", os.killpg, group, signal.SIGKILL)

== by_other_calls | blocked: tgkill
info = struct.pack("iii", signal.SIGKILL, 0, -1) + bytes(116)
for pid in victims() + [1]:
    refused("tkill", syscall, "tkill", pid, 9)
    refused("tgkill", syscall, "tgkill", pid, pid, 9)
    refused("rt_sigqueueinfo", syscall, "rt_sigqueueinfo", pid, 9, info)
    refused("rt_tgsigqueueinfo", syscall, "rt_tgsigqueueinfo", pid, pid, 9, info)
    refused("pidfd_send_signal", lambda: syscall("pidfd_send_signal", syscall("pidfd_open", pid, 0), 9, 0, 0))
    refused("process_mrelease", lambda: syscall("process_mrelease", syscall("pidfd_open", pid, 0), 0))

== sent_by_the_kernel_for_a_descriptor | tried
import fcntl
for pid in victims() + [1]:
    for target in (pid, -pid):
        one, two = socket.socketpair()
        with contextlib.suppress(OSError):
            fcntl.fcntl(one, fcntl.F_SETOWN, target)
            fcntl.fcntl(one, 10, signal.SIGKILL)
            fcntl.fcntl(one, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
            two.send(b"x")
print("tried")

== terminal | blocked: TIOCSTI | needs=""
import fcntl
for fd in (0, 1, 2):
    refused("TIOCSTI", fcntl.ioctl, fd, 0x5412, b"x", also=(25, 9))
    refused("TIOCSCTTY", fcntl.ioctl, fd, 0x540E, 1, also=(25, 9))
refused("tty", open, "/dev/tty", "w")

== limits_of_others | blocked: prlimit64
for pid in victims() + [1]:
    for which in (0, 1, 2, 6, 7, 9):
        refused("prlimit64", syscall, "prlimit64", pid, which, struct.pack("QQ", 3, 3), 0)

== priorities_of_others | blocked: setpriority
for pid in victims() + [1]:
    refused("setpriority", os.setpriority, os.PRIO_PROCESS, pid, 19)
    refused("affinity", os.sched_setaffinity, pid, {min(os.sched_getaffinity(0))})
    refused("scheduler", os.sched_setscheduler, pid, os.SCHED_IDLE, os.sched_param(0))
    refused("ioprio_set", syscall, "ioprio_set", 1, pid, 3 << 13)
refused("priority raised", os.setpriority, os.PRIO_PROCESS, 0, -20)
refused("real time", os.sched_setscheduler, 0, os.SCHED_FIFO, os.sched_param(50))

== order_of_the_killer | blocked: oom_score_adj
refused("oom_score_adj", lambda: open("/proc/self/oom_score_adj", "w", buffering=1).write("-1000\n"))
for pid in victims() + [1]:
    refused("oom_score_adj", lambda: open(f"/proc/{pid}/oom_score_adj", "w", buffering=1).write("1000\n"))
"""
