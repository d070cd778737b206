# Each target sets itself up: a virtual environment in .venv, torch pinned by constraints.txt.
PY ?= python3
BIN := .venv/bin
INSTALL := $(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt
DEMO := er er+ccldc --data mini --memory 200 --train-per-class 120

.PHONY: demo test clean

demo: .venv/.core  ## ER with and without CCL-DC on real images: a table and report.html
	$(BIN)/peerlearn run $(DEMO) --out runs/demo
	$(BIN)/peerlearn table runs/demo
	$(BIN)/peerlearn report runs/demo --out report.html

test: .venv/.dev  ## lint, types and all tests, the slow ones too
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest

.venv/bin/python:
	$(PY) -m venv .venv

.venv/.core: pyproject.toml constraints.txt | .venv/bin/python
	$(INSTALL) -e .
	touch $@

.venv/.dev: pyproject.toml constraints.txt | .venv/bin/python
	$(INSTALL) -e '.[dev]'
	touch $@ .venv/.core

clean:
	rm -rf .venv
