"""Applies one turn of the model to an episode: executes tool calls, accepts an answer, or reports a malformed turn.

All decisions of the environment about a turn are made here. Grading happens elsewhere (`rewards`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from arpo_env.episode import FOLD, Budget, Call, Episode, Turn
from arpo_env.memory_folding import Folding, memory_text, mentions_fold, undo_fold
from arpo_env.protocols.protocol import Answer, Malformed, Nothing, Protocol, ToolCall, ToolCalls
from arpo_env.tools.tool import JsonSchema, Tool, ToolResult, call_tool


async def act(
    episode: Episode,
    action: str,
    protocol: Protocol,
    tools: Mapping[str, Tool],
    budget: Budget,
    timeout: float,
    folding: Folding | None = None,
) -> Turn:
    """Parse a turn, execute what it asks for, and record everything in the episode.

    Afterwards either `episode.outcome` is set, or the turn's `result` is the text that the model reads next. If the
    turn folded the history, its `memory` is set. A call may take `timeout` seconds.

    Raises:
        Exception: the infrastructure behind a tool failed.
    """
    turn = Turn(action)
    episode.turns.append(turn)
    schemas = [tool.schema for tool in tools.values()] + ([folding.schema] if folding else [])
    match protocol.parse(action, schemas):
        case Answer(value=value, boxed=boxed):
            episode.answer, episode.outcome = value, "answered"
            if not boxed:
                episode.note_malformed("the answer is not in \\boxed{}")
        case Nothing():
            episode.outcome = "no answer"
        # before the tokens are counted: a fold makes room
        case ToolCalls(calls=calls) if (
            folding and any(call.name == FOLD for call in calls) and len(episode.turns) < budget.turns
        ):
            texts = await folding.apply(calls, turn, episode)
            if turn.memory is not None and not budget.memory_fits(episode):
                texts = [undo_fold(turn)]
            if texts:
                _show(turn, texts, episode, protocol, schemas, budget)
            elif turn.memory is not None:
                turn.results = [memory_text(turn.memory)]
                turn.result = turn.results[0]
        case _ if budget.spent(episode):
            episode.outcome = "truncated"
        case Malformed(reason=reason):
            episode.note_malformed(reason)
            # counted as an attempt that failed
            turn.calls += [Call(FOLD, "error")] if folding and mentions_fold(action) else []
            _show(turn, [f"Error: {reason}."], episode, protocol, schemas, budget)
        case ToolCalls(calls=calls):
            texts = [await _call(call, turn, episode, tools, budget, timeout) for call in calls]
            _show(turn, texts, episode, protocol, schemas, budget)
    return turn


async def _call(
    call: ToolCall, turn: Turn, episode: Episode, tools: Mapping[str, Tool], budget: Budget, timeout: float
) -> str:
    refusal = budget.refusal(episode, call.name)
    if refusal is not None:
        result, state = ToolResult(refusal, "refused"), ""
    else:
        tool = tools[call.name]
        tool.context = [earlier.text + earlier.result for earlier in episode.turns[:-1]] + [turn.text]
        tool.earlier_calls = [past for each in episode.turns for past in each.calls if past.status != "refused"]
        result, state = await call_tool(tool, call.arguments, timeout), tool.shared_state
    turn.calls.append(Call(call.name, result.status, result.seconds, call.arguments, state))
    turn.images += result.images
    return result.text


def _show(
    turn: Turn, texts: list[str], episode: Episode, protocol: Protocol, schemas: Sequence[JsonSchema], budget: Budget
) -> None:
    notice = budget.notice(episode)
    if notice is not None and not any(call.status == "refused" for call in turn.calls):
        texts[-1] += f"\n({notice})"
    turn.results = texts
    turn.result = protocol.render_result(texts, schemas)
