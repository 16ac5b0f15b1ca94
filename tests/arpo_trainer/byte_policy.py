"""A policy of nothing: a tokenizer of bytes and a random model, for tests of the update that need no sense in the text.

A step takes a tenth of a second with it: there are 258 logits a token.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, set_seed

TEMPLATE = "{% for m in messages %}[{{ m['role'] }}] {{ m['content'] }}\n{% endfor %}[assistant] "


def write_byte_policy(folder: Path) -> Path:
    """Write tokenizer and model as a folder."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({byte: number for number, byte in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("<end>", special=True), AddedToken("<pad>", special=True)])
    made = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>", pad_token="<pad>")
    made.chat_template = TEMPLATE
    made.save_pretrained(folder)
    set_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    sizes |= {"num_key_value_heads": 1, "head_dim": 16, "max_position_embeddings": 1024, "vocab_size": len(made)}
    tokens = {"eos_token_id": made.eos_token_id, "pad_token_id": made.pad_token_id, "bos_token_id": None}
    LlamaForCausalLM(LlamaConfig(**sizes, **tokens, initializer_range=0.2)).save_pretrained(folder)
    return folder


def letter_reward(completion_ids: Sequence[Sequence[int]], **_: Any) -> list[float]:
    """A reward that differs between random texts."""
    return [sum(ids) % 11 / 10 for ids in completion_ids]
