"""Rows out of a data set on the Hugging Face hub, through `datasets`. A refusal says what to do about it.

Works for repositories of parquet, json or csv files; scripts are not run. Only the columns that are asked for are
read: pictures and paragraphs stay where they are.
"""

from __future__ import annotations

import contextlib
import functools
import glob
import logging
import os
import re
import sys
import threading
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from envs_registry.datasets.rows import ROOT_VARIABLE, Rows
from envs_registry.install_line import install_line

logger = logging.getLogger(__name__)
_PATIENCE = 5.0  # seconds


class HubError(RuntimeError):
    """Raised when a data set cannot be loaded from the hub; the message names the cure."""


@functools.cache
def offline() -> str:
    """Return why the hub cannot be asked, with the cure; "" if it can. There is one try in each process.

    If that fails, the process goes on as with HF_HUB_OFFLINE=1: what is cached is loaded at once, and what is not fails
    at once. The clients would try again for 25 seconds for each file.
    """
    from huggingface_hub import constants, get_session

    if constants.HF_HUB_OFFLINE:
        return "HF_HUB_OFFLINE is set: unset it to ask the hub"
    answers: list[Any] = []

    def ask() -> None:
        with contextlib.suppress(Exception):  # each HTTP library has its own
            answers.append(get_session().head(constants.ENDPOINT, timeout=_PATIENCE))

    # in a thread, since no limit of the client covers the look-up of a name
    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(_PATIENCE)
    if answers:
        return ""
    os.environ["HF_HUB_OFFLINE"] = "1"  # for child processes, and for libraries that are imported later
    constants.HF_HUB_OFFLINE = True
    if imported := sys.modules.get("datasets"):
        imported.config.HF_HUB_OFFLINE = imported.config.HF_DATASETS_OFFLINE = True
    reason = (
        f"the hub does not answer at {constants.ENDPOINT}: check the network, or name a mirror in HF_ENDPOINT (with "
        "HF_HUB_OFFLINE=1 it is not asked)"
    )
    logger.warning("only what is in the cache is loaded: %s", reason)
    return reason


def hub_rows(
    hub: str,
    configs: Sequence[str],
    split: str,
    columns: Collection[str],
    source: str,
    gated: str = "",
    revision: str | None = None,
) -> tuple[Rows, str]:
    """Return the rows of a split, and the commit that they are of ("" where it is not known, as of a folder).

    Args:
        hub: repository id, or a local folder of the same form.
        configs: configurations, which are concatenated; "" is the default configuration.
        split: name of the split on the hub; of several, as in "validation|test", the first that is there.
        columns: columns to read, if they exist.
        source: name of the task source, for error messages.
        gated: URL of the page where the terms are accepted, or "".
        revision: commit, tag or branch of the repository; None is its newest.

    Raises:
        HubError: `datasets` is missing, the set is gated, or the hub cannot be reached.
    """
    try:
        import datasets
    except ImportError as error:
        raise HubError(f"loading {hub} needs `datasets`: {install_line('data')}") from error
    if not Path(hub).is_dir():
        offline()
    rows: list[dict[str, Any]] = []
    commits: set[str] = set()
    for config in configs:
        try:
            table = _first_split(datasets, hub, config, split.split("|"), revision)
        except Exception as error:  # the hub client raises many types; two explanations cover them
            raise HubError(_explain(error, hub, f"split {split!r}", source, gated)) from error
        rows += table.select_columns([name for name in table.column_names if name in columns]).to_list()
        # `datasets` keeps what it has read of a repository in a folder that is named by the commit
        commits |= {Path(file["filename"]).parent.name for file in table.cache_files}
    commit = commits.pop() if len(commits) == 1 else ""
    placed = [(f"row {number}", row) for number, row in enumerate(rows, start=1)]
    return placed, commit if re.fullmatch("[0-9a-f]{40}", commit) else ""


def _first_split(datasets: Any, hub: str, config: str, splits: Sequence[str], revision: str | None) -> Any:
    for split in splits[:-1]:
        with contextlib.suppress(ValueError):  # there is no such split
            return datasets.load_dataset(hub, config or None, split=split, revision=revision)
    return datasets.load_dataset(hub, config or None, split=splits[-1], revision=revision)


def hub_files(hub: str, paths: Sequence[str], source: str, gated: str = "", revision: str | None = None) -> Path:
    """Return the folder of a repository of data, with the files of these paths downloaded as far as they exist.

    Arguments and errors are those of `hub_rows`.
    """
    if Path(hub).is_dir():
        return Path(hub)
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise HubError(f"loading {hub} needs `huggingface_hub`: {install_line('data')}") from error
    offline()
    try:
        # Names are patterns there.
        escaped = [glob.escape(path) for path in paths]
        return Path(snapshot_download(hub, repo_type="dataset", allow_patterns=escaped, revision=revision))
    except Exception as error:  # as above
        raise HubError(_explain(error, hub, "its files", source, gated)) from error


def _explain(error: Exception, hub: str, what: str, source: str, gated: str) -> str:
    local = (
        f"Without the hub: give data='{source}.jsonl' (a file or folder), or set {ROOT_VARIABLE} to a folder that "
        f"holds {source!r}."
    )
    if gated and _is_gate(error):
        return (
            f"{hub} is gated: accept its terms at {gated}, then set HF_TOKEN to a token of the same account "
            f"(or log in with `hf auth login`). {local}"
        )
    # A gated set may fail in other ways as well, such as without a token, so the cure is named in any case.
    terms = f" It is gated: accept its terms at {gated} and set HF_TOKEN." if gated else ""
    # not asked again: where the hub answered, its own error says more
    reason = f" It is not in the cache, and {offline()}." if not Path(hub).is_dir() and offline() else ""
    return f"could not load {hub}, {what}, from the hub ({type(error).__name__}: {error}).{reason}{terms} {local}"


def _is_gate(error: BaseException | None) -> bool:
    """Return whether an error or one of its causes is the hub's refusal of a gated set (huggingface_hub >= 0.20)."""
    # `datasets` raises an error of its own around that of the hub client.
    while error is not None:
        if type(error).__name__ == "GatedRepoError" or "gated dataset" in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False
