# SPDX-License-Identifier: Apache-2.0
"""What comes from outside may be anything: nothing but the project's own errors, and no hang."""

from __future__ import annotations

import atexit
from contextlib import ExitStack, nullcontext, suppress
from copy import copy
from functools import cache
import json
from pathlib import Path
import re
import shutil
import tempfile
from typing import Any, TYPE_CHECKING
from unittest.mock import patch

import cv2
from embodied_r_ros.bags.images import bag_images
from embodied_r_ros.bags.message_types import BagMessageFactory, embodied_typestore
from embodied_r_ros.bags.reader import open_bag, read_messages
from embodied_r_ros.bags.sources import open_source
from embodied_r_ros.bags.writer import BagWriter
from embodied_r_ros.cli.main import main
from embodied_r_ros.common.errors import BagError, ConfigError, ImageError, InputError, ModelError
from embodied_r_ros.common.files import shared_path
from embodied_r_ros.common.settings import parse_yaml
from embodied_r_ros.core.chat.protocol import error_detail, EventReader
from embodied_r_ros.core.perception.vlm_reply import read_focus, read_scene
from embodied_r_ros.core.reasoning.completions import choice_index, number_in, parse_completion
from embodied_r_ros.core.types.episodes import AnswerLabel, LabelVerdict
from embodied_r_ros.core.types.images import decode_image, encode_image, EncodedImage
from embodied_r_ros.core.types.keyframes import Keyframe, KeyframeReason
from embodied_r_ros.data.episodes.episode import read_answers, read_episode
from embodied_r_ros.data.own_messages import (
    answer_to_msg,
    delta_to_msg,
    keyframe_to_msg,
    label_to_msg,
)
from embodied_r_ros.serving.profiles import load_profile, profile_from_mapping
from hypothesis import example, given
from hypothesis import strategies as st
from mcap.writer import CompressionType, Writer
import numpy as np
import pytest
import yaml

from test.bags.test_messages import answer, delta, keyframe
from test.fuzzing import damage

if TYPE_CHECKING:
    from embodied_r_ros.bags.reader import BagReader

LABEL = AnswerLabel(1, 'a1', LabelVerdict.WRONG, 'left', 'me')
T0_NS = 1_700_000_000_000_000_000
PICTURE = np.random.default_rng(0).integers(0, 255, (24, 32, 3)).astype(np.uint8)
FLAT = np.full((24, 32, 3), 90, np.uint8)


@cache
def bags() -> list[bytes]:
    """MCAP files with what the package reads: with an index and without, packed and not."""
    with tempfile.TemporaryDirectory() as folder:
        with BagWriter(Path(folder) / 'bag') as bag:
            write_contents(bag)
        whole = (Path(folder) / 'bag' / 'bag.mcap').read_bytes()
        return [whole, *(repack(whole, Path(folder), kind) for kind in CompressionType)]


def write_contents(bag: BagWriter) -> None:
    make = BagMessageFactory().make
    bag.add_topic('/provenance', 'std_msgs/msg/String')
    bag.add_topic('/keyframe', 'embodied_r_msgs/msg/Keyframe')
    bag.add_topic('/image/compressed', 'sensor_msgs/msg/CompressedImage')
    for index in range(3):
        bag.write('/provenance', make('std_msgs/msg/String', data='{}'), T0_NS + index)
        stamp_ns = T0_NS + index * 10**9
        keyframe = Keyframe(index, stamp_ns, encode_image(PICTURE), KeyframeReason.ROLL, 2)
        msg = keyframe_to_msg(BagMessageFactory(), keyframe)
        bag.write('/keyframe', msg, stamp_ns)
        bag.write('/image/compressed', msg.image, stamp_ns)


def repack(data: bytes, folder: Path, compression: CompressionType) -> bytes:
    """The same messages as another writer leaves them."""
    with (folder / 'other.mcap').open('wb') as file:
        writer = Writer(file, compression=compression, chunk_size=2000)
        writer.start(profile='ros2')
        (folder / 'own.mcap').write_bytes(data)
        with open_bag(folder / 'own.mcap') as reader:
            channels = {}
            for each in reader.connections:
                schema = writer.register_schema(each.msgtype, 'ros2msg', each.definition.encode())
                channels[each.topic] = writer.register_channel(each.topic, 'cdr', schema)
            for connection, stamp_ns, raw in reader.messages():
                channel = channels[connection.topic]
                writer.add_message(channel, stamp_ns, bytes(raw), stamp_ns)
        writer.finish()
    return (folder / 'other.mcap').read_bytes()


def read_all(path: Path) -> None:
    """Read a bag in every way the package has."""
    with open_bag(path) as reader:
        for topic in {connection.topic for connection in reader.connections}:
            with suppress(InputError):
                for _ in read_messages(reader, [topic]):
                    pass
    for read in (read_episode, read_answers):
        with suppress(InputError):
            read(path)
    with suppress(InputError), open_source(path) as source:
        for _ in source:
            pass


@given(st.data())
def test_a_damaged_bag_is_read_or_refused(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / 'a.mcap'
        path.write_bytes(data.draw(damage(bags())))
        with suppress(BagError):
            read_all(path)


@cache
def episode() -> list[tuple[str, str, bytes]]:
    """Topic, type and content of messages of every type that a recording holds."""
    found: dict[str, list[tuple[str, str, bytes]]] = {}
    with open_bag(shared_path('samples', 'indoor', 'episode_00000')) as reader:
        for connection, _, data in reader.messages():
            some = found.setdefault(connection.topic, [])
            if len(some) < 4:
                some.append((connection.topic, connection.msgtype, bytes(data)))
    factory, store = BagMessageFactory(), embodied_typestore()
    said = {
        '/answer': ('Answer', answer_to_msg(factory, answer())),
        '/answer_label': ('AnswerLabel', label_to_msg(factory, LABEL)),
        '/semantic_delta': ('SemanticDelta', delta_to_msg(factory, delta())),
        '/keyframe': ('Keyframe', keyframe_to_msg(factory, keyframe())),
    }
    for topic, (kind, msg) in said.items():
        name = f'embodied_r_msgs/msg/{kind}'
        found[topic] = [(topic, name, bytes(store.serialize_cdr(msg, name)))]
    return [message for some in found.values() for message in some]


@cache
def opened_episode() -> tuple[BagReader, dict[str, Any]]:
    """The bag of `episode()`, open for good: opening one compiles its types, which takes long."""
    folder = Path(tempfile.mkdtemp())
    with BagWriter(folder / 'bag') as bag:
        for name, kind in {name: kind for name, kind, _ in episode()}.items():
            bag.add_topic(name, kind)
    stack = ExitStack()
    stack.callback(shutil.rmtree, folder)
    reader = stack.enter_context(open_bag(folder / 'bag'))
    atexit.register(stack.close)
    return reader, {each.topic: each for each in reader.connections}


def holding(messages: list[tuple[str, str, bytes]]) -> Any:
    """An open bag with these messages."""
    reader, connections = opened_episode()

    def read(wanted: Any = ()) -> Any:
        names = {each.topic for each in wanted} or set(connections)
        for number, (name, _, raw) in enumerate(messages):
            if name in names:
                yield connections[name], T0_NS + number, raw

    bag = copy(reader)
    bag.messages = read  # type: ignore[method-assign,assignment]
    return nullcontext(bag)


@given(st.data())
def test_a_damaged_message_in_a_whole_bag_is_read_or_refused(data: st.DataObject) -> None:
    messages = list(episode())
    at = data.draw(st.integers(0, len(messages) - 1))
    topic, kind, content = messages[at]
    # The first four bytes say how the rest is written.
    messages[at] = topic, kind, content[:4] + data.draw(damage([content[4:]]))
    with patch('embodied_r_ros.data.episodes.episode.open_bag', lambda _: holding(messages)):
        for source in ('recorded', 'true'):
            with suppress(InputError):
                read_episode(Path('bag'), source)
    with holding(messages) as reader, suppress(InputError):
        for topic in (name for name in opened_episode()[1] if 'image' in name):
            for _ in bag_images(reader, topic):
                pass


METADATA = """rosbag2_bagfile_information:
  version: 9
  storage_identifier: mcap
  duration: {nanoseconds: 2000000000}
  starting_time: {nanoseconds_since_epoch: 1700000000000000000}
  message_count: 9
  topics_with_message_count:
    - topic_metadata: {name: /provenance, type: std_msgs/msg/String,
        serialization_format: cdr, offered_qos_profiles: [], type_description_hash: ""}
      message_count: 3
  compression_format: ""
  compression_mode: ""
  relative_file_paths: [a.mcap]
"""


@given(damage([METADATA.encode()]))
def test_a_bag_with_damaged_metadata_is_read_or_refused(metadata: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / 'a.mcap').write_bytes(bags()[0])
        (Path(folder) / 'metadata.yaml').write_bytes(metadata)
        with suppress(BagError):
            read_all(Path(folder))


def test_the_bags_that_are_damaged_are_whole_before() -> None:
    for data in bags():
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / 'a.mcap'
            path.write_bytes(data)
            with open_source(path) as source:
                assert len(list(source)) == 3


def pictures() -> list[bytes]:
    """Images as cameras and tools write them."""
    made = [cv2.imencode(kind, PICTURE)[1].tobytes() for kind in ('.png', '.jpg')]
    for option in (cv2.IMWRITE_JPEG_PROGRESSIVE, cv2.IMWRITE_JPEG_OPTIMIZE):
        made.append(cv2.imencode('.jpg', PICTURE, [option, 1])[1].tobytes())
    return [*made, cv2.imencode('.png', FLAT[..., 0])[1].tobytes()]


@given(damage(pictures()))
@example(b'\xff\xd8\xff')
def test_a_damaged_image_is_decoded_or_refused(data: bytes) -> None:
    with suppress(ImageError):
        image = decode_image(data)
        assert image.dtype == np.uint8
        assert image.ndim == 3
        assert image.size > 0


@given(st.binary(max_size=200), st.sampled_from([b'\xff\xd8\xff', b'\x89PNG\r\n\x1a\n', b'']))
def test_bytes_are_an_image_or_refused(data: bytes, start: bytes) -> None:
    with suppress(ImageError):
        EncodedImage(start + data, 'jpeg').decode()


TAGS = st.sampled_from(['<think>', '</think>', '<answer>', '</answer>', '[[A]]', 'B', '\n', '-3'])
WORDS = st.lists(TAGS | st.text(max_size=8), max_size=12).map(''.join)


@given(WORDS)
def test_a_completion_is_read_whatever_it_says(text: str) -> None:
    read = parse_completion(text)
    assert read.text == text
    if read.answer is not None:
        assert text.rpartition('</think>')[2].count('<answer>') <= 1
        choice_index(read.answer, ['left', 'right'])
        number_in(read.answer)


@pytest.mark.parametrize(
    'piece', ['<think>', '</think>', '<answer>', ' ', '<think></think>', '</think> <answer>']
)
def test_a_completion_that_rambles_is_read_at_once(piece: str) -> None:
    assert parse_completion(piece * 100_000).answer is None
    assert parse_completion('<think>' + piece * 100_000 + '<answer>').answer is None
    assert number_in('1' * 100_000 + 'x!') is None


@given(WORDS)
def test_completions_are_read_as_their_definition_says(text: str) -> None:
    """The definition as patterns, which are clear and slow."""
    tags = re.findall(r'</?(?:think|answer)>', text)
    begun = f'<think>{text}' if tags[:1] == ['</think>'] else text
    begun = re.sub(r'\A\s*<think>\s*</think>\s*(?=<think>)', '', begun)
    tags = re.findall(r'</?(?:think|answer)>', begun)
    whole = re.fullmatch(r'\s*<think>.*?</think>\s*<answer>.*?</answer>\s*', begun, re.DOTALL)
    thinks = re.findall(r'<think>(.*?)</think>', begun, re.DOTALL)
    answers = re.findall(r'<answer>(.*?)</answer>', text, re.DOTALL)
    read = parse_completion(text)
    assert read.well_formed == (whole is not None and len(tags) == 4)
    assert read.think == (thinks[0].strip() if len(thinks) == 1 else '')
    if read.well_formed:
        assert read.answer == (answers[0].strip() or None)
    if re.search('<answer>.*<answer>', text.rpartition('</think>')[2], re.DOTALL):
        assert read.answer is None


SCENE = {
    'summary': 'A red box.',
    'motions': [{'kind': 'rotate_left', 'amount': 'slight'}],
    'items': [
        {
            **{'label': 'red box', 'status': 'appeared', 'direction': 'ahead'},
            **{'height': 'level', 'confidence': 'high'},
        }
    ],
    'visible_text': ['EXIT'],
    'visible': True,
    'text': 'It is red.',
}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
)


@st.composite
def changed_scenes(draw: st.DrawFn) -> str:
    """A reply of which something, at some depth, is another value."""
    value: Any = json.loads(json.dumps(SCENE))
    name = draw(st.sampled_from(sorted(value)))
    inside = isinstance(value[name], list) and isinstance(value[name][0], dict)
    if inside and draw(st.booleans()):
        value[name][0][draw(st.sampled_from(sorted(value[name][0])))] = draw(JSON)
    else:
        value[name] = draw(JSON)
    return draw(st.sampled_from(['', '```json\n', '<think>well</think>'])) + json.dumps(value)


@given(
    changed_scenes()
    | damage([json.dumps(SCENE).encode()]).map(lambda data: data.decode(errors='replace'))
    | st.text(max_size=60),
    st.booleans(),
)
@example('[' * 100_000, True)
@example('{"a":' * 100_000, True)
@example('{"summary": ' + '9' * 10_000 + '}', True)
def test_a_reply_of_a_vision_model_is_read_or_refused(text: str, two_views: bool) -> None:
    with suppress(ModelError):
        read_scene(text, two_views=two_views)
    with suppress(ModelError):
        read_focus(text)


EVENT = '{"model": "m", "choices": [{"delta": {"content": "hi"}, "logprobs": {"content": []}}]}'


@given(
    damage([EVENT.encode()]).map(lambda data: data.decode(errors='replace'))
    | JSON.map(json.dumps)
    | st.text(max_size=60)
)
@example('[' * 100_000)
@example('9' * 10_000)
def test_an_event_of_a_model_server_is_read_or_refused(text: str) -> None:
    with suppress(ModelError):
        EventReader().read(text)
    assert '\n' not in error_detail(text)


def profiles() -> list[bytes]:
    """The shipped profiles."""
    files = sorted(shared_path('config', 'models').glob('*.yaml'))
    return [file.read_bytes() for file in files]


YAML_WORDS = st.sampled_from(
    ['a', ': ', '- ', '\n', '  ', '[', ']', '{', '}', '&x ', '*x', '!!', '|', '"', '2001-99-99']
)


@given(
    damage(profiles()).map(lambda data: data.decode(errors='replace'))
    | st.lists(YAML_WORDS | st.text(max_size=4), max_size=20).map(''.join)
)
@example('[' * 5_000)
@example('a: 2001-99-99')
@example('a: ' + '9' * 10_000)
@example('&x [*x]')
@example('servers: &x {reasoner: *x}')
def test_settings_are_read_or_refused(text: str) -> None:
    try:
        value = parse_yaml(text)
    except yaml.YAMLError:
        return
    with suppress(ConfigError):
        profile_from_mapping('mine', value)


def test_a_profile_that_grows_when_it_is_told_is_refused(tmp_path: Path) -> None:
    lines = ['a0: &a0 [x, x, x, x, x, x, x, x, x, x]']
    lines += [f'a{i}: &a{i} [{", ".join([f"*a{i - 1}"] * 10)}]' for i in range(1, 10)]
    path = tmp_path / 'laughs.yaml'
    path.write_text('\n'.join(lines))
    with suppress(ConfigError):
        load_profile(str(path))
        raise AssertionError
    assert main(['serve', str(path), '--dry-run']) == 2
