# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace
import json
from pathlib import Path
from subprocess import CompletedProcess
import sys
from typing import Any
from unittest.mock import MagicMock

from embodied_r_ros.apps.rerun import layout, show
from embodied_r_ros.bags.message_types import BagMessageFactory
from embodied_r_ros.bags.writer import BagWriter
from embodied_r_ros.cli.main import main
from embodied_r_ros.common.errors import BagError, InputError
from embodied_r_ros.common.files import shared_path
from embodied_r_ros.core.types.images import EncodedImage
from embodied_r_ros.data.own_messages import answer_to_msg, delta_to_msg, keyframe_to_msg
import pytest

from test.bags.test_messages import answer, delta, keyframe
from test.cli.test_full_disk import files_of_at_most

T0_NS = 1_700_000_000_000_000_000


def recording(path: Path) -> Path:
    """A bag with a keyframe, a delta and an answer."""
    factory, kind = BagMessageFactory(), 'embodied_r_msgs/msg/'
    said = {
        '/keyframe': ('Keyframe', keyframe_to_msg(factory, keyframe())),
        '/semantic_delta': ('SemanticDelta', delta_to_msg(factory, delta())),
        '/answer': ('Answer', answer_to_msg(factory, answer())),
    }
    with BagWriter(path) as bag:
        for topic, (name, msg) in said.items():
            bag.add_topic(topic, kind + name)
            bag.write(topic, msg, T0_NS)
    return path


def columns(file: Path) -> dict[str, dict[str, list[Any]]]:
    """What a saved recording holds, by entity and column."""
    from rerun.chunk import RrdReader

    found: dict[str, dict[str, list[Any]]] = {}
    for chunk in RrdReader(str(file)).store().stream():
        batch = chunk.to_record_batch()
        entity = found.setdefault(chunk.entity_path, {})
        for name in batch.schema.names:
            entity.setdefault(name, []).extend(batch.column(name).to_pylist())
    return found


def states(found: dict[str, dict[str, list[Any]]], entity: str) -> list[str]:
    """States of an entity, in order, until none holds any more."""
    told = [state for row in found[entity]['StateChange:state'] if row for state in row]
    assert told.pop() == ''
    return told


def test_without_the_viewer_one_line_says_how_it_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, 'rerun', None)
    bag = str(recording(tmp_path / 'bag'))
    assert main(['view', bag, '--save', str(tmp_path / 'a.rrd')]) == 2
    said = capsys.readouterr().err
    assert f'{sys.executable} -m pip install rerun-sdk' in said
    assert said.count('\n') == 1
    assert [path.name for path in tmp_path.iterdir()] == ['bag']


def test_a_recording_is_shown_with_its_reasoning_and_freshness(tmp_path: Path) -> None:
    pytest.importorskip('rerun')
    counts = show(recording(tmp_path / 'bag'), tmp_path / 'a.rrd')
    assert (counts['keyframes'], counts['deltas'], counts['answers']) == (1, 1, 1)
    found = columns(tmp_path / 'a.rrd')
    camera = keyframe().camera
    assert found[f'/world/{camera}/image']['EncodedImage:blob']
    assert [answer().think] in found['/reasoning']['TextLog:text']
    assert delta().change in found[f'/deltas/{delta().camera}']['TextLog:text'][0][0]
    assert states(found, '/freshness') == [answer().freshness.name]
    assert states(found, '/rung/perception') == [delta().model.rung.name]
    assert states(found, '/rung/reasoning') == [answer().model.rung.name]
    assert f'/world/{camera}' in found  # where the camera was
    assert f'/world/ways/{camera}' in found
    [[told]] = found['/answer']['TextDocument:text']
    for part in (answer().question, *answer().options, answer().text, answer().think):
        assert part in told
    assert delta().change in found['/delta']['TextDocument:text'][0][0]
    assert sorted(path.name for path in tmp_path.iterdir()) == ['a.rrd', 'bag']


def test_answers_without_observation_and_keyframes_without_image_are_shown_in_their_episode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = replace(answer(), observation_stamp_ns=0, observation_age_ns=0)
    empty = replace(keyframe(), image=EncodedImage(b'', 'jpeg'))
    factory, kind = BagMessageFactory(), 'embodied_r_msgs/msg/'
    with BagWriter(tmp_path / 'bag') as bag:
        for topic, name, msg in (
            ('/keyframe', 'Keyframe', keyframe_to_msg(factory, empty)),
            ('/semantic_delta', 'SemanticDelta', delta_to_msg(factory, delta())),
            ('/answer', 'Answer', answer_to_msg(factory, refused)),
        ):
            bag.add_topic(topic, kind + name)
            bag.write(topic, msg, T0_NS)
    rerun = MagicMock()
    monkeypatch.setitem(sys.modules, 'rerun', rerun)
    stream = rerun.RecordingStream.return_value
    assert show(tmp_path / 'bag', tmp_path / 'a.rrd')['answers'] == 1
    times = {call.kwargs['timestamp'].astype('int64') for call in stream.set_time.mock_calls}
    assert min(times) == min(empty.stamp_ns, delta().stamp_ns) > 0
    assert not any(call.args[0].endswith('/image') for call in stream.log.mock_calls)


def test_answers_of_the_same_time_are_read_side_by_side(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = replace(answer(), id='later', observation_age_ns=answer().observation_age_ns + 10**9)
    asked = {
        'first': replace(answer(), id='first', think='I saw it twice.'),
        'second': replace(answer(), id='second', question='Is it red?'),
        'later': later,
    }
    factory = BagMessageFactory()
    with BagWriter(tmp_path / 'bag') as bag:
        bag.add_topic('/semantic_delta', 'embodied_r_msgs/msg/SemanticDelta')
        bag.add_topic('/answer', 'embodied_r_msgs/msg/Answer')
        bag.write('/semantic_delta', delta_to_msg(factory, delta()), T0_NS)
        for one in asked.values():
            bag.write('/answer', answer_to_msg(factory, one), T0_NS)
    rerun = MagicMock()
    monkeypatch.setitem(sys.modules, 'rerun', rerun)
    show(tmp_path / 'bag', tmp_path / 'a.rrd')
    texts = [call.args[0] for call in rerun.TextDocument.call_args_list][-3:]
    assert ['I saw it twice.' in text for text in texts] == [True, True, False]
    assert ['Is it red?' in text for text in texts] == [False, True, False]


@pytest.mark.parametrize(
    ('cameras', 'counts', 'views'),
    [
        (
            ['front', 'rear'],
            {'poses': 9, 'keyframes': 9, 'deltas': 9, 'answers': 1},
            {
                'Spatial2DView': 2,
                'Spatial3DView': 1,
                'TextDocumentView': 2,
                'TextLogView': 1,
                'StateTimelineView': 1,
                'TimeSeriesView': 1,
            },
        ),
        (
            ['front'],
            {'poses': 0, 'keyframes': 0, 'deltas': 9, 'answers': 0},
            {
                'Spatial2DView': 1,
                'TextDocumentView': 1,
                'TextLogView': 1,
                'StateTimelineView': 1,
            },
        ),
        (
            ['front'],
            {'poses': 0, 'keyframes': 0, 'deltas': 0, 'answers': 0},
            {'Spatial2DView': 1},
        ),
    ],
)
def test_layout_has_views_of_what_is_there_and_no_others(
    cameras: list[str], counts: dict[str, int], views: dict[str, int]
) -> None:
    rerun = MagicMock()
    layout(rerun, cameras, counts)
    made = [name for name, _, _ in rerun.blueprint.method_calls if name.endswith('View')]
    assert {name: made.count(name) for name in made} == views


@pytest.mark.parametrize('code', [0, 1])
def test_viewer_that_is_started_serves_this_machine_alone_and_leaves_nothing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    code: int,
) -> None:
    files = []

    def run(command: list[str], *, check: bool) -> CompletedProcess[bytes]:
        assert command[command.index('--bind') + 1] == '127.0.0.1'
        files.append(Path(command[-1]))
        assert files[0].exists()
        return CompletedProcess(command, code)

    rerun = MagicMock()
    monkeypatch.setitem(sys.modules, 'rerun', rerun)
    monkeypatch.setattr('embodied_r_ros.apps.rerun.subprocess.run', run)
    assert main(['view', str(recording(tmp_path / 'bag'))]) == 2 * code
    out, err = capsys.readouterr()
    assert json.loads(out)['answers'] == 1
    assert err.count('\n') == code
    assert ('the viewer ended with code 1: without a display' in err) == bool(code)
    assert not files[0].parent.exists()


def test_a_camera_bag_is_shown_with_its_images_and_poses(tmp_path: Path) -> None:
    pytest.importorskip('rerun')
    counts = show(shared_path('samples', 'indoor', 'episode_00000'), tmp_path / 'a.rrd')
    assert counts == {'keyframes': 0, 'images': 200, 'deltas': 9, 'answers': 0, 'poses': 200}
    found = columns(tmp_path / 'a.rrd')
    assert len(found['/world/camera']['Transform3D:translation']) == 200
    assert len(found['/world/ways/camera']['Points3D:positions'][0]) == 200


def test_a_bag_with_nothing_to_see_leaves_nothing_behind(tmp_path: Path) -> None:
    pytest.importorskip('rerun')
    with BagWriter(tmp_path / 'bag') as bag:
        bag.add_topic('/a', 'std_msgs/msg/String')
    with pytest.raises(BagError, match='nothing to see'):
        show(tmp_path / 'bag', tmp_path / 'a.rrd')
    assert [path.name for path in tmp_path.iterdir()] == ['bag']


def test_an_existing_file_is_kept(tmp_path: Path) -> None:
    (tmp_path / 'a.rrd').write_text('mine')
    with pytest.raises(InputError, match='exists already'):
        show(recording(tmp_path / 'bag'), tmp_path / 'a.rrd')
    assert (tmp_path / 'a.rrd').read_text() == 'mine'


def test_a_full_disk_is_told_and_nothing_hangs(tmp_path: Path) -> None:
    pytest.importorskip('rerun')
    bag = recording(tmp_path / 'bag')
    with files_of_at_most(4000), pytest.raises(InputError, match=r'a\.rrd: File too large'):
        show(bag, tmp_path / 'a.rrd')
    assert [path.name for path in tmp_path.iterdir()] == ['bag']
