# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections import Counter
import json
import re
import shutil
from typing import TYPE_CHECKING

from embodied_r_ros.bags.reader import open_bag, read_serialized
from embodied_r_ros.bags.writer import BagWriter
from embodied_r_ros.cli.main import main
from embodied_r_ros.data.questions.map_rows import MAP_KINDS
from embodied_r_ros.data.questions.row import read_rows
from embodied_r_ros.data.questions.wordings import MAP_WORDINGS
import pytest

from training.data.calls import kind_and_words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    Message = tuple[str, int, bytes]  # topic, time of receipt [ns], and as it is in the bag

pytest.importorskip('embodied_r_ros.sim.indoor.world')


@pytest.fixture(scope='module')
def worlds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four simulated episodes without images."""
    folder = tmp_path_factory.mktemp('worlds') / 'w'
    given = 'sim indoor --episodes 4 --seed 77 --no-images --set indoor.kinds=all --out'
    assert main([*given.split(), str(folder)]) == 0
    return folder


def test_rows_of_a_folder_of_bags(
    worlds: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / 'rows.jsonl'
    assert main(['questions', str(worlds), '--deltas', 'true', '--out', str(out)]) == 0
    rows = list(read_rows(out))
    per_episode = Counter(row.episode_id for row in rows)
    assert len(per_episode) == 4
    assert min(per_episode.values()) >= 10
    assert len({row.id for row in rows}) == len(rows)
    assert 'because' in capsys.readouterr().err


def test_true_layouts_are_asked_as_maps_too_in_words_of_their_kind(
    worlds: Path, tmp_path: Path
) -> None:
    plain, out = tmp_path / 'plain.jsonl', tmp_path / 'rows.jsonl'
    given = ['questions', str(worlds), '--deltas', 'true', '--out']
    assert main([*given, str(plain)]) == 0
    assert main([*given, str(out), '--maps']) == 0
    assert not any(row.has_map for row in read_rows(plain))
    rows = [row for row in read_rows(out) if row.question_type in MAP_KINDS]
    assert len(rows) > 100
    assert len({row.id for row in rows}) == len(rows)
    found = [(row.question_type, kind_and_words(row.question)) for row in rows]
    read = {(kind, words[0]) for kind, words in found if words and kind in MAP_WORDINGS}
    assert len(read) > 20
    assert all(kind == name for kind, name in read)


def test_worlds_for_tests_alone_are_asked_about_in_known_and_in_held_out_words(
    worlds: Path, tmp_path: Path
) -> None:
    out = tmp_path / 'rows.jsonl'
    given = f'questions {worlds} --deltas true --set questions.test_share=1 --out {out}'
    assert main(given.split()) == 0
    rows = list(read_rows(out))
    assert {row.split for row in rows} == {'test'}
    assert {row.meta['held_out_wording'] for row in rows} == {True, False}


def test_perceived_without_odometry_no_distance_is_told_and_solutions_stay(
    tmp_path: Path,
) -> None:
    words = 'sim indoor --episodes 1 --seed 78 --duration 8 --set indoor.kinds=all --out'
    assert main([*words.split(), str(tmp_path / 'w')]) == 0
    rows = {}
    for name, extra in (('with', []), ('without', ['--set', 'classical.use_odometry=false'])):
        out = tmp_path / f'{name}.jsonl'
        given = ['questions', str(tmp_path / 'w'), '--deltas', 'classical', '--out', str(out)]
        assert main([*given, *extra]) == 0
        rows[name] = {(row.question, row.solution) for row in read_rows(out)}
        has_metres = re.search(r'moved \w+ \d', out.read_text()) is not None
        assert has_metres == (name == 'with')
    assert rows['with'] & rows['without']
    manifest = json.loads((tmp_path / 'without.manifest.json').read_text())
    assert manifest['deltas'] == "classical, with {'use_odometry': False}"


@pytest.mark.parametrize(
    ('arguments', 'message'),
    [
        (['{tmp}/none', '--out', '{tmp}/rows'], 'does not exist'),
        (['{tmp}', '--out', '{tmp}/rows'], 'neither a bag nor a folder of bags'),
        (['{worlds}', '--deltas', 'recorded', '--out', '{tmp}/rows'], 'has no recorded deltas'),
        (['{worlds}', '--deltas', 'vlm', '--out', '{tmp}/rows'], 'give --profile'),
        (['{worlds}', '--deltas', 'true', '--out', '{tmp}/a/rows'], 'does not exist'),
        (
            ['{worlds}', '--deltas', 'true', '--set', 'questions.moments=0', '--out', '{tmp}/r'],
            'moments is 0',
        ),
        (
            ['{worlds}', '--set', 'classical.use_odometry=false', '--out', '{tmp}/r'],
            'classical.use_odometry is for',
        ),
        (['{worlds}', '--set', 'questions.test_share=2', '--out', '{tmp}/r'], 'test_share is 2.0'),
    ],
)
def test_bad_input_leaves_nothing(
    worlds: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    filled = [text.format(tmp=tmp_path, worlds=worlds) for text in arguments]
    assert main(['questions', *filled]) == 2
    assert message in capsys.readouterr().err.splitlines()[-1]
    assert list(tmp_path.iterdir()) == []


def rewrite(episode: Path, change: Callable[[list[Message]], Iterable[Message]]) -> None:
    """Write an episode anew, with its messages changed."""
    anew = episode.with_name(f'{episode.name}_anew')
    with open_bag(episode) as reader, BagWriter(anew) as writer:
        types = {c.topic: c.msgtype for c in reader.connections}
        for topic, type_name in types.items():
            writer.add_topic(topic, type_name)
        for topic, time_ns, data in change(list(read_serialized(reader, types))):
            writer.write_serialized(topic, data, time_ns)
    shutil.rmtree(episode)
    anew.rename(episode)


def out_of_order(messages: list[Message]) -> Iterable[Message]:
    """Odometry whose stamps go back."""
    odometry = iter([data for topic, _, data in messages if topic == '/odom'][::-1])
    for topic, time_ns, data in messages:
        yield topic, time_ns, next(odometry) if topic == '/odom' else data


def cut_off(messages: list[Message]) -> Iterable[Message]:
    """Odometry that is cut off in mid-message from some time on."""
    for number, (topic, time_ns, data) in enumerate(messages):
        is_cut = topic == '/odom' and number > 20
        yield topic, time_ns, bytes(data)[:30] if is_cut else data


def test_episode_that_is_not_fit_for_training_is_left_out_unless_forced(
    worlds: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / 'w'
    shutil.copytree(worlds, folder)
    first, second, *_ = sorted(folder.iterdir())
    rewrite(first, out_of_order)
    (second / 'metadata.yaml').unlink()
    file = next(second.glob('*.mcap'))
    file.write_bytes(file.read_bytes()[:-200])  # its end: nobody closed it
    command = ['questions', str(folder), '--deltas', 'true', '--out']
    assert main([*command, str(tmp_path / 'rows.jsonl')]) == 0
    told = capsys.readouterr().err
    assert f'left out: {first}: it fails its audit: /odom: ' in told
    assert 'stamps out of order (--force uses it all the same)' in told
    assert f'left out: {second}: bag {second} was not closed: run `embodied-r episodes' in told
    left = {row.episode_id for row in read_rows(tmp_path / 'rows.jsonl')}
    assert len(left) == 2

    assert main(['episodes', 'recover', str(folder)]) == 0
    assert main([*command, str(tmp_path / 'forced.jsonl'), '--force']) == 0
    forced = {row.episode_id for row in read_rows(tmp_path / 'forced.jsonl')}
    assert len(forced) == 4
    manifest = json.loads((tmp_path / 'forced.manifest.json').read_text())
    reasons = [bag['forced'] for bag in manifest['bags']]
    assert 'stamps out of order' in reasons[0]
    assert reasons[1:] == ['', '', '']


def test_damaged_bag_does_not_end_the_work_on_the_others(
    worlds: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / 'w'
    shutil.copytree(worlds, folder)
    first, second, *others = sorted(folder.iterdir())
    rewrite(second, cut_off)
    next(first.glob('*.mcap')).write_bytes(b'no bag')
    (first / 'metadata.yaml').write_text('no bag')
    command = ['questions', str(folder), '--deltas', 'true', '--out']
    assert main([*command, str(tmp_path / 'rows.jsonl')]) == 0
    told = capsys.readouterr().err
    assert f'left out: {second}: bag {second} has a damaged message' in told
    assert f'left out: {first}: ' in told
    assert len({row.episode_id for row in read_rows(tmp_path / 'rows.jsonl')}) == 2
    made = json.loads((tmp_path / 'rows.manifest.json').read_text())
    assert [bool(bag['left_out']) for bag in made['bags']] == [True, True, False, False]
    assert len(made['rows']['left_out']['every kind']) == 2

    for bag in others:
        shutil.rmtree(bag)
    assert main([*command, str(tmp_path / 'none.jsonl')]) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert f'no bag can be used: {first}: ' in line
    assert f'{second}: bag {second} has a damaged message' in line
    assert not list(tmp_path.glob('none*'))
