"""Attacks with files: filling the disk, naming what can not be named, and writing where one must not."""

CODE = r"""
== disk_filled_also_by_deleted_files | blocked: write ENOSPC | needs="uid"
held, written = [], 0
try:
    for number in range(1000):
        with open(f"part{number}", "wb", buffering=0) as file:
            if number % 2: os.unlink(file.name)
            for _ in range(4):
                written += file.write(bytes(1 << 20))
            held.append(os.dup(file.fileno()))
except OSError as error:
    blocked("write", error)
print(written >> 20, "MiB")
if written > 64 << 20:
    escaped("disk", written)

== one_sparse_file | blocked: truncate (EFBIG|ENOSPC) | unsafe=True
try:
    os.truncate(os.open("big", os.O_CREAT | os.O_RDWR), 1 << 40)
    escaped("file", os.stat("big").st_size)
except OSError as error:
    blocked("truncate", error)
try:
    os.posix_fallocate(os.open("big", os.O_CREAT | os.O_RDWR), 0, 1 << 30)
    escaped("file", os.stat("big").st_size)
except OSError as error:
    blocked("fallocate", error)

== inodes | blocked: inode ENOSPC | timeout=15, not_on="bubblewrap: its tmpfs has no limit on inodes"
try:
    for number in range(300_000): os.mknod(f"f{number}")
    escaped("inodes", number)
except OSError as error:
    blocked("inode", error)

== symlinks_out | blocked: listdir | needs="uid"
target = VICTIMS[0]["directory"]
for name, to in (("root", "/"), ("victim", target), ("file", target + "/secret.txt"), ("self", "self")):
    os.symlink(to, name)
os.symlink("/proc/1/root", "first")
refused("listdir", os.listdir, "victim")
refused("open", open, "file")
refused("open", open, "file", "w")
refused("listdir", os.listdir, "first/slots")
refused("chmod", os.chmod, "victim", 0o777)
refused("unlink", os.unlink, "victim/secret.txt")

== hard_links | blocked: link | needs="uid"
refused("link", os.link, VICTIMS[0]["directory"] + "/secret.txt", "mine", also=(18,))
refused("link", os.link, f"/proc/{VICTIMS[0]['pid']}/cwd/secret.txt", "mine", also=(18,))
refused("link", os.link, "/usr/bin/env", "env", also=(18,))

== directories_deeper_than_a_path | deep 3000
for _ in range(3000):
    os.mkdir("d")
    os.chdir("d")
open("bottom", "w").write("x")
print("deep", 3000)

== names_of_all_kinds | names
for name in (b"new\nline", b"\xff\xfe", b"-rf", b" ", b"*", b"x" * 255, b"\x01\x1b[2J", b".removed-1", b"...",
             b".removed-2"):
    os.mkdir(name)
    open(name + b"/" + name, "wb").write(b"x")
print("names", len(os.listdir(b".")))

== permissions_000 | locked
os.makedirs("a/b/c")
open("a/b/c/file", "w").write("x")
for path in ("a/b/c/file", "a/b/c", "a/b", "a", "."):
    os.chmod(path, 0)
print("locked")

== pipes_sockets_and_devices | blocked: mknod
import stat
os.mkfifo("pipe")
socket.socket(socket.AF_UNIX).bind("socket")
for kind, number in ((stat.S_IFBLK, os.makedev(8, 0)), (stat.S_IFCHR, os.makedev(1, 1))):
    refused("mknod", os.mknod, f"device{kind}", kind | 0o666, number)

== file_flags | tried
import fcntl
open("kept", "w").write("x")
fd = os.open("kept", os.O_RDONLY)
for flags in (0x10, 0x20, 0x30):
    refused("FS_IOC_SETFLAGS", fcntl.ioctl, fd, 0x40086602, struct.pack("l", flags), also=(25, 95))
for name in ("trusted.x", "security.capability"):
    refused("setxattr", os.setxattr, "kept", name, b"x", also=(95, 22))
os.makedirs("sealed")
fcntl.flock(fd, fcntl.LOCK_EX)
print("tried")

== owned_by_root | blocked: chown
open("mine", "w").write("x")
refused("chown", os.chown, "mine", 0, 0, also=(22,))
refused("chown", os.chown, ".", 0, 0, also=(22,))
os.chmod("mine", 0o6777)

== system_is_written | blocked: /usr/x
import json
for path in ("/x", "/usr/x", "/bin/x", "/etc/x", "/etc/passwd", "/usr/bin/env", "/lib/x", "/dev/x", "/var/x", "/run/x",
             "/root/x", "/home/x", "/proc/x", "/sys/x", sys.executable, json.__file__, json.__file__ + "x"):
    refused(path, open, path, "ab", also=(26, 2))

== somewhere_is_writable | searched | needs="uid"
import posix, stat
own = posix.getcwd()
seen = 0
for top, directories, _ in os.walk("/"):
    if top.count("/") > 4:
        directories.clear()
    directories[:] = [d for d in directories if f"{top}/{d}".replace("//", "/") not in ("/proc", own, "/dev/shm")]
    seen += 1
    with contextlib.suppress(OSError):
        fd = os.open(top + "/arpo-attack", os.O_CREAT | os.O_WRONLY)
        if not os.readlink(f"/proc/self/fd/{fd}").startswith(own + "/"):
            escaped("writable", top)
print("searched", seen)
if seen < 20: escaped("nothing searched", seen)

== kernel_settings | searched | needs="uid"
seen = 0
for start in ("/proc/sys", "/sys"):
    for top, _, names in os.walk(start):
        for name in names:
            seen += 1
            path = os.path.join(top, name)
            with contextlib.suppress(OSError):
                fd = os.open(path, os.O_RDWR)
                os.write(fd, os.pread(fd, 4096, 0) or b"0")
                escaped("written", path)
print("searched", seen)
if seen < 100: escaped("nothing searched", seen)

== devices | searched
harmless = {"null", "zero", "full", "random", "urandom", "tty", "ptmx"}
seen = 0
for top, _, names in os.walk("/dev"):
    for name in names:
        seen += 1
        path = os.path.join(top, name)
        if name in harmless or top.startswith(("/dev/shm", "/dev/pts", "/dev/fd")) or os.path.islink(path):
            continue
        with contextlib.suppress(OSError):
            os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK))
            escaped("opened", path)
for name in ("mem", "kmem", "kmsg", "port", "sda", "vda", "fuse", "kvm", "net/tun", "vsock", "vhost-vsock", "loop0"):
    refused(name, open, "/dev/" + name, "rb")
print("searched", seen)

== own_directory_removed | gone
import posix, shutil
here = posix.getcwd()
shutil.rmtree(here, ignore_errors=True)
with contextlib.suppress(OSError):
    os.rename(here, os.path.dirname(here) + "/moved")
print("gone", os.path.exists(here))
"""
