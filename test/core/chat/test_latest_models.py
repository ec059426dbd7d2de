# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace

from embodied_r_ros.core.chat.fallback import LatestModels
from embodied_r_ros.core.types.deltas import ModelInfo, Rung

LARGE = ModelInfo('large', 'sha256:1', rung=Rung.PRIMARY, prompt_version='reason-1')
SMALL = ModelInfo('small', rung=Rung.LOCAL)


def test_models_that_speak_later_are_known_then() -> None:
    known = LatestModels('reasoner', [SMALL])
    assert known.values(Rung.LOCAL) == {'model': 'small'}
    assert known.values(Rung.PRIMARY) == {'model': 'primary, not heard yet'}
    assert known.note(LARGE)
    assert not known.note(LARGE)
    assert known.record() == [
        {'role': 'reasoner', 'name': 'large', 'digest': 'sha256:1'},
        {'role': 'reasoner', 'name': 'small', 'digest': '', 'rung': 'LOCAL'},
    ]


def test_another_model_in_the_place_of_one_is_another() -> None:
    known = LatestModels('reasoner', [LARGE])
    assert known.note(replace(LARGE, digest='sha256:2'))
    assert known.note(replace(LARGE, digest='sha256:2', adapter='ours'))
    assert not known.note(replace(LARGE, digest='', adapter='ours'))
    assert known.record()[0]['digest'] == 'sha256:2'


def test_refusals_name_no_model() -> None:
    known = LatestModels('reasoner', [LARGE])
    assert not known.note(replace(SMALL, rung=Rung.REFUSE))
    assert not known.note(replace(SMALL, rung=Rung.UNSET))
    assert not known.note(ModelInfo(rung=Rung.LOCAL))
    assert len(known.record()) == 1
