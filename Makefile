# Tenure's tasks. `make help` lists them; each does the set-up it needs, and none needs anything but make, a
# shell and Python 3.12.

PY := .venv/bin/python
MANAGE := $(PY) manage.py
SETUP := sh config/bootstrap/setup.sh
PG := $(PY) -m config.embedded_postgres
# Stops the embedded PostgreSQL when a command ends, also by Ctrl-C, unless something else still uses it.
STOP_AFTER = trap '$(PG) stop --if-unused >/dev/null' EXIT; trap 'exit 130' INT; trap 'exit 143' TERM
# Development settings; an environment that says otherwise wins.
export TENURE_DEBUG ?= 1
export PYTHONUNBUFFERED := 1

# The checks look at code, not at data: no server is started for them.
CHECK_ENV := DATABASE_URL=postgresql://nobody@127.0.0.1:9/none
CHECKS := check-style check-format check-types check-imports check-migrations check-openapi check-templates check-files

.DEFAULT_GOAL := help
.PHONY: help setup setup-base demo run test check lock soak screenshots bench openapi format stop clean $(CHECKS)

help:  ## list the tasks
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup:  ## make .venv with all locked dependencies, also those of development
	@$(SETUP) dev

setup-base:
	@$(SETUP) base

demo: setup-base  ## run an agent while its workers are killed, and show that nothing was lost
	@$(STOP_AFTER); $(MANAGE) migrate --verbosity 0 && $(MANAGE) demo

run: setup-base  ## serve the console, the API and workers until Ctrl-C; ARGS="--port 9000"
	@$(STOP_AFTER); trap 'exit 0' INT; $(MANAGE) migrate --verbosity 0 && $(MANAGE) dev $(ARGS)

test: setup  ## run the tests on a real PostgreSQL; ARGS="-k name" picks some
	@$(PY) -m pytest $(ARGS)

check: setup  ## run every linter and drift check
	@+$(MAKE) --no-print-directory --keep-going $(if $(filter output-sync,$(.FEATURES)),--output-sync=target) -j 2 $(CHECKS)
	@echo "check: ok"

soak: setup  ## run 200 sessions over bad wires while workers are killed; ARGS="--seed 7 --sessions 20"
	@$(STOP_AFTER); $(MANAGE) migrate --verbosity 0 && $(MANAGE) soak $(ARGS)

screenshots: setup  ## take the pictures of the console in docs/images again
	@$(PY) -m pytest -q tests/browser/screenshots.py

bench: setup-base  ## measure recovery times, durable steps per second and the live feed
	@$(STOP_AFTER); $(MANAGE) migrate --verbosity 0 && $(MANAGE) bench recovery && $(MANAGE) bench steps && $(MANAGE) bench feed

lock: setup  ## resolve the dependencies of pyproject.toml into the lock files again; ARGS=--upgrade moves all
	@sh config/bootstrap/lock.sh $(ARGS)

openapi: setup  ## write docs/reference/openapi.yaml from the code
	@$(CHECK_ENV) $(MANAGE) spectacular --fail-on-warn --file docs/reference/openapi.yaml

format: setup  ## format code and templates, and fix what linters can fix
	@$(PY) -m ruff check --fix --exit-zero . && $(PY) -m ruff format .
	@$(PY) -m djlint --reformat --quiet templates || true

stop:  ## stop the embedded PostgreSQL
	@if [ -x $(PY) ]; then $(PG) stop; fi

clean:  ## remove .venv, caches and local data, the embedded database included
	@if [ -x $(PY) ]; then $(PG) stop || true; $(PG) stop .tenure/test || true; fi
	@rm -rf .venv .tenure .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache staticfiles
	@rm -rf tests/wire/node_modules tests/wire/.npm
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

check-style:
	@echo '== style'
	@$(PY) -m ruff check .

check-format:
	@echo '== format'
	@$(PY) -m ruff format --check . || { echo "make format writes them anew"; exit 1; }

check-types:
	@echo '== types'
	@$(CHECK_ENV) $(PY) -m mypy

check-imports:
	@echo '== imports'
	@.venv/bin/lint-imports --no-logo

check-migrations:
	@echo '== migrations'
	@$(CHECK_ENV) $(PY) -W ignore::RuntimeWarning manage.py makemigrations --check --dry-run

check-openapi:
	@echo '== openapi'
	@mkdir -p .tenure && $(CHECK_ENV) $(MANAGE) spectacular --fail-on-warn --file .tenure/openapi.yaml
	@diff -u docs/reference/openapi.yaml .tenure/openapi.yaml || { echo "make openapi writes it anew"; exit 1; }

check-templates:
	@echo '== templates'
	@if find templates -name '*.html' | grep -q .; then $(PY) -m djlint --check --lint --quiet templates; fi

check-files:
	@echo '== files'
	@$(PY) config/bootstrap/tracked_files.py
