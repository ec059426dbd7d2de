# SPDX-License-Identifier: Apache-2.0
"""One recording becomes one episode: keyframes, deltas, map, marks, and the messages behind them.

Of a film the images are read once: what is kept of them is written as they pass.
"""

from __future__ import annotations

from collections import deque
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
import heapq
from itertools import chain
import json
import math
from operator import itemgetter
from typing import Any, TYPE_CHECKING

from embodied_r_ros.bags.depth import DepthConfig
from embodied_r_ros.bags.images import (
    bag_images,
    camera_info_topic,
    choose_image_topic,
    ImageDecoder,
)
from embodied_r_ros.bags.message_types import BagMessageFactory
from embodied_r_ros.bags.messages import (
    COMPRESSED_IMAGE,
    encoded_image_to_msg,
    stamp_ns_from_msg,
    STAMPED_POSES,
)
from embodied_r_ros.bags.reader import (
    is_bag,
    open_bag,
    read_messages,
    read_serialized,
    topics_of_type,
)
from embodied_r_ros.bags.sources import DepthSource, open_source
from embodied_r_ros.bags.writer import BagWriter, LATCHED_QOS, RELIABLE_QOS, SENSOR_DATA_QOS
from embodied_r_ros.common.errors import BagError, ConfigError, ImageError
from embodied_r_ros.common.files import code_version
from embodied_r_ros.common.settings import setting, Settings
from embodied_r_ros.core.keyframes.selector import Keyframer
from embodied_r_ros.core.perception.detector import DetectorConfig
from embodied_r_ros.core.pipeline import (
    classical_perceiver,
    detector_perceiver,
    vlm_perceiver,
)
from embodied_r_ros.core.types.deltas import DeltaKind
from embodied_r_ros.core.types.episodes import EpisodeEvent, EpisodeMark
from embodied_r_ros.core.types.geometry import NS_PER_S
from embodied_r_ros.core.types.images import encode_image, EncodedImage
from embodied_r_ros.core.types.landmarks import newest_stamp_ns
from embodied_r_ros.data.episodes.contents import has_deltas
from embodied_r_ros.data.episodes.episode import first_mark, read_marks
from embodied_r_ros.data.episodes.offline import Mapper
from embodied_r_ros.data.episodes.record import BagTopic, cdr
from embodied_r_ros.data.own_messages import (
    delta_to_msg,
    keyframe_to_msg,
    mark_to_msg,
    scene_map_to_msg,
)
from embodied_r_ros.serving.model_files import detector_path
from embodied_r_ros.serving.profiles import load_profile

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from embodied_r_ros.bags.reader import BagReader
    from embodied_r_ros.core.perception.perceiver import PairPerceiver
    from embodied_r_ros.core.types.deltas import ModelInfo
    from embodied_r_ros.core.types.images import StampedImage
    from embodied_r_ros.core.types.keyframes import Keyframe
    from embodied_r_ros.data.episodes.inspect import BagDigest
    from embodied_r_ros.data.episodes.offline import Progress
    from rosbags.interfaces import Qos

_MOTION = ('nav_msgs/msg/Odometry', 'tf2_msgs/msg/TFMessage', *STAMPED_POSES)
_LATCHED = ('/tf_static', '/provenance', '/truth/layout')
_SUFFIX = '/compressed'


class Copies:
    """Messages that go from a camera bag into its episode."""

    def __init__(self, reader: BagReader, image_topic: str, *, with_images: bool) -> None:
        """Find what there is: odometry, transforms, intrinsics, truth and, if wanted, images.

        Args:
            reader: The open camera bag.
            image_topic: Topic of its images.
            with_images: Keep every image, compressed.
        """
        self._reader = reader
        self._raw = ''  # topic whose images have to be compressed first, raw or of a video
        self._decoder = ImageDecoder(image_topic)
        types = {c.topic: c.msgtype for c in reader.connections}
        names = [*topics_of_type(reader, *_MOTION), camera_info_topic(reader, image_topic)]
        names += [topic for topic in types if '/truth/' in topic or topic.endswith('/provenance')]
        if with_images:
            names.append(image_topic)
            self._raw = image_topic if types[image_topic] != COMPRESSED_IMAGE else ''
        self._topics = dict.fromkeys(topic for topic in names if topic)
        self._types = {topic: types[topic] for topic in self._topics}

    def topics(self) -> list[BagTopic]:
        """Topics of the episode that are written from here."""
        return [
            BagTopic(topic + _SUFFIX, COMPRESSED_IMAGE, SENSOR_DATA_QOS)
            if topic == self._raw
            else BagTopic(topic, kind, _qos_to_offer(topic, kind))
            for topic, kind in self._types.items()
        ]

    def messages(self) -> Iterator[tuple[int, str, bytes]]:
        """Time of receipt [ns], topic and serialised message, in the order of their receipt.

        Raises:
            BagError: The bag is damaged.
        """
        others = read_serialized(self._reader, self._topics.keys() - {self._raw})
        images = read_messages(self._reader, [self._raw] if self._raw else [], lambda *_: None)
        for topic, received_ns, msg in heapq.merge(others, images, key=itemgetter(1)):
            if topic != self._raw:
                yield received_ns, topic, msg
            elif compressed := self._compress(msg, received_ns):
                yield received_ns, topic + _SUFFIX, compressed

    def _compress(self, msg: Any, received_ns: int) -> bytes | None:
        """An image as a CompressedImage; None: it is damaged, which `bag_images` counts."""
        try:
            pixels, _ = self._decoder.decode(msg)
        except ImageError:
            return None
        image = encode_image(pixels)
        stamp_ns = stamp_ns_from_msg(msg.header.stamp) or received_ns
        compressed = encoded_image_to_msg(
            BagMessageFactory(), stamp_ns, msg.header.frame_id, image
        )
        return cdr(compressed, COMPRESSED_IMAGE)


def _qos_to_offer(topic: str, kind: str) -> Qos:
    """How a player is to offer a topic again: as its publisher most likely did."""
    if topic.endswith(_LATCHED):
        return LATCHED_QOS
    return SENSOR_DATA_QOS if kind.startswith('sensor_msgs/') else RELIABLE_QOS


_MARK, _KEYFRAME, _DELTA, _MAP = (
    f'embodied_r_msgs/msg/{name}'
    for name in ('EpisodeMark', 'Keyframe', 'SemanticDelta', 'LandmarkArray')
)
_STRING = 'std_msgs/msg/String'
_OWN_TOPICS = (
    BagTopic('/episode_mark', _MARK, LATCHED_QOS),
    BagTopic('/provenance', _STRING, LATCHED_QOS),
    BagTopic('/keyframe', _KEYFRAME),
    BagTopic('/semantic_delta', _DELTA),
    BagTopic('/landmarks', _MAP, LATCHED_QOS),
)
_FILM = BagTopic('/image/compressed', COMPRESSED_IMAGE, SENSOR_DATA_QOS)
_FILM_SIDE_PX, _FILM_QUALITY, _FILM_EVERY_NS, _WHOLE_QUALITY = 960, 85, NS_PER_S // 10, 95
# Stamps of a video count from zero, and a stamp of zero means 'unset' in ROS.
_EPOCH_NS = NS_PER_S
_FACTORY = BagMessageFactory()


@dataclass(frozen=True)
class CollectConfig(Settings):
    """How camera bags become episodes."""

    images: str = setting(
        'keyframes',
        'none: keyframes without their image; keyframes: with it; compressed: also every image; '
        'film: also ten a second, of 960 pixels at most, and the last one is a keyframe',
        choices=('none', 'keyframes', 'compressed', 'film'),
    )
    perceiver: str = setting(
        'classical', 'which perceiver to use', choices=('classical', 'detector', 'vlm')
    )
    profile: str = setting('', 'model profile whose perceiver is asked, for vlm')
    topic: str = setting('', 'image topic; empty: the only one of each bag')
    depth_topic: str = setting('', 'registered depth; none: none; empty: that beside the images')
    depth_unit_m: float = setting(0.001, 'step of depth of integers [m]', between=(1e-6, 1))
    detector: str = setting('', 'ONNX file of the detector; empty: one that was fetched')

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.perceiver == 'vlm') != bool(self.profile):
            msg = 'a profile of model servers goes with the perceiver vlm, and only with it'
            raise ConfigError(msg)
        if self.detector and self.perceiver != 'detector':
            msg = 'a detector goes with the perceiver detector, and only with it'
            raise ConfigError(msg)

    def make_perceiver(self) -> PairPerceiver:
        """The perceiver.

        Raises:
            InputError: There is no such profile, or its server does not answer.
            ConfigError: There is no detector, or it cannot be used.
        """
        if self.perceiver == 'classical':
            return classical_perceiver()
        if self.perceiver == 'detector':
            path = detector_path(self.detector)
            if not path:
                msg = 'no detector is given or fetched: embodied-r models fetch detector'
                raise ConfigError(msg)
            return detector_perceiver(DetectorConfig(path))
        profile = load_profile(self.profile)
        return vlm_perceiver(profile.client('perceiver'), profile.vlm)


@dataclass(frozen=True)
class CollectedEpisode:
    """An episode that was collected."""

    folder: Path
    keyframes: int
    failed: int  # keyframes that could not be perceived


def collect_episode(
    bag: Path,
    folder: Path,
    config: CollectConfig,
    digest: BagDigest,
    progress: Progress = lambda images, _: images,
    episode_id: str = '',
) -> CollectedEpisode:
    """Write the episode of a recording; its folder is there when it is complete.

    Args:
        bag: Bag with images, video, or folder of images.
        folder: Folder of the episode; its parent exists.
        config: What is kept, and which perceiver perceives.
        digest: Of the bag, for the record.
        progress: Shows progress over its images.
        episode_id: Of one whose bag has none; empty: the name of the folder.

    Raises:
        BagError: The bag cannot be read, is an episode already, or the disk does not take it.
        SourceError: It has no images, several topics of them, or one that cannot be decoded.
    """
    with _opened(bag, episode_id or folder.name, config) as recording:
        events = _Events(config, recording)
        notes = _notes(bag, config, digest, events.perceiver.info())
        with BagWriter(folder, notes) as writer:
            images, copies = recording.images, recording.copies
            if config.images == 'film' or (copies is None and config.images == 'compressed'):
                images = _filmed(images, writer, is_thin=config.images == 'film')
            copied = copies.topics() if copies else []
            for topic in {each.name: each for each in (*copied, *_OWN_TOPICS)}.values():
                writer.add_topic(topic.name, topic.type_name, topic.qos)
            perceived = events.of(progress(images, recording.length), notes.values())
            others = copies.messages() if copies else ()
            for time_ns, name, data in heapq.merge(others, perceived, key=itemgetter(0)):
                writer.write_serialized(name, data, time_ns)
    return CollectedEpisode(folder, events.keyframes, events.failed)


@dataclass(frozen=True)
class _Recording:
    """What is collected."""

    images: Iterable[StampedImage]
    length: int | None  # expected number of images; None: unknown
    start: EpisodeMark
    late_ns: int = 0  # from the stamp of an image to its receipt
    end_ns: int = 0  # 0: when its last image came
    copies: Copies | None = None  # what else a bag holds; None: it is no bag


@contextmanager
def _opened(path: Path, episode_id: str, config: CollectConfig) -> Iterator[_Recording]:
    depth = DepthSource(config.depth_topic, DepthConfig(config.depth_unit_m))
    name = config.topic or None
    if not is_bag(path):
        with open_source(path, name, depth=depth) as source:
            images = (replace(one, stamp_ns=one.stamp_ns + _EPOCH_NS) for one in source)
            first = next(images)
            start = EpisodeMark(first.stamp_ns, episode_id, EpisodeEvent.START)
            yield _Recording(chain([first], images), source.length, start)
        return
    with open_bag(path) as reader, open_bag(path) as again:
        if has_deltas(reader):
            msg = f'{path} is an episode already: it has recorded deltas'
            raise BagError(msg)
        topic = choose_image_topic(reader, name)
        yield _Recording(
            bag_images(reader, topic, depth.topic, depth.config),
            reader.topics[topic].msgcount,
            _start_mark(reader, episode_id),
            _delay_ns(reader, topic),
            reader.end_time,
            Copies(again, topic, with_images=config.images == 'compressed'),
        )


def _filmed(
    images: Iterable[StampedImage], bag: BagWriter, *, is_thin: bool
) -> Iterator[StampedImage]:
    """Write images compressed as they pass; a thin film has ten small ones a second."""
    bag.add_topic(_FILM.name, _FILM.type_name, _FILM.qos)
    side_px, quality = (_FILM_SIDE_PX, _FILM_QUALITY) if is_thin else (0, _WHOLE_QUALITY)
    next_ns = 0
    for image in images:
        if image.stamp_ns >= next_ns or not is_thin:
            next_ns = image.stamp_ns + _FILM_EVERY_NS
            is_small = max(image.image.shape[:2]) <= (side_px or math.inf)
            encoded = image.encoded if is_small else None
            encoded = encoded or encode_image(image.image, quality, side_px)
            msg = encoded_image_to_msg(_FACTORY, image.stamp_ns, image.frame_id, encoded)
            bag.write(_FILM.name, msg, image.stamp_ns)
        yield image


class _Events:
    """The messages of recorder and nodes, made offline: time [ns], topic, serialised message."""

    def __init__(self, config: CollectConfig, recording: _Recording) -> None:
        self.perceiver = config.make_perceiver()
        self.keyframes = self.failed = 0
        self._recording, self._end_ns = recording, recording.end_ns
        self._config = config
        self._pending: deque[Keyframe] = deque()  # whose deltas are to come

    def of(
        self, images: Iterable[StampedImage], notes: Iterable[str]
    ) -> Iterator[tuple[int, str, bytes]]:
        """The mark of the start and provenance, keyframes and deltas, the map, the other mark.

        Each keyframe and its delta have the time at which their image was received.

        Raises:
            BagError: Nothing could be perceived, or the bag is damaged.
            SourceError: An image cannot be decoded.
        """
        start = self._recording.start
        yield start.stamp_ns, '/episode_mark', cdr(mark_to_msg(_FACTORY, start), _MARK)
        for text in notes:
            note = _FACTORY.make(_STRING, data=text)
            yield start.stamp_ns, '/provenance', cdr(note, _STRING)
        mapper = Mapper(self.perceiver)
        for delta in mapper.deltas(self._holding(images)):
            keyframe = self._pending.popleft()
            # How long it took would make the same bag another episode each time.
            delta = replace(delta, latency_ns=0)
            self.keyframes += 1
            self.failed += delta.kind is DeltaKind.FAILED
            time_ns = keyframe.stamp_ns + self._recording.late_ns
            yield time_ns, '/keyframe', cdr(keyframe_to_msg(_FACTORY, keyframe), _KEYFRAME)
            yield time_ns, '/semantic_delta', cdr(delta_to_msg(_FACTORY, delta), _DELTA)
        if self.failed == self.keyframes:
            why = f'all {self.keyframes} keyframes' if self.keyframes else 'there are no images'
            msg = f'{start.episode_id}: nothing could be perceived ({why})'
            raise BagError(msg)
        scene = mapper.finished().scene_map()
        if scene.landmarks or scene.path:
            msg = scene_map_to_msg(_FACTORY, scene, newest_stamp_ns(scene))
            yield self._end_ns, '/landmarks', cdr(msg, _MAP)
        stop = replace(start, stamp_ns=self._end_ns, event=EpisodeEvent.STOP)
        yield self._end_ns, '/episode_mark', cdr(mark_to_msg(_FACTORY, stop), _MARK)

    def _holding(self, images: Iterable[StampedImage]) -> Iterator[Keyframe]:
        is_film = self._config.images == 'film'
        for chosen in Keyframer().stream(self._ending(images), with_last=is_film):
            keyframe = replace(chosen, episode_id=self._recording.start.episode_id)
            is_empty = self._config.images == 'none'
            empty = EncodedImage(b'', keyframe.image.format)
            self._pending.append(replace(keyframe, image=empty) if is_empty else keyframe)
            yield keyframe

    def _ending(self, images: Iterable[StampedImage]) -> Iterator[StampedImage]:
        for image in images:
            self._end_ns = max(self._end_ns, image.stamp_ns)
            yield image


def _delay_ns(reader: BagReader, topic: str) -> int:
    """Time from the stamp of the first image to its receipt; the clocks may differ too."""
    for _, received_ns, msg in read_messages(reader, [topic]):
        stamp_ns = stamp_ns_from_msg(msg.header.stamp)
        return received_ns - stamp_ns if stamp_ns else 0
    return 0


def _start_mark(reader: BagReader, name: str) -> EpisodeMark:
    """The start mark of the bag, as that of a simulation has one; else one of our own."""
    own = EpisodeMark(reader.start_time, name, EpisodeEvent.START)
    return first_mark(read_marks(reader), EpisodeEvent.START) or own


def _notes(bag: Path, config: CollectConfig, digest: BagDigest, info: ModelInfo) -> dict[str, str]:
    """Provenance: which code made the episode, how, and of what."""
    record = {
        'tool': 'embodied-r collect',
        'code': code_version(),
        'config': asdict(config),
        'bag': {'name': bag.name, **asdict(digest)},
        'models': [{'role': 'perceiver', 'name': info.name, 'digest': info.digest}],
    }
    return {'embodied-r collect': json.dumps(record, sort_keys=True)}
