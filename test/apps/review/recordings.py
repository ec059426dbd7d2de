# SPDX-License-Identifier: Apache-2.0
"""Recordings with pictures, deltas and answers, as a robot leaves them, in a few milliseconds."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from embodied_r_ros.bags.message_types import BagMessageFactory
from embodied_r_ros.bags.messages import encoded_image_to_msg
from embodied_r_ros.bags.writer import BagWriter
from embodied_r_ros.core.types.answers import (
    Answer,
    AnswerKind,
    Check,
    Freshness,
    RejectedCompletion,
    ToolCall,
)
from embodied_r_ros.core.types.deltas import ModelInfo
from embodied_r_ros.core.types.episodes import EpisodeEvent, EpisodeMark
from embodied_r_ros.core.types.geometry import Pose
from embodied_r_ros.core.types.images import encode_image
from embodied_r_ros.core.types.keyframes import Keyframe, KeyframeReason
from embodied_r_ros.data.own_messages import (
    answer_to_msg,
    delta_to_msg,
    keyframe_to_msg,
    mark_to_msg,
)
from embodied_r_ros.data.questions.wordings import PLACES, WORDINGS
import numpy as np

from test.data.questions.test_logged import answer, SECOND_NS, SEEN

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from embodied_r_ros.core.types.images import EncodedImage

FACTORY = BagMessageFactory()
HOSTILE = '<img src=x onerror="document.title=\'broken\'"><script>document.title="broken"</script>'
RIGHT_TO_LEFT = '\u202eكرسي'  # an override that would turn what follows it
DISPLACEMENT = tuple(PLACES.values())
ANSWERS = (
    # Both models speak of the same moment, and differ.
    replace(
        answer('run-1'),
        think='the door is left [1], see [4]',
        confidence=0.75,
        observation_stamp_ns=4 * SECOND_NS,
    ),
    replace(
        answer('run-2'),
        option_index=1,
        text='right',
        model=ModelInfo('other', 'sha256:ab', prompt_version='reason-1'),
        confidence=0.25,
        observation_stamp_ns=4 * SECOND_NS,
    ),
    # The poses prove 'ahead of the start'.
    replace(
        answer('run-3', WORDINGS['net_displacement'][0], DISPLACEMENT, SEEN),
        option_index=DISPLACEMENT.index('behind the start'),
        text='behind the start',
        observation_stamp_ns=5 * SECOND_NS,
        freshness=Freshness.STALE,
    ),
    replace(
        answer('run-4', f'What stands there? {HOSTILE}', (), SEEN),
        text=HOSTILE,
        observation_stamp_ns=5 * SECOND_NS,
        sentence=f'{RIGHT_TO_LEFT} stands there [2] {HOSTILE}',
        check=Check.UNSUPPORTED,
        check_reason=f'[4] shows no {HOSTILE}',
        calls=(
            ToolCall(
                'nearest',
                ('robot', HOSTILE),
                '2.5',
                'm',
                f'{RIGHT_TO_LEFT} is 2.5 m away.',
                (3,),
                (2,),
                (2,),
                (2 * SECOND_NS,),
            ),
            ToolCall('count', ('microwave',)),
        ),
        rejected=(RejectedCompletion(f'<answer>{HOSTILE}</answer>', 'no such [3]', 'nano'),),
    ),
    Answer(
        'run-5',
        'Is anybody there?',
        AnswerKind.UNKNOWN,
        ('yes', 'no'),
        observation_stamp_ns=5 * SECOND_NS,
    ),
)


@cache
def picture(shade: int) -> EncodedImage:
    """A small JPEG of one grey."""
    return encode_image(np.full((48, 64, 3), shade, np.uint8))


def record(
    path: Path, answers: Sequence[Answer] = ANSWERS, *, name: str = 'e1', cameras: int = 0
) -> Path:
    """Write a drive ahead, one metre each second, with a picture of a keyframe each.

    Args:
        path: Folder of the bag.
        answers: What was answered.
        name: Of the episode.
        cameras: With images of their own at 10 Hz; 0: only keyframes have pictures.
    """
    mark = EpisodeMark(SECOND_NS, name, EpisodeEvent.START, scene_id=f'{name} lab')
    with BagWriter(path) as bag:
        for topic in ('Answer', 'SemanticDelta', 'Keyframe', 'EpisodeMark'):
            bag.add_topic(f'/{topic}', f'embodied_r_msgs/msg/{topic}')
        bag.write('/EpisodeMark', mark_to_msg(FACTORY, mark), SECOND_NS)
        for delta in SEEN:
            pose = Pose((float(delta.to_id), 0.0, 0.0), (0.0, 0.0, 0.0, 1.0), 'odom')
            image, reason = picture(40 * delta.to_id), KeyframeReason.LOW_OVERLAP
            keyframe = Keyframe(delta.to_id, delta.stamp_ns, image, reason, 1, 0.4, pose=pose)
            bag.write('/Keyframe', keyframe_to_msg(FACTORY, keyframe), delta.stamp_ns)
            bag.write('/SemanticDelta', delta_to_msg(FACTORY, delta), delta.stamp_ns)
        for number in range(cameras):
            topic = f'/cam{number}/image/compressed'
            bag.add_topic(topic, 'sensor_msgs/msg/CompressedImage')
            for tenth in range(50):
                stamp_ns = SECOND_NS + tenth * SECOND_NS // 10
                msg = encoded_image_to_msg(FACTORY, stamp_ns, 'optical', picture(5 * tenth))
                bag.write(topic, msg, stamp_ns)
        for given in answers:
            bag.write('/Answer', answer_to_msg(FACTORY, given), 8 * SECOND_NS)
    return path
