# SPDX-License-Identifier: Apache-2.0
"""A recording for the Rerun viewer: keyframes, deltas, answers and camera poses over time."""

from __future__ import annotations

from contextlib import contextmanager
from importlib import import_module
import os
import subprocess
import sys
import threading
from typing import Any, BinaryIO, TYPE_CHECKING

from embodied_r_ros.bags.images import bag_images, choose_image_topic
from embodied_r_ros.bags.messages import IMAGE_TYPES
from embodied_r_ros.bags.reader import open_bag, read_values, topics_of_type
from embodied_r_ros.common.errors import BagError, InputError
from embodied_r_ros.common.files import whole_file
from embodied_r_ros.core.types.answers import Freshness
from embodied_r_ros.core.types.deltas import DeltaKind, Rung
from embodied_r_ros.core.types.keyframes import KeyframeReason
from embodied_r_ros.data.episodes.episode import read_as_recorded
from embodied_r_ros.data.own_messages import keyframe_from_msg
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from enum import Enum
    from pathlib import Path

    from embodied_r_ros.core.types.answers import Answer
    from embodied_r_ros.core.types.deltas import SemanticDelta
    from embodied_r_ros.core.types.geometry import Intrinsics, Pose
    from embodied_r_ros.core.types.images import EncodedImage
    from embodied_r_ros.core.types.keyframes import Keyframe
    from embodied_r_ros.data.episodes.episode import Episode

TIMELINE = 'time'
_GREEN, _YELLOW, _ORANGE, _RED, _GREY = (
    0x4CAF50FF,
    0xD9B430FF,
    0xE0782EFF,
    0xD9433AFF,
    0x808080FF,
)
_FRESHNESS: dict[Enum, int] = {
    Freshness.FRESH: _GREEN,
    Freshness.STALE: _YELLOW,
    Freshness.DEGRADED: _ORANGE,
    Freshness.REFUSED: _RED,
}
_RUNGS: dict[Enum, int] = {
    Rung.PRIMARY: _GREEN,
    Rung.SECONDARY: _YELLOW,
    Rung.LOCAL: _ORANGE,
    Rung.REFUSE: _RED,
    Rung.UNSET: _GREY,
}
# Colour of each state, by entity.
STATES = {
    'freshness': _FRESHNESS,
    'rung/perception': _RUNGS,
    'rung/reasoning': _RUNGS,
}


def layout(rr: Any, cameras: Sequence[str], counts: Mapping[str, int]) -> Any:
    """The blueprint of a recording, with views of what is there and of nothing else.

    Args:
        rr: The Rerun SDK.
        cameras: Those with images.
        counts: How many keyframes, deltas, answers and poses there are.
    """
    make = rr.blueprint
    columns = [
        make.Vertical(contents=views, row_shares=shares)
        for views, shares in (
            _camera_views(make, cameras, has_ways=bool(counts['poses'])),
            _text_views(make, counts),
        )
        if views
    ]
    return make.Blueprint(
        make.Horizontal(contents=columns, column_shares=[4, 5][: len(columns)]),
        make.BlueprintPanel(state='collapsed'),
        make.SelectionPanel(state='collapsed'),
        make.TimePanel(state='collapsed', timeline=TIMELINE, play_state='following'),
    )


def _camera_views(
    make: Any, cameras: Sequence[str], *, has_ways: bool
) -> tuple[list[Any], list[int]]:
    """Images and the ways of the cameras, with the share of each in the height."""
    views = []
    if cameras:
        images = [make.Spatial2DView(origin=f'world/{name}', name=name) for name in cameras]
        views.append(make.Grid(contents=images) if len(images) > 1 else images[0])
    if has_ways:
        views.append(make.Spatial3DView(origin='world', name='where the camera was'))
    return views, [1] * len(views)


def _text_views(make: Any, counts: Mapping[str, int]) -> tuple[list[Any], list[int]]:
    """Texts and states, with the share of each in the height."""
    views: list[tuple[Any, int]] = []
    if counts['answers']:
        views.append((make.TextDocumentView(origin='answer', name='newest answer'), 4))
    if counts['deltas']:
        views.append((make.TextDocumentView(origin='delta', name='newest delta'), 2))
    if counts['keyframes'] or counts['deltas'] or counts['answers']:
        lines = make.TextLogView(
            origin='/',
            contents=['/keyframes/**', '/deltas/**', '/answers'],
            name='what happened',
            columns=make.TextLogColumns(
                timeline_columns=[TIMELINE], text_log_columns=['loglevel', 'body']
            ),
        )
        views.append((lines, 4))
    if counts['deltas'] or counts['answers']:
        lanes = make.StateTimelineView(
            origin='/', contents=list(STATES), name='freshness and models'
        )
        if counts['answers']:
            ages = make.TimeSeriesView(origin='age_s', name='age of the newest observation [s]')
            lanes = make.Tabs(lanes, ages)
        views.append((lanes, 3))
    return [view for view, _ in views], [share for _, share in views]


_KEYFRAME = 'embodied_r_msgs/msg/Keyframe'
_APPLICATION = 'embodied_r'
_PIECE = 1 << 20  # bytes that are copied at once
_VIEWER = 'import sys; from rerun_cli.__main__ import main; sys.exit(main())'


def rerun() -> Any:
    """The Rerun SDK.

    Raises:
        InputError: It is not installed; says how it is.
    """
    try:
        return import_module('rerun')
    except ImportError as error:
        msg = f'the viewer is not installed ({error}): {sys.executable} -m pip install rerun-sdk'
        raise InputError(msg) from None


def show(bag: Path, save: Path) -> dict[str, int]:
    """Write a recording for the viewer.

    Args:
        bag: A rosbag2 folder, or a bare .mcap or .db3 file.
        save: File to be written (.rrd).

    Returns:
        How many keyframes, images, deltas, answers and poses are shown.

    Raises:
        InputError: Rerun is missing, the file exists already or cannot be written.
        BagError: The bag cannot be read, or holds nothing to be shown.
    """
    if save.exists():
        msg = f'{save} exists already: remove it, or choose another name'
        raise InputError(msg)
    episode = read_as_recorded(bag)
    view = _View(rerun(), episode.id if episode else bag.stem)
    with whole_file(save) as unfinished, unfinished.open('wb') as file, view.written_to(file):
        return _fill(view, bag, episode)


def open_viewer(file: Path) -> None:
    """Show a file in the viewer until its window is closed.

    Args:
        file: What `show` wrote.

    Raises:
        InputError: The viewer ended with an error.
    """
    # By itself it would offer what it shows to the whole network.
    options = ['--bind', '127.0.0.1', '--port', '0']
    command = [sys.executable, '-c', _VIEWER, *options, str(file)]
    code = subprocess.run(command, check=False).returncode
    if code:
        msg = f'the viewer ended with code {code}: without a display, use --save FILE'
        raise InputError(msg)


def _fill(view: _View, bag: Path, episode: Episode | None) -> dict[str, int]:
    counts = dict.fromkeys(('keyframes', 'images', 'deltas', 'answers', 'poses'), 0)
    with open_bag(bag) as reader:
        topics = [t for t in topics_of_type(reader, _KEYFRAME) if '/truth/' not in t]
        for keyframe in read_values(reader, topics, keyframe_from_msg):
            at = keyframe.stamp_ns
            view.look(keyframe.camera, at, keyframe.image, keyframe.pose, keyframe.intrinsics)
            view.note(f'keyframes/{keyframe.camera}', at, _why(keyframe))
            counts['keyframes'] += 1
            counts['poses'] += keyframe.pose is not None
        if not counts['keyframes'] and topics_of_type(reader, *IMAGE_TYPES):
            for image in bag_images(reader, choose_image_topic(reader, None)):
                picture = image.encoded or image.image
                view.look('camera', image.stamp_ns, picture, image.pose, image.intrinsics)
                counts['images'] += 1
                counts['poses'] += image.pose is not None
    for delta in episode.deltas if episode else ():
        view.tell_delta(delta)
        counts['deltas'] += 1
    for answer in episode.log.answers if episode else ():
        view.tell_answer(answer)
        counts['answers'] += 1
    if not any(counts.values()):
        msg = f'bag {bag} holds no images, keyframes, deltas or answers: there is nothing to see'
        raise BagError(msg)
    view.arrange(counts)
    return counts


def _why(keyframe: Keyframe) -> str:
    why = f'keyframe: {keyframe.reason.label.replace("_", " ")}'
    is_first = keyframe.reason is KeyframeReason.FIRST
    return why if is_first or keyframe.overlap is None else f'{why}, {keyframe.overlap:.0%} shared'


def _in_full(answer: Answer) -> str:
    """A question with its reasoning and answer."""
    options = f'({" / ".join(answer.options)})' if answer.options else ''
    age = f'observed {answer.observation_age_ns / 1e9:.1f} s before'
    result = f'-> {_verdict(answer)} {answer.model.name}, {age}'
    reasoning = answer.think or answer.completion
    return '\n'.join(part for part in (answer.question, options, result, reasoning) if part)


def _verdict(answer: Answer) -> str:
    text = answer.text or ('no answer' if answer.freshness is Freshness.REFUSED else 'unknown')
    return f'{text} - {answer.freshness.name}, {answer.model.rung.name}'


def _copy(out: int, file: BinaryIO, errors: list[OSError]) -> None:
    """Copy a pipe to its end; after an error what comes is dropped."""
    with open(out, 'rb', buffering=0) as pipe:
        while piece := pipe.read(_PIECE):
            if not errors:
                try:
                    file.write(piece)
                    file.flush()
                except OSError as error:
                    errors.append(error)


class _View:
    """What the viewer gets, by entity and time."""

    def __init__(self, rr: Any, name: str) -> None:
        self._rr = rr
        self._stream = rr.RecordingStream(_APPLICATION, recording_id=name)
        self._first_ns = self._last_ns = 0  # of what was shown; 0: nothing was
        self._cameras: set[str] = set()  # with images
        self._ways: dict[str, list[tuple[float, float, float]]] = {}  # of the cameras
        self._newest: tuple[int, list[str]] = (0, [])  # answers of one time, in full

    @contextmanager
    def written_to(self, file: BinaryIO) -> Iterator[None]:
        """Write to a file what is shown meanwhile, through a pipe: Rerun hangs on a full disk.

        Raises:
            OSError: The disk does not take it.
        """
        out, into = os.pipe()
        errors: list[OSError] = []
        copy = threading.Thread(target=_copy, args=(out, file, errors), daemon=True)
        copy.start()
        try:
            try:
                self._stream.save(f'/dev/fd/{into}')
            finally:
                os.close(into)  # Rerun has its own
            self._begin()
            yield
        finally:
            self._stream.disconnect()
            copy.join()
        if errors:
            raise errors[0]

    def _begin(self) -> None:
        self._static('world', self._rr.ViewCoordinates.RIGHT_HAND_Z_UP)
        for entity, colours in STATES.items():
            names = [state.name for state in colours]
            shades = np.array(list(colours.values()), np.uint32)
            self._static(entity, self._rr.StateConfiguration(values=names, colors=shades))

    def arrange(self, counts: dict[str, int]) -> None:
        """Show where the cameras went, and lay out the views of what there is."""
        for camera, places in self._ways.items():  # radii below 0 are in points of the screen
            self._static(f'world/ways/{camera}', self._rr.LineStrips3D([places], radii=-1.5))
            self._static(f'world/ways/{camera}', self._rr.Points3D(places, radii=-4.0))
        # What holds at the end is seen to hold for a while.
        end_ns = self._last_ns + (self._last_ns - self._first_ns) // 20
        for entity in STATES:
            self._log(entity, end_ns, self._rr.StateChange(state=''))
        self._stream.send_blueprint(layout(self._rr, sorted(self._cameras), counts))

    def look(
        self,
        camera: str,
        stamp_ns: int,
        image: EncodedImage | np.ndarray[Any, Any],
        pose: Pose | None,
        intrinsics: Intrinsics | None,
    ) -> None:
        """Show an image, and where the camera was."""
        rr, place = self._rr, f'world/{camera}'
        if pose:
            turned = rr.Quaternion(xyzw=pose.orientation)
            self._log(place, stamp_ns, rr.Transform3D(translation=pose.position, rotation=turned))
            self._ways.setdefault(camera, []).append(pose.position)
        if intrinsics:
            # Poses are of the camera link: x forward, y left, z up (REP 103).
            lens = rr.Pinhole(
                image_from_camera=intrinsics.matrix(),
                width=intrinsics.width,
                height=intrinsics.height,
                camera_xyz=rr.ViewCoordinates.FLU,
            )
            self._log(place, stamp_ns, lens)
        if isinstance(image, np.ndarray) or image.data:
            self._cameras.add(camera)
        if isinstance(image, np.ndarray):
            self._log(f'{place}/image', stamp_ns, rr.Image(image, color_model='BGR'))
        elif image.data:  # keyframes can be recorded without their images
            encoded = rr.EncodedImage(contents=image.data, media_type=f'image/{image.format}')
            self._log(f'{place}/image', stamp_ns, encoded)

    def tell_delta(self, delta: SemanticDelta) -> None:
        """Show what a keyframe added, and the rung of its model."""
        failed, at = delta.kind is DeltaKind.FAILED, delta.stamp_ns
        parts = [part for part in (delta.action, delta.change, delta.error) if part]
        line = f'delta: {". ".join(parts) or delta.kind.name}'
        self.note(f'deltas/{delta.camera}', at, line, 'ERROR' if failed else 'INFO')
        self._write('delta', at, '\n'.join([delta.camera, *parts]))
        self._change('rung/perception', at, delta.model.rung)

    def tell_answer(self, answer: Answer) -> None:
        """Show a question, its reasoning and its answer, when it was complete."""
        # A refusal without any observation has no time of its own.
        at = answer.observation_stamp_ns + answer.observation_age_ns or self._first_ns
        options = f' ({", ".join(answer.options)})' if answer.options else ''
        self.say('questions', at, answer.question + options)
        self.say('reasoning', at, answer.think or answer.completion)
        line = f'{answer.question} -> {_verdict(answer)}'
        is_fresh = answer.freshness.value == 0
        self.note('answers', at, line, 'INFO' if is_fresh else 'WARN')
        before, texts = self._newest
        self._newest = at, [*(texts if at == before else []), _in_full(answer)]
        self._write('answer', at, '\n\n'.join(self._newest[1]))
        self._change('freshness', at, answer.freshness)
        self._log('age_s', at, self._rr.Scalars(answer.observation_age_ns / 1e9))
        self._change('rung/reasoning', at, answer.model.rung)

    def say(self, entity: str, stamp_ns: int, text: str, level: str = 'INFO') -> None:
        """Show a line of text."""
        self._log(entity, stamp_ns, self._rr.TextLog(text, level=level))

    def note(self, entity: str, stamp_ns: int, text: str, level: str = 'INFO') -> None:
        """Show a line of text with the time since what was shown first: stamps are cut off."""
        since_s = (stamp_ns - (self._first_ns or stamp_ns)) / 1e9
        self.say(entity, stamp_ns, f'{since_s:.1f} s  {text}', level)

    def _write(self, entity: str, stamp_ns: int, text: str) -> None:
        # Not as Markdown: what models write could fetch pictures from anywhere.
        self._log(entity, stamp_ns, self._rr.TextDocument(text))

    def _change(self, entity: str, stamp_ns: int, state: Enum) -> None:
        self._log(entity, stamp_ns, self._rr.StateChange(state=state.name))

    def _log(self, entity: str, stamp_ns: int, what: Any) -> None:
        self._first_ns = min(self._first_ns or stamp_ns, stamp_ns)
        self._last_ns = max(self._last_ns, stamp_ns)
        self._stream.set_time(TIMELINE, timestamp=np.datetime64(stamp_ns, 'ns'))
        self._stream.log(entity, what)

    def _static(self, entity: str, what: Any) -> None:
        self._stream.log(entity, what, static=True)
