"""Compares mathematical answers: by shape, numerically, and symbolically in worker processes."""
