# SPDX-License-Identifier: Apache-2.0
"""The shipped small model by its real server: it reads, the tools compute, both readers agree."""

from __future__ import annotations

from dataclasses import replace

from embodied_r_ros.core.reasoning.question import Question
from embodied_r_ros.core.types.answers import Check
from embodied_r_ros.core.types.deltas import Item
from embodied_r_ros.data.episodes.offline import ask_about, RecordingScene
from embodied_r_ros.serving.profiles import load_profile, reasoner_config
from embodied_r_ros.serving.served import served_reasoner
import pytest

from test.core.reasoning.test_calling import TURNED


@pytest.mark.timeout(120)
def test_a_question_is_read_by_a_real_model() -> None:
    pytest.importorskip('xllamacpp')
    question = Question('How many degrees did you turn in total?')
    items = (Item('chair', bearing_rad=0.1), Item('sofa', bearing_rad=-0.3))
    deltas = tuple(replace(delta, items=items) for delta in TURNED)
    with served_reasoner('embedded') as chat:
        config = reasoner_config(profile='embedded')
        answer = ask_about(RecordingScene(deltas), question, chat, config, lambda *_: None)
    assert answer.completion == ' motion(turn)'
    assert (answer.text, answer.unit, answer.check) == ('80', 'deg', Check.VERIFIED)
    assert answer.confidence > 0.5
    adapter = load_profile('embedded').servers['reasoner'].identity()
    assert answer.model.name == adapter.name
    assert answer.model.digest.startswith('sha256:')
