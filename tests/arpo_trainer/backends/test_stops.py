"""Stop strings in streams of tokens."""

import random
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

from arpo_trainer.backends.base import StopFinder


def pieces(tokenizer: Any, text: str) -> list[int]:
    """Ids of a text, a byte each."""
    return [
        tokenizer.convert_tokens_to_ids(character) for character in tokenizer.tokenize(text) for character in character
    ]


PIECES = {
    "sentence": "▁ ▁a a b ▁< < / > </ a> ▁. . n't ▁n ' t <0xE7> <0xB5>",
    "suffix": "a b</w> < </w> / > >b ></w> a>. .</w> n't</w> '",
    "pieces": "a ##a < ##< ##/ / > ##> ##a> . ##. ' t ##t n",
}


def made(kind: str, **options: Any) -> Any:
    """A tokenizer of a few pieces, as SentencePiece, byte pairs with a suffix, or WordPiece join them."""
    pieces = {piece: number for number, piece in enumerate(PIECES[kind].split())}
    if kind == "pieces":
        inner = Tokenizer(models.WordPiece(pieces, unk_token="a"))
        inner.decoder = decoders.WordPiece(cleanup=options.get("clean_up_tokenization_spaces", False))
    elif kind == "suffix":
        inner = Tokenizer(models.BPE(pieces, [], end_of_word_suffix="</w>"))
        inner.decoder = decoders.BPEDecoder()
    else:
        inner = Tokenizer(models.BPE(pieces, [], byte_fallback=True))
        steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
        inner.decoder = decoders.Sequence(steps)
    return PreTrainedTokenizerFast(tokenizer_object=inner, **options)


@pytest.mark.parametrize("kind", ["bytes", *PIECES])
@pytest.mark.parametrize("tidy", [False, True])
def test_looking_only_where_a_string_can_end_finds_the_same(tokenizer: Any, kind: str, tidy: bool) -> None:
    """Beside the plain way: all tokens are decoded, until a string is there."""
    rng = random.Random(kind)
    if kind == "bytes":
        text = "a </a> b.\n</a> 終わり. don't <a> é\n\n"
        known = sorted({*tokenizer.encode(text, add_special_tokens=False), *pieces(tokenizer, text)})
        tested = tokenizer
    else:
        tested = made(kind, clean_up_tokenization_spaces=tidy)
        known = list(range(len(PIECES[kind].split())))
    strings = ["a>", "</", " a", "a ", ".", ">", "'t", "b.", "終", "\n", "\n\n", "<a", "é", "a.", " .", "' ", "絵", "�"]
    found = 0
    for _ in range(300):
        stop = rng.sample(strings, rng.randrange(1, 3))
        ids = rng.choices(known, k=rng.randrange(1, 14))
        finder, reach = StopFinder(tested, stop), max(len(one.encode()) for one in stop) + 1
        tails = [tested.decode(ids[max(0, end - reach) : end]) for end in range(1, len(ids) + 1)]
        plain = next((end for end, tail in enumerate(tails, 1) if any(one in tail for one in stop)), None)
        assert finder.end(ids) == plain, (stop, tails)
        each = (end for end in range(1, len(ids) + 1) if finder.end(ids[:end], end - 1))  # token by token
        assert next(each, None) == plain, (stop, tails)
        found += plain is not None
    assert 60 < found < 290


def test_a_string_after_the_bytes_of_a_character_is_found() -> None:
    """SentencePiece's decoder breaks all bytes beside half a character, the line break, too."""
    made = ["a", *(f"<0x{byte:02X}>" for byte in range(256))]
    inner = Tokenizer(models.BPE({piece: number for number, piece in enumerate(made)}, [], byte_fallback=True))
    inner.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    ids = [0, *(1 + byte for byte in "終\n".encode()), 0]
    assert StopFinder(PreTrainedTokenizerFast(tokenizer_object=inner), ["\n"]).end(ids) == 5
