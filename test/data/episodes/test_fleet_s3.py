# SPDX-License-Identifier: Apache-2.0
"""Recordings in a bucket of S3: a real server on loopback, credentials by the environment."""

from __future__ import annotations

from importlib.util import find_spec
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

from embodied_r_ros.bags.sources import find_sources
from embodied_r_ros.cli.main import main
from embodied_r_ros.common.errors import InputError
from embodied_r_ros.data.episodes.manifest import content_id, find_recordings
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

if not all(map(find_spec, ('ray', 's3fs', 'moto', 'flask'))):
    pytest.skip('Ray, s3fs or moto[server] is not installed', allow_module_level=True)

from test.data.episodes.test_fleet_ray import files_of, record, ROOT

KEY, SECRET = 'AKIA0DUMMY0KEY', 'a-secret-of-nobody'
COUNT = 3


@pytest.fixture(scope='module')
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """A folder of recordings, and the same in a bucket; credentials are in the environment."""
    from moto.server import ThreadedMotoServer
    import s3fs

    folder = tmp_path_factory.mktemp('s3') / 'bags'
    for seed in range(COUNT):
        record(folder / f'drive_{seed}', seed)
    server = ThreadedMotoServer('127.0.0.1', 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv('AWS_ENDPOINT_URL', f'http://{host}:{port}')
        patch.setenv('AWS_ACCESS_KEY_ID', KEY)
        patch.setenv('AWS_SECRET_ACCESS_KEY', SECRET)
        patch.setenv('AWS_DEFAULT_REGION', 'us-east-1')
        s3fs.S3FileSystem.clear_instance_cache()
        files = s3fs.S3FileSystem()
        files.mkdir('bucket')
        files.put(str(folder), 'bucket/', recursive=True)
        yield folder, 's3://bucket/bags'
    s3fs.S3FileSystem.clear_instance_cache()
    server.stop()


def test_recordings_of_a_bucket_are_found_and_known_by_content(bucket: tuple[Path, str]) -> None:
    folder, url = bucket
    found = find_recordings([url], find_sources)
    assert [one.source for one in found] == [f'{url}/drive_{seed}' for seed in range(COUNT)]
    assert [one.id for one in found] == [
        content_id(str(folder / f'drive_{seed}')) for seed in range(COUNT)
    ]
    for nothing in ('s3://bucket/none', 's3://elsewhere/bags'):
        with pytest.raises(InputError, match='does not exist'):
            find_recordings([nothing], find_sources)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_outputs_are_those_of_the_same_recordings_on_this_machine(
    bucket: tuple[Path, str], tmp_path: Path
) -> None:
    folder, url = bucket
    plain, fleet = tmp_path / 'plain', tmp_path / 'fleet'
    for out in (plain, fleet):
        out.mkdir()
    assert main(['collect', str(folder), '--out', str(plain / 'episodes')]) == 0
    more = ['--maps', '--set', 'questions.test_share=0.3']
    assert main(['questions', str(folder), *more, '--out', str(plain / 'rows.jsonl')]) == 0
    commands = [
        ['collect', url, '--out', str(fleet / 'episodes')],
        ['questions', url, *more, '--out', str(fleet / 'rows.jsonl')],
        ['map', url, '--out', str(fleet / 'maps')],
    ]
    # One Ray for all, started as `--ray local` does: the actors get the environment from it.
    code = f"""
import sys
from embodied_r_ros.cli.main import main
from embodied_r_ros.data.episodes.fleet_ray import FleetConfig, ray_connection
with ray_connection(FleetConfig(actors=2)):
    ray = ['--ray', 'local', '--set', 'fleet.attempts=1']
    sys.exit(max(main([*words, *ray]) for words in {commands}))
"""
    done = subprocess.run(
        [sys.executable, '-c', code],
        env=os.environ | {'PYTHONPATH': str(ROOT)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert files_of(fleet / 'episodes') == files_of(plain / 'episodes')
    assert (fleet / 'rows.jsonl').read_bytes() == (plain / 'rows.jsonl').read_bytes()
    # The manifest tells where each recording lies, and is the same otherwise.
    manifest = (plain / 'rows.manifest.json').read_text()
    assert str(folder) in manifest
    assert (fleet / 'rows.manifest.json').read_text() == manifest.replace(str(folder), url)
    for seed in range(COUNT):
        (made,) = (fleet / 'maps').glob(f'drive_{seed}-*.json')
        main(['map', str(folder / f'drive_{seed}'), '--out', str(tmp_path / 'MAP.json')])
        assert made.read_bytes() == (tmp_path / 'MAP.json').read_bytes()
    status = (fleet / 'episodes' / 'fleet' / 'status.jsonl').read_text()
    sources = {json.loads(line)['source'] for line in status.splitlines()}
    assert sources == {f'{url}/drive_{seed}' for seed in range(COUNT)}
    # What lets one into the bucket is nowhere.
    written = [path.read_bytes() for path in fleet.rglob('*') if path.is_file()]
    for text in (*written, done.stdout.encode(), done.stderr.encode()):
        assert KEY.encode() not in text
        assert SECRET.encode() not in text
