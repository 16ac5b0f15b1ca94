# make demo   sets everything up and trains a small model with ARPO, from nothing
# make test   sets up what it needs and runs the tests
# Variables:  PYTHON=python3.12   SANDBOX=docker|bubblewrap|unsafe_local   CONFIG=a recipe or file   SET="a=1 b=2"
.DEFAULT_GOAL := help
SHELL := /bin/bash
VENV := .venv
PY := $(VENV)/bin/python
CONFIG ?= arithmetic-cpu
SANDBOX ?= auto
TESTS ?= tests
export SANDBOX
# Two busy threads on shared cores wait for each other: tests and benchmarks use one.
ONE_THREAD := OMP_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false
WITH_SANDBOX = ARPO_SANDBOX=$$(cat $(VENV)/.sandbox)

.PHONY: help setup sandbox model demo test check bench docs clean

help:
	@grep '^# ' Makefile | cut -c3-
	@echo "others: setup sandbox model check bench docs clean"

setup:
	@scripts/install.sh

sandbox: setup
	@scripts/sandbox.sh

model: setup
	@$(PY) -m arpo_trainer.models

demo: sandbox model
	@$(WITH_SANDBOX) TOKENIZERS_PARALLELISM=false $(VENV)/bin/arpo train --config $(CONFIG) $(foreach s,$(SET),--set $(s))

test: sandbox model
	@echo "== running the tests"
	@$(WITH_SANDBOX) $(ONE_THREAD) $(PY) -m pytest $(TESTS)

check: setup
	@$(VENV)/bin/ruff check . && $(VENV)/bin/ruff format --check . && $(VENV)/bin/mypy && echo "== ruff and mypy are content"

bench: sandbox model
	@$(WITH_SANDBOX) $(ONE_THREAD) $(PY) benchmarks/loop.py

docs: sandbox
	@$(WITH_SANDBOX) $(PY) -m pytest -q tests/test_docs.py

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache
