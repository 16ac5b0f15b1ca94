"""Web pages: fetched safely and read as text."""

from arpo_env.pages.page import Page, PageError, passage
from arpo_env.pages.reader import PageReader

__all__ = ["Page", "PageError", "PageReader", "passage"]
