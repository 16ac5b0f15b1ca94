"""Normalises short answers in words and finds what they claim."""
