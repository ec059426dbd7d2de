# SPDX-License-Identifier: Apache-2.0
"""A promotion reaches nodes that run, and is taken back, while they stay up."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
import shutil

import pytest

pytest.importorskip('rclpy')
pytest.importorskip('xllamacpp')

from embodied_r_ros.apps.demo import DemoQuestion
from embodied_r_ros.bags.reader import open_bag, read_messages
from embodied_r_ros.common.files import shared_path
from embodied_r_ros.core.chat.settings import model_digest
from embodied_r_ros.core.reasoning.question import Question
from embodied_r_ros.serving.profiles import load_profile
from embodied_r_ros.serving.promotion import promote, roll_back

from examples.robot import running

SAMPLE = shared_path('samples', 'indoor', 'episode_00000')
ASKED = [DemoQuestion(Question('How many degrees did you turn in total?'))]


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_nodes_that_run_answer_with_what_is_promoted_and_rolled_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv('ROS_DOMAIN_ID', '0')  # the robot takes its own; this restores ours
    server = load_profile('embedded').servers['reasoner']
    candidate = Path(shutil.copy(server.adapter_path(), tmp_path / 'mine.gguf'))
    start, new = model_digest(server.identity()), model_digest(candidate)
    out, slot = tmp_path / 'out', tmp_path / 'slot'
    (out / 'logs').mkdir(parents=True)
    said: list[str] = []
    with running(SAMPLE, out, slot, ASKED, said.append) as robot:
        assert robot.answer_of(start).model.digest == start
        base = {'digest': model_digest(Path(server.model_argument()))}
        promote(slot, candidate, {'base': base})
        assert robot.answer_of(new).model.digest == new
        roll_back(slot)
        assert robot.answer_of(start).model.digest == start
    assert not [line for line in said if 'REFUSED' in line]  # none of the questions failed
    with open_bag(out / 'bag') as reader:
        answers = [msg for _, _, msg in read_messages(reader, ['/answer'])]
    spoke = [digest for digest, _ in groupby(msg.model.digest for msg in answers if msg.text)]
    assert spoke == [start, new, start]
