# SPDX-License-Identifier: Apache-2.0
"""A set of recordings, labels and rows under one name, and what is told where it has changed."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

from embodied_r_ros.cli.main import main
from embodied_r_ros.common.errors import InputError
from embodied_r_ros.episodes.frozen import (
    changes_of,
    freeze,
    frozen_of_rows,
    FrozenSet,
    read_frozen,
    unchanged_set,
)
from embodied_r_ros.episodes.label_check import append_label, read_scope
from embodied_r_ros.episodes.labels import labels_path
import pytest

from test.episodes.test_labels import correct
from test.questions.test_logged import answer, write_bag

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def bags(tmp_path: Path) -> Path:
    """Two recordings, one of them with a label beside it."""
    for number in (1, 2):
        write_bag(tmp_path / 'bags' / f'e{number}', [answer()], episode_id=f'e{number}')
    label(tmp_path / 'bags' / 'e1', 'left')
    return tmp_path / 'bags'


def label(bag: Path, after: str, who: str = 'ann') -> None:
    append_label(bag, correct(after, who), read_scope(bag))


@pytest.fixture
def week47(bags: Path, tmp_path: Path) -> FrozenSet:
    (tmp_path / 'rows.jsonl').write_text('{}')
    return freeze('week47', [bags, tmp_path / 'rows.jsonl'], tmp_path / 'w.frozen.json')


def test_a_set_that_is_as_it_was_has_no_changes(week47: FrozenSet, tmp_path: Path) -> None:
    read = read_frozen(tmp_path / 'w.frozen.json')
    assert read == week47
    assert [one.path for one in read.recordings] == ['bags/e1', 'bags/e2']
    assert [bool(one.labels) for one in read.recordings] == [True, False]
    assert read.places() == [tmp_path / 'bags' / name for name in ('e1', 'e2')]
    assert changes_of(read) == []


def test_every_change_is_named(week47: FrozenSet, tmp_path: Path) -> None:
    first, second = week47.places()
    label(first, 'right')
    label(second, 'right')
    (tmp_path / 'rows.jsonl').write_text('{"other": 1}')
    assert changes_of(week47) == [
        'bags/e1: 1 labels were added',
        'bags/e2: 1 labels were added',
        'rows.jsonl: its rows have changed',
    ]
    labels_path(first).write_text('{}\n')
    labels_path(second).unlink()
    (tmp_path / 'rows.jsonl').unlink()
    [file] = second.glob('*.mcap')
    file.write_bytes(file.read_bytes() + b'more')
    assert changes_of(week47) == [
        'bags/e1: its labels have changed',
        f'bags/e2: {file.name} has changed',
        'rows.jsonl: is not there',
    ]
    labels_path(first).unlink()
    shutil.rmtree(second)
    assert changes_of(week47)[:2] == ['bags/e1: its labels are not there', 'bags/e2: is not there']


def test_digest_is_of_the_content_alone(week47: FrozenSet, tmp_path: Path) -> None:
    shutil.copytree(tmp_path / 'bags', tmp_path / 'moved')
    paths = [tmp_path / 'rows.jsonl', tmp_path / 'moved' / 'e2', tmp_path / 'moved' / 'e1']
    moved = freeze('another', paths, tmp_path / 'moved' / 'a.frozen.json')
    assert moved.digest() == week47.digest()
    assert moved.recordings[0].path == 'e2'
    label(tmp_path / 'moved' / 'e1', 'right')
    labelled = freeze('third', paths, tmp_path / 'third.frozen.json')
    assert labelled.digest() != week47.digest()


def test_what_is_frozen_stays(week47: FrozenSet, bags: Path, tmp_path: Path) -> None:
    file = tmp_path / 'w.frozen.json'
    with pytest.raises(InputError, match='exists already'):
        freeze('week47', [bags], file)
    shutil.copytree(bags / 'e1', bags / 'copy')
    with pytest.raises(InputError, match='is a copy of'):
        freeze('week48', [bags], tmp_path / 'o.frozen.json')
    value = json.loads(file.read_text())
    value['recordings'].pop()
    file.write_text(json.dumps(value))
    with pytest.raises(InputError, match='was changed'):
        read_frozen(file)
    file.write_text('[]')
    with pytest.raises(InputError, match='is no frozen set'):
        read_frozen(file)


def test_set_that_has_changed_is_not_used(week47: FrozenSet, tmp_path: Path) -> None:
    assert unchanged_set(tmp_path / 'w.frozen.json') == week47
    label(week47.places()[0], 'right')
    with pytest.raises(InputError, match=r'1 labels were added\): freeze it anew'):
        unchanged_set(tmp_path / 'w.frozen.json')


def test_rows_know_the_set_that_they_are_of(
    bags: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(['episodes', 'freeze', 'week47', str(bags)]) == 0
    name, digest = capsys.readouterr().out.split()
    assert main(['questions', '--frozen', 'week47.frozen.json', '--out', 'rows.jsonl']) == 0
    rows = tmp_path / 'rows.jsonl'
    assert frozen_of_rows(rows) == {'name': name, 'digest': digest}
    rows.write_text(rows.read_text() * 2)  # other rows than those of the manifest
    assert frozen_of_rows(rows) == {}
    assert main(['episodes', 'freeze', 'rows47', str(rows)]) == 0
    assert frozen_of_rows(rows)['name'] == 'rows47'


def test_command_line_names_what_has_changed(
    week47: FrozenSet, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ['episodes', 'frozen', str(tmp_path / 'w.frozen.json')]
    assert main(words) == 0
    out, err = capsys.readouterr()
    assert out.split() == ['week47', week47.digest()]
    assert '2 recordings, 1 of them with labels, and 1 files of rows: as it was frozen' in err
    label(week47.places()[1], 'right')
    assert main([*words, '--json']) == 1
    changes = json.loads(capsys.readouterr().out)['changes']
    assert changes == ['bags/e2: 1 labels were added']
    out_file = str(tmp_path / 'rows2.jsonl')
    assert main(['questions', '--frozen', str(tmp_path / 'w.frozen.json'), '--out', out_file]) == 2
    assert 'freeze it anew' in capsys.readouterr().err
    assert main(['questions', '--out', out_file]) == 2
    assert 'one of both' in capsys.readouterr().err
