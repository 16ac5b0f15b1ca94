#!/usr/bin/env bash
# Builds the Dockerfile without a registry of images, on a base that debootstrap makes, and plays the README's first snippet
# in it: as its user, with the sandbox on the Docker engine of this machine. It takes extras without CUDA; that those of a
# GPU can be installed is for scripts/check_install.py. A few minutes.
# Usage: scripts/check_dockerfile.sh    (as root; Debian or Ubuntu with Docker and debootstrap)
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf '== %s\n' "$*"; }
base=arpo-gym-base:check image=arpo-gym:check
if [ -z "$(docker images -q $base)" ]; then
    say "making the base $base"
    root=$(mktemp -d)
    trap 'rm -rf "$root"' EXIT
    debootstrap --variant=minbase bookworm "$root" >/dev/null
    # a machine behind a proxy may have certificates of its own
    if [ -n "${PIP_CERT:-}" ]; then cp "$PIP_CERT" "$root/etc/pip.crt"; fi
    tar -C "$root" -c . | docker import --change "ENV ${PIP_CERT:+PIP_CERT=/etc/pip.crt }DEBIAN_FRONTEND=noninteractive" - $base >/dev/null
fi
say "building $image"
docker build --quiet --network host --build-arg BASE=$base --build-arg EXTRAS=data,math -t $image .
snippet=$(awk '/^```python$/ {inside = 1; next} /^```$/ && inside {exit} inside' README.md)
socket=/var/run/docker.sock
say "playing the README's first snippet as $(docker run --rm --entrypoint id $image)"
[ "$(docker run --rm --entrypoint id $image -u)" != 0 ]
printed=$(docker run --rm --network host -v $socket:$socket --group-add "$(stat -c %g $socket)" --entrypoint python \
    $image -c "$snippet")
[ "$(tail -n 1 <<<"$printed")" = 1.0 ] || { printf '%s\n' "error: the snippet printed" "$printed" >&2; exit 1; }
say "the Dockerfile works"
