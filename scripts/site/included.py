"""Files of the repository that the site shows as pages of its own, and pictures that follow its colours."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[2]
# files outside docs/ that have a page of the site
PAGES = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "README.md": "index.md",
    "benchmarks/README.md": "benchmarks.md",
}


def included_file(name: str) -> str:
    """Return a Markdown file of the repository, its links turned to the site's pages.

    Its title is kept. Links to files that have no page on the site become plain text.
    """
    path = ROOT / name
    if not path.exists():
        raise FileNotFoundError(f"{name} is shown on the site and does not exist")
    text = path.read_text(encoding="utf-8")
    return re.sub(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)", lambda found: _link(found, PurePosixPath(name).parent), text)


def inline_picture(name: str) -> str:
    """Return an SVG of docs/pictures as part of the page, so that its colours follow the page's light or dark mode."""
    svg = (ROOT / "docs" / "pictures" / name).read_text(encoding="utf-8")
    svg = re.sub(r"<\?xml.*?\?>|<!--.*?-->", "", svg, flags=re.DOTALL).strip()
    return f'```{{raw}} html\n<div class="picture">\n{svg}\n</div>\n```\n'


def _link(found: re.Match[str], folder: PurePosixPath) -> str:
    picture, text, target = found[1], found[2], found[3]
    if "://" in target or target.startswith("#"):
        return found[0]
    name, sign, fragment = target.partition("#")
    place = _normal(folder / name)
    page = place.removeprefix("docs/") if place.startswith("docs/") else PAGES.get(place, "")
    return f"{picture}[{text}]({page}{sign}{fragment})" if page else text


def _normal(path: PurePosixPath) -> str:
    parts: list[str] = []
    for part in path.parts:
        if part == "..":
            parts.pop()
        elif part != ".":
            parts.append(part)
    return "/".join(parts)
