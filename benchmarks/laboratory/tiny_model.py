"""Tiny policies for `arpo/Bifurcation-v0`: a Llama of 0.5 to 5 million parameters and a tokenizer of whole words.

Both are ordinary: the folder is loaded by `from_pretrained`, and rollouts, backends and trainers treat it as any other
model. The chat template shows the question alone, so that a prompt has a dozen tokens.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import torch

from arpo_trainer.validation import check_name
from envs_registry.generated.bifurcation import CUES, DETAILS, DOORS, KEYS

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

# hidden size, layers, feed-forward size
SIZES: dict[str, tuple[int, int, int]] = {
    "0.8M": (192, 2, 384),
    "2M": (256, 3, 512),
    "5M": (384, 3, 1024),
}
_FRAMES = ("<go>", "</go>", "<answer>\\boxed{", "}</answer>", "\n<result>\n", "\n</result>\n")
_TAGS = ("<think>", "</think>", "<answer>", "</answer>", "<result>", "</result>", "\\boxed{", "}", "\n")
_WORDS = ("Find", "the", "key.", "room", "key", "dead", "end", "no", "such", "door", "doors")
_HIGHEST_ROOM = 52
_TEMPLATE = (
    "{% for message in messages %}{% if message['role'] == 'user' %}"
    "<s>{{ message['content'] }}\n"
    "{% endif %}{% endfor %}"
)


def vocabulary() -> list[str]:
    """Return the tokens: whole words, and the frames of turns and results."""
    numbers = map(str, range(1, _HIGHEST_ROOM + 1))
    words = dict.fromkeys((*_FRAMES, *_TAGS, *_WORDS, *numbers, *DOORS, *CUES, *DETAILS, *KEYS))
    return ["<unk>", "<s>", "</s>", *words]


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """Return the tokenizer. Spaces between words are dropped; a word that it does not know is one unknown token."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    made = Tokenizer(models.WordLevel({word: number for number, word in enumerate(vocabulary())}, unk_token="<unk>"))
    frames = "|".join(map(re.escape, (*_FRAMES, *_TAGS)))
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(frames), "isolated"), pre_tokenizers.Split(Regex(" +"), "removed")]
    )
    made.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=made,
        unk_token="<unk>",
        bos_token="<s>",
        eos_token="</s>",
        pad_token="</s>",
        chat_template=_TEMPLATE,
        clean_up_tokenization_spaces=False,
    )


def tiny_model(size: str = "0.8M", seed: int = 0, context: int = 1024) -> LlamaForCausalLM:
    """Return a Llama with random weights.

    Args:
        size: one of `SIZES`.
        seed: of the weights.
        context: most tokens.

    Raises:
        ValueError: an unknown size; suggests the nearest.
    """
    from transformers import LlamaConfig, LlamaForCausalLM

    check_name("size", size, SIZES)
    hidden, layers, inner = SIZES[size]
    words = vocabulary()
    config = LlamaConfig(
        vocab_size=len(words),
        hidden_size=hidden,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=context,
        tie_word_embeddings=True,
        bos_token_id=words.index("<s>"),
        eos_token_id=words.index("</s>"),
        pad_token_id=words.index("</s>"),
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LlamaForCausalLM(config)


def parameters(model: Any) -> int:
    """Return the number of parameters."""
    return sum(parameter.numel() for parameter in model.parameters())
