# One command each. Everything they need is created on first use; nothing is installed by hand.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

# uv may be missing on a fresh machine: then pip brings it (into the user's site if the system's is not writable).
UV := $(shell command -v uv 2>/dev/null || echo "python3 -m uv")
RUN := $(UV) run --no-sync
STAMP := .venv/.synced
PYTEST := $(RUN) pytest

.PHONY: help
help: ## This list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## /\1\t/' | expand -t 16

$(STAMP): pyproject.toml uv.lock
	@$(UV) --version >/dev/null 2>&1 || python3 -m pip install --quiet --disable-pip-version-check uv \
	  || python3 -m pip install --quiet --disable-pip-version-check --break-system-packages uv
	@$(UV) sync --locked --quiet
	@touch $@

.PHONY: sync
sync: $(STAMP) ## Create or refresh .venv from uv.lock

.PHONY: demo
demo: $(STAMP) ## Real Envoy, nine emulated engines, round robin against Heliotrope and its levers; report in build/demo/
	@$(RUN) heliotrope demo

# Unit tests on all cores; contract tests, which mostly wait, more at once than there are cores; those of the whole product one
# after the other, also if an earlier test has failed (1), but not after Ctrl-C (2).
.PHONY: test
test: $(STAMP) ## Every test with the real Envoy and a real Kubernetes API server; test-node and test-vllm apart
	@$(RUN) python e2e/controlplane/build.py
	@$(PYTEST) tests/unit -n auto; unit=$$?; [ $$unit -ne 2 ] || exit 2; \
	  $(PYTEST) tests --ignore=tests/unit -n 4 --dist loadfile; contract=$$?; [ $$contract -ne 2 ] || exit 2; \
	  $(PYTEST) e2e -m "not node" && exit $$((unit | contract))

.PHONY: test-fast
test-fast: $(STAMP) ## Unit tests of at most two seconds each; under a minute
	@$(PYTEST) tests/unit -n auto -m "not slow and not envoy and not controlplane"

.PHONY: e2e
e2e: $(STAMP) ## End to end with real clients
	@$(RUN) python e2e/controlplane/build.py
	@$(PYTEST) e2e -m "not node"

.PHONY: test-node
test-node: $(STAMP) ## The node agent on a real Kubernetes node; needs root on Linux (builds for six minutes once)
	@$(RUN) python -m e2e.node.programs
	@$(PYTEST) e2e -m node

.PHONY: test-agent
test-agent: $(STAMP) ## The node agent's safety list and a hundred rounds of chaos, with real processes; under 3 minutes
	@$(RUN) python e2e/controlplane/build.py
	@$(PYTEST) tests/contract/agent -n 4 --dist loadgroup

.PHONY: test-vllm
test-vllm: $(STAMP) ## The picker in front of a real vLLM on this CPU (downloads about 6 GB once)
	@$(PYTEST) -m vllm tests/vllm --timeout=1800

.PHONY: lint
lint: $(STAMP) ## Lint, format, types, import layers
	@$(RUN) ruff check .
	@$(RUN) ruff format --check .
	@$(RUN) mypy -p heliotrope -p heliotrope_operator -p heliotrope_epp -p heliotrope_agent -p heliotrope_sim -p heliotrope_cli
	@$(RUN) lint-imports

.PHONY: format
format: $(STAMP) ## Rewrite imports and layout
	@$(RUN) ruff check --fix-only --quiet .
	@$(RUN) ruff format .

.PHONY: generate
generate: $(STAMP) ## Write crds/, the chart's copies and generated docs
	@$(RUN) heliotrope crds --write
	@$(RUN) python -m heliotrope.api.reference > docs/resources-reference.md

.PHONY: drift
drift: $(STAMP) ## Fail if a generated file is not what `make generate` writes
	@$(RUN) heliotrope crds --check

.PHONY: bench
bench: $(STAMP) ## Measure the picker and its models; results in build/bench/
	@$(RUN) python bench/picker.py
	@$(RUN) python bench/decide.py
	@$(RUN) python bench/phases.py
	@$(RUN) python bench/predict.py
	@$(RUN) python bench/sessions.py
	@$(RUN) python bench/quality.py
	@PYTHONPATH=. $(RUN) python bench/region_tier.py

.PHONY: bench-schedulers
bench-schedulers: $(STAMP) ## Measure decisions of regional schedulers and their gaps; build/bench/schedulers.json
	@$(RUN) python bench/schedulers.py

.PHONY: bench-power
bench-power: $(STAMP) ## Goodput under cuts of power, split by phase and capped evenly; build/bench/power_split.json
	@$(RUN) python bench/power_split.py

.PHONY: bench-clocks
bench-clocks: $(STAMP) ## Joules that clocks per phase save over a day, simulated and with processes; build/bench/phase_clocks*
	@$(RUN) python -m bench.phase_clocks
	@$(RUN) python -m e2e.clocks

.PHONY: bench-operator
bench-operator: $(STAMP) ## Measure the operator at 1,000 variants and 5,000 pods on a real API server with kwok; build/bench/operator.json
	@$(RUN) python e2e/controlplane/build.py
	@$(RUN) python -m bench.operator_scale --burst

.PHONY: bench-activation
bench-activation: $(STAMP) ## Measure what resting idle engines saves, by depth; build/bench/activation.json
	@$(RUN) python bench/activation.py

.PHONY: bench-deferral
bench-deferral: $(STAMP) ## Measure what deferral saves on a year of 36 grids; build/bench/deferral.json
	@$(RUN) python bench/deferral.py

.PHONY: bench-simulator
bench-simulator: $(STAMP) ## Measure whole runs of the fleet simulator; build/bench/simulator.json
	@$(RUN) python bench/simulator.py

.PHONY: clean
clean: ## Remove build/ and .venv (the cache of built programs stays)
	@rm -rf build .venv
