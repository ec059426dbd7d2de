# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace
import json
import os
from pathlib import Path
import signal
import subprocess
import sys

import pytest

pytest.importorskip('rclpy')
pytest.importorskip('embodied_r_msgs.msg')

from embodied_r_ros.nodes.transport import socket_limit

from bench import transport
from bench.__main__ import main
from bench.live import LiveFigures, Stream
from bench.transport import Cell, FOREIGN, OURS, socket_limit_of, STOCK_SYSTEM, table

LOST = LiveFigures(30, 28, 28, 2, 0.01, 0.02, 0.1)


@pytest.fixture
def limit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A file that stands for the machine's limit of sockets."""
    file = tmp_path / 'rmem_max'
    file.write_text('4194304')
    monkeypatch.setattr('embodied_r_ros.nodes.transport.SOCKET_LIMIT', file)
    monkeypatch.setattr(transport, 'SOCKET_LIMIT', file)
    return file


@pytest.mark.timeout(180)
def test_images_are_counted_into_the_extractor(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    coordinator = pytest.importorskip('domain_coordinator')
    out = tmp_path / 'figures.json'
    with coordinator.domain_id() as domain:
        monkeypatch.setenv('ROS_DOMAIN_ID', str(domain))
        options = ['--seconds', '1', '--small', '--only', OURS, '--json', str(out)]
        code = main(['transport', *options])
    cells = json.loads(out.read_text())['cells']
    assert [cell['stream'] for cell in cells] == ['640x480 raw', '640x480 compressed']
    for cell in cells:
        assert cell['sent'] == 30
        assert 0 < cell['received'] <= 30
        assert cell['lost'] == 30 - cell['received']
        assert cell['latency_p99_s'] > 0  # the first image is a keyframe
    assert code == (0 if all(cell['is_met'] for cell in cells) else 1)


@pytest.mark.parametrize(
    ('condition', 'stream', 'code'),
    [
        (OURS, Stream(), 1),
        (STOCK_SYSTEM, Stream(), 1),
        (FOREIGN, Stream(), 0),
        (OURS, Stream(1920, 1080), 0),
        (OURS, Stream(1920, 1080, 'compressed'), 1),
    ],
)
def test_losses_count_where_none_may_be(
    condition: str, stream: Stream, code: int, monkeypatch: pytest.MonkeyPatch, limit: Path
) -> None:
    del limit
    monkeypatch.setattr('bench.live.measure', lambda *_: LOST)
    monkeypatch.setattr(transport, 'STREAMS', (stream,))
    assert main(['transport', '--only', condition]) == code
    monkeypatch.setattr('bench.live.measure', lambda *_: replace(LOST, arrived=30))
    assert main(['transport', '--only', condition]) == 0


def test_a_foreign_camera_has_none_of_our_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    given = []

    def measure(count: int, stream: Stream, camera: dict[str, str] | None) -> LiveFigures:
        del count, stream
        given.append(camera)
        return LOST

    monkeypatch.setattr('bench.live.measure', measure)
    environment = {'FASTDDS_BUILTIN_TRANSPORTS': 'ours', 'HOME': '/'}
    transport.measure(Stream(), FOREIGN, 30, environment)
    transport.measure(Stream(), OURS, 30, environment)
    assert given == [{'HOME': '/'}, None]


def test_the_limit_of_sockets_is_put_back(limit: Path) -> None:
    with socket_limit_of(212_992):
        assert socket_limit() == 212_992
    assert limit.read_text() == '4194304'
    with pytest.raises(KeyError), socket_limit_of(212_992):
        raise KeyError
    assert limit.read_text() == '4194304'
    with socket_limit_of(8_388_608):  # it is never raised
        assert limit.read_text() == '4194304'


def test_a_bench_that_is_told_to_end_puts_the_limit_back(limit: Path) -> None:
    code = (
        'import sys, time; from pathlib import Path\n'
        'import embodied_r_ros.nodes.transport as settings; from bench import transport\n'
        'settings.SOCKET_LIMIT = transport.SOCKET_LIMIT = Path(sys.argv[1])\n'
        'with transport.socket_limit_of(212992):\n'
        "    print('lowered', flush=True)\n"
        # Short sleeps: a signal just before a sleep begins does not interrupt it.
        '    for _ in range(6000): time.sleep(0.1)\n'
    )
    command = [sys.executable, '-c', code, str(limit)]
    root = Path(__file__).parents[2]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root)
    assert process.stdout is not None
    assert process.stdout.readline() == 'lowered\n'
    assert limit.read_text() == '212992'
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 128 + signal.SIGTERM
    assert limit.read_text() == '4194304'


def test_what_may_not_be_lowered_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr('bench.live.measure', lambda *_: LOST)
    monkeypatch.setattr('embodied_r_ros.nodes.transport.SOCKET_LIMIT', tmp_path / 'none')
    cell = transport.measure(Stream(), STOCK_SYSTEM, 30, os.environ)
    assert (cell.lost, cell.is_met) == (None, True)
    assert 'not measured' in table([cell])


def test_the_table_tells_losses_and_verdict() -> None:
    cells = [Cell('a', OURS, True, 30, 28, 0.02), Cell('b', FOREIGN, False, 30, 1)]
    _, bad, optional = (line.split() for line in table(cells).splitlines())
    assert bad == ['FAIL', 'ours', 'a', '30', '28', '2', '20', 'ms']
    assert optional == ['info', 'foreign', 'camera', 'b', '30', '1', '29', '-']
