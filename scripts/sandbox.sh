#!/usr/bin/env bash
# Makes the sandbox ready: Docker if it is there; on Debian or Ubuntu as root it is installed and started; else
# bubblewrap. SANDBOX=docker|bubblewrap|unsafe_local insists on one. Prints what it does; the choice is written to
# .venv/.sandbox. Never a bare process unless SANDBOX=unsafe_local says so.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf '== %s\n' "$*"; }
stop() { printf 'error: %s\n' "$*" >&2; exit 1; }
choose() { printf '%s' "$1" > .venv/.sandbox; }
docker_state() { .venv/bin/python -c 'import sandbox; print(sandbox.check_docker().state)'; }
docker_words() { .venv/bin/python -c 'import sandbox; print(sandbox.check_docker())'; }

drop_stale_pid() {  # file, program: a daemon that was killed leaves its pid file, and the next one refuses to start
    local pid
    pid=$(cat "$1" 2>/dev/null) || return 0
    if [ "$(cat "/proc/$pid/comm" 2>/dev/null)" != "$2" ] || grep -q '^State:[[:space:]]*Z' "/proc/$pid/status"; then
        rm -f "$1"
    fi
}

start_docker() {
    say "starting Docker Engine"
    if [ -d /run/systemd/system ]; then
        systemctl start docker || true
    else
        drop_stale_pid /var/run/docker.pid dockerd
        drop_stale_pid /var/run/docker/containerd/containerd.pid containerd
        # no systemd: the daemon itself, on its own, so that it outlives this script
        setsid nohup dockerd >/var/log/dockerd.log 2>&1 </dev/null &
    fi
    for _ in $(seq 60); do
        [ "$(docker_state)" = ok ] && return 0
        sleep 0.5
    done
    tail -n 5 /var/log/dockerd.log 2>/dev/null >&2 || true
    return 1
}

install_docker() {
    say "Docker Engine is missing: installing the package docker.io (apt-get, as root)"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq && apt-get install -y -qq docker.io >/dev/null
}

have_docker() {
    [ "$(docker_state)" = ok ] && return 0
    [ -n "${DOCKER_HOST:-}" ] && return 1
    [ "$(id -u)" = 0 ] || return 1
    if ! command -v dockerd >/dev/null; then
        command -v apt-get >/dev/null || return 1
        install_docker || return 1
    fi
    start_docker
}

ready_docker() {
    say "sandbox: Docker; building its image if it is not there"
    .venv/bin/python -c 'import logging, sandbox; logging.basicConfig(level=20, format="   %(message)s"); sandbox.build_image()'
    choose docker
}

ready_packages() {
    say "sandbox: the packages that the code may use, if they are not there"
    .venv/bin/python -c 'from sandbox.images.profiles import packages_directory; packages_directory("math")'
}

case "${SANDBOX:-auto}" in
    unsafe_local)
        ready_packages
        say "sandbox: NONE. SANDBOX=unsafe_local runs the model's code as a bare process of this machine"
        choose unsafe_local ;;
    bubblewrap)
        command -v bwrap >/dev/null || stop "bubblewrap is missing. Run: sudo apt-get install bubblewrap"
        ready_packages
        say "sandbox: bubblewrap"; choose bubblewrap ;;
    docker)
        have_docker || stop "$(docker_words)"
        ready_docker ;;
    auto)
        if have_docker; then
            ready_docker
        elif command -v bwrap >/dev/null; then
            ready_packages
            say "no Docker ($(docker_words)); sandbox: bubblewrap"; choose bubblewrap
        else
            stop "no sandbox. $(docker_words)"
        fi ;;
    *) stop "SANDBOX must be docker, bubblewrap, unsafe_local or auto, not '$SANDBOX'" ;;
esac
