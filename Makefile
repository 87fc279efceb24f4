# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
BIN := .venv/bin

FAIRSEQ := .venv-fairseq/bin

.PHONY: demo test lint format clean fairseq test-fairseq
.DEFAULT_GOAL := test

demo: .venv/installed
	$(BIN)/knn-seq demo

test: .venv/installed
	$(BIN)/python -m pytest

lint: .venv/installed
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

format: .venv/installed
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

# fairseq builds C++ against the torch that is there already, and its users have it in an environment of its own.
fairseq: .venv-fairseq/installed

test-fairseq: .venv-fairseq/installed
	$(FAIRSEQ)/python -m pytest tests/fairseq tests/models/test_fairseq_reference.py

.venv-fairseq/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-fairseq
	$(FAIRSEQ)/python -m pip install --quiet --constraint constraints.txt torch numpy cython setuptools wheel
	$(FAIRSEQ)/python -m pip install --quiet --constraint constraints.txt --no-build-isolation fairseq-fixed==0.12.3.1
	$(FAIRSEQ)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

clean:
	rm -rf .venv .venv-fairseq knn-seq-demo
