"""Attacks over the network: out, to the machine, to the hypervisor, and to other sessions' sockets."""

from __future__ import annotations

from functools import partial

from attacks.attack import Attack

attack = partial(Attack, kind="network")

ATTACKS = (
    attack(
        "tcp_and_udp",
        "blocked: tcp",
        """
for address in ("1.1.1.1", "8.8.8.8", "10.0.0.1", "192.168.0.1", "255.255.255.255"):
    for port in (53, 80, 443):
        refused(f"tcp {address}", socket.create_connection, (address, port), 1)
        udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        refused(f"udp {address}", udp.sendto, b"x", (address, port))
for address in ("2606:4700:4700::1111", "fe80::1", "ff02::1"):
    udp = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) if socket.has_ipv6 else None
    refused(f"udp {address}", udp.sendto, b"x", (address, 53), also=(22, 99))
""",
    ),
    attack(
        "names",
        "blocked: example.com",
        """
for name in ("example.com", "metadata.google.internal", "host.docker.internal"):
    try:
        escaped(name, socket.getaddrinfo(name, 80))
    except OSError as error:
        say(f"blocked: {name} {error}")
""",
    ),
    attack(
        "machine_and_metadata",
        "blocked: tcp",
        """
for address in ("169.254.169.254", "172.17.0.1", "100.100.100.200", "10.0.2.2"):
    for port in (22, 80, 2375, 2376):
        refused(f"tcp {address}", socket.create_connection, (address, port), 1)
for port in (22, 111, 2375, 2376, 5000, 6379, 8000, 8080):
    refused(f"loopback {port}", socket.create_connection, ("127.0.0.1", port), 1, also=(111,))
names = [line.split(":")[0].strip() for line in open("/proc/net/dev") if ":" in line]
if names != ["lo"]: escaped("interfaces", names)
""",
    ),
    attack(
        "raw_and_packet",
        "blocked: raw",
        """
for number in (0, 1, 6, 17, 58, 255):
    refused("raw", socket.socket, socket.AF_INET, socket.SOCK_RAW, number, also=(22,))
    refused("raw6", socket.socket, socket.AF_INET6, socket.SOCK_RAW, number, also=(22,))
refused("packet", socket.socket, 17, socket.SOCK_RAW, 0x300)
refused("packet", socket.socket, 17, socket.SOCK_DGRAM, 0x300)
""",
    ),
    attack(
        "vsock",
        "blocked: vsock",
        """
for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET):
    refused("vsock", socket.socket, 40, kind)
""",
        needs="seccomp",
    ),
    attack(
        "all_other_families",
        "blocked: family 16",
        """
for family in range(60):
    if family not in (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6):
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_SEQPACKET):
            refused(f"family {family}", socket.socket, family, kind)
""",
        needs="seccomp",
    ),
    attack(
        "netlink",
        "blocked: netlink",
        "for number in range(23): refused('netlink', socket.socket, 16, socket.SOCK_RAW, number)",
        needs="seccomp",
    ),
    attack(
        "interfaces_changed",
        "blocked: SIOC",
        """
import fcntl
one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
name = b"lo".ljust(16, b"\\0")
refused("SIOCSIFFLAGS", fcntl.ioctl, one, 0x8914, name + struct.pack("h", 0) + bytes(22))
refused("SIOCSIFADDR", fcntl.ioctl, one, 0x8916, name + struct.pack("hH4s", 2, 0, bytes([10, 9, 9, 9])) + bytes(16))
refused("SIOCADDRT", fcntl.ioctl, one, 0x890B, bytes(120))
refused("SIOCBRADDBR", fcntl.ioctl, one, 0x89A0, b"evil".ljust(16, b"\\0"), also=(25,))
refused("tun", open, "/dev/net/tun", "r+b")
""",
    ),
    attack(
        "abstract_sockets_of_others",
        "blocked: abstract",
        """
for victim in VICTIMS:
    refused("abstract", socket.socket(socket.AF_UNIX).connect, "\\0" + victim["socket"])
""",
        needs="landlock",
    ),
    attack(
        "sockets_in_directories_of_others",
        "blocked: unix",
        """
for victim in VICTIMS:
    refused("unix", socket.socket(socket.AF_UNIX).connect, victim["directory"] + "/listener")
for path in ("/var/run/docker.sock", "/run/docker.sock", "/run/dbus/system_bus_socket", "/run/systemd/private"):
    refused("unix", socket.socket(socket.AF_UNIX).connect, path)
""",
        needs="uid",
    ),
)
