# Each target sets itself up: a virtual environment in .venv, torch pinned by constraints.txt.
PY ?= python3
BIN := .venv/bin
INSTALL := $(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt

.PHONY: test check clean

test: .venv/.dev  ## the tests, under 4 minutes on two cores
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest

.venv/bin/python:
	$(PY) -m venv .venv

.venv/.dev: pyproject.toml constraints.txt | .venv/bin/python
	$(INSTALL) -e '.[dev]'
	touch $@

clean:
	rm -rf .venv
