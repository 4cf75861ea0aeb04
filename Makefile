# One command each: every target sets up what it needs first. `make` alone lists them.
VENV := .venv/bin
PYTEST := $(VENV)/python -m pytest

.DEFAULT_GOAL := help
.PHONY: help run test drill check bench cards lock format clean setup servers

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: setup ## serve: the demo fleet, or your own with HEALTHSVC_PROMETHEUS_URL=http://...
	$(VENV)/healthsvc serve

test: setup servers ## the tests, against real servers
	$(PYTEST) -m "not drill"

drill: setup servers ## the long tests
	$(PYTEST) -m drill

check: setup ## format, lint, types, then the tests
	$(VENV)/ruff format --check
	$(VENV)/ruff check
	$(VENV)/mypy
	$(MAKE) test

bench: setup servers ## speed and memory, with the figures
	$(VENV)/python scripts/bench.py
	$(VENV)/python scripts/bench_backtest.py

cards: setup ## the model cards, their studies run anew (some hours): what each forecaster can and cannot foresee
	OMP_NUM_THREADS=1 $(VENV)/python scripts/studies/thermal.py
	OMP_NUM_THREADS=1 $(VENV)/python scripts/studies/ecc.py
	OMP_NUM_THREADS=1 $(VENV)/python scripts/studies/cascade.py
	@cat models/*/card.md

lock: setup ## renew requirements.lock from pyproject.toml, and install it
	$(VENV)/uv pip compile pyproject.toml --extra dev --extra studies --universal --python-version 3.11 --upgrade \
		--generate-hashes --no-emit-index-url --custom-compile-command "make lock" --quiet --output-file requirements.lock
	@scripts/setup.sh

format: setup ## format the code and mend what lint can mend
	$(VENV)/ruff format
	$(VENV)/ruff check --fix

clean: ## remove the environment, caches and builds; state in var/ stays
	rm -rf .venv dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

setup:
	@scripts/setup.sh

servers:
	@scripts/servers.sh
