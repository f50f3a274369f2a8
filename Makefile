# Needs Python >= 3.11 and make; everything else is installed into .venv and .tools.

VENV := .venv
PYTHON := $(VENV)/bin/python
# Relative, since pip splits these at spaces. The second name is for pip >= 25.3, whose builds do not heed the first.
PIP := PIP_CONSTRAINT=.ci/constraints.txt PIP_BUILD_CONSTRAINT=.ci/constraints.txt \
	$(PYTHON) -m pip install --quiet --disable-pip-version-check
# Most tests wait for real processes: more workers than cores do no harm.
WORKERS := 3
PINS := pyproject.toml .ci/constraints.txt

.PHONY: run test test-balanced lint check bench chaos clean
.NOTPARALLEL:

run: $(VENV)/stamp-run
	@exec $(VENV)/bin/mcp-task-gateway serve --demo

# Tests that want one replica, or start several themselves; then all others, those with a Redis behind balancers.
test: $(VENV)/stamp-test
	@$(PYTHON) -m tests.tools.install || test -z "$$CI"
	@GATEWAY_FRONT=rest sh .ci/twice $(PYTHON) -m pytest -q -n $(WORKERS) --dist loadfile tests/wire; rest=$$?; \
	GATEWAY_FRONT=mixed sh .ci/twice $(PYTHON) -m pytest -n $(WORKERS) --dist loadfile && exit $$rest

# All wire tests through three replicas, behind each load balancer.
test-balanced: $(VENV)/stamp-test
	@$(PYTHON) -m tests.tools.install || test -z "$$CI"
	@GATEWAY_FRONT=haproxy $(PYTHON) -m pytest -n $(WORKERS) --dist loadfile tests/wire
	@GATEWAY_FRONT=nginx $(PYTHON) -m pytest -n $(WORKERS) --dist loadfile tests/wire

lint: $(VENV)/stamp-check
	@$(VENV)/bin/ruff format --check .
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/lint-imports --no-logo
	@$(VENV)/bin/basedpyright

check: $(VENV)/stamp-check
	@$(VENV)/bin/ruff format --check .
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/lint-imports --no-logo
	@$(VENV)/bin/basedpyright & types=$$!; \
	$(PYTHON) -m pytest -q tests/cold tests/warm; tests=$$?; \
	wait $$types && exit $$tests

bench: $(VENV)/stamp-test
	@$(PYTHON) -m tests.tools.install fastmcp4 || true
	@$(PYTHON) -m tests.bench

# Ten minutes and more; SEED= of an earlier run has its faults again.
chaos: $(VENV)/stamp-test
	@$(PYTHON) -m tests.chaos $(if $(SEED),--seed $(SEED)) $(if $(TASKS),--tasks $(TASKS)) $(if $(FAULTS),--faults $(FAULTS)) \
		$(if $(OUT),--out $(OUT))

clean:
	rm -rf $(VENV) .tools build dist *.egg-info .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(PYTHON):
	@python=$$(sh .ci/find-python) && echo "making $(VENV) with $$python" && "$$python" -m venv --clear $(VENV)

$(VENV)/stamp-run: $(PINS) | $(PYTHON)
	@echo "installing the gateway into $(VENV)"
	@$(PIP) -e .
	@touch $@

$(VENV)/stamp-test: $(PINS) | $(PYTHON)
	@echo "installing the gateway and what its tests need into $(VENV)"
	@$(PIP) -e '.[test]'
	@touch $@ $(VENV)/stamp-run

$(VENV)/stamp-check: $(PINS) | $(PYTHON)
	@echo "installing the gateway and what its checks need into $(VENV)"
	@$(PIP) -e '.[test,check]'
	@touch $@ $(VENV)/stamp-test $(VENV)/stamp-run
