"""Runs kubectl, which knows the cluster, the namespace and who is asking from its kubeconfig.

The command is the words of ARPO_SANDBOX_COMMAND ("kubectl --context lab --namespace sandboxes"), or `kubectl`.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from collections.abc import Sequence
from typing import Any

from sandbox.config.options import command_words
from sandbox.errors import SandboxError, SandboxUnavailable

COMMAND_VARIABLE = "ARPO_SANDBOX_COMMAND"
_SECONDS = 30
_CURES = {
    "exceeded quota": "ask for less (containers=, Limits(memory=...)), or have the namespace's ResourceQuota raised",
    "violates PodSecurity": 'the namespace enforces "restricted": set ARPO_SANDBOX_POD_SECURITY=restricted',
    "RuntimeClass": "`kubectl get runtimeclass` lists what runtime= may name",
    "Forbidden": "the role that sandboxes need is in deploy/kubernetes/access.yaml",
    "refused": "`kubectl cluster-info` says which server is asked; is it the right context?",
    "no such host": "`kubectl cluster-info` says which server is asked; is it the right context?",
    "You must be logged in": "log in to the cluster, or point KUBECONFIG to a file with valid credentials",
}


class Kubectl:
    """kubectl with the options that choose cluster and namespace.

    Args:
        command: its words; None takes those of the environment.
    """

    def __init__(self, command: Sequence[str] | None = None) -> None:
        self.words = list(
            command or command_words(os.environ.get(COMMAND_VARIABLE, ""), COMMAND_VARIABLE) or ["kubectl"]
        )

    def run(self, *arguments: str, given: str = "") -> str:
        """Run a subcommand and return what it prints.

        Args:
            arguments: of the subcommand.
            given: its standard input.

        Raises:
            SandboxUnavailable: there is no kubectl, or the cluster does not answer in time.
            SandboxError: it fails; the message has its words and, if it is known, a cure.
        """
        command = [*self.words, *arguments]
        options: dict[str, Any] = {"capture_output": True, "text": True, "timeout": 2 * _SECONDS, "check": False}
        try:
            done = subprocess.run(command, input=given, **options)
        except OSError as error:
            raise SandboxUnavailable(f"{command[0]} does not start: {error}; install kubectl") from error
        except subprocess.TimeoutExpired as error:
            raise SandboxUnavailable(f"the cluster has not answered `{shlex.join(command)[:200]}`") from error
        if done.returncode:
            words = _without_log(done.stderr) or f"exit code {done.returncode}"
            cure = next((cure for sign, cure in _CURES.items() if sign in words), "")
            raise SandboxError(f"{' '.join(self.words)} {arguments[0]}: {words}{'; to fix it: ' if cure else ''}{cure}")
        return str(done.stdout)

    def ask(self, *arguments: str, given: str = "") -> dict[str, Any]:
        """Run a subcommand that speaks to the cluster, and return the object that it prints."""
        answer = self.run(*arguments, f"--request-timeout={_SECONDS}s", "--output=json", given=given)
        found: dict[str, Any] = json.loads(answer)
        return found

    def delete_pod(self, name: str, grace: int = 5) -> None:
        """Have a pod deleted, without waiting for its end; one that is gone already is no error."""
        options = ["--ignore-not-found", "--wait=false", f"--grace-period={grace}", f"--request-timeout={_SECONDS}s"]
        self.run("delete", "pod", name, *options, *(["--force"] if grace == 0 else []))


def _without_log(text: str) -> str:
    """Return kubectl's own words, without the lines of its client library, which repeat themselves."""
    lines = text.strip().splitlines()
    own = [line for line in lines if not re.match(r"[EWI]\d{4} ", line)]
    return "\n".join(own or lines[-1:])[-1500:]
