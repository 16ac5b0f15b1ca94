"""Attacks over the network: out, to the machine, to the hypervisor, and to other sessions' sockets."""

CODE = r"""
== internet_sockets | shows="blocked: family 2 ", needs="seccomp"
import asyncio, urllib.request
for family in (socket.AF_INET, socket.AF_INET6):
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_SEQPACKET):
        for number in (0, 1, 6, 17, 58, 132, 136, 255, 262):
            refused(f"family {family} {kind} {number}", socket.socket, family, kind, number)
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        refused(f"pair {family}", socket.socketpair, family, kind)
for address in ("1.1.1.1", "255.255.255.255", "169.254.169.254", "172.17.0.1", "127.0.0.1", "2606:4700:4700::1111"):
    for port in (53, 80, 443, 2375):
        refused(f"tcp {address}", socket.create_connection, (address, port), 1)
        refused(f"asyncio {address}", asyncio.run, asyncio.open_connection(address, port))
refused("listener", socket.create_server, ("127.0.0.1", 0))

== names | blocked: example.com
for name in ("example.com", "metadata.google.internal", "host.docker.internal"):
    try:
        escaped(name, socket.getaddrinfo(name, 80))
    except OSError as error:
        say(f"blocked: {name} {error}")

== interfaces | blocked: packet
names = [line.split(":")[0].strip() for line in open("/proc/net/dev") if ":" in line]
if names != ["lo"]: escaped("interfaces", names)
refused("packet", socket.socket, 17, socket.SOCK_RAW, 0x300)
refused("packet", socket.socket, 17, socket.SOCK_DGRAM, 0x300)

== all_other_families | blocked: family 16 | needs="seccomp"
for family in range(60):
    if family not in (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6):
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_SEQPACKET):
            refused(f"family {family}", socket.socket, family, kind)

== interfaces_changed | blocked: SIOC
import fcntl
one = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
name = b"lo".ljust(16, b"\0")
for what, number, argument in (
    ("SIOCSIFFLAGS", 0x8914, name + struct.pack("h", 0) + bytes(22)),
    ("SIOCSIFADDR", 0x8916, name + struct.pack("hH4s", 2, 0, bytes([10, 9, 9, 9])) + bytes(16)),
    ("SIOCADDRT", 0x890B, bytes(120)),
    ("SIOCBRADDBR", 0x89A0, b"evil".ljust(16, b"\0")),
):
    refused(what, fcntl.ioctl, one, number, argument, also=(errno.ENOTTY,))
refused("tun", open, "/dev/net/tun", "r+b")

== abstract_sockets_of_others | blocked: abstract | needs="landlock"
for victim in VICTIMS:
    refused("abstract", socket.socket(socket.AF_UNIX).connect, "\0" + victim["socket"])

== sockets_in_directories_of_others | blocked: unix | needs="uid"
for victim in VICTIMS:
    refused("unix", socket.socket(socket.AF_UNIX).connect, victim["directory"] + "/listener")
for path in ("/var/run/docker.sock", "/run/docker.sock", "/run/dbus/system_bus_socket", "/run/systemd/private"):
    refused("unix", socket.socket(socket.AF_UNIX).connect, path)
"""
