"""Evaluate a model behind an OpenAI-compatible endpoint, with 95 % intervals; a second call plays only what is missing.

Run it: python examples/14_evaluate_an_endpoint.py --url http://127.0.0.1:8000/v1 --name MODEL [--tasks 20]
The key is read from OPENAI_API_KEY, where the endpoint wants one. `arpo eval` does the same from the command line.
"""

import argparse

from arpo_trainer.evaluation import EvalModel, EvalSettings, results, run_evaluation

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--url", default="https://api.openai.com/v1")
parser.add_argument("--name", default="gpt-4.1-mini", help="of the model at the endpoint")
parser.add_argument("--tokenizer", default="smollm2-135m", help="measures texts; any one will do")
parser.add_argument("--tasks", type=int, default=20)
parser.add_argument("--samples", type=int, default=1)
parser.add_argument("--output", default="evals/endpoint")
options = parser.parse_args()

settings = EvalSettings(
    ("arpo/Arithmetic-v0",), {"level": "mixed"}, tasks=options.tasks, samples=options.samples, rollout={"top_p": 1.0}
)
model = EvalModel(options.name, "endpoint", options.tokenizer, (options.url,), options.name)
run = run_evaluation(settings, [model], options.output, resume=True)
for entry in results(run.rows, run.facts)["scores"]:
    score = entry["score"]
    print(f"{entry['model']}: {score['mean']:.2f} [{score['low']:.2f}, {score['high']:.2f}] on {score['tasks']} tasks")
for row in run.rows[:3]:
    print(row.question, "->", row.episodes[0].answer, "(right)" if row.episodes[0].reward == 1 else "(wrong)")
