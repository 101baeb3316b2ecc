# One door for every chore; `make help` lists them. CI goes through the same doors as a person.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/installed
KAFKA_DIR := build/kafka
KERNELS := shared/wharfinger/engine/_kernels.abi3.so

export PIP_DISABLE_PIP_VERSION_CHECK := 1
# The tests start hundreds of processes, and each would compile what it imports again. `make clean` removes it.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help
help: ## List these doors
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# --- set-up ---------------------------------------------------------------------------------------------------------

.PHONY: setup
setup: $(INSTALLED) $(KERNELS) ## Make .venv from the lock file and compile the engine's loops, unless they are up to date
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
	@echo "setup: compiling the engine's loops"
	@$(BIN)/python infra/kernels/compile.py
	@echo "setup: installing wharfinger itself"
	@$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .
	@touch $@

# Where the loops or what compiles them were edited since.
$(KERNELS): $(wildcard shared/wharfinger/engine/*/kernels.py) $(wildcard infra/kernels/*) | $(INSTALLED)
	@echo "setup: compiling the engine's loops"
	@$(BIN)/python infra/kernels/compile.py

COMPILE := CUSTOM_COMPILE_COMMAND="make lock" $(BIN)/pip-compile --quiet --generate-hashes --allow-unsafe --strip-extras \
  --no-emit-index-url --no-emit-trusted-host --no-emit-find-links

.PHONY: lock
lock: setup ## Pin the dependencies of pyproject.toml anew (UPGRADE=1 takes newer versions)
	@echo "lock: requirements.lock, everything"
	@$(COMPILE) $(if $(UPGRADE),--upgrade) --extra dev --extra local --output-file requirements.lock pyproject.toml
	@echo "lock: requirements-runtime.lock, the part of it that runs in a container (services and migrate)"
	@cp requirements.lock requirements-runtime.lock
	@$(COMPILE) --extra migrate --output-file requirements-runtime.lock pyproject.toml
	@echo "lock: requirements-build.lock, the part of it that builds the wheel of a container"
	@cp requirements.lock requirements-build.lock
	@$(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")' | \
	  $(COMPILE) --output-file requirements-build.lock -

# --- running --------------------------------------------------------------------------------------------------------

.PHONY: demo demo-soak feed-soak up down
demo: setup ## A whole plane from start to stop: schedule a fleet, fail over, explain, audit, replay
	@$(BIN)/wharfinger demo

.PHONY: demo-kube
demo-kube: setup ## The plane on four real API servers: spread, bind, lose a member, roll out, drain, replay (needs Go; 3 to 4 minutes)
	@$(BIN)/python -m infra.kube.demo

# Runs of it, each from a fresh copy of the sources.
RUNS := 10

demo-soak: setup ## The demo RUNS times from a fresh copy of the sources, beside a load on every core
	@$(BIN)/python infra/soak/demo.py --runs $(RUNS) $(ARGS)

feed-soak: setup ## Subscribers of every way while each process is killed, compared with the feed (SEED=3 ARGS="--decisions 50000 --subscribers 100 --kills 20")
	@$(BIN)/python -m infra.soak.feed $(if $(SEED),--seed $(SEED)) $(ARGS)

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

.PHONY: bench-compare
bench-compare: setup ## Processor time of two versions in turns: A=main B=. (commits or directories; ARGS="--live" for openb through planes)
	@$(BIN)/python -m benchmarks.compare "$(or $(A),main)" "$(or $(B),.)" $(ARGS)

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

.PHONY: house
house: setup ## Print the structure of the sources in figures (ARGS=kinds, rules, names, circles or lines: what is behind one)
	@$(BIN)/python -m benchmarks.house $(ARGS)

# Most of a test's time is waiting, so four run side by side on two cores; what a file starts is shared by its tests, so files
# stay whole. `tests/conftest.py` puts those first that take longest.
JOBS := 4
LONG_JOBS := 3
KAFKA_JOBS := 3
KUBE_JOBS := 2
# Where tests are, unless ARGS names some: pytest would run those of both.
where = $(if $(findstring tests/,$(ARGS)),,$1)
PYTEST = WHARFINGER_TEST_TARGET=$@ $(if $(SEED),WHARFINGER_TEST_SEED=$(SEED)) $(BIN)/python -m pytest

# In a fresh clone all workers would compile the same test modules at the same time, and in each hypothesis would read all our
# sources for their constants: one process does both before they start. Only Ctrl-C (2) ends it here; all else the tests report.
COMPILED = ls tests/__pycache__/conftest.*.pyc >/dev/null 2>&1 || { echo "test: compiling the test modules"; \
  $(BIN)/python -m pytest --collect-only --continue-on-collection-errors -qq $(ARGS) >/dev/null 2>&1; } || test $$? -ne 2

.PHONY: test
# The checks run beside the tests: the type checker needs one core for a minute or two, while tests wait for servers.
test: setup ## The checks and every test but the long ones (SEED=... as a failed run printed it)
	@mkdir -p build; $(MAKE) --no-print-directory check >build/check.log 2>&1 & checks=$$!; code=0; \
	{ { $(COMPILED); } && $(PYTEST) -m "not long" -n $(JOBS) --dist loadfile --no-loadscope-reorder $(ARGS); } || code=$$?; \
	wait $$checks || code=$$?; cat build/check.log; exit $$code

# How many examples a property is tried on there; quick: as in `make test`.
PROFILE := long

.PHONY: test-long
test-long: setup ## The tests that take minutes, and every property with more examples
	@WHARFINGER_TEST_PROFILE=$(PROFILE) $(PYTEST) -m "long or hypothesis or seeded" -n $(LONG_JOBS) --dist loadfile --no-loadscope-reorder $(ARGS)

# These start the embedded broker whatever else is there. Tests that use no broker are left out too, by the mark `broker`: `make test` runs
# them on the same PostgreSQL, so another broker would tell nothing new.
EMBEDDED_ONLY := $(addprefix --ignore=tests/integration/,test_embedded.py test_local_kafka.py test_test_backends.py test_plane_gone.py \
  test_database_frozen.py test_ledger_connections.py)

# Histories of one seed each; SEED=N alone repeats one of them.
SEEDS := 1000

.PHONY: sim
sim: setup ## The whole plane on a simulated clock, log and ledger that fail: 1,000 seeds (SEED=N: that one; SEEDS=N: so many)
	@$(BIN)/python -m tests.simulation $(if $(SEED),--seed $(SEED),--seeds $(SEEDS))

.PHONY: chaos
chaos: setup ## A plane of real processes under load and seeded faults, checked by SQL and the raw topic (SEED=7 ARGS="--events 5000 --kills 2")
	@$(BIN)/python -m tests.chaos.campaign $(if $(SEED),--seed $(SEED)) $(ARGS)

RECORDS := 100000

.PHONY: poison
poison: setup ## Hostile records on every topic of a plane of real processes: exits, memory, dead letters, rate (RECORDS=2000 SEED=7)
	@$(BIN)/python -m tests.chaos.poisoning --records $(RECORDS) $(if $(SEED),--seed $(SEED)) $(ARGS)

MINUTES := 30

.PHONY: endurance
endurance: setup ## A plane of real processes under 50 events a second for MINUTES: memory that grows, lag, bytes an event
	@$(BIN)/python -m tests.chaos.endurance --minutes $(MINUTES) $(if $(SEED),--seed $(SEED)) $(ARGS)

# Of each target. TARGETS: some of those in tests/fuzz/targets.py; none named: all, one after the other.
SECONDS := 60
TARGETS :=

.PHONY: fuzz
fuzz: setup ## Fuzz what reads from outside, guided by coverage (TARGETS="events api" SECONDS=300; ARGS=--keep; needs atheris)
	@$(BIN)/python -m tests.fuzz $(TARGETS) --seconds $(SECONDS) $(ARGS)

.PHONY: test-kafka
test-kafka: setup ## The tests that use a broker, against a real Apache Kafka (needs Java 17 and Maven)
	@$(BIN)/python infra/kafka/local.py run $(KAFKA_DIR) -- $(BIN)/python -m infra.postgres.local -- \
	  env $(PYTEST) $(call where,tests/integration) -m "broker and not long and not chaos and not data" $(EMBEDDED_ONLY) \
	  -n $(KAFKA_JOBS) --dist loadfile --no-loadscope-reorder $(ARGS)

# Three clusters at once, a hub and two members, for each job. The first run builds the programs.
.PHONY: test-kube
test-kube: setup ## The tests against real Kubernetes API servers (needs Go; skipped by name without)
	@$(BIN)/python -m infra.kube.local run build/kube --clusters bergen,hamburg,oslo --sets $(KUBE_JOBS) --with controllers,kwok -- \
	  env $(PYTEST) $(call where,tests/kube) -n $(KUBE_JOBS) --dist loadfile --no-loadscope-reorder $(ARGS)

.PHONY: bench-kube
bench-kube: setup ## How fast real API servers are read, beside raw list and watch (needs Go)
	@$(BIN)/python -m infra.kube.local run build/kube --clusters bench --with controllers,kwok -- $(BIN)/python -m benchmarks.kube $(ARGS)

.PHONY: bench-api
bench-api: setup ## What the HTTP API does under load: reads, subscribers, plans, memory (ARGS="--only reads --no-record")
	@$(BIN)/python -m benchmarks.api $(ARGS)

.PHONY: kafka kafka-down
kafka: setup ## Start that Kafka and leave it running; prints host:port
	@$(BIN)/python infra/kafka/local.py start $(KAFKA_DIR)

kafka-down: setup ## Stop it
	@$(BIN)/python infra/kafka/local.py stop $(KAFKA_DIR)

# Needs no Python here: the wheel is built in the image.
.PHONY: image
image: ## Build the image with docker, podman or buildah (IMAGE=registry.example/wharfinger:0.6.0 ENGINE=podman ARGS="--secret ...")
	@IMAGE="$(IMAGE)" ENGINE="$(ENGINE)" infra/release/image.sh $(ARGS)

.PHONY: sbom licences audit
sbom: setup ## Write dist/wharfinger-VERSION.cdx.json: what a server installs, as CycloneDX
	@$(BIN)/python -m infra.release.sbom dist

licences: setup ## List the licences of what is installed; fails on one that is not allowed
	@$(BIN)/python -m infra.release.licences

audit: setup ## Known vulnerabilities of the pinned packages (needs the network; says so when it is skipped)
	@$(BIN)/python -m infra.release.audit

# --- writing --------------------------------------------------------------------------------------------------------

.PHONY: fmt
fmt: setup ## Format the code and sort its imports
	@$(BIN)/ruff check --quiet --fix --exit-zero
	@$(BIN)/ruff format

.PHONY: docs
docs: setup ## Write docs/topics.md and docs/kinds.md from the tables and models in the code
	@$(BIN)/python -c 'import sys; from wharfinger.events.schema import topics_markdown; sys.stdout.write(topics_markdown())' > docs/topics.md
	@$(BIN)/python -c 'import sys; from wharfinger.events.kinds_page import kinds_markdown; sys.stdout.write(kinds_markdown())' > docs/kinds.md

.PHONY: openapi
openapi: setup ## Write tests/contract/openapi.json, the frozen document of the HTTP API, again
	@$(BIN)/python -m tests.openapi

.PHONY: clean
clean: ## Remove what these doors made, but not a plane's state
	@rm -rf $(VENV) $(KERNELS) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find shared services tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
