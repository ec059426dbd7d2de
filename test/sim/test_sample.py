# SPDX-License-Identifier: Apache-2.0
"""The shipped recording is what its command gives, and is small."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip('embodied_r_ros.sim.indoor.world')

from embodied_r_ros.bags.reader import open_bag, read_messages
from embodied_r_ros.common.files import shared_path
from embodied_r_ros.data.own_messages import delta_from_msg
from embodied_r_ros.sim.indoor.episodes import draw_episode
from embodied_r_ros.sim.runs import IndoorConfig

SEED = 1136
CONFIG = IndoorConfig(width_px=480, height_px=360)


def test_the_sample_is_what_its_command_gives() -> None:
    with open_bag(shared_path('samples', 'indoor', 'episode_00000')) as reader:
        topics = ['/truth/semantic_delta', '/provenance', '/image/compressed']
        found: dict[str, list[object]] = {topic: [] for topic in topics}
        for topic, _, msg in read_messages(reader, topics):
            found[topic].append(msg)
    _, truth, _ = draw_episode(CONFIG, SEED, 0)
    recorded = [delta_from_msg(msg) for msg in found['/truth/semantic_delta']]
    assert [(d.stamp_ns, d.action, d.change) for d in recorded] == [
        (d.stamp_ns, d.action, d.change) for d in truth.deltas
    ]
    record = json.loads(found['/provenance'][0].data)  # type: ignore[attr-defined]
    assert record['origin'] == {'seed': SEED, 'index': 0, 'attempt': 0}
    assert len(found['/image/compressed']) == 200


def test_the_sample_is_small_and_its_command_is_written_down() -> None:
    folder = shared_path('samples')
    files = [path for path in Path(folder, 'indoor').rglob('*') if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 3_300_000
    assert f'--seed {SEED} --size 480x360' in (folder / 'README.md').read_text()
