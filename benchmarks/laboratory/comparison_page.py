"""The page of a comparison: verdicts, tables and figures in one HTML file that loads nothing and needs no script.

write_comparison_page(data, "lab/first/comparison.html")
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from arpo_trainer.report.html_report import make_page, write_page
from benchmarks.laboratory.comparison_figures import GROUND, INK, RULE, curve_svg, differences_svg, labels, look_of
from benchmarks.laboratory.comparison_words import (
    HEADER,
    OVERALL,
    cells,
    collapses,
    count,
    interval,
    planned,
    trouble_lines,
    verdict,
)
from benchmarks.laboratory.grid_run import AXIS_LABELS

_OPEN = ("tokens", "calls")  # axes that are shown at once; the others are a click away
_SIGNS = {"more": ("▲", "more"), "less": ("▼", "less"), "": ("≈", "not told apart"), "base": ("", "baseline")}


def write_comparison_page(data: dict[str, Any], path: str | Path) -> Path:
    """Write the page, and return its path.

    Raises:
        ModuleNotFoundError: matplotlib is not installed.
    """
    parts = {
        "facts": _facts(data),
        "notes": "".join(f'<p class="note">{html.escape(line)}</p>' for line in trouble_lines(data) if _is_note(line)),
        "verdicts": _verdicts(data),
        "differences": f'<figure class="card wide">{_inline(differences_svg(data))}</figure>',
        "curves": _legend(data) + "".join(_curves_of(data, axis) for axis in data["axes"]),
        "tables": "".join(_table(data, axis) for axis in data["axes"]),
        "runs": _runs(data),
    }
    folder = Path(__file__).with_name("page")
    return write_page(
        path, make_page("comparison", "Comparison", ["style", "comparison"], [], {}, folder=folder, **parts)
    )


def _is_note(line: str) -> bool:
    return not line.startswith(("collapsed:", "failed,"))  # which are listed below


def _facts(data: dict[str, Any]) -> str:
    plan = data["plan"]
    given = ", ".join(f"{name}={value}" for name, value in plan["settings"].items())
    budget = ", ".join(f"{count(value)} {AXIS_LABELS[axis]}" for axis, value in plan["budget"].items())
    facts = [
        f"{planned(data) - data['missing']} runs of {planned(data)}",
        f"{len(plan['seeds'])} seeds",
        f"baseline {data['baseline']}",
        *([f"budget of a run: {budget}"] if budget else []),
        *([f"settings: {given}"] if given else []),
        *(f"{name} {version}" for name, version in data["versions"].items()),
    ]
    return "".join(f"<span>{html.escape(fact)}</span>" for fact in facts)


def _verdicts(data: dict[str, Any]) -> str:
    """Return a table of algorithms and axes over all environments, each cell a sign and a difference."""
    rows = []
    for one in data["plan"]["algorithms"]:
        label = one["label"]
        row = [f'<th scope="row">{_name(data, label)}</th>']
        for axis, part in data["axes"].items():
            found = part["overall"].get(label)
            row.append(_verdict_cell(found, AXIS_LABELS[axis]) if found else "<td></td>")
        row.append(f'<td data-name="collapsed">{collapses(data, label, None) or ""}</td>')
        rows.append(f"<tr>{''.join(row)}</tr>")
    head = "".join(f"<th>{AXIS_LABELS[axis]}</th>" for axis in data["axes"])
    return _box(f"<thead><tr><th></th>{head}<th>collapsed</th></tr></thead><tbody>{''.join(rows)}</tbody>")


def _verdict_cell(row: dict[str, Any], axis: str) -> str:
    kind = verdict(row)
    sign, words = _SIGNS[kind]
    if kind == "" and row["difference"]["low"] is None:
        sign, words = "", "one seed, no interval"
    number = interval(row["difference"], sign=True) if kind != "base" else f"{row['score']['value']:.3f}"
    value, _, bounds = number.partition(" ")
    return (
        f'<td class="verdict {kind or "even"}" data-name="{axis}"><span><b>{sign} {value}</b> '
        f'<span class="muted">{html.escape(bounds)}</span><span class="word">{words}</span></span></td>'
    )


def _curves_of(data: dict[str, Any], axis: str) -> str:
    figures = "".join(
        f'<figure class="card"><figcaption>{html.escape(env)}</figcaption>'
        f"{_inline(curve_svg(data, env, axis))}</figure>"
        for env in data["axes"][axis]["curves"]
    )
    return _details(f"Against {AXIS_LABELS[axis]}", f'<div class="grid">{figures}</div>', axis in _OPEN)


def _legend(data: dict[str, Any]) -> str:
    entries = []
    for label in labels(data):
        colour, dash, _ = look_of(data, label)
        dashes = "" if dash == "-" else f' stroke-dasharray="{" ".join(f"{2 * part:g}" for part in dash[1])}"'
        line = f'<path d="M0 5H30" stroke="{colour}" stroke-width="2.4"{dashes}/>'
        entries.append(f'<span><svg viewBox="0 0 30 10" aria-hidden="true">{line}</svg>{html.escape(label)}</span>')
    return f'<p class="legend">{"".join(entries)}</p>'


def _details(summary: str, body: str, is_open: bool) -> str:
    return f'<details class="more"{" open" if is_open else ""}><summary>{summary}</summary>{body}</details>'


def _table(data: dict[str, Any], axis: str) -> str:
    part = data["axes"][axis]
    sections = [(env, table, env) for env, table in part["environments"].items()]
    sections += [(OVERALL, part["overall"], None)] if len(sections) > 1 else []
    header = [name.format(data["baseline"].upper()).lower() for name in HEADER[1:]]
    bodies = []
    for name, table, env in sections:
        budget = f"{count(part['budgets'][env])} {AXIS_LABELS[axis]}" if env else "all environments"
        title = f"{html.escape(name)} <span class='muted'>{budget}</span>" if env else budget
        rows = [f'<tr class="group"><th colspan="{len(header)}">{title}</th></tr>']
        rows += [
            _table_row(data, label, cells(data, label, row, env), header, verdict(row)) for label, row in table.items()
        ]
        bodies.append(f"<tbody>{''.join(rows)}</tbody>")
    head = "".join(f"<th>{html.escape(name)}</th>" for name in header)
    summary = f"<summary>At equal {AXIS_LABELS[axis]}</summary>"
    state = " open" if axis == next(iter(data["axes"])) else ""
    return (
        f"<details class='more'{state}>{summary}{_box(f'<thead><tr>{head}</tr></thead>' + ''.join(bodies))}</details>"
    )


def _table_row(data: dict[str, Any], label: str, row: Sequence[str], header: Sequence[str], kind: str) -> str:
    found = [f'<th scope="row">{_name(data, label)}</th>']
    for name, text in zip(header[1:], row[1:], strict=True):
        marked = f' class="{kind}"' if name.startswith("against") and kind in ("more", "less") else ""
        found.append(f'<td data-name="{html.escape(name)}"{marked}>{html.escape(text)}</td>')
    return f"<tr>{''.join(found)}</tr>"


def _runs(data: dict[str, Any]) -> str:
    """Return the runs that collapsed or failed."""
    rows = [
        f"<tr><th scope='row'>{_name(data, run['label'])}</th><td>{html.escape(run['env'])}</td><td>{run['seed']}</td>"
        f"<td>{html.escape(run['collapse'] or run['error'])}</td></tr>"
        for run in data["runs"]
        if run["collapse"] or run["status"] == "failed"
    ]
    if not rows:
        return '<p class="muted">No run has collapsed or failed.</p>'
    head = "<thead><tr><th>algorithm</th><th>environment</th><th>seed</th><th>what happened</th></tr></thead>"
    return _box(f"{head}<tbody>{''.join(rows)}</tbody>")


def _name(data: dict[str, Any], label: str) -> str:
    colour = look_of(data, label)[0]
    dot = f'<circle cx="5" cy="5" r="4" fill="{colour}"/>'
    return f'<svg class="dot" viewBox="0 0 10 10" aria-hidden="true">{dot}</svg>{html.escape(label)}'


def _box(rows: str) -> str:
    return f'<div class="card scroll-x"><table class="scores">{rows}</table></div>'


def _inline(svg: str) -> str:
    """Return an SVG as part of the page: without its prologue, in the page's colours, ids and styles as attributes."""
    text = svg[svg.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", text, flags=re.DOTALL)
    text = re.sub(r' id="(?!m|p[0-9a-f])[^"]*"', "", text)
    text = re.sub(r' style="([^"]*)"', lambda match: _attributes(match[1].split(";")), text)
    return text.replace(INK, "currentColor").replace(RULE, "var(--line)").replace(f'"{GROUND}"', '"none"')


def _attributes(declarations: Iterable[str]) -> str:
    """Return CSS declarations as attributes: the page's policy allows no style in elements."""
    pairs = [entry.split(":", 1) for entry in declarations if ":" in entry]
    found = []
    for name, value in ((name.strip(), value.strip().replace('"', "'")) for name, value in pairs):
        if name == "font":
            size = re.search(r"([\d.]+)px", value)
            weight = " font-weight='700'" if value.startswith(("bold", "700")) else ""
            found.append(f" font-size='{size[1] if size else 9}'{weight}")
        else:
            found.append(f' {name}="{value}"')
    return "".join(found)
