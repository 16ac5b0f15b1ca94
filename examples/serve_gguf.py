"""Serve a model in a GGUF file on the CPU, as an OpenAI-compatible endpoint: a policy, judge or helper without a GPU.

    pip install xllamacpp    # llama.cpp, as a wheel; an environment of its own will do
    python examples/serve_gguf.py "$(arpo models get qwen2.5-coder-1.5b --gguf)" [--port 8081] [--rows 4] [--threads 2]

The address is printed when the model is loaded. Tools are read by llama.cpp's own parsers, so that
`--env-set protocol=native` works. `llama-server --jinja` and every other OpenAI-compatible server do the same.
"""

import argparse
import contextlib
import threading
from pathlib import Path

import xllamacpp

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("file", type=Path, help="the GGUF")
parser.add_argument("--port", type=int, default=8081)
parser.add_argument("--rows", type=int, default=4, help="requests that are generated together")
parser.add_argument("--context", type=int, default=8192, help="tokens of each of them")
parser.add_argument("--template", type=Path, help="a Jinja file in place of the chat template of the GGUF")
parser.add_argument("--threads", type=int, default=xllamacpp.CommonParams().cpuparams.n_threads)
parser.add_argument(
    "--reproducible", action="store_true", help="read each prompt anew: the same request, the same text"
)
options = parser.parse_args()

params = xllamacpp.CommonParams()
params.model.path = str(options.file.resolve(strict=True))
params.model_alias = {options.file.stem}
params.port, params.n_parallel = options.port, options.rows
params.n_ctx = options.rows * options.context
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = options.threads
if options.reproducible:
    params.cache_prompt, params.cache_ram_mib = False, 0
params.use_jinja = True  # the chat template decides how tools are called
if options.template:
    params.chat_template = options.template.read_text(encoding="utf-8")
params.verbosity = 1
server = xllamacpp.Server(params)
print(f"{options.file.stem} at {server.listening_address}/v1", flush=True)
with contextlib.suppress(KeyboardInterrupt):
    threading.Event().wait()
