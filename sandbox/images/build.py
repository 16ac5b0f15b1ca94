"""Builds the image that the docker backend runs; needs no registry.

Without a base, the image is a copy of the Python that runs this program (`from_host`). With a base, such as
"python:3.12-slim", it is built from sandbox/images/Dockerfile (`from_base`). In both, /work is each session's own
directory, under the same name in every fork, and /tmp is the same place.

The tag is a hash of everything that the image is made from. After an upgrade of this library, of Python or of the
pinned packages, the tag is another one, and a new image is built.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from sandbox.cache_directory import locked
from sandbox.config.options import package_names
from sandbox.docker_engine.check import check_docker, connect
from sandbox.errors import SandboxError, SandboxUnavailable
from sandbox.images.from_base import base_tag, build_on_base
from sandbox.images.from_host import host_tag, import_host
from sandbox.images.image_store import exists
from sandbox.images.profiles import requirements

BASE_VARIABLE = "ARPO_SANDBOX_BASE_IMAGE"


def build_image(
    base: str | None = None,
    profile: str = "math",
    host: str | None = None,
    plain_tmp: bool = False,
    packages: Sequence[str] = (),
) -> str:
    """Return the tag of the image; builds it if it does not exist.

    Args:
        base: an image with python3 (3.11 or newer; for "minimal" 3.9) and a shell. None uses the one that the
            environment variable ARPO_SANDBOX_BASE_IMAGE names, or without it the Python that runs this program.
        profile: "minimal", "math" or "data"; see `sandbox.images.profiles`.
        host: the engine, as in DOCKER_HOST; None uses the one of the environment.
        plain_tmp: keep /tmp a directory instead of a link to /work; gVisor needs that.
        packages: further packages, as pip takes them ("networkx", "rich==13.9.4"), with what they need.

    Raises:
        ValueError: there is no such profile, or `packages` is not a list of packages.
        SandboxUnavailable: Docker cannot be used.
        SandboxError: the image cannot be built.
    """
    import docker.errors

    profile = " ".join((profile, *package_names(packages)))
    # refuses an unknown profile before anything is asked of Docker
    requirements(profile)
    diagnosis = check_docker(host)
    if diagnosis.state != "ok":
        raise SandboxUnavailable(str(diagnosis))
    base = base or os.environ.get(BASE_VARIABLE) or None
    # an import or a build may take minutes before the engine answers
    client = connect(host, timeout=600)
    try:
        tag = host_tag(profile, plain_tmp) if base is None else base_tag(client, base, profile, plain_tmp)
        if exists(client, tag):
            return tag
        with locked("image"):
            if not exists(client, tag):  # another process may have built it meanwhile
                if base is None:
                    import_host(client, tag, profile, plain_tmp)
                else:
                    build_on_base(client, tag, base, profile, plain_tmp)
        return tag
    except (docker.errors.DockerException, OSError) as error:
        raise SandboxError(f"the sandbox image cannot be built: {error}") from error
    finally:
        client.close()
