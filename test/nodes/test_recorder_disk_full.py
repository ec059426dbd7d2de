# SPDX-License-Identifier: Apache-2.0
"""A disk that really is full ends the episode with its reason; what was written can be read."""

from __future__ import annotations

import os
from pathlib import Path
import subprocess
from typing import TYPE_CHECKING

from diagnostic_msgs.msg import DiagnosticArray
from embodied_r_ros.bags.recovery import recover
from embodied_r_ros.nodes import topics
from mcap.reader import make_reader
import pytest
from sensor_msgs.msg import CompressedImage

from test.bags.test_recording import whole_messages
from test.nodes.graph import wait_for
from test.nodes.test_episode_recorder import contents, is_closed, Operator

if TYPE_CHECKING:
    from collections.abc import Iterator

    from test.nodes.graph import Graph

TOPIC = '/image/compressed'
IMAGE_BYTES = 100_000


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 12 MB of its own; skips where none may be mounted."""
    folder = tmp_path / 'disk'
    folder.mkdir()
    mount = ['mount', '-t', 'tmpfs', '-o', 'size=12m', 'none', str(folder)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f'a small disk cannot be mounted: {done.stderr.strip()}')
    yield folder
    subprocess.run(['umount', '--lazy', str(folder)], check=True)


def fill(operator: Operator, most: int) -> int:
    """Publish images, one after another, until the recorder ends the episode; returns how many."""
    publisher = operator.graph.publisher(CompressedImage, TOPIC, topics.SENSOR)
    sent = 0

    def is_over() -> bool:
        nonlocal sent
        if operator.node._episode and operator.count(TOPIC) >= sent and sent < most:
            publisher.publish(CompressedImage(format='jpeg', data=os.urandom(IMAGE_BYTES)))
            sent += 1
        return operator.node._episode is None

    wait_for(is_over, 'the end of the episode')
    return sent


def errors(operator: Operator) -> str:
    """What the node says of itself on /diagnostics as soon as it is an error."""
    arrays = operator.graph.inbox(DiagnosticArray, '/diagnostics')
    message = wait_for(
        lambda: next((a.status[0].message for a in arrays if a.status[0].level == b'\x02'), ''),
        'an error',
    )
    return str(message)


def test_episode_ends_closed_while_there_is_room_to_close_it(graph: Graph, disk: Path) -> None:
    operator = Operator(graph, disk, images='compressed', min_free_mb=10)
    bag = operator.start().bag_path
    sent = fill(operator, most=30)  # 3 MB, of the 12 that there are
    assert 'the episode was ended: ' in errors(operator)
    wait_for(lambda: is_closed(bag), 'a closed bag')
    assert sent - 1 <= len(contents(bag)[TOPIC]) <= sent  # the last one may come too late
    assert operator.start().error_msg.endswith('make room, or lower min_free_mb')
    Path(bag, 'metadata.yaml').unlink()
    next(Path(bag).glob('*.mcap')).unlink()
    assert operator.start().error_code == 0


def test_disk_that_is_full_to_the_last_byte_keeps_what_was_written(
    graph: Graph, disk: Path
) -> None:
    ballast = disk / 'ballast'
    ballast.write_bytes(bytes(7_000_000))
    operator = Operator(graph, disk, images='compressed', min_free_mb=0)
    bag = Path(operator.start().bag_path)
    fill(operator, most=100)  # 10 MB, of the 5 that are left
    said = errors(operator)
    assert 'No space left on device' in said
    assert f'embodied-r episodes recover {bag}' in said
    assert not is_closed(str(bag))
    [path] = bag.glob('*.mcap')
    readable = [data for data in whole_messages(path) if len(data) > IMAGE_BYTES]
    assert len(readable) > 20
    response = operator.label()
    assert response.error_code == response.ERROR_NOT_RECORDING

    ballast.unlink()
    assert recover(bag).is_good
    with path.open('rb') as file:
        found = make_reader(file, validate_crcs=True).iter_messages(TOPIC, log_time_order=False)
        assert [message.data for _, _, message in found] == readable
    assert operator.start().error_code == 0
    operator.stop()
