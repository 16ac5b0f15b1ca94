"""`check_task`: whether a task can be played: no answer in its setup, a web address as start page, files that exist."""

from __future__ import annotations

from pathlib import Path

from envs_registry import Task, TaskSource
from envs_registry.answer_leak_check import check_setup


def check_tasks(source: TaskSource) -> bool:
    """Check all tasks, and return whether one of them has files; each is made once, since some sources generate them.

    The tasks of an endless source are not looked at.

    Raises:
        ValueError, FileNotFoundError: as `check_task`.
    """
    with_files = False
    for number in range(source.size or 0):
        task = source.task(number)
        check_task(task)
        with_files = with_files or bool(task.files)
    return with_files


def check_task(task: Task) -> None:
    """Check a task before it is played.

    Raises:
        ValueError: the setup contains an answer, or the start page is no web address.
        FileNotFoundError: a file of the task does not exist.
    """
    check_setup(task)
    if task.start_url and not task.start_url.lower().startswith(("http://", "https://")):
        raise ValueError(f"task {task.id!r}: start_url must begin with http:// or https://, not {task.start_url!r:.80}")
    for file in task.files:
        if not Path(file).is_file():
            raise FileNotFoundError(
                f"task {task.id!r}: its file {file!r} does not exist on this machine; put it there, or load the tasks "
                "anew with data=... naming the folder that has the files now"
            )
