"""What runs on a real vLLM engine: in an environment of its own, by `make test-vllm`."""
