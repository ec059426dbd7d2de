# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest


def test_launch_is_installed() -> None:
    """Shows as skipped where the launch files could not be tried."""
    pytest.importorskip('launch_ros')
