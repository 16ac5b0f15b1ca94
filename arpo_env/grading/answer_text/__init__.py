"""Reading an answer as text: the phrase around it, options, number words, units, LaTeX notation."""
