# SPDX-License-Identifier: Apache-2.0
"""A disk that is full ends what writes with one line that names it, and nothing half-written."""

from __future__ import annotations

from contextlib import contextmanager
import resource
import signal
from typing import TYPE_CHECKING

from embodied_r_ros.cli.main import main
from embodied_r_ros.data.questions.row import write_rows
import pytest

from test.cli.writing import model_in, run, SAMPLE, WRITING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


OFTEN = ('map', 'questions', 'lerobot', 'demos')
NAMES = [
    name if name in OFTEN else pytest.param(name, marks=pytest.mark.slow)
    for name in WRITING
    if name != 'ask'  # which writes a cache
]


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """A disk that is full after so many bytes of each file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)


@pytest.mark.parametrize('name', NAMES)
def test_a_full_disk_is_one_line_and_leaves_nothing_half_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    writing = WRITING[name]
    for place in ('whole', 'full'):
        (tmp_path / place / 'out').mkdir(parents=True)
        writing.prepare(tmp_path / place)
    assert run(writing.command(tmp_path / 'whole')) == 0
    count = len(writing.made(tmp_path / 'whole'))
    assert count
    out = tmp_path / 'whole' / 'out'
    largest = max(path.stat().st_size for path in out.rglob('*') if path.is_file())
    folder = tmp_path / 'full'
    words = writing.command(folder)
    for share in writing.room:
        capsys.readouterr()
        with files_of_at_most(max(0, int(largest * share) - 1)):
            code = run(words)
        told = [
            line
            for text in capsys.readouterr()
            for line in text.splitlines()
            if 'cannot ' in line and 'note:' not in line
        ]
        assert code in {1, 2}
        assert told, share
        for line in told:
            assert f'{folder}/out' in line
            assert 'File too large' in line
        assert len(writing.made(folder)) < count
        assert not list((folder / 'out').rglob('.*'))
    assert run(words) == 0
    assert len(writing.made(folder)) == count


def test_a_map_whose_picture_does_not_fit_on_the_disk_is_not_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ['map', SAMPLE, '--out', str(tmp_path / 'm.json')]
    assert main(words) == 0
    size = (tmp_path / 'm.json').stat().st_size
    (tmp_path / 'm.json').unlink()
    capsys.readouterr()
    picture = tmp_path / 'm.png'
    with files_of_at_most(size):
        assert main([*words, '--picture', str(picture)]) == 2
    assert f'cannot write {picture}: File too large' in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
    (tmp_path / 'm.json').write_text('before')
    with files_of_at_most(size - 1):
        assert main([*words, '--picture', str(picture)]) == 2
    assert [path.name for path in tmp_path.iterdir()] == ['m.json']
    assert (tmp_path / 'm.json').read_text() == 'before'


def test_samples_go_on_where_the_disk_was_full(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model_in(tmp_path)
    from test.training.test_sft import turning_row

    write_rows(tmp_path / 'rows.jsonl', [turning_row(i, 'train') for i in range(3)])
    words = ['--model', str(tmp_path / 'model'), '--rows', str(tmp_path / 'rows.jsonl')]
    words += ['--out', str(tmp_path / 's.jsonl'), '--count', '1', '--max-tokens', '4']
    with files_of_at_most(700):
        assert run(['training.rollouts', *words]) == 2
    assert f'{tmp_path}/s.jsonl cannot be written: File too large' in capsys.readouterr().err
    assert run(['training.rollouts', *words]) == 0
    assert '3 rows' in capsys.readouterr().out
