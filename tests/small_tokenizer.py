"""SmolLM2's tokenizer with a twelfth of its vocabulary: a training step of a tiny model is nearly all in the logits."""

import json
from pathlib import Path
from typing import Any

KEPT = 4096
# what demonstrations are made of: their turns are as long as with the whole vocabulary
WORDS = r"""
<think>I will compute it.</think><python>stock['nails'] + stock['screws']</python><result>
<think>Let me use Python. I run some code. Python can do this.</think><answer>\boxed{12}</answer>
<think>That is it. I have the result. Done. The number is clear. I can tell. This is easy.</think>
<think>I know this one. No need for code. I look it up. Let me search. I have to find this first. A search will tell.
x = 1 * 2 - 3
y = x * y
sum(prices) sum(map(int, prices)) price + fee, int(price) sum(readings) / len(readings) max(readings) - min(readings)
"""


def write_small_tokenizer(source: Path, folder: Path) -> None:
    """Write a folder with the tokenizer of `source`, whose vocabulary is the `KEPT` first tokens and those of `WORDS`.

    A token is made of two others, which are kept as well: so the words are split as before.
    """
    from transformers import AutoTokenizer

    whole: Any = AutoTokenizer.from_pretrained(source)
    whole.save_pretrained(folder)
    file = folder / "tokenizer.json"
    settings = json.loads(file.read_text(encoding="utf-8"))
    model = settings["model"]
    parts = {"".join(pair): pair for pair in reversed(model["merges"])}
    kept = {token for token, number in model["vocab"].items() if number < KEPT}
    wanted = [token for line in WORDS.splitlines(keepends=True) for token in whole.tokenize(line)]
    while wanted:
        if (token := wanted.pop()) not in kept:
            kept.add(token)
            wanted += parts[token]
    model["vocab"] = {token: number for number, token in enumerate(sorted(kept, key=model["vocab"].__getitem__))}
    model["merges"] = [pair for pair in model["merges"] if "".join(pair) in kept and kept.issuperset(pair)]
    file.write_text(json.dumps(settings), encoding="utf-8")
