"""Builds a page from the parts in `page/`: one self-contained file that loads nothing.

The data is embedded as JSON, and a content security policy allows only the script and style of the page itself, so text
that a model generated stays text.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
import re
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

_DIGITS = 6


def make_page(
    template: str,
    title: str,
    styles: Sequence[str],
    scripts: Sequence[str],
    data: Any,
    *,
    packages: Sequence[str] = ("arpo_trainer.report",),
    extra: Mapping[str, str] | None = None,
    policy: str = "",
) -> str:
    """Return the page as HTML.

    Args:
        template: the HTML part, with `{{title}}`, `{{policy}}`, `{{style}}`, `{{script}}` and `{{data}}`.
        title: plain text.
        styles: the CSS parts, in order.
        scripts: the JavaScript parts, in order; they share one scope.
        data: what the scripts draw, as plain data.
        packages: where the parts are looked for, in their folders `page`; the first that has a part counts.
        extra: HTML by the names of further placeholders of the template.
        policy: more directives of the content security policy, such as "connect-src 'self'".
    """

    def part(name: str) -> str:
        return _part(name, packages)

    style = "".join(part(name) for name in styles)
    # one function around all parts: they share a scope, and nothing is global
    script = '"use strict";\n(() => {\n' + "\n".join(part(name) for name in scripts) + "})();\n"
    parts = {
        "title": html.escape(title),
        "policy": _policy(style, script) + (f"; {policy}" if policy else ""),
        "style": style,
        "script": script,
        "data": _embed(data),
        **(extra or {}),
    }
    # one pass over the template: braces in the data, which a model may have written, are left alone
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], part(template))


def write_page(path: str | Path, page: str) -> Path:
    """Write a page atomically, so that a reader sees the old one or the new one; return its path."""
    path = Path(path)
    unfinished = path.with_name(f"{path.name}.unfinished")
    # "replace": a model may write half of a surrogate pair, which UTF-8 cannot encode
    unfinished.write_text(page, encoding="utf-8", errors="replace")
    unfinished.replace(path)
    return path


def _embed(value: Any) -> str:
    """Return JSON that is safe inside a script element: without `<` and NaN."""
    text = json.dumps(clean_data(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=str)
    return text.replace("<", "\\u003c")  # `</script>` in a text would end the element


def clean_data(value: Any) -> Any:
    """Return plain data with rounded floats, and None where a number is not finite, which JSON cannot hold."""
    if isinstance(value, float):
        # drawings need no more digits, and the page stays small
        return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): clean_data(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [clean_data(entry) for entry in value]
    return value


def _policy(style: str, script: str) -> str:
    """Return a content security policy that loads nothing and allows only this style and this script."""
    return (
        f"default-src 'none'; style-src {_digest(style)}; script-src {_digest(script)}; "
        "base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _part(name: str, packages: Sequence[str]) -> str:
    files = [resources.files(package).joinpath("page", name) for package in packages]
    found = next((file for file in files if file.is_file()), files[0])  # the first names the error
    return found.read_text(encoding="utf-8")
