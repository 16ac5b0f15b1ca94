"""The cold start: a short supervised training, so that a model that never saw the tags can use them.

`demonstrations` plays the real environment with scripted turns: one share of them calls the tool, the rest answer at
once. They show the format, but not which of the two is better; that is left to RL. `cold_start` fits the model to them
with transformers' `Trainer`; prompts and tool results are masked out of the loss. All demonstrations begin with the
same system prompt, so a batch of them is a prefix tree and is packed like one. `cold_start_cache` does both once for
each set of settings and keeps the model.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from arpo_env import ArpoTags, ToolEnv
from arpo_trainer.rollout.rendering import Renderer
from envs_registry import TaskSource

IGNORED = -100
# several wordings: the demonstrations teach the tags, and not one sentence by heart
_PLANS = {
    "python": ("I will compute it.", "Let me use Python.", "I run some code.", "Python can do this."),
    "search": ("I look it up.", "Let me search.", "I have to find this first.", "A search will tell."),
}
_CLOSES = ("That is it.", "I have the result.", "Done.", "The number is clear.")
_GUESSES = ("I can tell.", "This is easy.", "I know this one.", "No need for code.")


class SolvableSource(TaskSource, Protocol):
    """A task source that knows a solution of its tasks."""

    solution_tool: str

    def solution(self, index: int) -> tuple[str, ...]:
        """Return the arguments of the calls of `solution_tool` that solve a task, one string per call."""


Example = dict[str, list[int]]


def demonstrations(
    env: ToolEnv, source: SolvableSource, tokenizer: Any, count: int, tool_share: float = 0.5, seed: int = 0
) -> Iterable[Example]:
    """Play tasks by script and yield training examples.

    Args:
        env: the environment to play in; tool results are real.
        source: the tasks and their solutions.
        tokenizer: the model's tokenizer.
        count: the number of tasks.
        tool_share: the share of demonstrations that call the tool; the rest answer at once.
        seed: the seed of the random choices.

    Raises:
        ValueError: the source has no solutions, their tool is not in the environment, or the protocol has no tags.

    Yields:
        {"input_ids", "labels"}, both of shape (n,); labels are -100 outside the model's own turns.
    """
    check_solvable(source)
    if not isinstance(env.protocol, ArpoTags):
        raise ValueError(
            f"the cold start writes tags, which protocol {env.protocol.name!r} does not have: cold_start_examples=0"
        )
    if source.solution_tool not in env.tools:
        raise ValueError(
            f"these tasks are solved with {source.solution_tool!r}; the tools are {', '.join(env.tools) or 'none'}. "
            "Add it to `tools`, or set cold_start_examples=0"
        )
    rng = random.Random(seed)
    renderer = Renderer(tokenizer, env.protocol)
    for index in range(count):
        task = source.task(index)
        _, info = env.reset(options={"task": task})
        ids = renderer.prompt_ids(info["messages"], env.schemas)
        example: Example = {"input_ids": list(ids), "labels": [IGNORED] * len(ids)}
        cells = source.solution(index) if rng.random() < tool_share else ()
        # turns and results are tokenised one by one, as in a rollout: no token crosses the border of a turn
        for text in _turns(source.solution_tool, cells, task.answers[0], rng):
            turn = tokenizer(text, add_special_tokens=False)["input_ids"]
            example["input_ids"] += turn
            example["labels"] += turn
            *_, step = env.step(text)
            if step["results"]:
                ids = renderer.result_ids(step["results"], False, env.schemas)
                example["input_ids"] += ids
                example["labels"] += [IGNORED] * len(ids)
        yield example


def check_solvable(source: object) -> None:
    """Check that demonstrations can be made of a source's tasks.

    Raises:
        ValueError: the source has no solutions.
    """
    if not hasattr(source, "solution"):
        raise ValueError(
            "a cold start needs tasks with known solutions: arpo/Arithmetic-v0 or arpo/MultiHop-v0, without `limit`. "
            "For other environments start from a model that knows the tags, with cold_start_examples=0"
        )


def _turns(tool: str, cells: Sequence[str], answer: str, rng: random.Random) -> Iterable[str]:
    for cell in cells:
        yield f"<think>{rng.choice(_PLANS[tool])}</think><{tool}>{cell}</{tool}>"
    thought = rng.choice(_CLOSES if cells else _GUESSES)
    yield f"<think>{thought}</think><answer>\\boxed{{{answer}}}</answer>"


def cold_start(
    model: Any,
    tokenizer: Any,
    examples: list[Example],
    folder: str | Path,
    *,
    epochs: int = 2,
    batch_size: int = 8,
    learning_rate: float = 5e-5,
    bf16: bool = True,
    seed: int = 0,
    packing: bool | str = "auto",
    callbacks: Sequence[Callable[..., Any]] = (),
) -> None:
    """Fit the model, in place, to the examples' labelled tokens.

    Args:
        model: a causal language model.
        tokenizer: its tokenizer.
        examples: the output of `demonstrations`.
        folder: where transformers may write its logs.
        epochs: passes over the examples.
        batch_size: examples per step, over all processes (each process takes at least one).
        learning_rate: the initial learning rate of AdamW; it falls linearly to 0.
        bf16: whether to compute in bfloat16; the weights keep their type.
        seed: the seed of the order.
        packing: False computes each example in full. Otherwise the shared part of a batch is computed once, if one
            process trains on a CPU and `why_not_packable` and `why_not_proven` allow it.
        callbacks: transformers callbacks.
    """
    import torch
    from transformers import Trainer, TrainingArguments

    from arpo_trainer.rollout.distributed import rank_count

    arguments = TrainingArguments(
        output_dir=str(folder),
        num_train_epochs=epochs,
        per_device_train_batch_size=max(1, batch_size // rank_count()),
        learning_rate=learning_rate,
        warmup_steps=3,
        bf16=bf16,
        use_cpu=not torch.cuda.is_available(),
        logging_steps=5,
        save_strategy="no",
        report_to=[],
        seed=seed,
        remove_unused_columns=False,
    )
    with _packed_head(model) if packing is not False and _packs(model) else contextlib.nullcontext() as loss:
        trainer = Trainer(model, arguments, data_collator=_padded, train_dataset=examples, callbacks=list(callbacks))
        trainer.compute_loss = loss or trainer.compute_loss
        trainer.train()
        trainer.accelerator.unwrap_model(model, keep_fp32_wrapper=False)  # removes autocast from `forward`


def _padded(examples: Sequence[Example]) -> dict[str, Any]:
    """Return a batch, padded on the right: the first column holds a token of every example."""
    import torch

    # the mask hides the filled positions, so any token id would do for them
    fill = {"input_ids": 0, "labels": IGNORED, "attention_mask": 0}
    rows = [{**example, "attention_mask": [1] * len(example["input_ids"])} for example in examples]
    return {
        name: torch.nn.utils.rnn.pad_sequence([torch.tensor(row[name]) for row in rows], True, value)
        for name, value in fill.items()
    }


def _packs(model: Any) -> bool:
    """Return whether packed rows of a model are known to give the numbers of flat ones here."""
    import torch

    from arpo_trainer.packing.support import why_not_packable, why_not_proven
    from arpo_trainer.rollout.distributed import rank_count
    from arpo_trainer.training.trl_hooks import HAS_FUSED_HEAD

    alone_on_cpu = rank_count() == 1 and not torch.cuda.is_available()
    return alone_on_cpu and HAS_FUSED_HEAD and not (why_not_packable(model) or why_not_proven(model))


@contextlib.contextmanager
def _packed_head(model: Any) -> Iterator[Callable[..., Any]]:
    """Put TRL's fused head on a model, and yield the loss of a packed batch: the mean over all labelled tokens."""
    from trl.trainer.utils import add_fused_lm_head

    from arpo_trainer.packing import packed_logps

    def loss(model: Any, inputs: dict[str, Any], **_: Any) -> Any:
        # the first token, which nothing predicts, is the prompt; all others are the completion
        labels = inputs["labels"][:, 1:]
        scored = packed_logps(model, inputs["input_ids"], inputs["attention_mask"], labels.shape[1])
        return -scored.logps[labels != IGNORED].mean()

    add_fused_lm_head(model)
    try:
        yield loss
    finally:
        del model.forward  # restores the class's own forward
