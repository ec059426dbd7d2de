# SPDX-License-Identifier: Apache-2.0
"""Fleets of recordings as files: found by content, worked on once, given up and tried again."""

from __future__ import annotations

from dataclasses import replace
import logging
import shutil
from typing import TYPE_CHECKING

from embodied_r_ros.bags.sources import find_sources
from embodied_r_ros.common.errors import BagError, InputError
from embodied_r_ros.common.work import CALLS, METER
from embodied_r_ros.data.episodes.fleet import FleetLog, read_status, StageReport, work_on
from embodied_r_ros.data.episodes.labels import LABELS
from embodied_r_ros.data.episodes.manifest import (
    content_id,
    find_recordings,
    FleetRecording,
    local_copy,
)
import pytest

fsspec = pytest.importorskip('fsspec')

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ONE, TWO = FleetRecording('1', '/bags/one'), FleetRecording('2', '/bags/two')
BYTES = bytes(range(256)) * 1024  # more than what is read of both ends


@pytest.fixture
def store() -> Iterator[str]:
    """An object store, in memory: two bags, a video, and what is none of these."""
    files = fsspec.filesystem('memory')
    for name in ('a/a_0.mcap', 'a/metadata.yaml', 'b.mcap', 'c.mp4', 'notes.md', '.d/d.mcap'):
        files.pipe(f'/fleet/bags/{name}', name.encode())
    yield 'memory://fleet/bags'
    files.rm('/fleet', recursive=True)


def test_content_names_a_recording(tmp_path: Path) -> None:
    for name in ('a', 'copy', 'other', 'longer'):
        (tmp_path / name).mkdir()
        (tmp_path / name / f'{name}.mcap').write_bytes(BYTES)
    (tmp_path / 'copy' / 'metadata.yaml').write_text('not of the content')
    (tmp_path / 'other' / 'other.mcap').write_bytes(BYTES[:-1] + b'!')
    (tmp_path / 'longer' / 'longer.mcap').write_bytes(BYTES + BYTES)
    ids = [content_id(str(tmp_path / name)) for name in ('a', 'copy', 'other', 'longer')]
    assert ids[0] == ids[1]
    assert len(set(ids)) == 3
    # Where it lies does not count.
    fsspec.filesystem('memory').pipe('/elsewhere/a.mcap', BYTES)
    assert content_id('memory://elsewhere/a.mcap') == ids[0]
    assert content_id(f'file://{tmp_path}/a') == ids[0]


def test_recordings_of_a_store_and_of_a_list(store: str, tmp_path: Path) -> None:
    found = [recording.source for recording in find_recordings([store], find_sources)]
    assert found == [f'{store}/{name}' for name in ('a', 'b.mcap', 'c.mp4')]
    (tmp_path / 'x.mcap').write_bytes(b'x')
    (tmp_path / 'list.txt').write_text(f'# mine\nx.mcap\n\n{store}/a\n')
    listed = find_recordings([str(tmp_path / 'list.txt')], find_sources)
    assert [one.source for one in listed] == [str(tmp_path / 'x.mcap'), f'{store}/a']


@pytest.mark.parametrize(
    ('source', 'message'),
    [
        ('memory://nowhere', 'does not exist'),
        ('nonsense://x/y', 'cannot be opened'),
        ('{tmp}/empty.txt', 'lists no recordings'),
        ('{tmp}/none.txt', 'cannot be read as a list'),
        ('memory://fleet/bags/.d/e', 'does not exist'),
    ],
)
def test_a_source_without_recordings_is_refused(
    store: str, tmp_path: Path, source: str, message: str
) -> None:
    (tmp_path / 'empty.txt').touch()
    with pytest.raises(InputError, match=message):
        find_recordings([source.format(tmp=tmp_path)], find_sources)


@pytest.mark.parametrize(
    'url',
    [
        'sftp://ann:PSST@host/bags',
        'https://bucket.host/a.mcap?versionId=3&X-Amz-Signature=PSST',
        'https://host/a.mcap?sv=2026&sig=PSST',
        'https://host/a.mcap?AWSAccessKeyId=PSST',
        's3://KEY:PSST@bucket/bags',
    ],
)
def test_a_url_with_a_secret_is_refused_and_not_shown(tmp_path: Path, url: str) -> None:
    (tmp_path / 'list.txt').write_text(f'/bags/a\n{url}\n')
    for source in (url, str(tmp_path / 'list.txt')):
        with pytest.raises(InputError, match='by the environment') as caught:
            find_recordings([source], lambda paths: list(paths))
        assert 'PSST' not in str(caught.value)
        assert 'KEY:' not in str(caught.value)


def test_a_store_that_fails_in_its_own_way_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    class NoCredentialsError(Exception):
        """As that of botocore, which is no OSError."""

    def fail(*_: object) -> None:
        msg = 'Unable to locate\n credentials'
        raise NoCredentialsError(msg)

    monkeypatch.setattr(fsspec.get_filesystem_class('memory'), 'isdir', fail)
    with pytest.raises(InputError, match=r'cannot be listed: Unable to locate credentials$'):
        find_recordings(['memory://bucket/bags'], find_sources)


def test_a_copy_is_named_as_in_the_store_and_errors_name_the_store(
    store: str, tmp_path: Path
) -> None:
    with local_copy(f'{store}/a') as path:
        assert path.parts[-2:] == ('bags', 'a')
        assert (path / 'a_0.mcap').read_bytes() == b'a/a_0.mcap'
    assert not path.exists()

    def stage(path: Path, recording: FleetRecording) -> StageReport:
        msg = f'{path} is no good'
        raise BagError(msg)

    FleetLog(tmp_path).__exit__()
    status = work_on(stage, FleetRecording('1', f'{store}/b.mcap'), tmp_path, 0, 2)
    assert status.error == f'{store}/b.mcap is no good'
    gone = work_on(stage, FleetRecording('2', f'{store}/gone.mcap'), tmp_path, 0, 2)
    assert 'gone.mcap cannot be copied' in gone.error


def test_what_was_done_is_counted_and_said(tmp_path: Path) -> None:
    def stage(path: Path, recording: FleetRecording) -> StageReport:
        METER.add(CALLS, 3)
        logging.getLogger('embodied_r_ros.bags').warning('left out: %s', path)
        return StageReport('out', 5)

    FleetLog(tmp_path).__exit__()
    METER.add(CALLS, 100)
    status = work_on(stage, ONE, tmp_path, 0, 2)
    assert (status.output, status.deltas, status.calls, status.attempts) == ('out', 5, 3, 1)
    assert status.notes == ('left out: /bags/one',)
    assert status.error == ''
    assert status.seconds >= 0


def test_what_ended_is_not_done_again_and_what_killed_too_often_is_not_begun(
    tmp_path: Path,
) -> None:
    calls: list[str] = []

    def stage(path: Path, recording: FleetRecording) -> StageReport:
        calls.append(recording.id)
        if recording == TWO:
            raise KeyboardInterrupt  # as if the process ended here
        return StageReport('out')

    FleetLog(tmp_path).__exit__()
    first = work_on(stage, ONE, tmp_path, 0, 2)
    assert work_on(stage, ONE, tmp_path, 0, 2) == first
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            work_on(stage, TWO, tmp_path, 0, 2)
    status = work_on(stage, TWO, tmp_path, 0, 2)
    assert calls == ['1', '2', '2']
    assert (status.attempts, status.error.endswith('died, in each of 2 attempts')) == (2, True)
    # Whoever opens the folder next finds both.
    with FleetLog(tmp_path) as log:
        assert list(log.due([ONE, TWO], 2, retry_failed=False)) == []
        assert list(log.due([ONE, TWO], 3, retry_failed=False)) == [(TWO, 2)]
        assert list(log.due([ONE, TWO], 2, retry_failed=True)) == [(TWO, 0)]
    assert [one.id for one in read_status(tmp_path)] == ['1', '2']
    assert list((tmp_path / 'open').iterdir()) == []


def test_the_last_row_counts_and_a_cut_one_does_not(tmp_path: Path) -> None:
    FleetLog(tmp_path).__exit__()
    done = work_on(lambda *_: StageReport('out'), ONE, tmp_path, 0, 3)
    broken = replace(done, id='2', source=TWO.source, error='broken', attempts=2)
    with FleetLog(tmp_path) as log:
        log.add(broken)
        log.add(replace(broken, id='3'))
        log.add(replace(broken, id='3', error=''))
    with (tmp_path / 'status.jsonl').open('a') as file:
        file.write('{"id": "1", "source": "/bags/o')
    with FleetLog(tmp_path) as log:
        log.add(replace(broken, attempts=3))
    with FleetLog(tmp_path) as log:
        assert log.failed() == {'2': replace(broken, attempts=3)}
        copies = [ONE, TWO, replace(TWO, source='copy'), FleetRecording('3', 'x')]
        assert list(log.due(copies, 9, retry_failed=False)) == [(TWO, 3)]


def test_a_folder_is_of_one_process_and_of_one_work(tmp_path: Path) -> None:
    with FleetLog(tmp_path, 'seed 1'), pytest.raises(InputError, match='in use by another'):
        FleetLog(tmp_path, 'seed 1')
    with pytest.raises(InputError, match='of other settings, seed 1'):
        FleetLog(tmp_path, 'seed 2')
    FleetLog(tmp_path, 'seed 1').__exit__()
    shutil.rmtree(tmp_path / 'open')
    (tmp_path / 'open').touch()
    with pytest.raises(InputError, match='cannot write to'):
        FleetLog(tmp_path)


def test_labels_are_content_only_where_they_count(tmp_path: Path) -> None:
    (tmp_path / 'bag').mkdir()
    (tmp_path / 'bag' / 'bag_0.mcap').write_bytes(b'messages')
    source = str(tmp_path / 'bag')
    before = content_id(source), content_id(source, has_labels=True)
    (tmp_path / 'bag' / LABELS).write_text('{}\n')
    assert content_id(source) == before[0]
    assert content_id(source, has_labels=True) != before[1]
