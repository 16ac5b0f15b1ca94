# make demo   sets everything up and trains a small model with ARPO, from nothing
# make test   sets up what it needs and runs the tests
# make test-pythons   those that need no PyTorch, on Python 3.11, 3.12 and 3.13, as far as they are here
# make test-backends   those of the sandbox, all through every backend
# make test-pretended   trains on a pretended GPU, in main memory: devices that mix, waits, equality with the CPU
# make test-vllm   the tests that need a vLLM engine, in an environment of their own (.venv-vllm)
# make test-deepspeed   the tests that need DeepSpeed, on the CPU, in an environment of their own (.venv-deepspeed)
# make adapters   the tests of the adapters for other frameworks, each in an environment of its own (.venv-peers)
# make site   builds the documentation into build/site; a warning or a broken link fails it
# make gpu    on a machine with a GPU: measures what needs one, a JSON file for each part in docs/results/gpu
# Variables:  PYTHON=python3.12   SANDBOX=docker|bubblewrap|unsafe_local   CONFIG=a recipe or file   SET="a=1 b=2"
#             PARTS="packing-equal demo" (of make gpu)   PEERS="openenv verifiers" (of make adapters)
#             TESTS=tests/sandbox   WORKERS=0 (processes that run the tests; 0 is this one)
.DEFAULT_GOAL := help
SHELL := /bin/bash
VENV := .venv
PY := $(VENV)/bin/python
CONFIG ?= arithmetic-cpu
SANDBOX ?= auto
TESTS ?= tests
WORKERS ?= 3
export SANDBOX
# Images of containers often set it. The packages are installed without bytecode, so each of the many processes that the
# tests start would compile PyTorch anew: 6 s.
unexport PYTHONDONTWRITEBYTECODE
# A test that hangs fails after this many seconds, and says where, instead of holding up all others.
export PYTEST_TIMEOUT ?= 600
# Two busy threads on shared cores wait for each other: tests and benchmarks use one.
ONE_THREAD := OMP_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false
WITH_SANDBOX = ARPO_SANDBOX=$$(cat $(VENV)/.sandbox)

# a run begins in no folder that holds another: the recipe's own run of the demo is written to the first one that is free
FRESH = $(if $(wildcard $(CONFIG)),,$(shell n=1; d=runs/$(CONFIG); while [ -e $$d/run.json ]; do n=$$((n + 1)); d=runs/$(CONFIG)-$$n; done; echo --set output_dir=$$d))

.PHONY: help setup setup-vllm sandbox model demo test test-tools test-backends test-pythons test-pretended test-vllm test-deepspeed adapters check bench gpu docs site clean

help:
	@sed -n 's/^# //p;/^\.DEFAULT/q' Makefile
	@echo "others: setup setup-vllm sandbox model test-tools check bench docs clean"

setup:
	@scripts/install.sh

setup-vllm: setup
	@scripts/install_vllm.sh

sandbox: setup
	@scripts/sandbox.sh

model: setup
	@$(VENV)/bin/arpo models get smollm2-135m

demo: setup
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=line sandbox model
	@$(WITH_SANDBOX) TOKENIZERS_PARALLELISM=false $(VENV)/bin/arpo train $(if $(wildcard $(CONFIG)),--config,--recipe) $(CONFIG) $(FRESH) $(foreach s,$(SET),--set $(s))

test-tools:
	@scripts/test_tools.sh

test: test-tools sandbox model
	@echo "== running the tests"
	@$(WITH_SANDBOX) $(ONE_THREAD) $(PY) -m pytest $(TESTS) -n $(WORKERS) --dist loadscope

test-backends: test-tools sandbox
	@$(WITH_SANDBOX) $(ONE_THREAD) ARPO_TEST_BACKENDS=all $(PY) -m pytest tests/sandbox

test-pythons: sandbox
	@$(WITH_SANDBOX) $(ONE_THREAD) WORKERS=$(WORKERS) scripts/test_pythons.sh $(if $(filter command%,$(origin TESTS)),$(TESTS))

# two of them: tests say how many they see
test-pretended: setup
	@$(ONE_THREAD) PRETENDED_GPUS=2 $(PY) -m pytest tests/pretended

# the engine is vLLM built for the CPU, for tests only; it would take nearly all memory and threads for itself
test-vllm: sandbox model setup-vllm
	@echo "== running the tests of vLLM"
	@$(WITH_SANDBOX) $(ONE_THREAD) VLLM_CPU_KVCACHE_SPACE=1 VLLM_CPU_OMP_THREADS_BIND=nobind \
		.venv-vllm/bin/python -m pytest tests/vllm

test-deepspeed: sandbox model
	@scripts/install_deepspeed.sh
	@echo "== running the tests of DeepSpeed"
	@$(WITH_SANDBOX) $(ONE_THREAD) .venv-deepspeed/bin/python -m pytest tests/deepspeed

adapters: sandbox
	@$(WITH_SANDBOX) $(ONE_THREAD) PYTHON=$(abspath $(PY)) scripts/adapters.sh $(PEERS)

check: setup
	@$(VENV)/bin/ruff check . && $(VENV)/bin/ruff format --check . && $(VENV)/bin/mypy && echo "== ruff and mypy are content"

bench: sandbox model
	@$(WITH_SANDBOX) $(ONE_THREAD) $(PY) -m benchmarks.loop

# without a sandbox or the small model only the part that needs them is skipped
gpu: setup
	@$(MAKE) --no-print-directory sandbox model || echo "== no sandbox or no model: the part 'demo' will be skipped"
	@ARPO_SANDBOX=$$(cat $(VENV)/.sandbox 2>/dev/null || echo auto) TOKENIZERS_PARALLELISM=false $(PY) -m benchmarks.gpu $(PARTS)

docs: sandbox
	@$(WITH_SANDBOX) $(PY) -m pytest -q tests/test_docs.py

site: setup
	@OMP_NUM_THREADS=1 $(PY) -m scripts.site build/site && echo "== open build/site/index.html"

clean:
	rm -rf $(VENV) .venv-vllm .venv-deepspeed .venv-pythons .venv-peers build *.egg-info .pytest_cache .mypy_cache .ruff_cache
