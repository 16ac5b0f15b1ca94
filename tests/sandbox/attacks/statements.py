"""Small statements that random hostile programs are made of; all use the functions of `tools`.

PLANTS prepare something before a fork, STRIKES use it, or anything else, in a branch; of PAIRS the first prepares what
the second uses. A statement may fail.
"""

_LINE = "line = worker()"
_GARBAGE = "write_to_all(kept, b'garbage' * 50)"
# a pair that is closed here and still open in a daemon would kill this session when the daemon ends
_SIGNAL = (
    "one, two = socket.socketpair(); globals().setdefault('pairs', []).append((one, two)); {}; "
    "fcntl.fcntl(one, 10, 9); fcntl.fcntl(one, fcntl.F_SETFL, 0o20000)"
)

PAIRS = (
    ("kept += kept_descriptors()", _GARBAGE),
    ("kept += kept_descriptors()", "[os.read(fd, 1) for fd in kept if os.set_blocking(fd, False) is None]"),
    (
        "kept += kept_descriptors()",
        "[socket.socket(fileno=os.dup(fd)).shutdown(2) for fd in kept if os.path.stat.S_ISSOCK(os.fstat(fd).st_mode)]",
    ),
    ("near = in_flight(kept_descriptors())", "write_to_all(landed(near), b'garbage' * 50)"),
    ("near = in_flight([os.dup(1), os.dup(2)])", "write_to_all(landed(near), b'injected\\n')"),
    ("kept += [fcntl.fcntl(fd, fcntl.F_DUPFD, 300) for fd in (1, 2)]", "write_to_all(kept, b'injected\\n')"),
    (
        "near = in_flight([os.open('.', os.O_RDONLY)])",
        "[os.truncate(os.open('own', os.O_WRONLY, dir_fd=fd), 1) for fd in landed(near)]",
    ),
    (_LINE, "order(line, \"open('own', 'w').write('changed')\")"),
    (_LINE, "order(line, \"open('stolen', 'w').write('changed')\")"),
    (_LINE, "[order(line, f'os.kill({pid}, 9)') for pid in range(os.getpid() - 6, os.getpid()) if pid > 1]"),
    (_LINE, "order(line, \"write_to_all(kept_descriptors(), b'garbage')\")"),
    (
        "pool = __import__('multiprocessing').get_context('fork').Pool(1)",
        "pool._inqueue.put((0, 0, os.replace, ('own', 'stolen'), {}))",
    ),
    (
        "shell = __import__('subprocess').Popen(['/bin/sh'], stdin=-1)",
        "shell.stdin.write(b'echo changed > own; echo changed > stolen; kill -9 $PPID\\n'); shell.stdin.flush()",
    ),
    ("os.register_at_fork(after_in_parent=lambda: kept.extend(kept_descriptors(True)))", _GARBAGE),
    ("os.register_at_fork(after_in_child=lambda: kept.extend(kept_descriptors(True)))", _GARBAGE),
    (_SIGNAL.format("fcntl.fcntl(one, 8, os.getpid())"), "two.send(b'x')"),
    (_SIGNAL.format("fcntl.fcntl(one, 8, -os.getpgrp())"), "two.send(b'x')"),
    (_SIGNAL.format("fcntl.ioctl(one, 0x8901, struct.pack('i', os.getpid()))"), "two.send(b'x')"),
    ("place = __import__('posix').getcwd()", "open(place + '/own', 'w').write('changed')"),
)

PLANTS = (
    *dict.fromkeys(plant for plant, _ in PAIRS),
    "threads = __import__('concurrent.futures').futures.ThreadPoolExecutor(2); threads.submit(time.sleep, 0.01)",
    "daemon(nap)",
    "held = [os.eventfd(0), *os.pipe()]",
    "kept.append(os.open('/proc/self', os.O_PATH))",
    "__import__('threading').Thread(target=nap, daemon=True).start()",
    "os.mkfifo('pipe'); kept.append(os.open('pipe', os.O_RDWR))",
    "signal.signal(signal.SIGUSR1, signal.SIG_IGN)",
)

STRIKES = (
    *dict.fromkeys(strike for _, strike in PAIRS),
    "[os.kill(pid, signal.SIGKILL) for pid in range(2, 400) if pid != os.getpid()]",
    "os.kill(-1, signal.SIGKILL)",
    "os.killpg(os.getpgrp(), signal.SIGSTOP)",
    "os._exit(3)",
    "__import__('threading').Timer(0.02, os._exit, (0,)).start()",
    "os.closerange(3, 400)",
    "os.closerange(0, 400)",
    "os.close(channel())",
    "os.execv('/bin/sh', ['sh', '-c', 'exit 0'])",
    "ctypes.string_at(0)",
    "[os.fork() for _ in range(4)]",
    "daemon(spin)",
    "[daemon(nap) for _ in range(5)]",
    "ballast = [bytearray(b'x') * (50 << 20) for _ in range(3)]",
    "open('/dev/shm/left', 'w').write('x' * 1000)",
    "os.system('rm -rf * .[a-z]*')",
    "sys.stdout = sys.stderr = None",
    "sys.modules.clear()",
    "forge(['answer_file', 'os', 'struct'], None)",
    "print('x' * 100_000)",
    "raise SystemExit(5)",
    "[os.open('/dev/null', 0) for _ in range(600)]",
    "signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)",
    "os.kill(os.getpid(), signal.SIGSTOP)",
)

HONEST = (
    "n = n + 1",
    "items.append(n)",
    "print(len(items))",
    "open('log', 'a').write('line\\n')",
    "next(numbers)",
    "sum(items)",
)
