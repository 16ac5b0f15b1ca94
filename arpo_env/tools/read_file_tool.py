"""The tool `read_file`: the files of the task as text, by pages, slides, sheets and lines, and pictures as pictures.

It reads the files that are attached to the task, and members of attached ZIP archives. Files that the model's code has
made are read by code. Nothing changes between calls, so that copies of forks share everything.
"""

from __future__ import annotations

import json
import unicodedata
from pathlib import PurePosixPath
from typing import Any

from arpo_env.task_files.file_extractor import Extract, ExtractionFailed, FileExtractor, shared_extractor
from arpo_env.tools.tool import SharedTool, ToolResult, function_schema
from envs_registry.nearest_name import nearest_hint

MOST_CHARACTERS = 8000  # of one result; what follows is read by further calls
_LAST_LINE = 10**9
_MOST_PARTS = 50  # of a path
_FRAME = 300  # characters kept for the lines around the text
_SEES = "Read an attached file as text, or see a picture"


def read_file(file: str, part: str | int = "", line: int = 1) -> str:
    """Read an attached file as text; part is the page, slide or sheet and line the line to begin with.

    Args:
        file: Name of the file; a file in a ZIP archive is archive.zip/path.
        part: Page, slide or sheet to begin with.
        line: Line to begin with.
    """
    raise NotImplementedError(file, part, line)  # only the schema is used; `ReadFileTool.call` reads the file


class ReadFileTool(SharedTool):
    """Reads the files of the task.

    Args:
        max_characters: most characters of a result; at most `MOST_CHARACTERS`.
        extractor: reads the files; None uses the one of this process.
        images: show pictures, for models that see; otherwise only their facts are told.
    """

    name = "read_file"
    schema = function_schema(read_file)
    repeatable = voids = keeps_time = True

    def __init__(
        self, max_characters: int = MOST_CHARACTERS, extractor: FileExtractor | None = None, images: bool = False
    ) -> None:
        self._characters = max(200, min(max_characters, MOST_CHARACTERS) - _FRAME)
        self._extractor, self._images = extractor, images
        if images:
            function = self.schema["function"]
            said = function["description"].replace("Read an attached file as text", _SEES)
            self.schema = {**self.schema, "function": {**function, "description": said}}

    async def call(self, **arguments: Any) -> ToolResult:
        """Return a piece of `file`; a file that cannot be read is an error that the model reads."""
        wanted = str(arguments["file"])
        part, line = str(arguments.get("part") or ""), min(int(arguments.get("line") or 1), _LAST_LINE)
        path, inside = self._find(wanted)
        if path is None:
            return ToolResult(self._unknown(wanted), "error")
        extractor = self._extractor or shared_extractor()
        try:
            found = await extractor.extract(path, inside, part, max(1, line), self._characters, self._images)
        except ExtractionFailed as fault:
            return ToolResult(f"Error: {wanted[:200]}: {fault}.", "error")
        return ToolResult(_shown(wanted, found), images=(found.picture,) if found.picture else ())

    def _find(self, wanted: str) -> tuple[str | None, str]:
        """Return the path of the file that is named, and what follows its name."""
        files = {PurePosixPath(file).name: file for file in (self.task.files if self.task is not None else ())}
        # As it is written comes first: names may differ in case alone, and begin or end with quotes and spaces.
        for same in (str, _folded):
            names = {same(name): file for name, file in files.items()}
            for written in (wanted, wanted.strip(), wanted.strip().strip("\"'")):
                # Models also name it by a path such as ./a.csv or /home/user/a.csv.
                parts = written.split("/")
                for start, part in enumerate(parts[:_MOST_PARTS]):
                    if same(part) in names:
                        return names[same(part)], "/".join(parts[start + 1 :])
        return None, ""

    def _unknown(self, wanted: str) -> str:
        names = self.task.file_names if self.task is not None else ()
        if not names:
            return "Error: no file is attached to this question."
        hint = nearest_hint(wanted[:100], names, "did you mean {!r}? ")
        return f"Error: there is no attached file {wanted[:100]!r}; {hint}the files are: {', '.join(names)}."


def _folded(name: str) -> str:
    return unicodedata.normalize("NFKC", name.strip()).casefold()


def _shown(wanted: str, found: Extract) -> str:
    lines = [f"{wanted[:200]}: {found.label}", found.text or "(no text)"]
    if found.line:
        arguments = {"file": wanted, **({"part": found.part} if found.part else {}), "line": found.line}
        lines.append(f"(continues; go on with {json.dumps(arguments, ensure_ascii=False)})")
    return "\n".join(lines)
