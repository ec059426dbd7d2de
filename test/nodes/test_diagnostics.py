# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from types import SimpleNamespace

from embodied_r_ros.nodes.diagnostics import Meter
import pytest


@pytest.mark.parametrize('rate_hz', [0.5, 30.0, 400.0, 5000.0])
def test_rate_of_a_fast_topic_is_its_own(monkeypatch: pytest.MonkeyPatch, rate_hz: float) -> None:
    now_s = 100.0
    clock = SimpleNamespace(monotonic=lambda: now_s)
    monkeypatch.setattr('embodied_r_ros.nodes.diagnostics.time', clock)
    meter = Meter(window_s=10.0)
    for index in range(round(20 * rate_hz)):
        now_s = 100.0 + index / rate_hz
        meter.tick()
    assert meter.count == round(20 * rate_hz)
    assert meter.rate_hz() == pytest.approx(rate_hz, rel=0.21)
    now_s += 11.0
    assert meter.rate_hz() == 0.0
    assert meter.age_s() == 11.0
