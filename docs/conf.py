"""Settings of Sphinx, which builds from a copy of this folder with the generated parts filled in: `scripts/site`."""

from __future__ import annotations

import importlib.metadata
import inspect
from typing import Any

project = "arpo-gym"
author = "the authors of arpo-gym"
project_copyright = author
try:
    release = importlib.metadata.version("arpo-gym")
except importlib.metadata.PackageNotFoundError:  # from a source tree
    release = ""

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
source_suffix = {".md": "markdown"}
default_role = "code"
smartquotes = False
nitpicky = True
# Other projects' types are not linked: that would need their inventories from the network at build time.
# Neither are a few type variables and inner types of ours, which no page describes.
UNDESCRIBED = (
    "F|Reader|Summariser|Pool|PoolOptions|ReferenceReward|Record|"
    "IndexInfo|Renderer|Event|RemoteSession|InferenceTools|McpTool|ConcurrencyLimits"
)
nitpick_ignore_regex = [
    (r"py:.*", r"(?!(arpo_env|arpo_trainer|envs_registry|sandbox)\b).*"),
    (r"py:.*", rf".*\.({UNDESCRIBED})"),
]

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4

autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_class_signature = "mixed"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True
add_module_names = False
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = "arpo-gym"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_copy_source = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#1d5fa8", "color-brand-content": "#1d5fa8"},
    "dark_css_variables": {"color-brand-primary": "#7db4f0", "color-brand-content": "#7db4f0"},
}

LONGEST_SIGNATURE = 40


def shorten_signature(_app: Any, what: str, _name: str, found: Any, _options: Any, signature: str, returns: str) -> Any:
    """Leave out the signature of a class with hundreds of settings; its page lists them."""
    if what == "class" and signature and len(inspect.signature(found).parameters) > LONGEST_SIGNATURE:
        return "(**settings)", returns
    return None


def setup(app: Any) -> None:
    """Connect the handlers."""
    app.connect("autodoc-process-signature", shorten_signature)
