"""Supervised training on tool-integrated traces (the cold start): formats, checks, masks, and the trainer.

data = read_trace_files(["final_5w4_still.jsonl"], TraceSettings())       # rows -> checked traces
examples = examples_of(data, Renderer(tokenizer, data.protocol), 15_000)  # traces -> ids and labels
make_trainer(model, tokenizer, examples, SFTConfig("out")).train()
"""
