"""Memory folding: the model replaces its history by memories and goes on from them (DeepAgent, arXiv 2510.21618)."""
