"""Old names of this package's modules, which can be imported for one more version; see `sandbox.moved_names`."""

MOVED = {
    "setup_check": "answer_leak_check",
    "arithmetic": "generated.arithmetic",
    "data_set": "datasets.data_set",
    "deep_search_sets": "datasets.deep_search_sets",
    "files": "datasets.data_files",
    "hub": "datasets.hub",
    "loading": "datasets.loading",
    "local": "datasets.local_files",
    "math_sets": "datasets.math_sets",
    "multihop": "generated.multihop",
    "multihop_names": "generated.multihop_names",
    "multihop_questions": "generated.multihop_questions",
    "multihop_relations": "generated.multihop_relations",
    "multihop_sets": "datasets.multihop_sets",
    "multihop_text": "generated.multihop_text",
    "multihop_world": "generated.multihop_world",
    "overlap": "contamination",
    "own_tasks": "user_tasks",
    "repairs": "datasets.repairs",
    "training_sets": "datasets.training_sets",
}
"""Old module name -> new module name, both relative to the package."""
