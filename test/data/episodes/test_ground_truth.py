# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from embodied_r_ros.common.errors import InputError
from embodied_r_ros.core.types.deltas import DeltaKind
from embodied_r_ros.data.episodes.ground_truth import ground_truth_deltas
import pytest

from test.data.questions.test_kinds import layout, SECOND_NS


def test_true_deltas_of_any_images_each_against_the_one_before() -> None:
    first, last = ground_truth_deltas(layout(), [SECOND_NS, 3 * SECOND_NS])
    assert (first.kind, first.action) == (DeltaKind.FIRST, '')
    assert last.action == 'moved forward 2.0 m, turned left 90°'
    assert (last.from_stamp_ns, last.from_id, last.to_id) == (SECOND_NS, 0, 1)
    # Two seconds later the camera looks at other things.
    assert last.change.startswith('New: blue round object')
    assert 'Gone: red tall object' in last.change


def test_image_that_does_not_exist_is_named() -> None:
    with pytest.raises(InputError, match='no image with stamp 7'):
        ground_truth_deltas(layout(), [7])
