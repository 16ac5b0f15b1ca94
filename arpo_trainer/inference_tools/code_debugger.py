"""The code debugger: asks a model to correct code that failed.

code = await corrected_code(helper, "print(a)", "NameError: name 'a' is not defined", seed=0)

What is done with the code is decided in `rollout.turn_tools`: it runs in the session as it was before the failed code.
"""

from __future__ import annotations

import ast
import re
import warnings

from arpo_env.text import Fence
from arpo_trainer.inference_tools.helper_model import Helper, HelperFailed

LONGEST_CODE = 20_000  # characters of a correction
_PROMPT = """\
The Python code below failed in an interactive session. Correct it, so that it does what it was meant to do.

It will run in the session as it was before the failed code: variables of earlier cells exist, those that the failed \
code set do not. The value of a last expression is shown, as is what is printed. Do not change what is computed beyond \
the correction.

{rule}

The code:
{code}

The error:
{error}

Reply with the corrected code alone, in one block that begins with ```python and ends with ```."""
_BLOCK = re.compile(r"```[ \t]*(?:python|py)?[ \t]*\n(.*?)(?:\n[ \t]*```|\Z)", re.DOTALL | re.IGNORECASE)


async def corrected_code(helper: Helper, code: str, error: str, seed: int) -> str:
    """Return code that may replace code that failed.

    Args:
        helper: the model that is asked.
        code: what failed.
        error: what the policy would have been shown.
        seed: of the sample.

    Raises:
        HelperFailed: there is no reply, or it is not Python, too long, or the code that failed.
    """
    fence = Fence([code, error])
    prompt = _PROMPT.format(rule=fence.rule, code=fence.around(code), error=fence.around(error))
    return read_code(await helper.complete([{"role": "user", "content": prompt}], seed), code)


def read_code(reply: str, failed: str) -> str:
    """Return the code of a reply: its last block that is Python, else the whole reply.

    Raises:
        HelperFailed: nothing of it is Python, it is too long, or it is the code that failed.
    """
    if len(reply) > LONGEST_CODE:
        raise HelperFailed(f"the reply has {len(reply)} characters, more than {LONGEST_CODE}")
    blocks: list[str] = _BLOCK.findall(reply) or [reply]
    found = next((block for block in reversed(blocks) if _is_python(block)), None)
    if found is None:
        raise HelperFailed(f"the reply is not Python: {reply[:80]!r}")
    if found.strip() == failed.strip():
        raise HelperFailed("the reply is the code that failed")
    return found.strip("\n")


def _is_python(text: str) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # such as of an escape that is not one
            return bool(ast.parse(text).body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
