# Short verbs. Each builds .venv from pyproject.toml when it is missing.
PYTHON ?= python3
BIN := .venv/bin
# One XLA thread pool per test worker: two workers on two cores are faster than one with both.
WORKERS ?= 2

.PHONY: demo test check clean

.venv/ready: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet --editable '.[dev]'
	touch .venv/ready

demo: .venv/ready
	$(BIN)/python examples/demo.py

test: .venv/ready
	$(BIN)/python -m pytest --numprocesses $(WORKERS) --durations=5

check: .venv/ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis
