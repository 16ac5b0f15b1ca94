"""What runs on a real DeepSpeed, on the CPU: in an environment of its own, by `make test-deepspeed`."""
