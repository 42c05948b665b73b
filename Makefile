# Everything a person or CI runs. Only Python >= 3.11 (with pip) and make are assumed, and git where there are patches.
PYTHON ?= python3
BIN := .venv/bin
# Tests wait for servers more than they compute: three processes, each with servers of its own, keep two cores busy.
PYTEST_ARGS ?= -n 3

.PHONY: setup up demo test check bench lock clean

setup: .venv/.ready  ## install into .venv from requirements.lock

.venv/.ready: requirements.lock pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@

demo: setup  ## real pull requests through real servers, end to end; stops everything again
	$(BIN)/interlock demo

up: setup  ## stay up: PostgreSQL, Valkey, workers, beat, Flower (Ctrl-C stops them)
	$(BIN)/interlock up

test: setup  ## every test that CI runs
	$(BIN)/python -m pytest $(PYTEST_ARGS)

check: setup  ## format, lint, strict types, import layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/interlock definitions check

bench: setup  ## ratios from one interleaved run, into bench/results/
	$(BIN)/python -m bench

lock:  ## refresh requirements.lock from pyproject.toml (needs uv)
	uv pip compile pyproject.toml --group dev --universal --python-version 3.11 \
	  --generate-hashes --no-emit-index-url --no-header -o requirements.lock

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
