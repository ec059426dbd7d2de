# SPDX-License-Identifier: Apache-2.0
"""What `embodied-r demo` is asked to do; that it does it is shown by `make demo`."""

from __future__ import annotations

from typing import Any, TYPE_CHECKING

from embodied_r_ros.apps.demo import workplace
from embodied_r_ros.cli.main import main
from embodied_r_ros.common.errors import EmbodiedRError, InputError
from embodied_r_ros.core.reasoning.question import Question
import pytest

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def planned_commands(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What would be run."""
    pytest.importorskip('rclpy')
    from embodied_r_ros.nodes.demo import demo

    requests: list[Any] = []

    def run_demo(request: Any, _: Any) -> dict[str, Any]:
        requests.append(request)
        return {'questions': []}

    monkeypatch.setattr(demo, 'run_demo', run_demo)
    return requests


@pytest.mark.parametrize(
    ('words', 'questions'),
    [
        ([], ()),
        (['--question', 'a?'], (Question('a?'),)),
        (['-o', 'x', '-o', 'y', '--question', 'a?'], (Question('a?', ('x', 'y')),)),
        (
            ['--question', 'b?', '-o', 'x', '--option', 'y', '--question', 'a?'],
            (Question('b?', ('x', 'y')), Question('a?')),
        ),
        (
            ['--question', 'b?', '--question', 'a?', '-o', 'y', '-o', 'x', '--question', 'c?'],
            (Question('b?'), Question('a?', ('y', 'x')), Question('c?')),
        ),
    ],
)
def test_every_question_is_asked_in_order_with_its_options(
    planned_commands: list[Any], tmp_path: Path, words: list[str], questions: tuple[Question, ...]
) -> None:
    assert main(['demo', *words, '--out', str(tmp_path / 'out')]) == 0
    assert main(['demo', *words, '--out', str(tmp_path / 'out')]) == 0
    assert [request.questions for request in planned_commands] == [questions] * 2


@pytest.mark.parametrize(
    ('words', 'message'),
    [
        (['-o', 'x', '-o', 'y'], 'options without a question'),
        (['--question', ''], 'the question is empty'),
        (['--question', 'a?', '--question', 'b?', '-o', 'x'], "one option alone ('x')"),
        (['--question', 'a?', '-o', 'x', '--question', 'b?', '-o', 'y'], "one option alone ('x')"),
    ],
)
def test_questions_that_cannot_be_asked_are_refused(
    planned_commands: list[Any],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    message: str,
) -> None:
    assert main(['demo', *words, '--out', str(tmp_path / 'out')]) == 2
    assert message in capsys.readouterr().err
    assert planned_commands == []


def test_what_a_killed_demonstration_left_is_removed_by_the_next_and_not_while_it_runs(
    tmp_path: Path,
) -> None:
    (tmp_path / '.unfinished-x' / 'episodes').mkdir(parents=True)
    with workplace(tmp_path) as scratch:
        assert [*tmp_path.iterdir()] == [scratch]
        with pytest.raises(InputError, match='is not an empty folder'), workplace(tmp_path):
            pass
        assert scratch.is_dir()
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize('more', ['', '; what was written is kept, `recover` closes it'])
def test_a_full_disk_names_the_folder_that_was_given(tmp_path: Path, more: str) -> None:
    out, told = tmp_path / 'out', f'no episode. cannot write {{}}/ep: File too large{more}'
    with (
        pytest.raises(InputError, match=f'^cannot write to {out}: File too large$'),
        workplace(out) as scratch,
    ):
        raise EmbodiedRError(told.format(scratch))
    assert not out.exists()
