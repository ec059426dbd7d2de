# SPDX-License-Identifier: Apache-2.0
"""An episode in which a topic fell silent, although what it depends on came, is not ok."""

from __future__ import annotations

from typing import TYPE_CHECKING

from embodied_r_ros.bags.audit import Audit, AuditConfig
from embodied_r_ros.bags.message_types import embodied_typestore
import pytest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

S = 1_000_000_000
TOPICS = {
    '/image/compressed': 'sensor_msgs/msg/CompressedImage',
    '/camera_info': 'sensor_msgs/msg/CameraInfo',
    '/odom': 'nav_msgs/msg/Odometry',
    '/tf': 'tf2_msgs/msg/TFMessage',
    '/tf_static': 'tf2_msgs/msg/TFMessage',
    '/keyframe': 'embodied_r_msgs/msg/Keyframe',
    '/semantic_delta': 'embodied_r_msgs/msg/SemanticDelta',
    '/answer': 'embodied_r_msgs/msg/Answer',
    '/shadow_answer': 'embodied_r_msgs/msg/Answer',
    '/provenance': 'std_msgs/msg/String',
}
ALL = 364.0  # s, the length of an episode


def every(period_s: float, begin_s: float = 0.1, end_s: float = ALL) -> list[float]:
    return [begin_s + i * period_s for i in range(int((end_s - begin_s) / period_s))]


_EXPECTED = AuditConfig(topics=('keyframe', 'semantic_delta'))


def problems_of(
    times: Mapping[str, Sequence[float]],
    config: AuditConfig = _EXPECTED,
    end_s: float = ALL,
    *,
    is_over: bool = True,
) -> tuple[str, ...]:
    """What the audit says of messages at times in seconds from the start of an episode."""
    audit = Audit(config, 100 * S)
    for topic, kind in TOPICS.items():
        audit.add_topic(topic, kind, embodied_typestore())
    order = sorted((time_s, topic) for topic, each in times.items() for time_s in each)
    for time_s, topic in order:
        audit.take(topic, b'\x00\x01\x00\x00' + bytes(8), int((100 + time_s) * S))
    return audit.report(int((100 + end_s) * S), is_over=is_over).problems


def healthy() -> dict[str, Sequence[float]]:
    """An episode that is whole."""
    return {
        '/camera_info': every(0.1),
        '/odom': every(0.05),
        '/tf': every(0.02),
        '/tf_static': [0.0],
        '/keyframe': every(2.0),
        '/semantic_delta': every(2.0, 1.0),
    }


def test_whole_episode_is_ok() -> None:
    assert problems_of(healthy()) == ()


@pytest.mark.parametrize('images', ['/camera_info', '/image/compressed'])
def test_keyframes_that_stop_while_images_come_are_not_ok(images: str) -> None:
    """Eight seconds of keyframes in an episode of 364."""
    times = {**healthy(), '/keyframe': every(1.0, 0.1, 8.1), '/semantic_delta': every(1, 0.6, 8.6)}
    times[images] = times.pop('/camera_info')
    [problem] = problems_of(times)
    assert problem == '/keyframe: silent from 7.1 to 364.0 s, while images came'


@pytest.mark.parametrize(
    ('topic', 'begin_s', 'end_s'),
    [
        (topic, begin_s, end_s)
        for topic in ('/camera_info', '/odom', '/tf', '/semantic_delta')
        for begin_s, end_s in ((0.0, 60.0), (100.0, 160.0), (300.0, ALL))
    ],
)
def test_silence_is_named_with_its_times(topic: str, begin_s: float, end_s: float) -> None:
    times = healthy()
    times[topic] = [t for t in times[topic] if not begin_s < t < end_s]
    [problem] = problems_of(times)
    assert problem.startswith(f'{topic}: silent from ')
    words = problem.replace(',', '').split()
    assert float(words[3]) == pytest.approx(begin_s, abs=2.1)
    assert float(words[5]) == pytest.approx(end_s, abs=2.1)


def test_camera_that_stands_still_for_a_while_is_ok() -> None:
    times = healthy()
    times['/keyframe'] = [t for t in times['/keyframe'] if not 100 < t < 250]
    times['/semantic_delta'] = [t for t in times['/semantic_delta'] if not 100 < t < 251]
    assert problems_of(times) == ()
    strict = AuditConfig(topics=('keyframe',), max_still=0.3)
    assert problems_of(times, strict)[0].startswith('/keyframe: silent from ')
    # A running episode cannot say yet what its share will be.
    assert problems_of(times, strict, is_over=False) == ()


def test_topics_are_silent_with_what_they_are_made_of() -> None:
    """A camera that was switched off is one finding, not three."""
    times: dict[str, Sequence[float]] = {
        topic: [t for t in each if t < 100] for topic, each in healthy().items()
    }
    times |= {topic: healthy()[topic] for topic in ('/odom', '/tf')}
    [problem] = problems_of(times)
    assert problem.startswith('/camera_info: silent from ')


def test_one_keyframe_without_a_delta_is_owed_one() -> None:
    times = {**healthy(), '/keyframe': [1.0, 200.0], '/semantic_delta': [2.0]}
    times['/camera_info'] = []
    assert problems_of(times) == (
        '/semantic_delta: silent from 2.0 to 364.0 s, while 1 keyframes came',
    )
    times['/keyframe'] = [1.0, 350.0]
    assert problems_of(times) == ()


def test_cameras_are_told_apart_by_their_namespaces() -> None:
    audit = Audit(AuditConfig(topics=('keyframe',)), 0)
    for camera in ('front', 'rear'):
        audit.add_topic(f'/{camera}/keyframe', TOPICS['/keyframe'], embodied_typestore())
        info = f'/{camera}/color/camera_info'
        audit.add_topic(info, TOPICS['/camera_info'], embodied_typestore())
    for time_s in every(0.5, 0.5, 100.0):
        audit.take('/front/color/camera_info', bytes(12), int(time_s * S))
        if time_s in {1.0, 99.0}:
            audit.take('/front/keyframe', bytes(12), int(time_s * S))
        if time_s == 1.0:
            audit.take('/rear/keyframe', bytes(12), S)
    problems = audit.report(100 * S, is_over=True).problems
    assert problems == ('/front/keyframe: silent from 1.0 to 99.0 s, while images came',)


def test_other_recordings_promise_nothing() -> None:
    audit = Audit(AuditConfig(topics=()), 0)
    audit.add_topic('/odom', TOPICS['/odom'], embodied_typestore())
    for time_s in every(0.1, 0.1, 10.0):
        audit.take('/odom', bytes(12), int(time_s * S))
    assert audit.report(100 * S, is_over=True).problems == ()
