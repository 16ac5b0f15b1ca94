"""Reads answers as text: surrounding phrases, options, number words, exact numbers, units and LaTeX notation."""
