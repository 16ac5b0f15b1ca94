"""The images of an engine: names and labels of sandbox images, and whether an image can be used."""

from __future__ import annotations

import hashlib
from typing import Any

from sandbox.errors import SandboxError

REPOSITORY = "arpo-sandbox"
PROFILE_LABEL = "arpo.sandbox.profile"
PRELOAD_LABEL = "arpo.sandbox.preload"
STAGE_LABEL = "arpo.sandbox.stage"


def tag_of(*recipe: str) -> str:
    """Return the tag of an image that is made from this recipe."""
    # the zeros keep two parts from being taken for other two with the same text
    return f"{REPOSITORY}:{hashlib.sha256(chr(0).join(recipe).encode()).hexdigest()[:12]}"


def exists(client: Any, image: str) -> bool:
    """Whether the engine has an image."""
    import docker.errors

    try:
        client.api.inspect_image(image)
    except docker.errors.ImageNotFound:
        return False
    return True


def preload_of(client: Any, image: str) -> list[str]:
    """Return the modules that a server in an image imports first; none if the image has no such label.

    Raises:
        SandboxError: there is no such image.
    """
    labels = _inspect(client, image)["Config"].get("Labels") or {}
    return [name for name in labels.get(PRELOAD_LABEL, "").split(",") if name]


def require_image(client: Any, image: str) -> None:
    """Refuse an image that cannot be used. Problems that only appear when it runs are not found.

    Raises:
        SandboxError: it does not exist, is not for Linux, or declares volumes (they would be mounted writable, without
            a limit on their size).
    """
    found = _inspect(client, image)
    # an engine may leave this field out
    if found.get("Os") not in ("linux", "", None):
        raise SandboxError(f"the image {image!r} is for {found['Os']}; a sandbox needs one for linux")
    if volumes := found["Config"].get("Volumes"):
        raise SandboxError(
            f"the image {image!r} declares the volumes {', '.join(sorted(volumes))}, which would be writable and "
            "without a size limit; use an image without VOLUME"
        )


def _explain_missing(client: Any, image: str) -> str:
    there = sorted({tag for one in client.api.images() for tag in one.get("RepoTags") or () if tag != "<none>:<none>"})
    shown = f"it has {', '.join(there[:12])}{', ...' * (len(there) > 12)}" if there else "it has none"
    return f"the engine has no image {image!r} ({shown}); to fix it: docker pull {image}, or leave image=None"


def _inspect(client: Any, image: str) -> Any:
    import docker.errors

    try:
        return client.api.inspect_image(image)
    except docker.errors.ImageNotFound as error:
        raise SandboxError(_explain_missing(client, image)) from error
    except (docker.errors.DockerException, ValueError, OSError) as error:
        raise SandboxError(f"the engine cannot inspect the image {image!r}: {error}") from error
