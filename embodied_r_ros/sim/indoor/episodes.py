# SPDX-License-Identifier: Apache-2.0
"""Indoor episodes: drawn, kept where fit, and written as bags with the truth beside them."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from functools import partial
import json
from typing import Any, TYPE_CHECKING

from embodied_r_ros.bags.message_types import BagMessageFactory
from embodied_r_ros.bags.messages import camera_info_to_msg, encoded_image_to_msg, odometry_to_msg
from embodied_r_ros.bags.vision_messages import DETECTIONS_2D, SIMULATED_DETECTOR
from embodied_r_ros.bags.writer import BagWriter, LATCHED_QOS, RELIABLE_QOS, SENSOR_DATA_QOS
from embodied_r_ros.common.errors import EmbodiedRError
from embodied_r_ros.common.files import code_version
from embodied_r_ros.core.types.episodes import EpisodeEvent, EpisodeMark
from embodied_r_ros.core.types.geometry import NS_PER_S, relative_motion
from embodied_r_ros.core.types.images import encode_image
from embodied_r_ros.data.own_messages import delta_to_msg, keyframe_to_msg, mark_to_msg
from embodied_r_ros.sim.indoor.detector import detections_to_msg, SimulatedDetector
from embodied_r_ros.sim.indoor.ground_truth import true_episode
from embodied_r_ros.sim.indoor.room import UnfitError
from embodied_r_ros.sim.indoor.scenario import draw_next_visit, draw_scenario
from embodied_r_ros.sim.indoor.world import World, WorldRenderer
from embodied_r_ros.sim.runs import run_episodes
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from embodied_r_ros.core.types.images import EncodedImage
    from embodied_r_ros.core.types.keyframes import Keyframe
    from embodied_r_ros.core.types.layout import Vector
    from embodied_r_ros.sim.indoor.ground_truth import Truth
    from embodied_r_ros.sim.indoor.scenario import Scenario
    from embodied_r_ros.sim.runs import IndoorConfig
    from rosbags.interfaces import Qos

CAMERA_FRAME = 'camera_optical_frame'
CAMERA_LINK = 'camera_link'
_VELOCITY_STEP_NS = 1_000_000  # to both sides of a stamp
_DETECTOR_SEED = 1  # beside that of the textures
_STRING = 'std_msgs/msg/String'
_TOPICS: dict[str, tuple[str, Qos]] = {
    '/provenance': (_STRING, LATCHED_QOS),
    '/episode_mark': ('embodied_r_msgs/msg/EpisodeMark', RELIABLE_QOS),
    '/odom': ('nav_msgs/msg/Odometry', RELIABLE_QOS),
    '/truth/layout': (_STRING, LATCHED_QOS),
    '/truth/keyframe': ('embodied_r_msgs/msg/Keyframe', RELIABLE_QOS),
    '/truth/semantic_delta': ('embodied_r_msgs/msg/SemanticDelta', RELIABLE_QOS),
}
_IMAGE_TOPICS: dict[str, tuple[str, Qos]] = {
    '/camera_info': ('sensor_msgs/msg/CameraInfo', SENSOR_DATA_QOS),
    '/image/compressed': ('sensor_msgs/msg/CompressedImage', SENSOR_DATA_QOS),
}


DETECTIONS = '/detections'  # of furnished rooms with images


@dataclass(frozen=True)
class EpisodeOrigin:
    """Which draw of which run an episode is."""

    seed: int
    index: int
    attempt: int


def write_episode(
    path: Path, scenario: Scenario, truth: Truth, config: IndoorConfig, origin: EpisodeOrigin
) -> None:
    """Write an episode as a rosbag2 folder.

    Args:
        path: The folder; it does not exist yet.
        scenario: What happens.
        truth: What is true of it.
        config: The camera, and whether there are images.
        origin: For the record.

    Raises:
        BagError: The folder exists, or cannot be written.
    """
    with BagWriter(path) as bag:
        for topic, (kind, qos) in (_TOPICS | (_IMAGE_TOPICS if config.images else {})).items():
            bag.add_topic(topic, kind, qos)
        writer = _EpisodeWriter(bag, scenario, truth, config)
        with ExitStack() as stack:
            if config.images and scenario.room.is_furnished:
                rng = np.random.default_rng([scenario.texture_seed, _DETECTOR_SEED])
                detector = SimulatedDetector(scenario.room, config.camera(), rng)
                writer.detector = stack.enter_context(detector)
                bag.add_topic(DETECTIONS, DETECTIONS_2D, SENSOR_DATA_QOS)
            writer.begin(origin)
            for stamp_ns, image in _images(scenario, config):
                writer.step(stamp_ns, image)
        writer.end()


def _images(scenario: Scenario, config: IndoorConfig) -> Iterator[tuple[int, EncodedImage | None]]:
    """Stamp of each image with the image, or with None where there are to be none."""
    if not config.images:
        yield from ((stamp_ns, None) for stamp_ns in scenario.stamps_ns)
        return
    world = World(scenario.room, np.random.default_rng(scenario.texture_seed))
    with WorldRenderer(world, config.camera()) as renderer:
        for stamp_ns in scenario.stamps_ns:
            world.place(scenario.positions(stamp_ns))
            image = renderer.image(scenario.pose(stamp_ns))
            yield stamp_ns, encode_image(image, config.jpeg_quality)


class _EpisodeWriter:
    """Writes the messages of an episode, image by image."""

    def __init__(
        self, bag: BagWriter, scenario: Scenario, truth: Truth, config: IndoorConfig
    ) -> None:
        self._bag = bag
        self._scenario = scenario
        self._truth = truth
        self._config = config
        self._make = BagMessageFactory()
        self.detector: SimulatedDetector | None = None
        self._keyframes = {keyframe.stamp_ns: keyframe for keyframe in truth.keyframes}
        self._deltas = {delta.stamp_ns: delta for delta in truth.deltas}

    def begin(self, origin: EpisodeOrigin) -> None:
        """Write what concerns the whole episode, at the stamp of the first image."""
        record = {
            'code': code_version(),
            'simulator': 'indoor',
            'origin': asdict(origin),
            'config': asdict(self._config),
        } | ({'detections': f'of a {SIMULATED_DETECTOR}'} if self.detector else {})
        stamp_ns = self._scenario.stamps_ns[0]
        self._write_string('/provenance', json.dumps(record, sort_keys=True), stamp_ns)
        self._mark(EpisodeEvent.START, stamp_ns)
        self._write_string('/truth/layout', self._truth.layout.to_json(), stamp_ns)

    def step(self, stamp_ns: int, image: EncodedImage | None) -> None:
        """Write what belongs to one image; None: there are no images."""
        if image:
            camera = self._config.camera()
            info = camera_info_to_msg(self._make, stamp_ns, CAMERA_FRAME, camera)
            self._bag.write('/camera_info', info, stamp_ns)
            msg = encoded_image_to_msg(self._make, stamp_ns, CAMERA_FRAME, image)
            self._bag.write('/image/compressed', msg, stamp_ns)
        if self.detector:
            self._bag.write(DETECTIONS, self._detections(stamp_ns, self.detector), stamp_ns)
        self._bag.write('/odom', self._odometry(stamp_ns), stamp_ns)
        if stamp_ns in self._keyframes:
            keyframe = self._keyframe(stamp_ns, image)
            self._bag.write('/truth/keyframe', keyframe_to_msg(self._make, keyframe), stamp_ns)
            delta = delta_to_msg(self._make, self._deltas[stamp_ns])
            self._bag.write('/truth/semantic_delta', delta, stamp_ns)

    def end(self) -> None:
        """Write the end of the episode, at the stamp of the last image."""
        self._mark(EpisodeEvent.STOP, self._scenario.stamps_ns[-1])

    def _keyframe(self, stamp_ns: int, image: EncodedImage | None) -> Keyframe:
        keyframe = self._keyframes[stamp_ns]
        if image is None:
            return keyframe
        return replace(keyframe, image=image, intrinsics=self._config.camera())

    def _mark(self, event: EpisodeEvent, stamp_ns: int) -> None:
        scenario = self._scenario
        mark = EpisodeMark(stamp_ns, scenario.episode_id, event, 'look around', scenario.scene_id)
        self._bag.write('/episode_mark', mark_to_msg(self._make, mark), stamp_ns)

    def _detections(self, stamp_ns: int, detector: SimulatedDetector) -> Any:
        scenario, views = self._scenario, self._truth.layout.image_at(stamp_ns).views
        found = detector.detect(scenario.pose(stamp_ns), scenario.positions(stamp_ns), views)
        return detections_to_msg(self._make, stamp_ns, CAMERA_FRAME, found)

    def _odometry(self, stamp_ns: int) -> Any:
        pose = self._scenario.pose(stamp_ns)
        return odometry_to_msg(self._make, stamp_ns, pose, CAMERA_LINK, self._velocity(stamp_ns))

    def _velocity(self, stamp_ns: int) -> tuple[Vector, Vector]:
        """Linear [m/s] and angular velocity [rad/s] in the axes of the camera link."""
        before, after = (
            self._scenario.pose(stamp_ns + side * _VELOCITY_STEP_NS) for side in (-1, 1)
        )
        rotation, offset = relative_motion(before, after)
        # Of a small rotation, the antisymmetric part is the axis times the angle.
        turn = (
            rotation[2, 1] - rotation[1, 2],
            rotation[0, 2] - rotation[2, 0],
            rotation[1, 0] - rotation[0, 1],
        )
        seconds = 2 * _VELOCITY_STEP_NS / NS_PER_S
        vx, vy, vz = (float(value) / seconds for value in offset)
        wx, wy, wz = (float(value) / 2 / seconds for value in turn)
        return (vx, vy, vz), (wx, wy, wz)

    def _write_string(self, topic: str, text: str, stamp_ns: int) -> None:
        self._bag.write(topic, self._make.make(_STRING, data=text), stamp_ns)


MIN_KEYFRAMES = 4
MIN_SEEN = 2  # things that the keyframes of an episode show
_ATTEMPTS = 50  # draws per episode


def generate(
    config: IndoorConfig, seed: int, episodes: int, out: Path, workers: int = 1
) -> Iterator[Path]:
    """Write episodes, one bag each, and yield their folders as they are done.

    Args:
        config: What the episodes are like.
        seed: Seed of the run, not negative.
        episodes: How many to keep.
        out: Folder for the bags; it does not exist yet, or is empty.
        workers: Processes to use; 1: this one.

    Raises:
        InputError: An argument cannot be used, or the folder is not empty.
        EmbodiedRError: The config leaves no fit episode.
    """
    write = partial(_write, config, seed, out)
    return run_episodes(write, seed, episodes, out, workers)


def draw_episode(
    config: IndoorConfig, seed: int, index: int
) -> tuple[Scenario, Truth, EpisodeOrigin]:
    """Draw until an episode is fit: enough keyframes, and something to see in them.

    Args:
        config: What episodes are like.
        seed: Seed of the run.
        index: Number of the episode in its run.

    Raises:
        EmbodiedRError: None was fit.
    """
    draw = draw_scenario
    if config.visit > 1:
        before, _, _ = draw_episode(replace(config, visit=config.visit - 1), seed, index)
        draw = partial(draw_next_visit, before)
    for attempt in range(_ATTEMPTS):
        try:
            scenario = draw(config, seed, index, attempt)
        except UnfitError:
            continue
        truth = true_episode(scenario, config)
        if _is_fit(truth):
            return scenario, truth, EpisodeOrigin(seed, index, attempt)
    msg = (
        f'episode {index} of seed {seed}: none of {_ATTEMPTS} draws has {MIN_KEYFRAMES} keyframes '
        f'that show {MIN_SEEN} things in {config.duration_s} s: choose a longer duration'
    )
    raise EmbodiedRError(msg)


def _is_fit(truth: Truth) -> bool:
    stamps = {keyframe.stamp_ns for keyframe in truth.keyframes}
    visible_ids = {
        view.object_id
        for image in truth.layout.images
        if image.stamp_ns in stamps
        for view in image.views
        if view.visible
    }
    return len(truth.keyframes) >= MIN_KEYFRAMES and len(visible_ids) >= MIN_SEEN


def _write(config: IndoorConfig, seed: int, out: Path, index: int) -> Path:
    path = out / f'episode_{index:05d}'
    scenario, truth, origin = draw_episode(config, seed, index)
    write_episode(path, scenario, truth, config, origin)
    return path
