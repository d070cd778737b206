# Each target sets itself up: a virtual environment in .venv, torch pinned by constraints.txt.
PY ?= python3
BIN := .venv/bin
INSTALL := $(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt
BESIDE := tests/studies tests/devices
AROUND := tests/learner tests/live tests/export tests/adapters tests/crash tests/methods \
	tests/report tests/analysis tests/test_promises.py tests/test_settings_matter.py
DEMO := er er+ema-chain er+ccldc --data mini --memory 200 --train-per-class 120

.PHONY: demo test fuzz docs clean

demo: .venv/.core  ## ER alone, with the EMA chain and with CCL-DC on real images: a table and report.html
	$(BIN)/peerlearn run $(DEMO) --out runs/demo
	$(BIN)/peerlearn table runs/demo
	$(BIN)/peerlearn report runs/demo --out report.html

test: .venv/.dev  ## lint, types and all tests, the slow ones too
	$(BIN)/ruff check .
	@mkdir -p build  # types and three parts of the tests, side by side; those of sweeps mostly wait
	@$(BIN)/mypy > build/types.log 2>&1 & types=$$!; \
	$(BIN)/python -m pytest $(BESIDE) > build/beside.log 2>&1 & beside=$$!; \
	$(BIN)/python -m pytest $(AROUND) > build/around.log 2>&1 & around=$$!; \
	$(BIN)/python -m pytest $(BESIDE:%=--ignore=%) $(AROUND:%=--ignore=%); code=$$?; \
	wait $$types || code=1; cat build/types.log; \
	wait $$around || code=1; tail -n 200 build/around.log; \
	wait $$beside || code=1; tail -n 200 build/beside.log; exit $$code

fuzz: .venv/.dev  ## the long form of the fuzzer
	$(BIN)/python tests/fuzz/long.py

docs: .venv/.docs  ## the site, in build/docs; after the first time without a network
	$(BIN)/mkdocs build --quiet
	@echo build/docs/index.html

.venv/bin/python:
	$(PY) -m venv .venv

.venv/.core: pyproject.toml constraints.txt | .venv/bin/python
	$(INSTALL) -e .
	touch $@

.venv/.dev: pyproject.toml constraints.txt | .venv/bin/python
	$(INSTALL) -e '.[dev]'
	touch $@ .venv/.core

.venv/.docs: pyproject.toml constraints.txt | .venv/bin/python
	$(INSTALL) -e '.[docs]'
	touch $@ .venv/.core

clean:
	rm -rf .venv build dist
