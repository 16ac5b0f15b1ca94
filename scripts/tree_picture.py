#!/usr/bin/env python3
"""Writes one rollout tree of a run as an SVG file, drawn as in the run's report.

Opens the report in headless Chromium and takes the drawing out of the page, with the page's styles for light and dark.
The question, the trajectories' results and the key are HTML in the report; here they become text of the picture.

Usage: .venv/bin/python scripts/tree_picture.py TRACES OUTPUT.svg [--tree NUMBER] [--width PIXELS]

TRACES is the folder of a run, or a file like its traces.jsonl. The number of a tree is the one in the report's address
(`#tree=3`). The picture of the README, which has to be drawn again when the report draws trees otherwise:

    .venv/bin/python scripts/tree_picture.py docs/images/rollout-tree.jsonl docs/images/rollout-tree.svg

Its tree is from a rollout on Arithmetic (levels 4 to 6, split test, seed 1, M = 8, N = 3) by SmolLM2-135M-Instruct
after a cold start on 96 demonstrations.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from arpo_trainer import write_report

MARGIN, ROW, RESULTS, LINE = 16, 42, 190, 22
CHARACTER = 6.3  # mean width of a character of 12 px text, in pixels; text cannot be measured here
TEXT_STYLE = """
.ground { fill: var(--card); stroke: var(--line); }
text.question { font-size: 15px; font-weight: 600; }
text.soft { fill: var(--soft); }
.sign, .reward { font-weight: 700; }
.sign.right { fill: var(--right); } .sign.void { fill: var(--alarm); }
.origin { font-size: 11px; fill: var(--soft); } .origin.branch { fill: var(--branch); }
"""


def main() -> None:
    """Read the command line and write the picture."""
    parser = argparse.ArgumentParser(description="Write one rollout tree of a run as an SVG file.")
    parser.add_argument("traces", type=Path, help="folder of a run or rollout, or a file like its traces.jsonl")
    parser.add_argument("output", type=Path, help="the SVG file")
    parser.add_argument("--tree", type=int, default=0, help="number of the tree in the report (default 0)")
    parser.add_argument("--width", type=int, default=800, help="width of the picture in pixels (default 800)")
    arguments = parser.parse_args()
    traces = arguments.traces / "traces.jsonl" if arguments.traces.is_dir() else arguments.traces
    if not traces.is_file():
        sys.exit(f"error: there is no file {traces}. Name the folder of a run, or its traces.jsonl")
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "traces.jsonl").symlink_to(traces.resolve(strict=True))
        page = open_page(write_report(folder), arguments.tree, arguments.width)
    ElementTree.register_namespace("", "http://www.w3.org/2000/svg")
    text = ElementTree.tostring(draw(page), encoding="unicode")
    arguments.output.write_text(re.sub(r"(<(?:g|path|text|rect)\b)", r"\n\1", text) + "\n", encoding="utf-8")


def open_page(report: Path, tree: int, width: int) -> str:
    """Return the report's document as Chromium has drawn it, with the tree as wide as the picture has room for."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        sys.exit("error: Chromium is missing. On Debian: sudo apt-get install chromium")
    # The page has margins of 3 % and, beside the tree, the list of results (226 px) and 14 px of borders.
    window = round((width - 2 * MARGIN - RESULTS + 240) / 0.94)
    options = ["--headless", "--disable-gpu", "--no-first-run", f"--window-size={window},900"]
    options += ["--no-sandbox"] if os.geteuid() == 0 else []
    with tempfile.TemporaryDirectory() as profile:
        command = [
            chromium,
            *options,
            f"--user-data-dir={profile}",
            "--dump-dom",
            f"{report.resolve().as_uri()}#tree={tree}",
        ]
        page = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    if 'data-ready="yes"' not in page or f">tree {tree + 1} of " not in page:
        sys.exit(f"error: the report has drawn no tree {tree}. Are there so many trees in the traces?")
    return page


def draw(page: str) -> Element:
    """Return the picture of the tree that a report shows."""
    tree = element(page, r'<svg [^>]*aria-label="Tree of ')
    width, height = (float(tree.attrib[side]) for side in ("width", "height"))
    whole = width + RESULTS + 2 * MARGIN
    picture = Element("svg", {"xmlns": "http://www.w3.org/2000/svg", "role": "img"})
    SubElement(picture, "title").text = f"A rollout tree. {tree.attrib['aria-label']}"
    style = SubElement(picture, "style")
    picture.append(element(page, "<defs>"))
    ground = SubElement(picture, "rect", {"class": "ground", "x": ".5", "y": ".5", "rx": "8"})

    question = element(page, '<p class="question')
    facts = [part.text or "" for part in element(page, '<p class="stats')][:2]
    write(picture, MARGIN, MARGIN + 14, "question", "".join(question.itertext()))
    write(picture, MARGIN, MARGIN + 36, "soft", "; ".join(facts))
    top = MARGIN + 40.0
    drawing = SubElement(picture, "g", {"transform": f"translate({MARGIN},{top})"})
    drawing.extend(list(tree))
    add_results(picture, page, MARGIN + width, top)
    bottom = add_key(picture, page, top + height + 6, whole)

    tidy(picture)
    picture.attrib |= {"viewBox": f"0 0 {whole:g} {bottom:g}", "width": f"{whole:g}", "height": f"{bottom:g}"}
    ground.attrib |= {"width": f"{whole - 1:g}", "height": f"{bottom - 1:g}"}
    style.text = styles(page, picture) + TEXT_STYLE
    return picture


def add_results(picture: Element, page: str, x: float, top: float) -> None:
    """Write reward, answer and origin of each trajectory beside its end."""
    for row, item in enumerate(element(page, '<ol class="leaves').iter("li")):
        y = top + 20 + ROW * row + ROW / 2 + 4
        parts = {(part.get("class") or "").split(" ")[0]: part for part in item.iter() if part.tag in ("span", "bdi")}
        if "sign" not in parts:
            continue
        verdict = (next(item.iter("button")).get("class") or "").partition(" ")[2]
        origin = parts["origin"].get("class") or "origin"
        write(picture, x + 8, y, f"sign {verdict}", parts["sign"].text or "")
        write(picture, x + 26, y, "reward", parts["reward"].text or "")
        write(picture, x + 72, y, "soft", clip(parts["answer"].text or "", 11))
        write(picture, x + RESULTS, y, origin, parts["origin"].text or "", anchor="end")


def add_key(picture: Element, page: str, y: float, width: float) -> float:
    """Explain the signs that the picture has, and return where the picture ends."""
    there = signs(picture)
    x = float(MARGIN)
    for item in element(page, '<ul class="key-list').iter("li"):
        sign = item.find("svg")
        if sign is None or not signs(sign) <= there:
            continue
        label = sign.tail or ""
        room = 40 + len(label) * CHARACTER
        if x > MARGIN and x + room > width - MARGIN:
            x, y = float(MARGIN), y + LINE
        drawn = SubElement(picture, "g", {"transform": f"translate({x:g},{y:g}) scale(.75)"})
        drawn.extend(list(sign))
        write(picture, x + 32, y + 13, "soft", label)
        x += room
    return y + LINE + MARGIN / 2


def signs(part: Element) -> set[str]:
    """Return the classes in a part of the picture; a glyph's class is told by its shape, too."""
    found: set[str] = set()
    for child in part.iter():
        classes = (child.get("class") or "").split()
        shape = re.sub(r"[^A-Za-z]", "", child.get("d", "")) if "glyph" in classes else ""
        found |= {name + (shape if name == "glyph" else "") for name in classes}
    return found


def element(page: str, opening: str) -> Element:
    """Return the first element of the page whose opening tag begins with a pattern."""
    begin = re.search(opening, page)
    if begin is None:
        sys.exit(f"error: the report has no {opening!r}. Its page and this script do not fit together any more.")
    name = re.match(r"<(\w+)", begin[0])[1]  # type: ignore[index]
    depth = 0
    for tag in re.finditer(rf"<(/?){name}\b", page[begin.start() :]):
        depth += -1 if tag[1] else 1
        if depth == 0:
            end = page.index(">", begin.start() + tag.start()) + 1
            return ElementTree.fromstring(page[begin.start() : end].replace("&nbsp;", "&#160;"))
    raise ValueError(f"<{name}> is not closed")


def write(picture: Element, x: float, y: float, classes: str, text: str, anchor: str = "start") -> None:
    """Add a line of text."""
    SubElement(picture, "text", {"class": classes, "x": f"{x:g}", "y": f"{y:g}", "text-anchor": anchor}).text = text


def clip(text: str, most: int) -> str:
    """Return the text, shortened to so many characters."""
    return text if len(text) <= most else text[: most - 1] + "…"


def tidy(picture: Element) -> None:
    """Take away what only a page needs: tooltips, roles, focus, the selection."""
    for part in list(picture.iter()):
        if part is not picture:
            for tooltip in part.findall("title"):
                part.remove(tooltip)
        for name in ("role", "tabindex", "aria-label", "data-node"):
            if part is not picture:
                part.attrib.pop(name, None)
        if "class" in part.attrib:
            part.attrib["class"] = " ".join(part.attrib["class"].replace("chosen", "").split())


def styles(page: str, picture: Element) -> str:
    """Return the page's rules for what the picture has, and its colours for light and dark."""
    css = re.sub(r"/\*.*?\*/", "", re.search(r"<style>(.*?)</style>", page, re.DOTALL)[1], flags=re.DOTALL)  # type: ignore[index]
    plain = re.sub(r"@media[^{]*\{(?:[^{}]*\{[^{}]*\})*\s*\}", "", css)
    classes = {name for part in picture.iter() for name in (part.get("class") or "").split()}
    rules = []
    for selectors, body in re.findall(r"([^{}]+)\{([^{}]*)\}", plain):
        kept = [one.strip() for one in selectors.split(",") if concerns(one.strip(), classes)]
        if kept:
            rules.append(f"{', '.join(kept)} {{{body}}}")
    used = set(re.findall(r"var\((--[\w-]+)\)", "".join(rules) + TEXT_STYLE))
    light = colours(plain, r":root \{([^}]*)\}", used)
    dark = colours(css, r"@media \(prefers-color-scheme: dark\) \{\s*:root \{([^}]*)\}", used)
    return "\n".join(["", f":root {{{light}}}", f"@media (prefers-color-scheme: dark) {{ :root {{{dark}}} }}", *rules])


def colours(css: str, block: str, used: set[str]) -> str:
    """Return those variables of a block of the page's styles that the picture uses."""
    found = re.search(block, css)
    return "".join(one[0] for one in re.finditer(r" (--[\w-]+):[^;]*;", found[1] if found else "") if one[1] in used)


def concerns(selector: str, classes: set[str]) -> bool:
    """Whether a rule is about something that the picture has."""
    if ":" in selector or "[" in selector:
        return False
    named = set(re.findall(r"\.([\w-]+)", selector))
    return named <= classes and (bool(named) or selector.startswith("svg"))


if __name__ == "__main__":
    main()
