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

from envs_registry.datasets.data_files import READERS, DataFileError, Rows
from envs_registry.install_line import install_line

# Finds the local files of a data set, by the option `data` or by environment variables.
#
# `ARPO_DATA_GSM8K` names the file or folder of one set, `ARPO_DATA` a folder with one file or folder per set.

ROOT_VARIABLE = "ARPO_DATA"
_BEGINNINGS = {"validation": ("valid", "dev")}  # accepted beginnings of file names per split


def variable(source: str) -> str:
    """Return the name of the environment variable for one set."""
    return f"{ROOT_VARIABLE}_{source.upper()}"


def place_of(source: str, names: Sequence[str], data: str | Path | None) -> Path | None:
    """Return the file or folder of a set, or None if none is configured.

    Args:
        source: name of the task source.
        names: accepted names of the file or folder within `ARPO_DATA`.
        data: the path that the caller gave; it takes precedence.

    Raises:
        FileNotFoundError: the configured file or folder does not exist.
        ValueError: `data` is blank, which happens with an unset shell variable.
    """
    if data is not None and not str(data).strip():
        raise ValueError("data is blank; name a file or a folder, or leave it out")
    # The narrowest setting wins: the argument, the variable of the set, then the common folder.
    for origin, value in (("data", data), (variable(source), os.environ.get(variable(source)))):
        if value:
            path = Path(value).expanduser()
            if not path.exists():
                raise FileNotFoundError(
                    f"{origin}={str(value)!r} does not exist; give a file ({', '.join(READERS)}) or a folder of such"
                )
            return path
    root = os.environ.get(ROOT_VARIABLE)
    if not root:
        return None
    wanted = {name.casefold() for name in names}
    folder = Path(root).expanduser()
    if not folder.is_dir():
        raise FileNotFoundError(
            f"{ROOT_VARIABLE}={root!r} is not a folder; give a folder that holds a file or folder per set"
        )
    found = [path for path in sorted(folder.iterdir()) if {path.name.casefold(), path.stem.casefold()} & wanted]
    # Something of the right name but of another type, such as an archive, is passed over.
    return next((path for path in found if path.is_dir() or path.suffix in READERS), None)


def files_of(place: Path, split: str, splits: Sequence[str]) -> list[Path]:
    """Return the files of a split: the configured file, or the files of a folder that begin with the split's name.

    A folder with attached files may instead have the file "metadata" in a folder that is named after the split, as
    GAIA's repository has it. If a folder holds a single data file, it is used unless it is named after another split.

    Raises:
        DataFileError: the folder has no file for the split; the message lists its files.
    """
    if place.is_file():
        return [place]
    files = sorted(path for path in place.rglob("*") if path.suffix in READERS and path.is_file())
    mine = [path for path in files if _begins(path, split)]
    # A split may consist of several files, as the shards of the hub do.
    if mine:
        return mine
    # Attached files may be data files as well; "metadata" is the hub's name for the file that lists the others.
    tables = [path for path in files if path.stem == "metadata" and path.parent.name.casefold() == split]
    if tables:
        return tables[:1]
    if len(files) == 1 and not any(_begins(files[0], other) for other in splits):
        return files
    listed = ", ".join(str(path.relative_to(place)) for path in files[:9]) or "none"
    raise DataFileError(
        f"{place}: no file for split {split!r}. Name a file {split}.jsonl, or give a file's path; data files: {listed}"
    )


def split_of(file: Path, splits: Sequence[str]) -> str | None:
    """Return the split after which a file is named, as in "test.jsonl" or "dev_2.csv"; None if it is named otherwise.

    Raises:
        ValueError: the set has several splits, and not the one of the name.
    """
    word = re.split("[^a-z]", file.name.casefold())[0]
    names = {"train": "train", "test": "test"} | dict.fromkeys(("validation", "valid", "val", "dev"), "validation")
    split = names.get(word)
    if split is not None and split not in splits and len(splits) > 1:
        raise ValueError(f"{file} is named {split}, and the set has {', '.join(splits)}: say which it is, with split=")
    return split if split in splits else None


def _begins(path: Path, split: str) -> bool:
    return path.name.casefold().startswith((split, *_BEGINNINGS.get(split, ())))


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
    """Return the rows of a split, and the commit that they are of; several configurations are concatenated.

    Args:
        hub: repository id, or a local folder of the same form.
        configs: configurations; "" is the default configuration.
        split: name of the split on the hub; of several, as in "validation|test", the first that is there.
        columns: columns to read, if they exist.
        source: name of the task source, for error messages.
        gated: URL of the page where the terms are accepted, or "".
        revision: commit, tag or branch of the repository; None is its newest.

    Returns:
        The rows, and the commit; "" where it is not known, as of a folder.

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
    """Download files of a data set's repository into the hub's cache, those that are not there yet.

    Args:
        hub: repository id, or a local folder of the same form.
        paths: of the files, relative to the repository.
        source: name of the task source, for error messages.
        gated: URL of the page where the terms are accepted, or "".
        revision: commit of the repository; None is its newest.

    Returns:
        The folder of the repository; it holds the files that exist.

    Raises:
        HubError: `huggingface_hub` is missing, the set is gated, or the hub cannot be reached.
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
        f"Without the hub: give data='{source}.jsonl' (a file or folder), or set {variable(source)} to its path, "
        f"or {ROOT_VARIABLE} to a folder that holds {source!r}."
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
