"""The tokenizer of the tiny models: bytes, pieces of given texts, and the control words of Qwen's models."""

from collections.abc import Sequence
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

PAD, START, END = WORDS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def byte_level(template: str = "", texts: Sequence[str] = (), pieces: int = 0) -> Any:
    """Make one with so many tokens besides bytes and words; its merges cross the borders of words and of tags."""
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = decoders.ByteLevel()
    size = len(alphabet) + len(WORDS) + pieces
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=WORDS, initial_alphabet=alphabet, show_progress=False)
    made.train_from_iterator(texts, trainer)
    names = {"pad_token": PAD, "eos_token": END, "clean_up_tokenization_spaces": False}
    return PreTrainedTokenizerFast(tokenizer_object=made, chat_template=template, **names)
