# Everything that a fresh machine with Python and make needs. `make help` lists the targets.
SHELL := /bin/bash
PYTHON ?= python3
ARGS ?=
TRACES ?= tests/fidelity/traces/*
export PIP_DISABLE_PIP_VERSION_CHECK := 1
FOOLBOX := 3.3.4
PHOTO := .cache/foolbox/foolbox/data/imagenet_10_541.jpg

.DEFAULT_GOAL := help
.NOTPARALLEL:  # photos are fetched with the pip of an environment that another target makes
.PHONY: help setup setup-gpu run photos check format test test-long test-unit test-torch test-gpu cover bench bench-v2 bench-gpu peers test-peers soak fidelity fidelity-mutants policy-matrix image clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 20

setup: .venv/ready  ## install what serving needs

setup-gpu: .venv/ready  ## replace onnxruntime by onnxruntime-gpu, add TensorRT
	.venv/bin/pip install -q -e '.[gpu]'
	.venv/bin/pip uninstall -q -y onnxruntime onnxruntime-gpu
	.venv/bin/pip install -q 'onnxruntime-gpu>=1.21'

run: .venv/ready photos  ## serve the embedded model, classify one photograph, keep serving until Ctrl-C
	@.venv/bin/shoal serve --log-requests=true --try $(PHOTO) $(ARGS)

photos: .cache/foolbox/ready  ## fetch 20 labelled photographs (from the PyPI package foolbox)

check: .venv-test/ready  ## formatting, lint, types, import directions
	.venv-test/bin/ruff format --check .
	.venv-test/bin/ruff check .
	.venv-test/bin/mypy
	.venv-test/bin/lint-imports

format: .venv-test/ready  ## put the code into its form
	.venv-test/bin/ruff format .
	.venv-test/bin/ruff check --fix .

test: .venv-test/ready photos  ## all tests but the long ones, and those that need torch or other servers
	.venv-test/bin/pytest -n 2 -m "not torch and not gpu and not long and not peer" $(ARGS)

test-long: .venv-test/ready photos  ## faults, object stores, long simulations
	.venv-test/bin/pytest -n 2 -m "long and not torch and not gpu" $(ARGS)

test-unit: .venv-test/ready  ## the fast ones only
	.venv-test/bin/pytest -n 2 -m "not torch and not gpu and not e2e and not slow and not long and not peer" $(ARGS)

peers: .venv-test/ready  ## install the real tritonserver and perf_analyzer into .peers, from their wheels
	.venv-test/bin/python -m loadtest.peers

test-peers: peers  ## the same requests to Shoal and to the real Triton; perf_analyzer against Shoal
	.venv-test/bin/pytest -m peer $(ARGS)

test-torch: .venv-torch/ready  ## the PyTorch executor, and parity with PyTorch and torchvision
	.venv-torch/bin/pytest -m "torch and not gpu" $(ARGS)

test-gpu: .venv-gpu/ready  ## what needs an NVIDIA GPU; says what it skips and why
	.venv-gpu/bin/pytest -m gpu $(ARGS)

cover: .venv-test/ready photos  ## line and branch coverage
	.venv-test/bin/pytest -n 2 -m "not torch and not gpu and not peer" --cov --cov-report=term-missing:skip-covered

bench: .venv-test/ready photos  ## benchmarks: print ratios, assert nothing
	.venv-test/bin/python -m loadtest.benchmarks.wakeups
	.venv-test/bin/python -m loadtest.benchmarks.scheduler
	.venv-test/bin/python -m loadtest.benchmarks.round_trip
	.venv-test/bin/python -m loadtest.benchmarks.simulator
	.venv-test/bin/python -m loadtest.benchmarks.live_policies
	.venv-test/bin/python -m loadtest.benchmarks.process_host
	.venv-test/bin/python -m loadtest.benchmarks.cpu_plan
	.venv-test/bin/python -m loadtest.benchmarks.reloads
	.venv-test/bin/python -m loadtest.benchmarks.overhead $(ARGS)

bench-v2: .venv-test/ready  ## what a v2 request costs, beside the real Triton after `make peers`
	.venv-test/bin/python -m loadtest.benchmarks.v2 $(ARGS)
	.venv-test/bin/python -m loadtest.benchmarks.grpc_v2

bench-gpu: .venv-gpu/ready  ## ResNet-50 on a GPU, as ratios to the bare loop
	.venv-gpu/bin/python -m loadtest.benchmarks.gpu $(ARGS)

soak: .venv-test/ready  ## kill worker processes a thousand times under load; nothing may be lost or left behind
	.venv-test/bin/python -m loadtest.soak $(ARGS)

fidelity: .venv-test/ready  ## hold the policies against recorded runs of the real servers
	.venv-test/bin/python -m loadtest.fidelity $(TRACES) $(ARGS)

fidelity-mutants: .venv-test/ready  ## show that the same suite catches wrong policies
	.venv-test/bin/python -m loadtest.fidelity.mutants $(TRACES) $(ARGS)

policy-matrix: .venv-test/ready  ## hold shoal against other servers' batchers in simulation (ARGS=--sample: one minute)
	.venv-test/bin/python -m loadtest.policy_matrix $(ARGS)

image:  ## build the container image
	docker build -t shoal .

clean:  ## remove environments and caches
	rm -rf .venv .venv-test .venv-torch .venv-gpu .cache .peers build *.egg-info

.venv/ready: pyproject.toml
	$(PYTHON) -m venv .venv
	.venv/bin/pip install -q --no-compile -e .  # Python compiles what it uses; the rest stays 50 MB smaller
	@touch $@

.venv-test/ready: pyproject.toml
	$(PYTHON) -m venv .venv-test
	.venv-test/bin/pip install -q -e '.[dev]'
	@touch $@

.venv-torch/ready: pyproject.toml
	$(PYTHON) -m venv .venv-torch
	.venv-torch/bin/pip install -q -e '.[dev,torch,parity]'
	@touch $@

.venv-gpu/ready: pyproject.toml
	$(PYTHON) -m venv .venv-gpu
	.venv-gpu/bin/pip install -q -e '.[dev,torch,gpu]'
	.venv-gpu/bin/pip uninstall -q -y onnxruntime
	.venv-gpu/bin/pip install -q 'onnxruntime-gpu>=1.21'
	@touch $@

.cache/foolbox/ready:
	@mkdir -p .cache/wheels
	@pip=$$(ls .venv/bin/pip .venv-test/bin/pip 2>/dev/null | head -n 1); \
		$${pip:-$(PYTHON) -m pip} download -q --no-deps --no-cache-dir -d .cache/wheels foolbox==$(FOOLBOX)
	@$(PYTHON) -m zipfile -e .cache/wheels/foolbox-$(FOOLBOX)-py3-none-any.whl .cache/foolbox
	@touch $@
