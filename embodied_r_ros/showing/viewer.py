# SPDX-License-Identifier: Apache-2.0
"""A recording for the Rerun viewer: keyframes, deltas, answers and camera poses over time.

Rerun is an optional package (requirements/view.txt), imported when something is to be shown.
"""

from __future__ import annotations

from importlib import import_module
import sys
from typing import Any, TYPE_CHECKING

from embodied_r_ros.conversions import keyframe_from_msg
from embodied_r_ros.deltas import DeltaKind
from embodied_r_ros.errors import BagError, InputError
from embodied_r_ros.recordings.bag_images import bag_images, choose_image_topic, IMAGE_TYPES
from embodied_r_ros.recordings.bags import open_bag, topics_of_type
from embodied_r_ros.recordings.episode_bag import Episode, has_deltas, read_episode, TRUE_DELTAS
from embodied_r_ros.recordings.values import read_values
import numpy as np

if TYPE_CHECKING:
    from pathlib import Path

    from embodied_r_ros.answers import Answer
    from embodied_r_ros.deltas import SemanticDelta
    from embodied_r_ros.geometry import Intrinsics, Pose
    from embodied_r_ros.images import EncodedImage

TIMELINE = 'time'
_KEYFRAME = 'embodied_r_msgs/msg/Keyframe'
_APPLICATION = 'embodied_r'


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


def show(bag: Path, save: Path | None = None) -> dict[str, int]:
    """Open a recording in the viewer, or save it for later.

    Args:
        bag: A rosbag2 folder, or a bare .mcap or .db3 file.
        save: File to be written (.rrd); None: the viewer is started.

    Returns:
        How many keyframes, images, deltas, answers and poses are shown.

    Raises:
        InputError: Rerun is missing, the file exists already or cannot be written.
        BagError: The bag cannot be read, or holds nothing to be shown.
    """
    if save and save.exists():
        msg = f'{save} exists already: remove it, or choose another name'
        raise InputError(msg)
    episode = _episode(bag)
    view = _View(rerun(), episode.id if episode else bag.stem)
    unfinished = save.with_name(f'.{save.name}.tmp') if save else None
    try:
        view.begin(unfinished)
        counts = _fill(view, bag, episode)
        view.end()
        if save and unfinished:
            unfinished.replace(save)
    except (OSError, RuntimeError) as error:
        msg = f'{save or "the viewer"} cannot be written to: {error}'
        raise InputError(msg) from None
    finally:
        if unfinished:
            unfinished.unlink(missing_ok=True)
    return counts


def _episode(bag: Path) -> Episode | None:
    """What was recorded of an episode, else what is true of it; None: neither."""
    with open_bag(bag) as reader:
        recorded = has_deltas(reader)
        true = any(topic.endswith(TRUE_DELTAS) for topic in reader.topics)
    source = 'recorded' if recorded else 'true' if true else ''
    return read_episode(bag, source) if source else None


def _fill(view: _View, bag: Path, episode: Episode | None) -> dict[str, int]:
    counts = dict.fromkeys(('keyframes', 'images', 'deltas', 'answers', 'poses'), 0)
    with open_bag(bag) as reader:
        topics = [t for t in topics_of_type(reader, _KEYFRAME) if '/truth/' not in t]
        for keyframe in read_values(reader, topics, keyframe_from_msg):
            at, note = keyframe.stamp_ns, f'{keyframe.id}: {keyframe.reason.name.lower()}'
            view.look(keyframe.camera, at, keyframe.image, keyframe.pose, keyframe.intrinsics)
            view.say(f'keyframes/{keyframe.camera}', at, note)
            counts['keyframes'] += 1
            counts['poses'] += keyframe.pose is not None
        if not counts['keyframes'] and topics_of_type(reader, *IMAGE_TYPES):
            for image in bag_images(reader, choose_image_topic(reader, None)):
                shown = image.encoded or image.image
                view.look('camera', image.stamp_ns, shown, image.pose, image.intrinsics)
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
    return counts


class _View:
    """What the viewer is told, by entity and time."""

    def __init__(self, rr: Any, name: str) -> None:
        self._rr = rr
        self._stream = rr.RecordingStream(_APPLICATION, recording_id=name)
        self._first_ns = 0  # earliest stamp that was shown; 0: none was

    def begin(self, file: Path | None) -> None:
        """Write to a file, or start the viewer."""
        if file:
            self._stream.save(file)
        else:
            self._stream.spawn()
        self._static('world', self._rr.ViewCoordinates.RIGHT_HAND_Z_UP)

    def end(self) -> None:
        """Send all that waits."""
        self._stream.flush()
        self._stream.disconnect()

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
        if intrinsics:
            # Poses are of the camera link: x forward, y left, z up (REP 103).
            lens = rr.Pinhole(
                image_from_camera=intrinsics.matrix(),
                width=intrinsics.width,
                height=intrinsics.height,
                camera_xyz=rr.ViewCoordinates.FLU,
            )
            self._log(place, stamp_ns, lens)
        if isinstance(image, np.ndarray):
            self._log(f'{place}/image', stamp_ns, rr.Image(image, color_model='BGR'))
        elif image.data:  # keyframes can be recorded without their images
            shown = rr.EncodedImage(contents=image.data, media_type=f'image/{image.format}')
            self._log(f'{place}/image', stamp_ns, shown)

    def tell_delta(self, delta: SemanticDelta) -> None:
        """Show what a keyframe added, and the rung that saw it."""
        failed = delta.kind is DeltaKind.FAILED
        said = ' '.join(part for part in (delta.action, delta.change, delta.error) if part)
        text = f'[{delta.to_id}] {said or delta.kind.name}'
        self.say(f'deltas/{delta.camera}', delta.stamp_ns, text, 'ERROR' if failed else 'INFO')
        self._number('rung/perception', delta.stamp_ns, delta.model.rung.value)

    def tell_answer(self, answer: Answer) -> None:
        """Show a question, its reasoning and its answer, when it was complete."""
        # What was refused because nothing was seen yet has no time of its own.
        at = answer.observation_stamp_ns + answer.observation_age_ns or self._first_ns
        options = f' ({", ".join(answer.options)})' if answer.options else ''
        self.say('questions', at, answer.question + options)
        self.say('reasoning', at, answer.think or answer.completion)
        told = f'{answer.text or "unknown"} - {answer.freshness.name}, {answer.model.rung.name}'
        is_fresh = answer.freshness.value == 0
        self.say('answers', at, told, 'INFO' if is_fresh else 'WARN')
        self._number('freshness', at, answer.freshness.value)
        self._number('age_s', at, answer.observation_age_ns / 1e9)
        self._number('rung/reasoning', at, answer.model.rung.value)

    def say(self, entity: str, stamp_ns: int, text: str, level: str = 'INFO') -> None:
        """Show a line of text."""
        self._log(entity, stamp_ns, self._rr.TextLog(text, level=level))

    def _number(self, entity: str, stamp_ns: int, value: float) -> None:
        self._log(entity, stamp_ns, self._rr.Scalars(value))

    def _log(self, entity: str, stamp_ns: int, what: Any) -> None:
        self._first_ns = min(self._first_ns or stamp_ns, stamp_ns)
        self._stream.set_time(TIMELINE, timestamp=np.datetime64(stamp_ns, 'ns'))
        self._stream.log(entity, what)

    def _static(self, entity: str, what: Any) -> None:
        self._stream.log(entity, what, static=True)
