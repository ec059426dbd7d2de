# SPDX-License-Identifier: Apache-2.0
"""Fixtures that several test modules share."""

from __future__ import annotations

import os
from pathlib import Path
import signal

import pytest

# A shell's background job ignores Ctrl-C, and so would every process that the tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope='session')
def footage() -> Path:
    """Folder of real footage, named by EMBODIED_R_FOOTAGE; skips without it."""
    folder = os.environ.get('EMBODIED_R_FOOTAGE', '')
    if not folder or not Path(folder).is_dir():
        pytest.skip('EMBODIED_R_FOOTAGE names no folder of real footage')
    return Path(folder)
