"""Makes cold-start data from questions, as Tool-Star does (arXiv 2505.16410, sec. 3): the command is `arpo synth`.

settings = SynthSettings(("arpo/GSM8K-v0",), tasks=100)
report = synthesise(settings, [EvalModel("teacher", "endpoint", TOKENIZER, (URL,), NAME)], "data/gsm8k")
"""
