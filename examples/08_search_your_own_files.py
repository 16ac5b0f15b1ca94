"""Let the model search your own text files: no server, no key, no network.

Run it: python examples/08_search_your_own_files.py [--folder FOLDER] [--query "harbour town"]
"""

import argparse
import json
import tempfile
from pathlib import Path

import gymnasium as gym

import arpo_env

DATA = Path(__file__).parent / "data"
parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--folder", type=Path, default=DATA / "notes", help="with .txt files")
parser.add_argument("--query", default="astronomer Kestrel Observatory")
args = parser.parse_args()

with tempfile.TemporaryDirectory() as folder:
    corpus = Path(folder) / "corpus.jsonl"  # one passage a line
    passages = [{"id": file.stem, "title": file.stem, "text": file.read_text()} for file in args.folder.glob("*.txt")]
    corpus.write_text("".join(json.dumps(passage) + "\n" for passage in passages))

    arpo_env.register("mine/Notes-v0", DATA / "note_questions.jsonl", tools=["search"], scorer="qa")
    env = gym.make("mine/Notes-v0", search=corpus, search_results=2)
    question, _ = env.reset(options={"index": 0})
    print(question)
    print(env.step(f"<think>I look it up.</think><search>{args.query}</search>")[0])
    env.close()
