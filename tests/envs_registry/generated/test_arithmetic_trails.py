"""Trails of Arithmetic: a trail takes as many calls as it says, and its answer is seen after the last one only."""

from typing import Any

import pytest

from envs_registry.generated.arithmetic import MOST_NOTES, ArithmeticSource


@pytest.mark.parametrize("notes", [1, 3, MOST_NOTES])
def test_every_call_of_a_trail_is_needed(notes: int) -> None:
    source = ArithmeticSource(level=6, notes=notes)
    for index in range(20):
        task, names = source.task(index), dict[str, Any]()
        exec(task.setup, names)
        seen = [str(eval(cell, names)) for cell in source.solution(index)]
        assert len(seen) == notes + 2
        assert [seen[-1]] == list(task.answers)
        # each call names a variable that only the result before it shows
        for before, cell in zip(seen, source.solution(index)[1:], strict=False):
            assert cell.split()[0] in before
            assert cell.split()[0] not in task.question
        assert not any(task.answers[0] in text for text in seen[:-1])


@pytest.mark.parametrize("notes", [0, MOST_NOTES + 1])
def test_other_numbers_of_notes_are_refused(notes: Any) -> None:
    with pytest.raises(ValueError, match="notes must be a whole number from 1 to 7"):
        ArithmeticSource(notes=notes)
