"""slime: `--custom-generate-function-path slime_generate.generate --prompt-key prompt --metadata-key extra_info`.

A sample that is only masked (`remove_sample`) still counts in its group's mean with the reward it has, so a failed
episode is played again, and the third failure ends the step.
"""

import functools
import secrets

from slime.agent.adapters import OpenAIAdapter
from slime.agent.aiohttp_threaded import run_app_in_thread
from slime.utils.processing_utils import load_tokenizer

import arpo_env
from arpo_env.adapters.task_rows import find_task


@functools.cache
def service(checkpoint, router, parser):
    adapter = OpenAIAdapter(tokenizer=load_tokenizer(checkpoint), sglang_url=router, tool_parser=parser)
    return adapter, run_app_in_thread(adapter.app, host="127.0.0.1").port


async def generate(args, sample, sampling_params, evaluation=False):
    router = f"http://{args.sglang_router_ip}:{args.sglang_router_port}"
    adapter, port = service(args.hf_checkpoint, router, args.sglang_tool_call_parser)
    factory, task = find_task(sample.metadata)
    for _ in range(3):
        session = secrets.token_hex(8)
        adapter.open_session(session, sampling_defaults=sampling_params)
        at = {"base_url": f"http://127.0.0.1:{port}/v1", "api_key": session, "model": "policy"}
        played = await arpo_env.aplay(factory, task, **at, temperature=None)
        if played.error is None:
            return await adapter.finish_session(session, base_sample=sample, reward=played.reward)
        await adapter.drop_session(session)
    raise played.error
