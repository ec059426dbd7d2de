# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import shutil
from typing import Any, TYPE_CHECKING

from embodied_r_ros.cli.main import main
from embodied_r_ros.data.episodes.label_check import append_label, read_scope
from embodied_r_ros.data.episodes.labels import LABELS
import pytest

from test.bags.test_recording import growing, text_cdr
from test.data.episodes.test_labels import correct
from test.data.questions.test_logged import answer, write_bag

if TYPE_CHECKING:
    from pathlib import Path

    from embodied_r_ros.bags.writer import GrowingBag


def record(folder: Path, *, is_closed: bool = True) -> GrowingBag:
    bag = growing(folder)
    for index in range(40):
        bag.write('/text', text_cdr(str(index)), 5_000_000_000 + index * 100_000_000)
    bag.sync()
    if is_closed:
        bag.close()
    else:
        bag.write('/text', text_cdr('in memory only'), 10_000_000_000)
        bag.abandon()
    return bag


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with an episode that was closed and one that was not."""
    record(tmp_path / 'e1')
    record(tmp_path / 'e2', is_closed=False)
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    code = main(['episodes', *map(str, words)])
    out, err = capsys.readouterr()
    return code, out, err


def objects(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_list_tells_which_were_closed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, 'list', folder)
    head, first, second = out.splitlines()
    assert (code, err) == (0, '')
    assert head.split()[:2] == ['episode', 'state']
    assert first.split()[:6] == ['e1', 'closed', '1970-01-01', '00:00:05', '3.9', '40']
    assert second.split()[:2] == ['e2', 'unclosed']
    code, out, _ = run(capsys, 'list', folder, '--json')
    assert code == 0
    assert [(item['state'], item['messages']) for item in objects(out)] == [
        ('closed', 40),
        ('unclosed', 0),
    ]


def test_labels_are_listed_and_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bag = write_bag(tmp_path / 'e1', [answer(), answer('run-2')])
    scope = read_scope(bag)
    for label in (
        correct('right'),
        correct('ahead', question='run-2', name='a2'),
        correct('right', 'bob'),
        correct('unknown', 'bob', question='run-2', name='b2'),
    ):
        append_label(bag, label, scope)
    assert run(capsys, 'list', tmp_path)[1].splitlines()[1].endswith('2 by ann, bob')
    code, out, err = run(capsys, 'labels', tmp_path)
    assert (code, err) == (0, '4 labels stand, 0 are damaged or do not fit\n')
    assert out.splitlines() == [
        'e1: 3 correct, 1 unanswerable (by ann, bob)',
        "ann and bob agree on 1 of 2 questions (50%), Cohen's kappa 0.33",
    ]
    with (bag / LABELS).open('ab') as file:
        file.write(b'{')
    code, out, _ = run(capsys, 'labels', tmp_path, '--json')
    first, last = objects(out)
    assert (code, first['damage']) == (1, ['line 5 is no label (cut off)'])
    assert last['agreement'][0]['share'] == 0.5
    assert run(capsys, 'list', tmp_path)[1].splitlines()[1].endswith('2 by ann, bob, 1 damaged')
    assert run(capsys, 'delete', tmp_path, '--yes')[0] == 0
    assert list(tmp_path.iterdir()) == []


def test_recover_ends_with_0_and_again_with_0(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(capsys, 'recover', folder)
    assert code == 0
    assert out.startswith('e2: recovered 40 messages, 0 bytes lost')
    assert err == '1 of 2 episodes were not closed\n'
    assert run(capsys, 'recover', folder) == (0, '', '0 of 2 episodes were not closed\n')
    code, out, _ = run(capsys, 'recover', folder / 'e2', '--json')
    assert (code, objects(out)[0]['was_closed']) == (0, True)


def test_recover_ends_with_1_where_something_stays_broken(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / 'e1' / 'e1_0.mcap').write_text('no MCAP file at all')
    code, out, _ = run(capsys, 'recover', folder, '--json')
    assert code == 1
    first, second = objects(out)
    assert 'is no MCAP file' in first['reason']
    assert (second['messages'], second['reason']) == (40, '')


def test_audit_tells_what_is_wrong(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, 'audit', folder)
    assert code == 1
    assert out.splitlines()[:2] == ['e1: ok, 3.9 s', 'e2: fails, 0.0 s']
    assert f'  bag {folder / "e2"} was not closed: run `embodied-r episodes recover' in out
    assert err == '1 of 2 episodes pass\n'
    code, out, _ = run(capsys, 'audit', folder / 'e1')
    assert code == 0
    row = next(line for line in out.splitlines() if line.startswith('/text'))
    assert row.split() == ['/text', '40', '10.26', '0.10', '0', '0']


def test_audit_of_a_damaged_episode_goes_on_with_the_next(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = folder / 'e1' / 'e1_0.mcap'
    data = bytearray(path.read_bytes())
    data[data.index(b'zstd') + 60] ^= 1  # in its only chunk
    path.write_bytes(data)
    shutil.rmtree(folder / 'e2')
    record(folder / 'e3')
    code, out, _ = run(capsys, 'audit', folder, '--json')
    damaged, good = objects(out)
    assert code == 1
    assert 'damaged message' in damaged['problems'][0]
    assert good['problems'] == []


def test_delete_asks_first(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, 'delete', folder)
    assert (code, out) == (2, '')
    assert err == ('embodied-r: error: would delete 2 episodes (e1, e2): add --yes to do it\n')
    assert run(capsys, 'delete', folder / 'e2', '--yes')[0] == 0
    assert [path.name for path in folder.iterdir()] == ['e1']


def test_delete_keeps_what_is_not_its_own(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / 'e1' / 'thesis.txt').write_text('mine')
    (folder / 'e3').symlink_to(folder / 'e2')
    bag = growing(folder / 'e4')
    code, _, err = run(capsys, 'delete', folder, '--yes')
    assert code == 1
    assert 'it holds thesis.txt' in err
    assert 'e3 is a link' in err
    assert 'it is being recorded' in err
    assert sorted(path.name for path in folder.iterdir()) == ['e1', 'e3', 'e4']
    bag.close()


@pytest.mark.parametrize('action', ['list', 'audit', 'recover', 'delete'])
def test_what_is_no_episode_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], action: str
) -> None:
    for path in (tmp_path, tmp_path / 'nothing'):
        code, out, err = run(capsys, action, path)
        assert (code, out) == (2, '')
        assert err.startswith(f'embodied-r: error: {path} ')
        assert err.count('\n') == 1
