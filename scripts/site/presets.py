"""Tables of the presets of published checkpoints."""

from __future__ import annotations

from arpo_trainer.evaluation.suites import Preset, presets
from scripts.site.markdown import code, table


def preset_tables(_: str) -> str:
    """Return the table of presets, and what each family leaves open."""
    rows = [_row(row) for row in presets().values()]
    header = ("preset", "model on the hub", "protocol", "sampling", "limits")
    return f"{table(header, rows)}\n{_notes()}"


def _row(row: Preset) -> tuple[str, ...]:
    sampling = ", ".join(f"{name} {value}" for name, value in row.rollout.items() if value not in (None, 0))
    limits = ", ".join(f"{most} {name}" for name, most in row.env_options.get("tool_limits", {}).items())
    limits = ", ".join(part for part in (limits, f"{row.env_options['max_turns']} turns") if part)
    link = f"[{row.model}](https://huggingface.co/{row.model})"
    return code(row.name), link, code(str(row.env_options["protocol"])), sampling or "greedy", limits


def _notes() -> str:
    """Return what is ours and what is not known, once for all presets that share it."""
    said: dict[tuple[str, ...], list[Preset]] = {}
    for row in presets().values():
        said.setdefault((*row.ours, *(f"not known: {one}" for one in row.not_known)), []).append(row)
    parts = []
    for notes, rows in said.items():
        names = ", ".join(code(row.name) for row in rows)
        sources = ", ".join(f"<{url}>" for url in rows[0].source)
        parts.append(f"{names} ({sources})\n\n" + "\n".join(f"- {note}" for note in notes))
    return "\n\n".join(parts) + "\n"
