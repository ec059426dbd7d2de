# SPDX-License-Identifier: Apache-2.0
"""Fixtures that several test modules share."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
import os
from pathlib import Path
import signal

from hypothesis import settings
import pytest

from test import fuzzing  # noqa: F401 - it makes the profiles known

settings.load_profile(os.environ.get('HYPOTHESIS_PROFILE', 'default'))
# A shell's background job ignores Ctrl-C, and so would every process that the tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)
# The tests share two cores with much else: threads that wait for each other lose by it.
os.environ.setdefault('OMP_NUM_THREADS', '1')
# Triton comes with torch for GPUs. Loaded after libOSMesa, it ends the process: both hold an LLVM.
if find_spec('triton') is not None:
    import_module('triton')


@pytest.fixture(scope='session')
def footage() -> Path:
    """Folder of real footage, named by EMBODIED_R_FOOTAGE; skips without it."""
    folder = os.environ.get('EMBODIED_R_FOOTAGE', '')
    if not folder or not Path(folder).is_dir():
        pytest.skip('EMBODIED_R_FOOTAGE names no folder of real footage')
    return Path(folder)
