"""The settings of `arpo sft`: `SFTArguments`, and how settings by name become `SFTArguments` and TRL's `SFTConfig`.

run, args = configure_sft(read_settings("sft-qwen2.5-3b", ["data=[my.jsonl]"], command="sft"))
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

from arpo_env.protocols import make_protocol
from arpo_trainer.demo_model import DEMO_MODEL, check_model_folder
from arpo_trainer.run.weight_arguments import WeightArguments
from arpo_trainer.sft.trace_data import TraceSettings
from arpo_trainer.sft.trace_formats import FORMATS
from arpo_trainer.training.devices import process_count
from arpo_trainer.validation import check_name, check_types, nearest_names
from envs_registry.datasets.data_files import READERS

if TYPE_CHECKING:
    from trl import SFTConfig


class _Rows(Protocol):
    __dataclass_fields__: ClassVar[dict[str, Any]]
    rows_per_update: int | None


Arguments = TypeVar("Arguments", bound=_Rows)
DEMONSTRATIONS: dict[str, Any] = {
    "env": "arpo/Arithmetic-v0",
    "env_kwargs": {},
    "count": 200,
    "tool_share": 0.5,
    "seed": 0,
}


@dataclass
class SFTArguments(WeightArguments):
    """The settings of a supervised run that are not fields of TRL's `SFTConfig`, with those of `WeightArguments`.

    Attributes:
        model: a hub id, a folder, or "smollm2-135m-instruct" for the demo model, which needs no hub.
        data: files or folders of traces, or files of a data set on the hub as OWNER/NAME/FILE.
        demonstrations: scripted demonstrations, played before training, as `DEMONSTRATIONS` has them: {env, env_kwargs,
            count, tool_share, seed}. Only environments whose tasks have known solutions can be demonstrated.
        data_format: sharegpt (ARPO-SFT-54K), tool-star (Tool-Star-SFT-54K), alpaca, messages, traces (our rollouts), or
            auto, which looks at each row.
        protocol: the protocol of the policy; traces in another one are rewritten.
        tools: the tools that may be called: python, search, tool_search, fold_thought. A row that has schemas of its
            own takes those. Traces of rollouts that found tools or folded need no setting.
        prompt: "rows" keeps the rows' system prompts; "short" or "paper" puts that of the environments in their place,
            so that reinforcement learning begins with the prompt that was learnt.
        end_token: whether the answer is followed by the model's end token. Rollouts with tags stop at the answer's tag;
            other software that runs the model may need it.
        min_reward: the least reward of a trajectory from a rollout.
        max_per_task: the most trajectories of one task from rollouts; 0 is any number.
        limit: the most traces; 0 is any number.
        strict: whether a row that cannot be used is an error instead of being dropped and counted.
        rows_per_update: rows that an update sees, on any number of processes; None leaves TRL's settings.
        share_beginnings: "auto" computes what the rows of a micro-batch share once, in one process on a CPU; false
            computes each row in full.
    """

    model: str = DEMO_MODEL
    data: str | list[str] = field(default_factory=list)
    demonstrations: dict[str, Any] = field(default_factory=dict)
    data_format: str = "auto"
    protocol: str = "arpo-tags"
    tools: list[str] = field(default_factory=lambda: ["python", "search"])
    prompt: str = "rows"
    end_token: bool = True
    min_reward: float = 1.0
    max_per_task: int = 4
    limit: int = 0
    strict: bool = False
    rows_per_update: int | None = None
    share_beginnings: bool | str = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_types(self, SFTArguments.__annotations__)
        for name in ("max_per_task", "limit"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be at least 0, got {getattr(self, name)}")
        if self.rows_per_update is not None and self.rows_per_update < 1:
            raise ValueError(f"rows_per_update must be at least 1, got {self.rows_per_update}")
        for name in self.demonstrations:
            check_name("demonstrations", name, DEMONSTRATIONS)
        check_name("data_format", self.data_format, ("auto", *FORMATS))
        make_protocol(self.protocol)
        self.trace_settings()

    def trace_settings(self) -> TraceSettings:
        """Return how rows are read."""
        tools, reward = tuple(self.tools), self.min_reward
        form, each = self.data_format, self.max_per_task
        return TraceSettings(self.protocol, tools, self.prompt, form, reward, each, self.limit)

    def files(self) -> list[Path]:
        """Return the files of `data`; those on the hub are downloaded.

        Raises:
            ValueError: there is no data.
            FileNotFoundError: an entry is neither here nor on the hub; the error says which.
        """
        entries = [self.data] if isinstance(self.data, str) else self.data
        if not entries and not self.demonstrations:
            raise ValueError("no data: give files of traces with --data FILE ..., or `data` in the settings")
        return [path for entry in entries for path in _files(str(entry))]


def _files(entry: str) -> list[Path]:
    path = Path(entry).expanduser()
    if path.is_file():
        return [path]
    if path.is_dir():
        found = sorted(one for one in path.rglob("*") if one.suffix in READERS and one.is_file())
        # the folder of a run: only its traces are rows
        traces = [one for one in found if one.name == "traces.jsonl"]
        if not found:
            raise FileNotFoundError(f"data folder {entry!r} holds no file of {', '.join(READERS)}")
        return traces or found
    if entry.count("/") == 2 and not entry.startswith((".", "/", "~")):
        return [_from_hub(entry)]
    raise FileNotFoundError(
        f"data {entry!r} does not exist here; give a file, a folder, or OWNER/NAME/FILE of a data set on the hub"
    )


def _from_hub(entry: str) -> Path:
    from huggingface_hub import hf_hub_download

    owner, name, file = entry.split("/")
    try:
        return Path(hf_hub_download(f"{owner}/{name}", file, repo_type="dataset"))
    except Exception as error:  # the hub client raises many types; one explanation covers them
        raise FileNotFoundError(
            f"could not load {entry} from the hub ({type(error).__name__}: {str(error).splitlines()[0]}). Download it "
            f"elsewhere and give the file: --data {file}"
        ) from error


def configure_sft(settings: dict[str, Any]) -> tuple[SFTArguments, SFTConfig]:
    """Return the checked `SFTArguments` and `SFTConfig` for settings by name; no model and no data is loaded.

    Raises:
        ValueError: a setting is unknown or cannot work.
        FileNotFoundError: the model's folder is missing.
    """
    from trl import SFTConfig

    from arpo_trainer.training.devices import check_devices

    run, values = split_rows_settings(settings, SFTArguments, SFTConfig, "sft")
    args = SFTConfig(**values)
    check_devices(args)
    if args.packing and args.max_length is None:
        raise ValueError("packing=true needs max_length: the length of the packed rows")
    if args.packing and args.packing_strategy == "wrapped":
        raise ValueError("packing_strategy=wrapped cuts rows in the middle; take bfd, which packs whole rows")
    check_model_folder(run.model)
    return run, args


def split_rows_settings(
    settings: dict[str, Any], ours: type[Arguments], theirs: type[Any], command: str
) -> tuple[Arguments, dict[str, Any]]:
    """Divide settings into our arguments and fields of TRL's configuration; a batch in rows becomes TRL's settings.

    Of TRL's defaults those are replaced that do not fit the command or this machine.

    Args:
        settings: by name.
        ours: a dataclass with `rows_per_update`.
        theirs: TRL's configuration.
        command: the command that the settings are for.

    Raises:
        ValueError: a name is neither; the error lists the nearest ones. Or a setting or the batch cannot work.
    """
    import torch

    from arpo_trainer.training.devices import lacks_bfloat16

    own = {entry.name for entry in dataclasses.fields(ours)}
    others = {entry.name for entry in dataclasses.fields(theirs) if entry.init}
    for name in settings:
        if name not in own | others:
            near = nearest_names(name, own | others, 3)
            hint = (
                f"Did you mean: {near}?"
                if near
                else f"Settings are the fields of {theirs.__name__} and {ours.__name__}"
            )
            raise ValueError(f"no setting {name!r} of arpo {command}. {hint}")
    settings = {name: str(value) if isinstance(value, Path) else value for name, value in settings.items()}
    run = ours(**{name: value for name, value in settings.items() if name in own})
    values = {name: value for name, value in settings.items() if name in others}
    values = {"report_to": [], "output_dir": f"runs/{command}", "max_length": None, "logging_steps": 1} | values
    if not torch.cuda.is_available() or lacks_bfloat16():
        values = {"bf16": False} | values  # bf16 is several times slower there
    if not torch.cuda.is_available():
        values = {"use_cpu": True} | values
    return run, values | _batch(run.rows_per_update, values)


def _batch(rows: int | None, values: dict[str, Any]) -> dict[str, int]:
    """Return the gradient accumulation for a batch in rows; {} if the batch is in TRL's terms."""
    if rows is None:
        return {}
    if "gradient_accumulation_steps" in values:
        raise ValueError(
            "rows_per_update and gradient_accumulation_steps set the same thing: give only one of them. "
            "rows_per_update fits any number of processes"
        )
    micro = values.get("per_device_train_batch_size", 8)
    if rows % (micro * process_count()):
        raise ValueError(
            f"rows_per_update ({rows}) is not a multiple of per_device_train_batch_size ({micro}) x "
            f"processes ({process_count()}): change one of them"
        )
    return {"gradient_accumulation_steps": rows // (micro * process_count())}
