"""Everything of ours that needs a GPU, in parts of less than ten minutes: `make gpu`, or `python -m benchmarks.gpu`."""
