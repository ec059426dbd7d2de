# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math
import threading

from embodied_r_ros.nodes.node_base import seconds
import pytest


@pytest.mark.parametrize('value', [0.0, -1.0, math.nan, math.inf, -math.inf])
def test_what_is_no_limit_is_the_nodes_own(value: float) -> None:
    assert seconds(value) == 0.0


def test_limit_is_one_that_a_thread_can_wait_for() -> None:
    assert seconds(2.5) == 2.5
    assert 1e8 < seconds(3e38) < threading.TIMEOUT_MAX
