# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from embodied_r_ros.common.resources import node_of
import pytest


def test_record_names_its_node() -> None:
    assert node_of('{"node": "/keyframe_extractor", "models": []}') == '/keyframe_extractor'


@pytest.mark.parametrize(
    'record', ['', 'text', '[]', '"node"', '{"package": "sim"}', '{"node": 3}', '[' * 100_000]
)
def test_record_of_somebody_else_names_no_node(record: str) -> None:
    assert not node_of(record)
