# One door for every chore; `make help` lists them. CI goes through the same doors as a person.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/installed
KAFKA_DIR := build/kafka

export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help
help: ## List these doors
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# --- set-up ---------------------------------------------------------------------------------------------------------

.PHONY: setup
setup: $(INSTALLED) ## Make .venv from the lock file, unless it is up to date
	@:

# The stamp is written last: an interrupted set-up is begun again.
$(INSTALLED): requirements.lock pyproject.toml
	@rm -f $@
	@$(BIN)/python -c '' 2>/dev/null || { \
	  python=$$(for p in $${PYTHON:-} python3.11 python3.12 python3.13 python3; do \
	    $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done || true); \
	  test -n "$$python" || { echo "setup: no Python 3.11 or later found; install one or name it: make setup PYTHON=/path/to/python" >&2; exit 2; }; \
	  echo "setup: making $(VENV) with $$($$python --version)"; \
	  rm -rf $(VENV); \
	  $$python -m venv $(VENV) || { echo "setup: $$python cannot make virtual environments; on Debian install python3-venv" >&2; exit 2; }; }
	@echo "setup: installing the packages of requirements.lock"
	@$(BIN)/python -m pip install --quiet --require-hashes -r requirements.lock
	@echo "setup: installing wharfinger itself"
	@$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .
	@touch $@

COMPILE := CUSTOM_COMPILE_COMMAND="make lock" $(BIN)/pip-compile --quiet --generate-hashes --allow-unsafe --strip-extras \
  --no-emit-index-url --no-emit-trusted-host --no-emit-find-links

.PHONY: lock
lock: setup ## Pin the dependencies of pyproject.toml anew (UPGRADE=1 takes newer versions)
	@echo "lock: requirements.lock, everything"
	@$(COMPILE) $(if $(UPGRADE),--upgrade) --extra dev --output-file requirements.lock pyproject.toml
	@echo "lock: requirements-runtime.lock, the part of it that runs in a container"
	@cp requirements.lock requirements-runtime.lock
	@$(COMPILE) --output-file requirements-runtime.lock pyproject.toml

# --- running --------------------------------------------------------------------------------------------------------

.PHONY: demo up down
demo: setup ## A whole plane from start to stop: schedule a fleet, fail over, explain, audit, replay
	@$(BIN)/wharfinger demo

up: setup ## Start a plane on this machine, in the background, state in .wharfinger
	@$(BIN)/wharfinger up --detach

down: setup ## Stop it
	@$(BIN)/wharfinger down

.PHONY: bench
# Decisions of the ledger on which explanations are timed; filling it takes minutes.
EXPLAINED := 1000000

bench: setup ## Measure throughput, latency, replay, verify, explain and memory on this machine
	@$(BIN)/python -m benchmarks
	@$(BIN)/python -m benchmarks.explain --decisions $(EXPLAINED)

.PHONY: bench-openb
bench-openb: setup ## How full the GPUs of the openb trace get, by strategy, beside what is published
	@$(BIN)/python -m benchmarks.openb_quality

# --- checking -------------------------------------------------------------------------------------------------------

.PHONY: check
check: setup ## Lint, formatting, types, import contracts
	@echo "check: lint";             $(BIN)/ruff check --quiet
	@echo "check: formatting";       $(BIN)/ruff format --check --quiet
	@echo "check: types";            $(BIN)/mypy
	@echo "check: import contracts"; $(BIN)/lint-imports --no-logo

# Most of a test's time is waiting, so they run side by side; what a file starts is shared by its tests, so files stay whole.
JOBS := 2

.PHONY: test
test: check ## The checks and every test but the long ones
	@$(BIN)/python -m pytest -m "not long" -n $(JOBS) --dist loadfile $(ARGS)

.PHONY: test-long
test-long: setup ## The tests that take minutes
	@$(BIN)/python -m pytest -m long $(ARGS) || test $$? = 5 # pytest's word for: there are none

# These start the embedded broker whatever else is there, so another broker would tell nothing new.
EMBEDDED_ONLY := $(addprefix --ignore=tests/integration/,test_cli.py test_supervisor.py test_embedded.py test_local_kafka.py \
  test_test_backends.py test_prometheus.py test_node_load.py)

.PHONY: test-kafka
test-kafka: setup ## The integration tests against a real Apache Kafka (needs Java 17 and Maven)
	@$(BIN)/python infra/kafka/local.py run $(KAFKA_DIR) -- $(BIN)/python infra/postgres/local.py -- \
	  $(BIN)/python -m pytest -m "integration and not long and not chaos and not data" $(EMBEDDED_ONLY) $(ARGS)

.PHONY: kafka kafka-down
kafka: setup ## Start that Kafka and leave it running; prints host:port
	@$(BIN)/python infra/kafka/local.py start $(KAFKA_DIR)

kafka-down: setup ## Stop it
	@$(BIN)/python infra/kafka/local.py stop $(KAFKA_DIR)

# --- writing --------------------------------------------------------------------------------------------------------

.PHONY: fmt
fmt: setup ## Format the code and sort its imports
	@$(BIN)/ruff check --quiet --fix --exit-zero
	@$(BIN)/ruff format

.PHONY: docs
docs: setup ## Write docs/topics.md from the tables in the code
	@$(BIN)/python -c 'import sys; from wharfinger.events.schema import topics_markdown; sys.stdout.write(topics_markdown())' > docs/topics.md

.PHONY: clean
clean: ## Remove what these doors made, but not a plane's state
	@rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find shared services tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
