"""What exists: environment ids, their data and limits. Data, hardly any behaviour.

from envs_registry import all_specs, load_source
load_source("arithmetic", split="test", level=2).task(0).question
"""

from envs_registry import generated as _generated
from envs_registry.datasets import question_sets as _question_sets
from envs_registry.datasets import tool_sets as _tool_sets
from envs_registry.datasets.hub import HubError
from envs_registry.datasets.loading import DataSet, DataSetSource, register_data_sets
from envs_registry.datasets.rows import DataFileError
from envs_registry.sources import TaskSource, load_source, register_source
from envs_registry.spec import EnvSpec, UnknownEnvError, all_specs, get_spec, register, resolve_id
from envs_registry.task import Task

__all__ = [
    "DataFileError",
    "DataSet",
    "DataSetSource",
    "EnvSpec",
    "HubError",
    "Task",
    "TaskSource",
    "UnknownEnvError",
    "all_specs",
    "get_spec",
    "load_source",
    "register",
    "register_data_sets",
    "register_source",
    "resolve_id",
]

del _generated, _question_sets, _tool_sets
