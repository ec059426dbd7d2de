# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math
import threading

from embodied_r_ros.common.errors import InputError
from embodied_r_ros.nodes.node_base import seconds
import pytest


@pytest.mark.parametrize('value', [-1.0, -0.001, math.nan, math.inf, -math.inf])
def test_what_is_no_time_is_refused_by_name(value: float) -> None:
    with pytest.raises(InputError, match=f'deadline_s is {value:g}: expected a time in seconds'):
        seconds(value, 'deadline_s')


def test_limit_is_one_that_a_thread_can_wait_for() -> None:
    assert seconds(0.0, 'deadline_s') == 0.0
    assert seconds(2.5, 'deadline_s') == 2.5
    assert 1e8 < seconds(3e38, 'deadline_s') < threading.TIMEOUT_MAX
