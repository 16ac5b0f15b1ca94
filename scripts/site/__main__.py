"""`python -m scripts.site FOLDER` builds the site into FOLDER; a warning of Sphinx fails the build."""

from __future__ import annotations

import argparse
import importlib.util
import sys
from pathlib import Path

from envs_registry.install_line import install_line
from scripts.site.assemble import assemble


def main(argv: list[str] | None = None) -> int:
    """Build the site; return Sphinx's exit status."""
    parser = argparse.ArgumentParser(prog="python -m scripts.site", description="Build the documentation site.")
    parser.add_argument("output", type=Path, help="folder of the HTML pages, such as build/site")
    output: Path = parser.parse_args(argv).output
    if importlib.util.find_spec("sphinx") is None:
        sys.stderr.write(f"error: the site needs Sphinx: {install_line('docs,train,envs')}\n")
        return 1
    source = output.with_name(f"{output.name}-source")
    assemble(source)
    return build(source, output)


def build(source: Path, output: Path, *options: str, builder: str = "html") -> int:
    """Build the site of an assembled source; return Sphinx's exit status, which a warning makes 1."""
    from sphinx.cmd.build import build_main

    arguments = ["--fail-on-warning", "--keep-going", "-q", "-b", builder, *options]
    status: int = build_main([*arguments, str(source), str(output)])
    return status


if __name__ == "__main__":
    sys.exit(main())
