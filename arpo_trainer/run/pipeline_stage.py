"""One stage of a pipeline: its settings, its command line, and the stamp that it leaves in its folder."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from arpo_trainer.training.checkpoints import broken

STAMP = "stage.json"
# tools at inference time: options of `arpo eval`
WITH = ("with", "with_model", "with_url", "with_price", "refine_above")


@dataclass(frozen=True)
class Stage:
    """One stage of a pipeline.

    Attributes:
        name: synth, sft, train, dpo or eval; with several rounds also train-2 and the like.
        settings: its settings, complete, with model and folder.
        flags: flags of the launcher.
    """

    name: str
    settings: dict[str, Any]
    flags: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """The command: synth, sft, train, dpo or eval."""
        return self.name.partition("-")[0]

    @property
    def folder(self) -> Path:
        """The output folder."""
        return Path(self.settings["output_dir"])

    @property
    def stamp(self) -> dict[str, Any] | None:
        """What the stage left behind: its settings and status; None if it has not begun."""
        try:
            found: dict[str, Any] = json.loads((self.folder / STAMP).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return found

    @property
    def status(self) -> str:
        """How far the stage is: "new", "begun" or "done"."""
        return "new" if self.stamp is None else str(self.stamp["status"])

    def differences(self) -> list[str]:
        """Return the settings that differ from those of the stamp, such as "max_steps: 8 -> 3"."""
        if self.kind == "synth" and self.status == "begun":
            return []  # the command takes other limits, and refuses other sampling itself
        before, now = (self.stamp or {}).get("settings", self._plain()), self._plain()
        # the server of the model that helps an evaluation may have moved
        names = sorted(name for name in {*before, *now} - {"with_url"} if before.get(name) != now.get(name))
        return [f"{name}: {before.get(name)!r} -> {now.get(name)!r}" for name in names]

    def write_stamp(self, status: str) -> None:
        """Write the stamp."""
        self.folder.mkdir(parents=True, exist_ok=True)
        digest = hashlib.sha256(json.dumps(self._plain(), sort_keys=True).encode()).hexdigest()[:12]
        facts = {"stage": self.name, "status": status, "fingerprint": digest, "settings": self._plain()}
        scratch = self.folder / f"{STAMP}.unfinished"
        scratch.write_text(json.dumps(facts, indent=1, ensure_ascii=False), encoding="utf-8")
        os.replace(scratch, self.folder / STAMP)

    def put_aside(self) -> None:
        """Rename the folder, so that the stage begins anew and nothing is lost."""
        if self.folder.exists():
            number = next(n for n in range(1, 10_000) if not self.folder.with_name(f"{self.folder.name}.{n}").exists())
            self.folder.rename(self.folder.with_name(f"{self.folder.name}.{number}"))

    def command(self) -> list[str]:
        """Return the command line of the stage, after `arpo`; an interrupted one is resumed."""
        if self.kind == "eval":
            return self._eval_command()
        # outside of the stage's folder: a trainer may want it empty
        file = self.folder.with_name(f"{self.name}.yaml")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(yaml.safe_dump(self._plain(), sort_keys=False, allow_unicode=True), encoding="utf-8")
        if self.kind == "synth":
            return ["synth", "--config", str(file), "--resume", "--retry"]
        if self.kind == "dpo":  # its sampling goes on, too
            return ["dpo", "--config", str(file), "--resume", *self.flags]
        checkpoint = any(broken(path) is None for path in self.folder.glob("checkpoint-*"))
        resume = ["--set", "resume_from_checkpoint=last"] if checkpoint else []
        if self.kind == "train" and self.status == "begun" and not checkpoint:
            self.put_aside()  # an interrupted run that cannot go on: no other begins in its folder
        return [self.kind, "--config", str(file), *resume, *self.flags]

    def _eval_command(self) -> list[str]:
        if self._is_played():
            moved = self.settings.get("with_url")
            return ["eval", "retry", str(self.folder), *(["--with-url", str(moved)] if moved else [])]
        given = self.settings
        names = given.get("environments") or []
        line = ["eval", *words(names), "--model", str(given["model"]), "--output", str(self.folder)]
        for flag, key in (("--tasks", "tasks"), ("-n", "samples"), ("--algorithm", "algorithm")):
            line += [flag, str(given[key])] if key in given else []
        for key in WITH:
            if given.get(key):
                values = words(given[key])
                line += [f"--{key.replace('_', '-')}", *([",".join(values)] if key == "with" else values)]
        for flag, key in (("--set", "settings"), ("--env-set", "env_settings")):
            if given.get(key):
                line += [flag, *(f"{name}={json.dumps(value)}" for name, value in given[key].items())]
        return [*line, *(["--resume"] if (self.folder / "run.json").is_file() else [])]

    def _is_played(self) -> bool:
        """Return whether all episodes are played; if the command failed all the same, too many of them broke."""
        try:
            facts = json.loads((self.folder / "run.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return False
        return isinstance(facts, dict) and facts.get("status") == "finished"

    def _plain(self) -> dict[str, Any]:
        # through JSON, so that it compares equal to what a stamp holds
        plain: dict[str, Any] = json.loads(json.dumps(self.settings, default=str))
        return plain


def words(value: Any) -> list[str]:
    """Return a setting that is one value or a list as a list of words."""
    return [str(one) for one in value] if isinstance(value, list | tuple) else [str(value)]
