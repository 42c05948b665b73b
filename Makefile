# Everything a person or CI runs. Only Python >= 3.11 (with pip) and make are assumed, and git where there are patches.
PYTHON ?= python3
BIN := .venv/bin
# Many tests wait: five processes, each with servers of its own, keep two cores busy. Each more costs ten seconds of CPU
# before its first test.
PYTEST_ARGS ?= -n 5
MINUTES ?= 10

.PHONY: setup up demo test check audit fuzz storm conformance bench versions lock images clean

setup: .venv/.ready  ## install into .venv from requirements.lock

.venv/.ready: requirements.lock pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@

demo: setup  ## real pull requests through real servers, end to end; stops everything again
	$(BIN)/python -m demo

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

fuzz: setup  ## strange input at every door, for MINUTES (10); counts, crashes, and a corpus to commit
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r tests/fuzz/requirements.lock
	$(BIN)/python -m tests.fuzz --minutes $(MINUTES)

storm: setup  ## random runs for MINUTES (10) while workers are killed; one line for each thing that does not lead on
	$(BIN)/python -m tests.chaos.storm --minutes $(MINUTES)

conformance: setup  ## 10,000 random sequences in each exported form, compared with ours (fetches XState from npm)
	$(BIN)/python -m tests.conformance

audit: setup  ## known vulnerabilities of what the lock installs, where their database can be reached
	BIN=$(BIN) .ci/audit

bench: setup  ## ratios from one interleaved run, into bench/results/
	$(BIN)/python -m bench

versions: setup  ## what older versions of its requirements the client works with (needs the network, 15 min)
	$(BIN)/python -m tests.compat.client_versions

lock:  ## refresh requirements.lock, and that of `make fuzz`, from pyproject.toml (needs uv)
	uv pip compile pyproject.toml --all-extras --group dev --universal --python-version 3.11 \
	  --generate-hashes --no-emit-index-url --no-header -o requirements.lock
	uv pip compile --group pyproject.toml:fuzz --universal --python-version 3.11 \
	  --generate-hashes --no-emit-index-url --no-header -o tests/fuzz/requirements.lock

images:  ## pin the images of others to what their tags mean now (needs docker)
	$(PYTHON) ops/pin_images.py

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis .fuzz
