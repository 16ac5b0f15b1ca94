"""Attacks on who comes next: files, sockets and settings left behind, which a fresh session would meet."""

CODE = r"""
== modules_for_the_next_tenant | planted
for name in ("json", "numpy", "sitecustomize", "usercustomize", "ast", "random"):
    open(name + ".py", "w").write("print('ESC' 'APED: planted'); import os; os._exit(9)")
home = os.environ["HOME"]
site = f"{home}/.local/lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
os.makedirs(site)
open(site + "/evil.pth", "w").write("import os; os._exit(9)")
open(site + "/usercustomize.py", "w").write("import os; os._exit(9)")
print("planted")

== files_in_shared_places | tried | needs="uid"
import tempfile
for place in ("/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue", "/run", "/run/lock", tempfile.gettempdir()):
    with contextlib.suppress(OSError):
        with open(place + "/left", "w") as file: file.write("left behind")
        os.chmod(place + "/left", 0o666)
        os.mkdir(place + "/left.d", 0o777)
print("tried")

== files_held_in_deleted_directories | held
os.makedirs("a/b")
held = [open("a/b/f", "w"), os.open("a/b", os.O_RDONLY), os.open(".", os.O_RDONLY)]
import shutil
shutil.rmtree("a")
daemon(nap)
print("held")

== files_made_again_as_they_are_removed | started
def refill():
    for number in range(1, 65):
        try: signal.signal(number, signal.SIG_IGN)
        except (OSError, ValueError): pass
    while True:
        for number in range(100):
            with contextlib.suppress(OSError):
                os.makedirs(f"again{number}/x/y", exist_ok=True)
for _ in range(4): daemon(refill)
print("started")

== files_beside_the_directory | left | needs="uid"
import posix
beside = os.path.dirname(posix.getcwd())
for name in ("file", "-rf", ".removed-1", "0" * 32):
    with contextlib.suppress(OSError):
        os.makedirs(f"{beside}/{name}/a/b")
        open(f"{beside}/{name}/a/b/c", "w").write("x")
        os.chmod(f"{beside}/{name}/a", 0)
with contextlib.suppress(OSError): os.symlink("/", beside + "/link")
with contextlib.suppress(OSError): os.mkfifo(beside + "/pipe")
with contextlib.suppress(OSError): os.rename(posix.getcwd(), beside + "/renamed")
print("left")

== directories_in_shared_memory | left | needs="uid"
with contextlib.suppress(OSError):
    os.chdir("/dev/shm")
    for _ in range(200):
        os.mkdir("deep")
        os.chdir("deep")
    open("bottom", "w").write("x")
    os.chmod(".", 0)
    os.chmod("/dev/shm/deep", 0o1)
print("left")

== settings_of_the_process | set | status="ok|error"
import locale, resource
os.umask(0o777)
os.nice(10)
os.environ.clear()
os.environ.update(PATH="/evil", LD_PRELOAD="/evil.so", PYTHONPATH="/evil", HOME="/evil")
resource.setrlimit(resource.RLIMIT_NOFILE, (8, 8))
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
sys.path[:] = []
print("set")

== listening_sockets | listening
def listen():
    held = []
    places = (socket.AF_UNIX, "\0left"), (socket.AF_UNIX, "left"), (socket.AF_INET, ("127.0.0.1", 45678))
    for family, address in places:
        with contextlib.suppress(OSError):
            held.append(socket.socket(family))
            held[-1].bind(address)
            held[-1].listen()
    nap()
daemon(listen)
print("listening")
"""
