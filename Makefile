# `make` lists what there is.  PYTHON is the interpreter of an environment with `.[test]` in it.
PYTHON ?= $(if $(wildcard .venv/bin/python),.venv/bin/python,python3)
BIN = $(dir $(shell command -v $(PYTHON)))
.DEFAULT_GOAL := help
.PHONY: help check lint types layers test attacks tournaments e2e format settings frames constraints clean

help:  ## list the commands
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "make %-12s %s\n", $$1, $$2}'

check: lint types layers test  ## everything a change must pass, but what needs a deployment

lint:  ## ruff: rules and format; no conflict of a merge left in a file
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	@! git grep -nE '^(<<<<<<<|>>>>>>>) [^SR]' || { echo "a conflict of a merge was committed"; exit 1; }

types:  ## mypy --strict on everything but the tests
	$(PYTHON) -m mypy

layers:  ## import-linter: who may import whom
	$(BIN)lint-imports

test:  ## every test but those that bring a deployment up
	$(PYTHON) -m pytest --ignore=tests/e2e

attacks:  ## the whole attack corpus and contract behind every isolation, which `make test` samples
	SANDBOX_ATTACKS=whole $(PYTHON) -m pytest tests/integration -k "UnderAttack or OfGvisor or WithoutCgroups or KeptEvaluatorsInContainers or TestContainers or test_sandbox_process or a_bomb_is_bounded"
	SANDBOX_ATTACKS=whole $(PYTHON) -m pytest tests/e2e/test_attacks.py
	SANDBOX_ATTACKS=whole $(PYTHON) -m pytest tests/kubernetes/test_sandbox_jobs.py

tournaments:  ## a tournament of each example whose worker is killed, of which `make test` plays one
	TOURNAMENTS=whole $(PYTHON) -m pytest tests/integration/test_tournament_on_queues.py

e2e:  ## the deployment: brings the compose project up, runs it, breaks it, takes it down
	$(PYTHON) -m pytest tests/e2e

format:  ## put everything in ruff's format
	$(PYTHON) -m ruff check --fix .
	$(PYTHON) -m ruff format .

settings:  ## write docs/settings.md anew from the models of app/config
	$(PYTHON) -m infra.settings_page

frames:  ## write docs/frames.ts and docs/frames.schema.json anew, the types of what /ws sends
	$(PYTHON) -c 'from app.dashboard.frames import typescript; print(typescript(), end="")' > docs/frames.ts
	$(PYTHON) -c 'from app.dashboard.frames import json_schema; import json; print(json.dumps(json_schema(), indent=1))' > docs/frames.schema.json

constraints:  ## write constraints.txt anew from what `.[test]` brings today
	infra/constraints

clean:  ## remove what tools and builds left; runs/ and .evoq/ stay
	rm -rf build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -not -path './.venv/*' -not -path './.vllm/*' -exec rm -rf {} +
