# specviz: `make app` is the first command, `make test` the second. `make help` lists the rest.
SHELL := /bin/sh
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
VENV ?= .venv
PY := $(VENV)/bin/python
PIP_ARGS ?=
PYTEST_ARGS ?=

# Two small files remember what is installed, so that pip runs again only when a list of requirements changed.
RUN_READY := $(VENV)/.run-ready
DEV_READY := $(VENV)/.dev-ready

# The default target is needed unless SPECVIZ_TARGET names another model; SPECVIZ_MODELS moves the folder.
DEFAULT_TARGET := smollm2-135m-instruct
WEIGHTS := $(or $(SPECVIZ_MODELS),models)/$(DEFAULT_TARGET)/model.safetensors
ifeq ($(or $(SPECVIZ_TARGET),$(DEFAULT_TARGET)),$(DEFAULT_TARGET))
NEEDED_WEIGHTS := $(WEIGHTS)
endif

# Nothing here may call home or look for updates.
export GRADIO_ANALYTICS_ENABLED ?= False
export HF_HUB_DISABLE_TELEMETRY ?= 1
export PIP_DISABLE_PIP_VERSION_CHECK ?= 1

.PHONY: help app venv weights test test-all check format traces gpu-check bench-report clean

help: ## List the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

app: $(RUN_READY) $(NEEDED_WEIGHTS) ## Install what is missing, then serve the app on http://127.0.0.1:7860
	@exec $(PY) app.py

venv: $(RUN_READY) $(DEV_READY) ## Install everything for running and for developing into .venv

weights: $(WEIGHTS) ## Fetch the default weights (98 MB), check and convert them once

test: check $(WEIGHTS) ## Lint, types and the tests (browser tests included, slow ones not)
	$(PY) -m pytest -m "not slow" $(PYTEST_ARGS)

test-all: check $(WEIGHTS) ## Everything, the slow tests included
	$(PY) -m pytest $(PYTEST_ARGS)

check: $(DEV_READY) ## ruff and mypy
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

format: $(DEV_READY) ## Let ruff put the code in order
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

traces: $(RUN_READY) $(WEIGHTS) ## Record the runs that come with the app again
	PYTHONPATH=. $(PY) scripts/record_traces.py

gpu-check: $(RUN_READY) $(WEIGHTS) ## Compare CUDA with the CPU, token for token (a dry run where there is no CUDA)
	PYTHON=$(PY) sh scripts/gpu_check.sh

bench-report: $(RUN_READY) $(WEIGHTS) ## Measure this machine into docs/performance.md (FORCE=1 measures again; REPORT_ARGS for options)
	PYTHONPATH=. $(PY) scripts/bench_report.py $(if $(FORCE),--force) $(REPORT_ARGS)

clean: ## Remove the environment and caches; weights and runs stay
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache build specviz.egg-info

$(RUN_READY): requirements.txt constraints.txt
	@$(check_python)
	@$(make_venv)
	$(PY) -m pip install $(PIP_ARGS) -r requirements.txt -c constraints.txt
	@touch $@

$(DEV_READY): requirements.txt requirements-dev.txt constraints.txt
	@$(check_python)
	@$(make_venv)
	$(PY) -m pip install $(PIP_ARGS) -r requirements-dev.txt -c constraints.txt
	@touch $(RUN_READY) $@

$(WEIGHTS): | $(RUN_READY)
	@$(PY) -m specviz fetch

define check_python
if [ ! -x $(PY) ]; then \
  command -v $(PYTHON) >/dev/null 2>&1 || { \
    echo "specviz needs Python 3.11 or newer, but there is no '$(PYTHON)' here. Install one, or name yours: make app PYTHON=/path/to/python3.12" >&2; exit 1; }; \
  $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
    echo "specviz needs Python 3.11 or newer, but '$(PYTHON)' is $$($(PYTHON) -V 2>&1). Install a newer one, or name it: make app PYTHON=python3.12" >&2; exit 1; }; \
fi
endef

# A folder without pip is what an interrupted or failed attempt leaves behind: made again from the start.
define make_venv
if [ ! -x $(VENV)/bin/pip ]; then \
  echo "creating $(VENV) with $$($(PYTHON) -V)"; \
  $(PYTHON) -m venv --clear $(VENV) || { \
    rm -rf $(VENV); echo "Could not create $(VENV). On Debian and Ubuntu: apt install python3-venv, then run it again." >&2; exit 1; }; \
fi
endef
