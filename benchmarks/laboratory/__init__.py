"""The laboratory: tiny policies in worlds whose values are known, to compare algorithms in minutes on a CPU."""
