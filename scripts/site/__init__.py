"""Builds the documentation site: fills the generated parts of `docs/` in, then runs Sphinx.

python -m scripts.site build/site
"""
