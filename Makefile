# SPDX-License-Identifier: Apache-2.0
# make demo | circle | test | lint | bench | setup    (PYTHON=... picks the interpreter, default
# python3.11, and with a sourced ROS python3, which it was made for; ARGS=... is handed on, such as
# ARGS="-k overlap" or ARGS="-n 0 -x": by default tests run in three processes per two cores)

PYTHON ?= $(shell for p in $(if $(ROS_DISTRO),,python3.11) python3; do if $$p -c '' 2>/dev/null; then echo $$p; break; fi; done)
VENV := .venv/bin

.PHONY: setup demo circle test test-slow lint bench clean

ifeq ($(PYTHON),)
$(error no python3: install Python 3.10 or newer)
endif

setup:
	@$(PYTHON) requirements/bootstrap.py

demo:
	@$(PYTHON) requirements/bootstrap.py demo
	@rm -rf out/demo
	@$(VENV)/embodied-r demo --ros --no-browser --out out/demo $(ARGS)

circle: setup
	@$(if $(findstring --out,$(ARGS)),true,rm -rf out/circle)
	@$(VENV)/python -m examples.circle --out out/circle $(ARGS)

test: setup
	@$(VENV)/python -m pytest -n auto --dist worksteal -m 'not slow' $(ARGS)

test-slow: setup
	@$(VENV)/python -m pytest -m slow $(ARGS)

lint: setup
	@$(VENV)/ruff check .
	@$(VENV)/ruff format --check .
	@$(VENV)/mypy

bench: setup
	@$(VENV)/python -m bench $(ARGS)

clean:
	rm -rf .venv build install log out
