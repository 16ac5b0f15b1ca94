"""Record what is asked outside in one file, and replay it later without asking anybody again.

Run it: python examples/09_record_and_replay.py
With a web provider (search="serper" and SERPER_API_KEY) each query is then paid for once.
"""

import json
import tempfile
from pathlib import Path

import gymnasium as gym

import arpo_env

DATA = Path(__file__).parent / "data"
TURN = "<think>I look it up.</think><search>{}</search>"

with tempfile.TemporaryDirectory() as folder:
    corpus, record = Path(folder) / "corpus.jsonl", Path(folder) / "record.sqlite"
    corpus.write_text(json.dumps({"id": "1", "title": "Tessel", "text": "Tessel is a harbour town."}) + "\n")
    arpo_env.register("mine/Notes-v0", DATA / "note_questions.jsonl", tools=["search"], scorer="qa")

    env = gym.make("mine/Notes-v0", search=corpus, cache=record)  # cache_mode="record" is the default
    env.reset(seed=0)
    print("recorded:", env.step(TURN.format("harbour town"))[0])
    env.close()

    env = gym.make("mine/Notes-v0", search=corpus, cache=record, cache_mode="replay")
    env.reset(seed=0)
    print("replayed:", env.step(TURN.format("Harbour  Town"))[0])  # case and spaces do not matter
    try:
        env.step(TURN.format("crater on the Moon"))
    except arpo_env.CacheMiss as error:
        print("not recorded:", error)
    env.close()
