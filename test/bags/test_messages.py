# SPDX-License-Identifier: Apache-2.0
"""Core values survive the way into a message and back, in bags and live alike."""

from __future__ import annotations

from dataclasses import replace
import math
import re
from types import SimpleNamespace
from typing import TYPE_CHECKING

from embodied_r_ros.bags import messages
from embodied_r_ros.bags.message_types import BagMessageFactory, embodied_typestore
from embodied_r_ros.bags.reader import open_bag, read_values
from embodied_r_ros.common.files import interface_path
from embodied_r_ros.core.types import answers, deltas, episodes, keyframes
from embodied_r_ros.core.types.answers import Gripper, KeypointProposal
from embodied_r_ros.core.types.geometry import Intrinsics, Pose
from embodied_r_ros.core.types.images import encode_image, EncodedImage, pack_depth, pack_mask
from embodied_r_ros.data import own_messages
import numpy as np
import pytest
from rosbags.typesys import get_typestore, Stores

from test.bags.recordings import write_mcap

if TYPE_CHECKING:
    from enum import Enum
    from pathlib import Path

CONVERSIONS = {**vars(messages), **vars(own_messages)}


MODEL = deltas.ModelInfo('nano', 'sha256:ab', 'lora', deltas.Rung.LOCAL, 'reason-1')
STAMP_NS = 1_700_000_000_005_000_001  # 5 ms and 1 ns: what a float epoch loses


def jpeg() -> EncodedImage:
    return encode_image(np.full((48, 64, 3), 127, np.uint8))


def keyframe() -> keyframes.Keyframe:
    return keyframes.Keyframe(
        id=3,
        stamp_ns=STAMP_NS,
        image=jpeg(),
        reason=keyframes.KeyframeReason.ROLL,
        reference_id=2,
        overlap=0.5,
        inliers=41,
        camera='front',
        frame_id='front_optical',
        intrinsics=Intrinsics(64, 48, 60.0, 61.0, 31.5, 23.5, (0.5, 0.25, 0.0, 0.0, 0.0)),
        pose=Pose((1.0, 2.0, 3.0), (0.0, 0.0, 0.6, 0.8), 'odom'),
        motion=deltas.Motion(
            deltas.MotionSource.FOLLOWED,
            *(0.5, -0.25, 0.125),
            (1.5, 0.0, -0.5),
            True,
            0.75,
            deltas.ScaleSource.DEPTH,
            way_m=2.25,
        ),
        way_m=2.5,
        depth=pack_depth(np.full((48, 64), 2.0, np.float32)),
        fixed_mask=pack_mask(np.eye(12, 16) > 0),
        episode_id='e1',
        dropped_images=7,
    )


def delta() -> deltas.SemanticDelta:
    motion = deltas.Motion(
        deltas.MotionSource.ODOMETRY,
        *(0.5, -0.25, 0.125),
        (1.5, 0.0, -0.5),
        True,
        0.75,
        way_m=2.25,
    )
    item = deltas.Item(
        'red tall object',
        deltas.ItemStatus.MOVED,
        *(0.5, -0.25, 0.125, 2.5, 0.75),
        (0.25, 0.125, 0.5, 1.0),
        deltas.ScaleSource.FLOOR,
    )
    return deltas.SemanticDelta(
        STAMP_NS,
        deltas.DeltaKind.CHANGE,
        4,
        2,
        STAMP_NS - 1,
        'stationary',
        'New: x.',
        motion,
        (item,),
        'front',
        'front_optical',
        'e1',
        1,
        MODEL,
        1_500_000_000,
        '',
        Pose((1.0, 2.0, 0.5), (0.0, 0.0, 1.0, 0.0), 'odom'),
    )


def answer() -> answers.Answer:
    return answers.Answer(
        id='e1-4',
        question='Where is it?',
        kind=answers.AnswerKind.CHOICE,
        options=('left', 'right'),
        option_index=1,
        text='right',
        number=2.5,
        confidence=0.75,
        think='because',
        completion='<think>because</think><answer>B</answer>',
        delta_ids=(1, 2, 4),
        deltas_merged=1,
        deltas_omitted=2,
        map_revision=5,
        landmark_ids=(3, 7),
        landmark_age_ns=250_000_001,
        focus=(answers.FocusText(2, STAMP_NS, 'a door', 'front'),),
        prompt='What was seen',
        prompt_sha256='ab' * 32,
        sampling=answers.Sampling(0.5, 0.75, 300, 2**63),
        observation_stamp_ns=STAMP_NS,
        observation_age_ns=250_000_000,
        freshness=answers.Freshness.DEGRADED,
        model=MODEL,
        time_to_first_token_ns=100,
        latency_ns=2_000_000_001,
        wait_ns=500_000_000,
        generation_ns=1_200_000_003,
        standing=True,
        frame_id='front_optical',
        episode_id='e1',
        sentence='The chair is 2.5 m away, on the right [2].',
        unit='m',
        check=answers.Check.UNSUPPORTED,
        check_reason='[2] shows no chair',
        calls=(
            answers.ToolCall(
                *('distance', ('robot', 'chair'), '2.5', 'm', 'The chair is 2.5 m away.'),
                *((3, 7), (2, 4), (2, 3), (STAMP_NS - 1, STAMP_NS)),
            ),
            answers.ToolCall(
                *('where', ('microwave',)),
                text='no microwave was seen',
                turn=1,
                request_id='a1',
                request='{"name": "microwave"}',
                reply='{"error": "no microwave was seen"}',
            ),
        ),
        turns=('<think>Where is it?</think>',),
        rejected=(answers.RejectedCompletion('<answer>A</answer>', 'the tool says B', 'nano'),),
        has_goal=True,
        choices=('red chair', 'blue chair'),
    )


def proposal() -> KeypointProposal:
    return KeypointProposal(
        id='e1-5',
        task='pick the cup',
        frame_id='table',
        position=(0.5, -0.25, 0.125),
        orientation=(0.0, 0.0, 0.6, 0.8),
        gripper=Gripper.CLOSED,
        candidates=((0.5, -0.25, 0.125), (1.0, 2.0, 3.0)),
        candidate_index=0,
        confidence=0.75,
        think='because',
        observation_stamp_ns=STAMP_NS,
        observation_age_ns=250_000_000,
        freshness=answers.Freshness.STALE,
        model=MODEL,
        episode_id='e1',
    )


ROUND_TRIPS = {
    'keyframe': keyframe(),
    'delta': delta(),
    'answer': answer(),
    'proposal': proposal(),
    'label': episodes.AnswerLabel(
        STAMP_NS, 'e1-4', episodes.LabelVerdict.CORRECTED, 'left', 'ann'
    ),
    'mark': episodes.EpisodeMark(
        STAMP_NS, 'e1', episodes.EpisodeEvent.STOP, 'tidy', 'lab', episodes.EpisodeOutcome.FAILURE
    ),
}
TYPES = {
    'keyframe': 'Keyframe',
    'delta': 'SemanticDelta',
    'answer': 'Answer',
    'proposal': 'KeypointProposal',
    'label': 'AnswerLabel',
    'mark': 'EpisodeMark',
}


@pytest.mark.parametrize('name', ROUND_TRIPS)
def test_value_survives_a_recorded_message(name: str) -> None:
    value = ROUND_TRIPS[name]
    msg = CONVERSIONS[f'{name}_to_msg'](BagMessageFactory(), value)
    store, type_name = embodied_typestore(), f'embodied_r_msgs/msg/{TYPES[name]}'
    raw = store.serialize_cdr(msg, type_name)
    assert CONVERSIONS[f'{name}_from_msg'](store.deserialize_cdr(raw, type_name)) == value


ADDED = {  # to Answer, the newest first
    'turns': ('turns',),
    'choices': ('choices',),
    'check': ('sentence', 'unit', 'check', 'check_reason', 'calls', 'rejected', 'has_goal'),
    'wait': ('wait', 'generation'),
    'map': ('map_revision', 'landmark_ids', 'landmark_age'),
}
REQUEST = ('turn', 'request_id', 'request', 'reply')  # added to ToolCall with `turns`
FIELDS = {  # of the value, where they are called otherwise
    'wait': ('wait_ns', 'generation_ns'),
    'map': ('map_revision', 'landmark_ids', 'landmark_age_ns'),
}


@pytest.mark.parametrize('count', range(1, len(ADDED) + 1))
def test_an_answer_of_before_is_read_from_its_bag(count: int, tmp_path: Path) -> None:
    eras = list(ADDED)[:count]
    missing = {name for era in eras for name in ADDED[era]}
    own, kind = embodied_typestore(), 'embodied_r_msgs/msg/Answer'
    constants, fields = own.fielddefs[kind]
    kept = [field for field in fields if field[0] not in missing]
    call, types = 'embodied_r_msgs/msg/ToolCall', dict(own.fielddefs)
    no_constants, of_calls = types[call]
    types[call] = no_constants, [field for field in of_calls if field[0] not in REQUEST]
    later = ('ToolCall', 'Completion') if 'calls' in missing else ()
    types = {k: v for k, v in types.items() if not k.endswith(later)}
    store = get_typestore(Stores.EMPTY)
    store.register({**types, kind: (constants, kept)})
    whole = own_messages.answer_to_msg(BagMessageFactory(), answer())
    values = {name: getattr(whole, name) for name, _ in kept}
    if 'calls' in values:
        names = [name for name, _ in types[call][1]]
        values['calls'] = [
            store.types[call](**{name: getattr(each, name) for name in names})
            for each in whole.calls
        ]
    old = store.types[kind](**values)
    text = store.generate_msgdef(kind, ros_version=2)[0]
    bag = write_mcap(
        tmp_path / 'a.mcap',
        [('/answer', kind, 1, bytes(store.serialize_cdr(old, kind)))],
        schema=lambda _: ('ros2msg', text),
    )
    with open_bag(bag) as reader:
        [read] = read_values(reader, ['/answer'], own_messages.answer_from_msg)
    blank = answers.Answer('', '', answers.AnswerKind.UNKNOWN)
    names = [name for era in eras for name in FIELDS.get(era, ADDED[era])]
    expected = replace(answer(), **{name: getattr(blank, name) for name in names})
    calls = tuple(replace(c, turn=0, request_id='', request='', reply='') for c in expected.calls)
    assert read == replace(expected, calls=calls)


def test_unknown_values_stay_unknown() -> None:
    plain = keyframes.Keyframe(0, STAMP_NS, jpeg(), keyframes.KeyframeReason.FIRST, 0)
    msg = own_messages.keyframe_to_msg(BagMessageFactory(), plain)
    assert math.isnan(msg.overlap)
    assert own_messages.keyframe_from_msg(msg) == plain


ENUMS: list[tuple[type[Enum], str, str]] = [
    (deltas.DeltaKind, 'msg/SemanticDelta.msg', 'KIND'),
    (deltas.ItemStatus, 'msg/Item.msg', 'STATUS'),
    (deltas.MotionSource, 'msg/Motion.msg', 'SOURCE'),
    (deltas.ScaleSource, 'msg/Motion.msg', 'SCALE'),
    (deltas.Rung, 'msg/ModelInfo.msg', 'RUNG'),
    (keyframes.KeyframeReason, 'msg/Keyframe.msg', 'REASON'),
    (answers.AnswerKind, 'msg/Answer.msg', 'KIND'),
    (answers.Freshness, 'msg/Answer.msg', 'FRESHNESS'),
    (answers.Check, 'msg/Answer.msg', 'CHECK'),
    (Gripper, 'msg/KeypointProposal.msg', 'GRIPPER'),
    (episodes.EpisodeEvent, 'msg/EpisodeMark.msg', 'EVENT'),
    (episodes.EpisodeOutcome, 'msg/EpisodeMark.msg', 'OUTCOME'),
    (episodes.LabelVerdict, 'msg/AnswerLabel.msg', 'VERDICT'),
]


@pytest.mark.parametrize(('enum', 'file', 'prefix'), ENUMS)
def test_enum_equals_the_constants_of_its_message(
    enum: type[Enum], file: str, prefix: str
) -> None:
    text = interface_path(*file.split('/')).read_text()
    constants = re.findall(rf'^uint8 {prefix}_(\w+)=(\d+)', text, re.MULTILINE)
    assert {name: int(value) for name, value in constants} == {e.name: e.value for e in enum}


def fields_without_comment(text: str) -> list[str]:
    """Fields whose line has no comment of its own right above it (constants need none)."""
    lines = [line for line in text.splitlines() if line.strip() and '=' not in line.split('#')[0]]
    return [
        line
        for above, line in zip(['', *lines], lines, strict=False)
        if not line.startswith(('#', '---')) and not above.startswith('#')
    ]


@pytest.mark.parametrize(
    'path',
    [path for kind in ('msg', 'srv', 'action') for path in sorted(interface_path(kind).iterdir())],
    ids=lambda path: path.name,
)
def test_every_field_is_explained(path: Path) -> None:
    assert fields_without_comment(path.read_text()) == []


def camera_info(model: str, d: tuple[float, ...]) -> SimpleNamespace:
    k = (300.0, 0.0, 320.0, 0.0, 300.0, 240.0, 0.0, 0.0, 1.0)
    return SimpleNamespace(width=640, height=480, k=k, d=d, distortion_model=model)


@pytest.mark.parametrize(
    ('model', 'count'), [('omnidirectional', 4), ('thin_prism', 4), ('plumb_bob', 3)]
)
def test_lens_of_another_kind_is_an_unknown_one(model: str, count: int) -> None:
    bent = camera_info(model, (-0.02, 0.005, -0.003, 0.001)[:count])
    assert messages.intrinsics_from_camera_info(bent) is None
    assert messages.intrinsics_from_camera_info(camera_info(model, (0.0,) * 4))


@pytest.mark.parametrize(
    ('model', 'd'),
    [
        ('plumb_bob', (0.1, 0.0, 0.0, 0.0, 0.0)),
        ('equidistant', (0.1, 0.0, 0.0, 0.0)),
        ('rational_polynomial', (0.1,) * 8),
    ],
)
def test_distortion_that_opencv_takes_is_kept(model: str, d: tuple[float, ...]) -> None:
    intrinsics = messages.intrinsics_from_camera_info(camera_info(model, d))
    assert intrinsics
    assert intrinsics.distortion == d
