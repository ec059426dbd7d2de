# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json

from embodied_r_ros.arm.demonstration import DemonstrationTruth, TrueKeypoint, TrueThing
from embodied_r_ros.common.errors import InputError
import pytest

TRUTH = DemonstrationTruth(
    stamps_ns=(5, 6),
    things=(TrueThing('block', 'red block', ((0.1, 0.2, 0.3), (0.1, 0.2, 0.4))),),
    keypoints=(TrueKeypoint(5, 6, (0.1, 0.2, 0.3), True, 'stop'),),
    frame_id='table',
)


def test_truth_comes_back_from_its_json() -> None:
    assert DemonstrationTruth.from_json(TRUTH.to_json()) == TRUTH


def test_truth_that_cannot_be_read_is_refused_with_what_to_do() -> None:
    value = json.loads(TRUTH.to_json())
    with pytest.raises(InputError, match='truth has version 9: expected 1'):
        DemonstrationTruth.from_json(json.dumps({**value, 'version': 9}))
    for broken in ('{', '[]', json.dumps({**value, 'stamps_ns': None}), '{"version": 1}'):
        with pytest.raises(InputError, match=r'is not readable .*: simulate it again'):
            DemonstrationTruth.from_json(broken)
