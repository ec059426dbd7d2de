# SPDX-License-Identifier: Apache-2.0
"""Files for Foxglove: real MCAP, messages with every field that its schemas require."""

from __future__ import annotations

import base64
from collections import defaultdict
from dataclasses import replace
import json
from typing import Any, TYPE_CHECKING

from embodied_r_ros.cli.main import main
from embodied_r_ros.core.types.deltas import Item, ItemStatus
from embodied_r_ros.core.types.episodes import LabelVerdict
from mcap.reader import make_reader

from test.apps.review.recordings import picture
from test.data.questions.test_logged import answer, label, SECOND_NS, SEEN, write_bag

if TYPE_CHECKING:
    from pathlib import Path

    from embodied_r_ros.core.types.images import EncodedImage
    import pytest

# Required by the published JSON schemas (foxglove-sdk, schemas/jsonschema).
REQUIRED = {
    'foxglove.CompressedImage': {'timestamp', 'frame_id', 'data', 'format'},
    'foxglove.ImageAnnotations': {'circles', 'points', 'texts'},
    'foxglove.Log': {'timestamp', 'level', 'message', 'name', 'file', 'line'},
}
POINTS = {
    'timestamp', 'type', 'points', 'outline_color', 'outline_colors', 'fill_color', 'thickness',
    'metadata',
}  # fmt: skip
TEXT = {
    'timestamp', 'position', 'text', 'font_size', 'text_color', 'background_color', 'metadata'
}  # fmt: skip
BOXED = Item('chair', ItemStatus.APPEARED, 0.1, 0.0, 0.2, 2.5, box=(0.25, 0.5, 0.75, 1.0))


def recording(folder: Path, image: EncodedImage) -> Path:
    given = [replace(answer(f'run-{name}'), observation_stamp_ns=3 * SECOND_NS) for name in 'ab']
    given[0] = replace(given[0], think='It was there.')
    corrected = label(LabelVerdict.CORRECTED, 'right', 'run-a')
    deltas = [replace(SEEN[0], items=(BOXED,)), *SEEN[1:]]
    return write_bag(folder / 'e1', given, [corrected], deltas, images=[image])


def messages(path: Path) -> dict[str, list[tuple[str, int, Any]]]:
    """Schema, log time and content of the messages of a file, by topic."""
    found = defaultdict(list)
    with path.open('rb') as file:
        for schema, channel, message in make_reader(file).iter_messages():
            assert schema
            assert (schema.encoding, channel.message_encoding) == ('jsonschema', 'json')
            assert json.loads(schema.data)['title'] == schema.name
            content = json.loads(message.data)
            assert REQUIRED[schema.name] <= set(content)
            found[channel.topic].append((schema.name, message.log_time, content))
    return found


def test_keyframes_have_their_boxes_and_questions_their_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bag = recording(tmp_path / 'bags', picture(60))
    out = tmp_path / 'out'
    assert main(['episodes', 'export', 'foxglove', str(bag), '--out', str(out)]) == 0
    assert '5 keyframes, 2 questions' in capsys.readouterr().err
    found = messages(out / 'e1.mcap')
    images = found['/embodied_r/camera/keyframe/image']
    assert [stamp_ns for _, stamp_ns, _ in images] == [n * SECOND_NS for n in range(1, 6)]
    assert base64.b64decode(images[0][2]['data']) == picture(60).data
    notes = [content for _, _, content in found['/embodied_r/camera/keyframe/annotations']]
    [loop] = notes[0]['points']
    assert set(loop) == POINTS
    assert (loop['type'], len(loop['points'])) == (2, 4)
    assert loop['points'][0] == {'x': 16.0, 'y': 24.0}
    assert loop['points'][2] == {'x': 48.0, 'y': 48.0}
    assert all(set(text) == TEXT for note in notes for text in note['texts'])
    assert [text['text'] for text in notes[0]['texts']] == ['chair (appeared, 2.5 m)']
    texts = [text['text'] for text in notes[1]['texts']]
    assert texts == ['moved forward 1.0 m', 'red tall object2 (appeared, 2.3 m)']
    lines = [content for _, _, content in found['/embodied_r/answers']]
    assert [(line['level'], line['file']) for line in lines] == [(3, 'run-a'), (2, 'run-b')]
    assert lines[0]['message'] == (
        'Where is the door? (left | right | ahead): right [label]; the robot said left\n'
        'It was there.'
    )
    assert lines[0]['timestamp'] == {'sec': 3, 'nsec': 0}


def test_recording_without_anything_to_show_is_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    empty = write_bag(tmp_path / 'empty', [])
    words = ['episodes', 'export', 'foxglove', str(empty), '--out', str(tmp_path / 'out')]
    assert main(words) == 2
    assert 'has neither keyframes with pictures nor questions' in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ['empty']
    whole = recording(tmp_path / 'bags', picture(60))
    assert main([*words[:3], str(empty), str(whole), *words[4:]]) == 0
    assert [path.name for path in (tmp_path / 'out').iterdir()] == ['e1.mcap']
