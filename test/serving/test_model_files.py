# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace
import hashlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
import io
import tarfile
import threading
from typing import TYPE_CHECKING

from embodied_r_ros.cli.main import main
from embodied_r_ros.common.errors import InputError, ModelError
from embodied_r_ros.serving import model_files
from embodied_r_ros.serving.model_files import (
    Archive,
    detector_path,
    fetch,
    MODEL_FILES,
    ModelFile,
)
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CONTENT = b'ONNX' * 100_000
ENTRY = ModelFile(
    'a detector',
    'http://127.0.0.1:9/detector.onnx',
    hashlib.sha256(CONTENT).hexdigest(),
    len(CONTENT),
    'Apache-2.0',
)


class Publisher(BaseHTTPRequestHandler):
    """Serves the file, another one, an endless one, half of one, and ways to them."""

    def do_GET(self) -> None:
        if self.path == '/moved':
            self.send_response(302)
            self.send_header('Location', '/detector.onnx')
            self.end_headers()
            return
        bodies = {
            '/detector.onnx': CONTENT,
            '/other': CONTENT[:-1] + b'!',
            '/pointer': b'version https://git-lfs.github.com/spec/v1\n',
            '/half': CONTENT[: len(CONTENT) // 2],
        }
        if self.path != '/endless' and self.path not in bodies:
            self.send_error(404)
            return
        body = bodies.get(self.path, b'')
        self.send_response(200)
        if self.path == '/half':
            self.send_header('Content-Length', str(len(CONTENT)))
        self.end_headers()
        self.wfile.write(body)
        try:
            while self.path == '/endless':
                self.wfile.write(CONTENT)
        except OSError:
            self.server.cut_off = True  # type: ignore[attr-defined]

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture(scope='module')
def publisher() -> Iterator[str]:
    server = ThreadingHTTPServer(('127.0.0.1', 0), Publisher)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f'http://127.0.0.1:{server.server_address[1]}'
    server.shutdown()
    thread.join(10)


@pytest.mark.parametrize('way', ['detector.onnx', 'moved'])
def test_a_file_arrives_whole(way: str, publisher: str, tmp_path: Path) -> None:
    counts: list[int] = []
    path = fetch(ENTRY, tmp_path / 'new' / 'folder', f'{publisher}/{way}', counts.append)
    assert path.read_bytes() == CONTENT
    assert path.name == 'detector.onnx'
    assert sum(counts) == len(CONTENT)
    assert list(path.parent.iterdir()) == [path]


def test_what_is_there_is_not_fetched_again(publisher: str, tmp_path: Path) -> None:
    first = fetch(ENTRY, tmp_path, f'{publisher}/detector.onnx')
    assert fetch(ENTRY, tmp_path) == first  # its URL answers nothing
    first.write_bytes(b'damaged')
    assert fetch(ENTRY, tmp_path, f'{publisher}/detector.onnx').read_bytes() == CONTENT


@pytest.mark.parametrize(
    ('way', 'expected'),
    [
        ('other', f'another file than detector.onnx: {len(CONTENT)} bytes'),
        ('pointer', 'another file than detector.onnx: 43 bytes'),
        ('endless', f'more than {len(CONTENT)} bytes'),
        ('half', 'cannot be downloaded'),
        ('nowhere', 'answers 404'),
    ],
)
def test_another_file_is_refused(way: str, expected: str, publisher: str, tmp_path: Path) -> None:
    kept = tmp_path / 'detector.onnx'
    kept.write_bytes(b'the one of before')
    with pytest.raises(ModelError) as caught:
        fetch(ENTRY, tmp_path, f'{publisher}/{way}')
    assert expected in str(caught.value)
    assert '\n' not in str(caught.value)
    assert list(tmp_path.iterdir()) == [kept]
    assert kept.read_bytes() == b'the one of before'


def test_a_local_file_is_taken_where_there_is_no_network(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match='without a network get the file elsewhere and give its'):
        fetch(ENTRY, tmp_path)
    mine = tmp_path / 'mine'
    mine.write_bytes(CONTENT)
    assert fetch(ENTRY, tmp_path / 'here', str(mine)).read_bytes() == CONTENT
    mine.write_bytes(b'another')
    with pytest.raises(ModelError, match='another file than detector'):
        fetch(ENTRY, tmp_path / 'there', str(mine))


def test_what_is_no_url_or_no_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match='url is'):
        fetch(ENTRY, tmp_path, 'detector.onnx')
    (tmp_path / 'file').touch()
    with pytest.raises(InputError, match='cannot be written to'):
        fetch(ENTRY, tmp_path / 'file')


def test_every_file_states_what_a_user_needs() -> None:
    for entry in MODEL_FILES.values():
        assert entry.url.startswith('https://')
        assert entry.file_name.endswith(('.onnx', '.tflite', '.gguf'))
        assert len(entry.sha256) == 64
        assert entry.licence == 'Apache-2.0'
        assert entry.size > 1_000_000


@pytest.fixture
def publish(monkeypatch: pytest.MonkeyPatch, publisher: str, tmp_path: Path) -> Path:
    """A publisher that can be reached, and a folder for data."""
    monkeypatch.setenv('XDG_DATA_HOME', str(tmp_path))
    entries = {'detector': replace(ENTRY, url=f'{publisher}/detector.onnx')}
    monkeypatch.setattr(model_files, 'MODEL_FILES', entries)
    return tmp_path / 'embodied_r_ros' / 'models' / 'detector.onnx'


def test_the_command_fetches_and_prints_the_path(
    publish: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert detector_path('') == ''
    assert main(['models', 'fetch', 'detector']) == 0
    out, err = capsys.readouterr()
    assert out == f'{publish}\n'
    assert 'Apache-2.0' in err
    assert detector_path('') == str(publish)
    assert detector_path('mine.onnx') == 'mine.onnx'


def test_errors_of_the_command_are_one_line(
    publish: Path, publisher: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(['models', 'fetch', 'unicorn']) == 2
    assert "no model file is called 'unicorn'" in capsys.readouterr().err
    assert main(['models', 'fetch', 'detector', '--url', f'{publisher}/other']) == 1
    out, err = capsys.readouterr()
    assert out == ''
    (_, line) = err.splitlines()
    assert line.startswith('embodied-r: failed: ')
    assert not publish.exists()


def test_the_list_says_what_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(['models', 'list']) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(MODEL_FILES)
    assert all('Apache-2.0' in line for line in lines)


def test_a_file_is_taken_out_of_a_package(tmp_path: Path) -> None:
    package = tmp_path / 'package.tgz'
    with tarfile.open(package, 'w:gz') as archive:
        info = tarfile.TarInfo('package/assets.data')
        info.size = len(CONTENT) + 3
        archive.addfile(info, io.BytesIO(b'abc' + CONTENT))
    part = Archive(package.stat().st_size, 'package/assets.data', 3, 'small.tflite')
    entry = replace(ENTRY, archive=part)
    path = fetch(entry, tmp_path / 'here', str(package))
    assert path.name == 'small.tflite'
    assert path.read_bytes() == CONTENT
    other = replace(entry, archive=replace(part, member='package/none'))
    with pytest.raises(ModelError, match='has no package/none'):
        fetch(other, tmp_path / 'there', str(package))
    early = replace(entry, archive=replace(part, offset=2))
    with pytest.raises(ModelError, match='is another file than small'):
        fetch(early, tmp_path / 'there', str(package))
    assert list((tmp_path / 'there').iterdir()) == []


def test_one_in_tflite_looks_beside_another(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv('XDG_DATA_HOME', str(tmp_path))
    folder = model_files.model_folder()
    folder.mkdir(parents=True)
    first, second, beside = (
        folder / MODEL_FILES[name].file_name
        for name in ('detector', 'detector-small', 'detector-objectron')
    )
    for path in (first, second, beside):
        path.touch()
    monkeypatch.setattr(model_files, 'find_spec', lambda name: name)
    assert detector_path('') == f'{first},{beside}'
    monkeypatch.setattr(model_files, 'find_spec', lambda name: None)
    assert detector_path('') == str(first)
    first.unlink()
    second.unlink()
    assert detector_path('') == str(beside)  # says what is missing
