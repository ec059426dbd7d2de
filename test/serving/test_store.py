# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
from typing import TYPE_CHECKING

from embodied_r_ros.cli.main import main
from embodied_r_ros.common.errors import ConfigError, InputError
from embodied_r_ros.serving import store as store_module
from embodied_r_ros.serving.profiles import load_profile
from embodied_r_ros.serving.promotion import history, in_force, promote, Signature, slot_folder
from embodied_r_ros.serving.server_process import StoreFollower
from embodied_r_ros.serving.store import (
    ModelStore,
    promote_in,
    publish,
    records_here,
    roll_back_in,
    StoreError,
)
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ANN = Signature('ann', '2026-11-26T12:00:00+00:00', 'it knows stairs')
BOB = Signature('bob', '2026-11-27T08:00:00+00:00', 'it fears stairs')


def adapter(folder: Path, weights: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / 'adapter_model.safetensors').write_text(weights)
    (folder / 'adapter_config.json').write_text('{"r": 8}')
    (folder / 'README.md').write_text(f'# {weights}')
    (folder / 'training_args.bin').write_bytes(b'a pickle')
    return folder


@pytest.fixture
def adapters(tmp_path: Path) -> tuple[Path, Path]:
    return adapter(tmp_path / 'first', 'first'), adapter(tmp_path / 'second', 'second')


@pytest.fixture(params=['folder', 'objects'])
def url(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """A store in a folder, and one of objects."""
    monkeypatch.setenv('XDG_DATA_HOME', str(tmp_path / 'data'))
    if request.param == 'folder':
        yield (tmp_path / 'mounted' / 'slot').as_uri()
        return
    files = pytest.importorskip('fsspec').filesystem('memory')
    yield 'memory://bucket/slot'
    files.rm('/bucket', recursive=True)


def robots(url: str, tmp_path: Path) -> tuple[ModelStore, ModelStore]:
    return ModelStore(url, tmp_path / 'robot-1'), ModelStore(url, tmp_path / 'robot-2')


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob('*')
        if path.is_file() and path.name != '.lock'
    }


def damage(url: str, name: str, data: bytes | None) -> None:
    """Put other bytes into a file of a store; None removes it."""
    from fsspec.core import url_to_fs

    files, root = url_to_fs(url)
    (path,) = files.glob(f'{root}/{name}')
    if data is None:
        files.rm(path)
    else:
        files.pipe_file(path, data)


def test_robots_have_the_bytes_that_a_promotion_writes(
    url: str, tmp_path: Path, adapters: tuple[Path, Path]
) -> None:
    record = {'accuracy': 0.7, 'signed_off_by': 'ann'}
    promoted = promote_in(url, adapters[0], record, ANN)
    promote(tmp_path / 'local', adapters[0], record, ANN)
    for robot in robots(url, tmp_path):
        assert robot.pull()
        assert not robot.pull()
        there = in_force(robot.mirror)
        assert there
        assert there.digest == promoted.digest
        assert there.is_adapter
        local = contents(tmp_path / 'local')
        assert local.pop('history/0001.json')
        assert contents(robot.mirror) == local
        assert not any(name.endswith('.bin') for name in local)


def test_one_rollback_is_for_all_robots_and_is_remembered(
    url: str, tmp_path: Path, adapters: tuple[Path, Path]
) -> None:
    first = promote_in(url, adapters[0], {}, ANN)
    promote_in(url, adapters[1], {}, ANN)
    fleet = robots(url, tmp_path)
    assert [robot.pull() for robot in fleet] == [True, True]
    # From a machine that has no model of it.
    shutil.rmtree(slot_folder(url))
    back = roll_back_in(url, BOB)
    assert back
    assert back.digest == first.digest
    for robot in fleet:
        assert robot.pull()
        there = in_force(robot.mirror)
        assert there
        assert (there.number, there.digest) == (1, first.digest)
    assert roll_back_in(url, BOB) is None
    for robot in fleet:
        assert robot.pull()
        assert in_force(robot.mirror) is None
    with pytest.raises(ConfigError, match='nothing to take back'):
        roll_back_in(url, BOB)
    events = [(e['action'], e['number'], e['by'], e['why']) for e in history(records_here(url))]
    assert events == [
        ('promote', 1, 'ann', ANN.why),
        ('promote', 2, 'ann', ANN.why),
        ('rollback', 1, 'bob', BOB.why),
        ('rollback', 0, 'bob', BOB.why),
    ]


@pytest.mark.parametrize(
    ('name', 'data', 'message'),
    [
        ('models/second-*/adapter_model.safetensors', b'half of', 'is damaged'),
        ('models/second-*/adapter_model.safetensors', b'secomd', 'is damaged'),
        ('models/second-*/adapter_model.safetensors', None, 'is incomplete'),
        ('manifest.json', b'{"number": 2, "prev', 'is no manifest, or half of one'),
        ('manifest.json', None, 'is incomplete'),
    ],
)
def test_what_is_not_whole_leaves_the_last_good_version(
    url: str,
    tmp_path: Path,
    adapters: tuple[Path, Path],
    name: str,
    data: bytes | None,
    message: str,
) -> None:
    first = promote_in(url, adapters[0], {}, ANN)
    robot, _ = robots(url, tmp_path)
    robot.pull()
    before = contents(robot.mirror)
    promote_in(url, adapters[1], {}, ANN)
    damage(url, name, data)
    with pytest.raises(StoreError, match=message):
        robot.pull()
    assert contents(robot.mirror) == before
    there = in_force(robot.mirror)
    assert there
    assert there.digest == first.digest
    assert roll_back_in(url, BOB) if 'models' in name else True
    if 'models' in name:
        robot.pull()
        there = in_force(robot.mirror)
        assert there
        assert there.digest == first.digest


@pytest.mark.parametrize(
    ('change', 'message'),
    [
        ({'model': '../../elsewhere'}, 'is no manifest'),
        ({'model': ''}, 'is no manifest'),
        ({'number': float('inf')}, 'is no manifest'),
        ({'files': {'model.safetensors': {'size': float('inf'), 'sha256': ''}}}, 'does not list'),
        ({'files': {'../x.safetensors': {'size': 1, 'sha256': ''}}}, "has a file '../x.safete"),
        ({'files': {'weights.bin': {'size': 1, 'sha256': ''}}}, "has a file 'weights.bin'"),
        ({'files': {'.x.json': {'size': 1, 'sha256': ''}}}, "has a file '.x.json'"),
        ({'files': {}}, 'expected .*safetensors'),
        ({'files': ['model.safetensors']}, 'does not list its files'),
        ({'digest': 'sha256:0'}, 'has sha256:0 in force, and its files are'),
    ],
)
def test_a_manifest_can_only_bring_weights_into_the_mirror(
    tmp_path: Path, adapters: tuple[Path, Path], change: dict[str, object], message: str
) -> None:
    url = (tmp_path / 'store').as_uri()
    promote(tmp_path / 'store', adapters[0], {})
    path = tmp_path / 'store' / 'manifest.json'
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    robot, _ = robots(url, tmp_path)
    with pytest.raises(InputError, match=message):
        robot.pull()
    assert not any(name.startswith('models/') for name in contents(robot.mirror))


def test_two_who_promote_at_once_are_not_mixed(
    url: str, tmp_path: Path, adapters: tuple[Path, Path]
) -> None:
    promote_in(url, adapters[0], {}, ANN)
    late = ModelStore(url, tmp_path / 'late')

    def promote_late() -> None:
        with late.revision() as mirror:
            promote_in(url, adapters[1], {}, ANN)
            promote(mirror, adapters[0], {}, BOB)

    with pytest.raises(StoreError, match='changed by another process meanwhile: try again'):
        promote_late()
    robot, _ = robots(url, tmp_path)
    robot.pull()
    there = in_force(robot.mirror)
    assert there
    assert there.number == 2
    assert [e['by'] for e in history(records_here(url))] == ['ann', 'ann']


def test_a_mirror_that_another_process_holds_is_not_waited_for_without_end(
    url: str, tmp_path: Path, adapters: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    promote_in(url, adapters[0], {}, ANN)
    robot, _ = robots(url, tmp_path)
    robot.mirror.mkdir()
    monkeypatch.setattr(store_module, '_LOCK_WAIT_S', 0.2)
    with (robot.mirror / '.lock').open('w') as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.write('process 4711\n')
        lock.flush()
        with pytest.raises(StoreError, match=r'\.lock is held by process 4711, for more than'):
            robot.pull()
    assert robot.pull()
    assert (robot.mirror / '.lock').read_text().startswith('process ')


def test_a_follower_that_has_waited_takes_what_is_in_force_then(
    url: str, tmp_path: Path, adapters: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    promote_in(url, adapters[0], {}, ANN)
    robot, _ = robots(url, tmp_path)
    look = robot._in_force_there
    others = [adapters[1], adapter(tmp_path / 'third', 'third')]

    def look_too_early() -> object:
        there = look()
        while others:
            with ModelStore(url, robot.mirror).revision() as mirror:
                promote(mirror, others.pop(0), {}, BOB)
        return there

    monkeypatch.setattr(robot, '_in_force_there', look_too_early)
    robot.pull()
    there = in_force(robot.mirror)
    assert there
    assert there.number == 3
    names = {path.name.rpartition('-')[0] for path in (robot.mirror / 'models').iterdir()}
    assert names == {'second', 'third'}  # a rollback would take the second


def test_what_is_published_stays_while_it_is_copied(
    url: str, tmp_path: Path, adapters: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    promote_in(url, adapters[0], {}, ANN)
    monkeypatch.setattr(store_module, '_LOCK_WAIT_S', 0.1)
    copy = store_module.promote_in

    def copy_slowly(slot: str, *what: object) -> object:
        promote(tmp_path / 'elsewhere', adapters[1], {}, BOB)
        damage(url, 'manifest.json', (tmp_path / 'elsewhere' / 'manifest.json').read_bytes())
        with pytest.raises(StoreError, match=r'\.lock is held by'):
            ModelStore(url).pull()
        return copy(slot, *what)  # type: ignore[arg-type]

    monkeypatch.setattr(store_module, 'promote_in', copy_slowly)
    published = publish(url, (tmp_path / 'other').as_uri(), BOB)
    assert (
        published.digest
        == json.loads((tmp_path / 'other' / 'manifest.json').read_text())['digest']
    )
    monkeypatch.setattr(store_module, 'promote_in', copy)
    assert publish((tmp_path / 'other').as_uri(), (tmp_path / 'other').as_uri(), BOB).number == 2


def test_an_entry_of_the_history_is_whole_or_not_there(
    tmp_path: Path, adapters: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, 'No space left on device')

    with monkeypatch.context() as full:
        full.setattr(os, 'fsync', run_full)
        with pytest.raises(InputError, match=r'0001\.json: No space left on device'):
            promote(tmp_path / 'slot', adapters[0], {}, ANN)
    assert not any((tmp_path / 'slot' / 'history').iterdir())
    assert promote(tmp_path / 'slot', adapters[0], {}, ANN).number == 1
    assert [entry['by'] for entry in history(tmp_path / 'slot')] == ['ann']


def test_a_store_that_is_not_mounted_is_not_begun_anew(
    tmp_path: Path, adapters: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv('XDG_DATA_HOME', str(tmp_path / 'data'))
    url = (tmp_path / 'mounted' / 'slot').as_uri()
    promote_in(url, adapters[0], {}, ANN)
    (tmp_path / 'mounted').rename(tmp_path / 'away')
    with pytest.raises(StoreError, match='is empty, and it was not: see that it is mounted'):
        promote_in(url, adapters[1], {}, ANN)
    assert not (tmp_path / 'mounted').exists()


def test_a_mirror_keeps_what_it_may_need_and_no_more(
    url: str, tmp_path: Path, adapters: tuple[Path, Path]
) -> None:
    robot, _ = robots(url, tmp_path)
    for number in range(4):
        promote_in(url, adapter(tmp_path / f'n{number}', str(number)), {}, ANN)
        robot.pull()
    (robot.mirror / 'models' / '.part-killed').mkdir()
    promote_in(url, adapters[0], {}, ANN)
    robot.pull()
    names = sorted(path.name.rpartition('-')[0] for path in (robot.mirror / 'models').iterdir())
    assert names == ['first', 'n3']


@pytest.mark.parametrize('data', [b'', None])
def test_a_mirror_that_a_power_cut_has_damaged_is_brought_anew(
    url: str, tmp_path: Path, adapters: tuple[Path, Path], data: bytes | None
) -> None:
    promoted = promote_in(url, adapters[0], {}, ANN)
    robot, _ = robots(url, tmp_path)
    robot.pull()
    before = contents(robot.mirror)
    weights = robot.mirror / 'models' / promoted.folder.name / 'adapter_model.safetensors'
    weights.unlink() if data is None else weights.write_bytes(data)
    assert not robot.pull()
    assert contents(robot.mirror) == before


class TestFollower:
    def test_goes_on_with_the_last_good_version_and_says_so_once(
        self, tmp_path: Path, adapters: tuple[Path, Path]
    ) -> None:
        url, lines = (tmp_path / 'mounted').as_uri(), list[str]()
        promote_in_folder = tmp_path / 'mounted'
        promoted = promote(promote_in_folder, adapters[0], {})
        follower = StoreFollower(ModelStore(url, tmp_path / 'robot'), 3600.0, lines.append)
        follower.close()
        name = promoted.folder.name
        assert lines == [f'{url}: version 1, {name} is in force']
        (tmp_path / 'mounted').rename(tmp_path / 'away')
        follower.look()
        follower.look()
        assert 'is incomplete, or not there' in lines[1]
        assert lines[1].endswith(f'goes on with version 1, {name}')
        assert follower.problem
        (tmp_path / 'away').rename(tmp_path / 'mounted')
        follower.look()
        assert lines[2:] == [f'{url} can be read again']
        assert not follower.problem

    def test_of_a_store_that_never_answered_leaves_the_profiles_own_model(
        self, tmp_path: Path
    ) -> None:
        lines: list[str] = []
        store = ModelStore((tmp_path / 'nowhere').as_uri(), tmp_path / 'robot')
        StoreFollower(store, 3600.0, lines.append).close()
        assert lines[0].endswith("goes on with the profile's own model")


class TestCommands:
    def test_publish_take_back_and_tell(
        self,
        url: str,
        tmp_path: Path,
        adapters: tuple[Path, Path],
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        slot = tmp_path / 'slot'
        promoted = promote(slot, adapters[0], {'accuracy': 0.7})
        words = ['models', 'publish', str(slot), url, '--by', 'ann', '--why', 'a week of trial']
        assert main(words) == 0
        assert capsys.readouterr().out == f'{promoted.digest}\n'
        robot, _ = robots(url, tmp_path)
        robot.pull()
        there = in_force(robot.mirror)
        assert there
        assert there.record['accuracy'] == 0.7
        assert there.folder.name == promoted.folder.name
        assert main(['models', 'rollback', url, '--by', 'bob']) == 0
        assert capsys.readouterr().out == "the profile's own model\n"
        assert main(['models', 'history', url]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert [json.loads(line)['why'] for line in lines] == ['a week of trial', '']
        assert main(['models', 'rollback', url]) == 2
        assert main(['models', 'publish', str(tmp_path / 'none'), url]) == 2
        assert 'there is nothing to publish' in capsys.readouterr().err
        assert main(['models', 'history', str(tmp_path / 'none')]) == 0
        assert 'nothing was ever promoted in' in capsys.readouterr().err

    @pytest.mark.parametrize(
        ('url', 'message'),
        [
            ('nonsense://bucket/slot', 'nonsense://bucket/slot cannot be opened'),
            ('file://mnt/slot', "names the host 'mnt': expected file:///FOLDER"),
            ('file://[mnt/slot', 'is no URL of a store'),
            ('sftp://ann:tiger@host/slot', 'store at host has a password'),
        ],
    )
    def test_url_that_cannot_be_used_is_bad_input(
        self, url: str, message: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(['models', 'history', url]) == 2
        error = capsys.readouterr().err
        assert message in error
        assert 'tiger' not in error

    def test_serve_follows_instead_of_the_profiles_slot(self, tmp_path: Path) -> None:
        profile = load_profile('embedded-arm').with_overrides(follow=str(tmp_path / 'slot'))
        server = profile.servers['reasoner']
        assert server.promoted == (tmp_path / 'slot').as_uri()
        with pytest.raises(ConfigError, match='has 0 servers that follow a slot'):
            load_profile('gpu-24gb').with_overrides('perceiver', follow='s3://bucket/slot')


def test_publish_from_a_store_to_another(
    tmp_path: Path, adapters: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv('XDG_DATA_HOME', str(tmp_path / 'data'))
    trial, all_robots = ((tmp_path / name).as_uri() for name in ('trial', 'all'))
    promoted = promote_in(trial, adapters[0], {}, ANN)
    assert publish(trial, all_robots, BOB).digest == promoted.digest
