"""Supervised training on tool-integrated traces (the cold start): formats, checks, masks, and the trainer.

data = read_traces_of(["final_5w4_still.jsonl"], TraceSettings())     # rows -> checked traces
examples = tokenised(data, Renderer(tokenizer, protocol))             # traces -> ids and labels
train_on_examples(model, tokenizer, examples, SFTConfig("out"))
"""
