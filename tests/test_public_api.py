"""The public names of the packages, written out: a change of them has to be made here as well."""

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PUBLIC = {
    "sandbox": """
        DockerDiagnosis Execution FileInfo ForkError Interpreter Limits Sandbox SandboxError SandboxFull
        SandboxUnavailable SessionEnded SessionLost Status SyncInterpreter build_image check_docker
        default_sandbox
    """,
    "envs_registry": """
        DataFileError DataSet DataSetSource EnvSpec HubError Task TaskSource UnknownEnvError all_specs
        get_spec load_source register register_data_sets register_source resolve_id
    """,
    "arpo_env": """
        ArpoTags Cache CacheMiss ChatModel EnvFactory Grader GradingError Hit PageReader PlayedEpisode Protocol
        PythonTool RewardTerm Rewards Score SearchBackend SearchTool ServiceError Tool ToolEnv ToolResult ToolVectorEnv
        aplay build_index is_correct make_grader make_protocol mcp_tools open_search paper_reward play reference_reward
        register register_backend register_protocol tool
    """,
    "arpo_env.search": """
        CorpusError Hit LocalSearch Passage SearchBackend backend_names build_index default_search
        open_search read_corpus register_backend
    """,
    "arpo_env.grading": """
        Grader GradingError Score make_grader
    """,
    "arpo_env.pages": """
        Page PageError PageReader passage
    """,
    "arpo_env.protocols": """
        PROTOCOLS make_protocol register_protocol
    """,
    "arpo_trainer": """
        ARPOConfig ARPOTrainer Backend Engine Generation Request RolloutSettings RolloutTree RunRecorder
        TransformersBackend branch_score env_reward evaluate group_advantages read_traces split_budget
        token_advantages tree_svg write_report write_traces
    """,
    "arpo_trainer.backends": """
        EndpointBackend PaddedBackend RecordedBackend TransformersBackend VLLMEngineBackend VLLMServerBackend
        transformers_backend
    """,
    "arpo_trainer.evaluation": """
        EvalModel EvalSettings load_eval_run preset results run_evaluation suite
    """,
    "arpo_trainer.ray_rollouts": """
        RayEngine RolloutWorkers
    """,
    "arpo_trainer.packing": """
        PackedLogps deal_rows packed_logps regroup split_leaves why_not_packable
    """,
}


@pytest.mark.parametrize("package", PUBLIC)
def test_the_public_names_are_these(package: str) -> None:
    if package.startswith("arpo_trainer"):
        pytest.importorskip("torch")
    module = importlib.import_module(package)
    assert sorted(module.__all__) == sorted(PUBLIC[package].split())
    for name in module.__all__:
        assert getattr(module, name) is not None


@pytest.mark.parametrize("package", ["sandbox", "envs_registry", "arpo_env", "arpo_trainer"])
def test_each_package_has_its_page(package: str) -> None:
    """The site lists the public names of these four; `tests/test_site.py` looks at what is generated."""
    assert re.search(r"<!-- generated: ", (ROOT / "docs" / "reference" / "api" / f"{package}.md").read_text())
