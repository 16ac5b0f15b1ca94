#!/usr/bin/env bash
# Installs what the tests of the sandbox use beside Docker: bubblewrap, and an SSH server for a Docker engine behind
# ssh://. On Debian or Ubuntu as root; elsewhere it says what is missing, and those tests skip with the reason.
set -euo pipefail

say() { printf '== %s\n' "$*"; }
look() {
    missing=()
    command -v bwrap >/dev/null || missing+=(bubblewrap)
    command -v sshd >/dev/null || [ -x /usr/sbin/sshd ] || missing+=(openssh-server)
}

look

if [ ${#missing[@]} -gt 0 ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    wanted=()
    for package in "${missing[@]}"; do
        # under systemd this one would start an SSH server for the whole machine: that is for its owner to say
        [ "$package" = openssh-server ] && [ -d /run/systemd/system ] || wanted+=("$package")
    done
    if [ ${#wanted[@]} -gt 0 ]; then
        say "installing what the tests of the sandbox use: ${wanted[*]} (apt-get, as root)"
        export DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 NEEDRESTART_SUSPEND=1 # nothing is started
        { apt-get update -qq && apt-get install -y -qq "${wanted[@]}" >/dev/null; } || say "apt-get has failed"
    fi
fi
look
[ ${#missing[@]} = 0 ] || say "not installed: ${missing[*]}. The tests that need it skip. On Debian: sudo apt-get install ${missing[*]}"
