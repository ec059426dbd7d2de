# SPDX-License-Identifier: Apache-2.0
"""What the whole circle refuses before it begins, and that its programs end with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip('rclpy')

from embodied_r_ros.common.errors import EmbodiedRError
from embodied_r_ros.data.questions.map_rows import names_for

from examples import circle
from examples.children import child, run_child
from training.data.call_rows import scene_of
from training.data.random_maps import random_map_moment

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def test_circle_is_not_run_over_what_is_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / 'mine.txt').write_text('mine')
    assert circle.main(['--out', str(tmp_path)]) == 2
    assert 'is not an empty folder' in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ['mine.txt']


def test_step_that_fails_ends_the_circle_with_what_it_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(circle, '_ROOMS', ('--episodes', '0', '--seed', '1'))
    assert circle.main(['--out', str(tmp_path / 'out')]) == 1
    assert 'episodes is 0: expected 1 or more' in capsys.readouterr().err


def test_a_training_that_failed_is_not_taken_for_a_refusal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def step(self: circle.Circle, *words: object, well: Sequence[int] = (0,)) -> int:
        return max(well)

    monkeypatch.setattr(circle.Circle, 'step', step)
    going = circle.Circle(tmp_path)
    with pytest.raises(EmbodiedRError, match=r'training\.improve failed'):
        going.improve()
    (tmp_path / 'slot' / 'refusals').mkdir(parents=True)
    (tmp_path / 'slot' / 'refusals' / 'digest.json').write_text('{}')
    assert not going.improve()


def test_questions_of_the_sailor_have_true_answers() -> None:
    place = random_map_moment('circle', names_for('train')).scene
    asked = dict(circle.sailors_questions(scene_of(place)))
    (floor,) = [answer for question, answer in asked.items() if 'odometer' in question.text]
    assert float(floor) > 0
    assert all(not question.options or answer in question.options
               for question, answer in asked.items())  # fmt: skip


def test_program_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    log = tmp_path / 'serve.log'
    with pytest.raises(EmbodiedRError, match=r'http\.server did not end within 0 s'):
        run_child(['http.server', '0'], log, 0.1)
    with child(['http.server', '0'], tmp_path / 'out', log) as process:
        assert process.poll() is None
    assert process.poll() is not None
