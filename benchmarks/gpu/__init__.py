"""All that needs a GPU; most parts take less than ten minutes: `make gpu`, `python -m benchmarks.gpu`."""
