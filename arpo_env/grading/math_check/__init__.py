"""Whether two mathematical answers are equal: exactly, numerically, symbolically in worker processes."""
