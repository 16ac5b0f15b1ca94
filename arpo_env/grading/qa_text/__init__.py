"""Normalised tokens and claims of short answers to questions."""
