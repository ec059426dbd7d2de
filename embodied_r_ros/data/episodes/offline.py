# SPDX-License-Identifier: Apache-2.0
"""What runs live, run on a recording without ROS: perception, answers, and the landmark map."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import zip_longest
import logging
import math
from typing import Any, TYPE_CHECKING

from embodied_r_ros.bags.sources import DepthSource, open_source
from embodied_r_ros.common.errors import ImageError, InputError, ModelError, SourceError
from embodied_r_ros.core.chat.client import HttpChatClient
from embodied_r_ros.core.keyframes.selector import KeyframeConfig, Keyframer
from embodied_r_ros.core.perception.classical import ClassicalPerceiver
from embodied_r_ros.core.perception.egomotion import find_features
from embodied_r_ros.core.perception.items import depth_of
from embodied_r_ros.core.perception.keyframe_way import KeyframeWay
from embodied_r_ros.core.pipeline import classical_perceiver, perceive_images, perceive_keyframes
from embodied_r_ros.core.reasoning.completions import option_letter
from embodied_r_ros.core.reasoning.prompts import shown_image
from embodied_r_ros.core.reasoning.question import ShownImage
from embodied_r_ros.core.reasoning.reasoner import Reasoner
from embodied_r_ros.core.scene.camera import CameraView, START_FRAME
from embodied_r_ros.core.scene.landmark_map import LandmarkMap, write_scene_map
from embodied_r_ros.core.scene.map_scale import NOMINAL_M
from embodied_r_ros.core.scene.tools import Scene
from embodied_r_ros.core.types.geometry import Intrinsics, NS_PER_S
from embodied_r_ros.core.types.images import encode_image
from embodied_r_ros.core.types.landmarks import newest_stamp_ns, read_scene_map, SceneMap
from embodied_r_ros.data.episodes.contents import has_keyframes_alone, has_recorded_deltas
from embodied_r_ros.data.episodes.episode import read_episode, read_keyframes
from embodied_r_ros.data.episodes.fleet import StageReport
from embodied_r_ros.data.episodes.perception_cache import Perceived, PerceptionCache, recording_key

if TYPE_CHECKING:
    from pathlib import Path
    import threading

    from embodied_r_ros.core.chat.settings import ChatConfig
    from embodied_r_ros.core.perception.perceiver import PairPerceiver
    from embodied_r_ros.core.reasoning.question import Listener, Look, Question, ReasonerConfig
    from embodied_r_ros.core.scene.changes import VisitChanges
    from embodied_r_ros.core.types.answers import Answer, FocusText
    from embodied_r_ros.core.types.deltas import SemanticDelta
    from embodied_r_ros.core.types.geometry import Pose
    from embodied_r_ros.core.types.images import StampedImage
    from embodied_r_ros.core.types.keyframes import Keyframe
    from embodied_r_ros.data.episodes.episode import Episode
    from embodied_r_ros.data.episodes.manifest import FleetRecording

_ASSUMED_FOV_RAD = math.radians(70)  # of a camera that nothing is known of
_HELD_KEYFRAMES = 16  # which another look for a question can be at

# Shows progress over images, knowing how many are expected (None: unknown).
Progress = Callable[[Iterable['StampedImage'], 'int | None'], Iterable['StampedImage']]
_LOG = logging.getLogger(__name__)

_ID_DIGITS = 8  # in the name of a map of a fleet


@dataclass(frozen=True)
class RecordingScene:
    """What a recording shows."""

    deltas: tuple[SemanticDelta, ...]
    look: Look | None = None  # looks at its newest keyframes again; None: it cannot
    scene_map: SceneMap | None = None  # what is known of the place
    # What changed since an earlier visit, or why that is not known; None: there is none.
    earlier: VisitChanges | str | None = None


@dataclass(frozen=True)
class MapRecipe:
    """How recordings become maps."""

    make_perceiver: Callable[[], PairPerceiver] = classical_perceiver
    is_recorded: bool | None = None  # by the deltas in the bag; None: where it has some
    topic: str | None = None
    rate_hz: float | None = None
    depth: DepthSource = field(default_factory=DepthSource)
    keyframing: KeyframeConfig = field(default_factory=KeyframeConfig)
    use_poses: bool = True

    def reads_deltas(self, path: Path) -> bool:
        """Tell whether the deltas in a bag are read.

        Raises:
            BagError: The bag is damaged.
        """
        return has_recorded_deltas(path) if self.is_recorded is None else self.is_recorded

    def map_of(self, path: Path, progress: Progress = lambda images, _: images) -> LandmarkMap:
        """The map of a recording.

        Raises:
            SourceError: It cannot be read as a stream of images.
            BagError: The bag is damaged, or has no recorded deltas.
            InputError: There is no perceiver.
        """
        if self.reads_deltas(path):
            return map_of_recorded(path)
        perceiver = self.make_perceiver()
        with open_source(path, self.topic, self.rate_hz, self.depth) as source:
            images = progress(source, source.length)
            landmarks = map_of_images(images, perceiver, self.keyframing, use_poses=self.use_poses)
            landmarks.has_times = source.has_times
            return landmarks


@dataclass(frozen=True)
class Seer(MapRecipe):
    """Who sees a recording, and what is kept of it."""

    cache: PerceptionCache | None = None
    perceiver_key: str = ''  # all that decides what the perceiver says, for the cache

    def recall(self, path: Path) -> RecordingScene | None:
        """What was perceived of a recording before; None: nothing, or it is not kept.

        Raises:
            BagError: The bag is damaged.
        """
        if self.cache is None or is_scene_map(path) or not path.exists():
            return None
        known = None if self.reads_deltas(path) else self.cache.get(self._key(path))
        return self._scene(known) if known else None

    def see(self, path: Path, progress: Progress = lambda images, _: images) -> RecordingScene:
        """See a recording, with the map of the place.

        A file `*.json` is a scene map, which is read.

        Raises:
            InputError: It is a scene map that cannot be read.
            SourceError: It cannot be read as a stream of images.
            BagError: The bag is damaged, or has no recorded deltas.
        """
        if is_scene_map(path):
            return RecordingScene((), scene_map=read_scene_map(path))
        if self.reads_deltas(path):
            return recorded_scene(read_episode(path, 'recorded'))
        perceived = self._perceive(path, progress)
        if self.cache:
            self.cache.put(self._key(path), perceived)
        return self._scene(perceived)

    def _key(self, path: Path) -> str:
        return recording_key(path, self.perceiver_key, f'{self.topic} {self.rate_hz}')

    def _perceive(self, path: Path, progress: Progress) -> Perceived:
        perceiver = self.make_perceiver()
        recent: deque[Keyframe] = deque(maxlen=_HELD_KEYFRAMES)

        def holding(keyframes: Iterable[Keyframe]) -> Iterator[Keyframe]:
            for keyframe in keyframes:
                recent.append(keyframe)
                yield keyframe

        mapper = Mapper(perceiver)
        with keyframes_in(path, self, progress) as (keyframes, has_times):
            deltas = tuple(mapper.deltas(holding(keyframes)))
        held = [_as_seen(keyframe, perceiver) for keyframe in recent]
        landmarks = mapper.finished()
        landmarks.has_times = has_times
        return Perceived(deltas, landmarks.scene_map(), lambda: held)

    def _scene(self, perceived: Perceived) -> RecordingScene:
        make_perceiver = lru_cache(maxsize=1)(self.make_perceiver)

        def look(
            question: str,
            options: Sequence[str],
            deltas: Sequence[SemanticDelta],
            deadline_s: float,
            cancel: threading.Event | None,
        ) -> list[FocusText]:
            del cancel  # nothing sets it offline
            ids = {delta.to_id for delta in deltas}
            chosen = [keyframe for keyframe in perceived.keyframes() if keyframe.id in ids]
            return [make_perceiver().focus(question, options, k, deadline_s) for k in chosen]

        return RecordingScene(perceived.deltas, look, perceived.scene_map)


def _as_seen(keyframe: Keyframe, perceiver: PairPerceiver) -> Keyframe:
    """The keyframe with the lens that was learned, so that another look sees the same."""
    if not isinstance(perceiver, ClassicalPerceiver):
        return keyframe
    with suppress(ImageError):
        return perceiver.with_lens(keyframe)
    return keyframe


@contextmanager
def keyframes_in(
    path: Path, recipe: MapRecipe, progress: Progress
) -> Iterator[tuple[Iterable[Keyframe], bool]]:
    """The keyframes of a recording, chosen of its images or recorded; whether it has times.

    Raises:
        SourceError: It cannot be read as a stream of images.
        BagError: The bag is damaged.
    """
    if recipe.topic is None and has_keyframes_alone(path):
        yield recorded_keyframes(path), True
        return
    with open_source(path, recipe.topic, recipe.rate_hz, recipe.depth) as source:
        images = progress(source, source.length)
        yield Keyframer(recipe.keyframing).stream(images, with_last=True), source.has_times


def newest_image(
    path: Path, topic: str | None, rate_hz: float | None, progress: Progress
) -> ShownImage:
    """The last image of a recording, as prompts show it.

    Raises:
        SourceError: It cannot be read as a stream of images.
        BagError: The bag is damaged.
    """
    if topic is None and has_keyframes_alone(path):
        *_, keyframe = recorded_keyframes(path)
        return ShownImage(shown_image(keyframe.image), keyframe.stamp_ns, keyframe.frame_id)
    with open_source(path, topic, rate_hz) as source:
        for image in progress(source, source.length):
            newest = image
    encoded = newest.encoded or encode_image(newest.image)
    return ShownImage(shown_image(encoded), newest.stamp_ns, newest.frame_id)


def is_scene_map(path: Path) -> bool:
    """Tell whether a path names a scene map (MAP.json)."""
    return path.suffix.lower() == '.json' and not path.is_dir()


def recorded_keyframes(path: Path) -> Iterator[Keyframe]:
    """The keyframes of a robot's first camera that were recorded with their images.

    Raises:
        SourceError: There are none.
        BagError: The bag is damaged.
    """
    cameras: Counter[str] = Counter()
    for keyframe in read_keyframes(path):
        if keyframe.image.data:
            cameras[keyframe.camera] += 1
            if keyframe.camera == next(iter(cameras)):
                yield keyframe
    for camera, count in [*cameras.items()][1:]:
        text = '%d keyframes of camera %s in %s are left out: those of %s are read'
        _LOG.warning(text, count, camera, path, next(iter(cameras)))
    if not cameras:
        msg = f'{path} holds no images, nor those of keyframes: record with `images: keyframes`'
        raise SourceError(msg)


def check_source(path: Path, topic: str | None, rate_hz: float | None) -> None:
    """Find out early whether images can be perceived, before a model is started for them.

    Raises:
        SourceError: It cannot be read as a stream of images.
        BagError: The bag is damaged.
    """
    if is_scene_map(path):
        read_scene_map(path)
    elif topic is None and has_keyframes_alone(path):
        next(recorded_keyframes(path))
    else:
        with open_source(path, topic, rate_hz) as source:
            next(iter(source))  # a codec or an encoding that is not known shows at once


class SceneAsker:
    """Answers questions about one recording; the newest observation is now."""

    def __init__(
        self, scene: RecordingScene, chat: ChatConfig | None, config: ReasonerConfig
    ) -> None:
        """Reach the model; without one, the tools of the scene answer.

        Raises:
            InputError: The model server does not answer.
            ConfigError: There is no model, and what reads questions is not installed.
        """
        client = HttpChatClient(chat) if chat else None
        try:
            if client:
                client.info(config.deadline_s)
        except ModelError as error:
            raise InputError(str(error)) from None
        has_times = scene.scene_map is None or scene.scene_map.has_times
        self.scene = Scene(scene.deltas, _map_to_tell(scene, config), has_times=has_times)
        self.scene.earlier = scene.earlier
        self._reasoner = Reasoner(client, config, scene.look)

    def ask(self, question: Question, listener: Listener) -> Answer:
        """Answer a question.

        Raises:
            Refusal: There is no answer.
        """
        return self._reasoner.ask(question, self.scene, listener)


def ask_about(
    scene: RecordingScene,
    question: Question,
    chat: ChatConfig | None,
    config: ReasonerConfig,
    listener: Listener,
) -> Answer:
    """Answer one question about a recording, without a model by the tools of its scene.

    Raises:
        InputError: The model server does not answer.
        Refusal: There is no answer.
    """
    return SceneAsker(scene, chat, config).ask(question, listener)


def _map_to_tell(scene: RecordingScene, config: ReasonerConfig) -> SceneMap | None:
    """The map that a prompt may hold, as live: one of things, for a model that knows maps.

    Where there is nothing but a map, it is told in any case.
    """
    known = scene.scene_map
    is_told = not scene.deltas or (config.use_map and known and known.landmarks)
    if known is None or not is_told:
        return None
    # As rows, MAP.json and the live map have it.
    return replace(SceneMap.from_json(known.to_json()), revision=known.revision)


def answer_to_json(answer: Answer) -> dict[str, Any]:
    """Plain JSON values of an answer; what is not known is null."""
    index = answer.option_index
    return {
        'question': answer.question,
        'options': list(answer.options),
        'kind': answer.kind.name.lower(),
        'answer': answer.text or 'unknown',
        'option': option_letter(index) if index >= 0 else None,
        'number': answer.number if math.isfinite(answer.number) else None,
        'unit': answer.unit,
        'text': answer.sentence,
        'calls': [call.to_json() for call in answer.calls],
        'check': answer.check.name.lower(),
        'check_reason': answer.check_reason,
        'choices': list(answer.choices),
        'evidence': answer.evidence(),
        'confidence': answer.confidence if math.isfinite(answer.confidence) else None,
        'think': answer.think,
        'completion': answer.completion,
        'prompt': answer.prompt,
        'prompt_sha256': answer.prompt_sha256,
        'focus': [text.text for text in answer.focus],
        'deltas': len(answer.delta_ids),
        'observation_stamp_ns': answer.observation_stamp_ns,
        'freshness': answer.freshness.name,
        'model': answer.model.name,
        'digest': answer.model.digest,
        'latency_s': answer.latency_ns / 1e9,
    }


@dataclass(frozen=True)
class MapStage:
    """Maps a recording of a fleet into a file of a folder."""

    out: Path
    recipe: MapRecipe

    def __call__(self, path: Path, recording: FleetRecording) -> StageReport:
        """Map it (see `FleetStage`); a map without landmarks is one."""
        landmarks = self.recipe.map_of(path)
        stem = path.name if path.is_dir() else path.stem
        file = self.out / f'{stem}-{recording.id[:_ID_DIGITS]}.json'
        write_scene_map(file, landmarks.scene_map())
        return StageReport(file.name, landmarks.counts['deltas'])


def map_of_episode(episode: Episode) -> SceneMap | None:
    """The recorded map of an episode, else that of its deltas and poses; None: neither."""
    if episode.log.maps:
        return episode.log.maps[-1]
    if not episode.deltas:
        return None
    return map_of_deltas(episode.deltas, episode.poses)


def recorded_scene(episode: Episode, until_ns: float = math.inf) -> RecordingScene:
    """What an episode shows, with the recorded map, else the one that the deltas give.

    Args:
        episode: A recorded episode with deltas.
        until_ns: Know nothing that came later than this stamp [ns].
    """
    deltas = tuple(delta for delta in episode.posed_deltas if delta.stamp_ns <= until_ns)
    maps = [each for each in episode.log.maps if newest_stamp_ns(each) <= until_ns]
    return RecordingScene(deltas, scene_map=maps[-1] if maps else map_of_deltas(deltas))


def scene_of_episode(episode: Episode, until_s: float | None = None) -> Scene:
    """What its tools compute from, with the recorded map, else the one that the deltas give.

    Args:
        episode: A recorded episode with deltas.
        until_s: Know nothing that came later than this after the first keyframe [s].

    Raises:
        InputError: There was no keyframe until then.
    """
    until_s = math.inf if until_s is None else until_s
    if not until_s >= 0:
        msg = f'until_s is {until_s}: expected seconds from the first keyframe on, 0 or more'
        raise InputError(msg)
    begin_ns = min(delta.stamp_ns for delta in episode.deltas)
    until_ns = math.inf if until_s == math.inf else begin_ns + round(until_s * NS_PER_S)
    scene = recorded_scene(episode, until_ns)
    return Scene(scene.deltas, scene.scene_map)


def map_of_deltas(deltas: Sequence[SemanticDelta], poses: Sequence[Pose] = ()) -> SceneMap:
    """The map of deltas by the poses that they carry, else by others.

    Args:
        deltas: The deltas, oldest first.
        poses: Of the camera link at each delta; empty: not known.
    """
    landmarks = LandmarkMap()
    for delta, pose in zip_longest(deltas, poses):
        landmarks.add(delta, CameraView(delta.pose or pose))
    return landmarks.scene_map()


def map_of_recorded(path: Path) -> LandmarkMap:
    """The map by the deltas that were recorded, with the poses of their keyframes.

    Raises:
        BagError: The bag is damaged, or has no recorded deltas.
    """
    episode = read_episode(path, 'recorded')
    views = {
        (keyframe.camera, keyframe.stamp_ns): CameraView(keyframe.pose, keyframe.intrinsics)
        for keyframe in read_keyframes(path)
    }
    landmarks = LandmarkMap()
    for number, delta in enumerate(episode.deltas):
        view = views.get((delta.camera, delta.stamp_ns), CameraView())
        if view.pose is None and episode.poses:
            view = replace(view, pose=episode.poses[number])
        landmarks.add(delta, view)
    return landmarks


def perceive_path(
    path: Path, perceiver: PairPerceiver, config: KeyframeConfig | None = None
) -> Iterator[SemanticDelta]:
    """Perceive a video, a folder of images, or a bag with one image topic.

    Raises:
        SourceError: It cannot be read as a stream of images.
        BagError: The bag is damaged.
    """
    with open_source(path) as source:
        yield from perceive_images(source, perceiver, config)


def map_of_images(
    images: Iterable[StampedImage],
    perceiver: PairPerceiver,
    keyframing: KeyframeConfig | None = None,
    *,
    use_poses: bool = True,
) -> LandmarkMap:
    """The map of a stream of images, perceived anew.

    Args:
        images: Of one camera, in order, with poses and depth where there are some.
        perceiver: Who perceives.
        keyframing: When an image becomes a keyframe.
        use_poses: False: the motion comes from the images alone.
    """
    return map_of_keyframes(Keyframer(keyframing).stream(images), perceiver, use_poses=use_poses)


def map_of_keyframes(
    keyframes: Iterable[Keyframe],
    perceiver: PairPerceiver,
    *,
    use_poses: bool = True,
    each: Callable[[SemanticDelta], None] = lambda delta: None,
) -> LandmarkMap:
    """The map of the keyframes of one camera.

    Args:
        keyframes: In order, with poses and depth where there are some.
        perceiver: Who perceives.
        use_poses: False: the motion comes from the images alone.
        each: Is told each delta.
    """
    if not use_poses:
        keyframes = (replace(keyframe, pose=None) for keyframe in keyframes)
    mapper = Mapper(perceiver)
    for delta in mapper.deltas(keyframes):
        each(delta)
    return mapper.finished()


class Mapper:
    """Makes the map of keyframes: at once where poses or depth tell where each was, else at last.

    The way of a camera alone is known best when all of it was seen.
    """

    def __init__(self, perceiver: PairPerceiver) -> None:
        self._perceiver = perceiver
        self._held: dict[int, Keyframe] = {}
        self._map, self._way = LandmarkMap(), KeyframeWay()
        self._alone: list[tuple[SemanticDelta, CameraView]] = []
        self._is_alone: bool | None = None  # None: there was no keyframe yet

    def deltas(self, keyframes: Iterable[Keyframe]) -> Iterator[SemanticDelta]:
        """Perceive keyframes, and map what is perceived."""

        def holding() -> Iterator[Keyframe]:
            for keyframe in keyframes:
                self._held[keyframe.id] = keyframe
                yield keyframe

        for delta in perceive_keyframes(holding(), self._perceiver):
            self._add(delta)
            yield delta

    def _add(self, delta: SemanticDelta) -> None:
        keyframe = self._held.pop(delta.to_id)
        if self._is_alone is None:
            self._is_alone = keyframe.pose is None and keyframe.depth is None
        if not self._is_alone:
            depth = depth_of(keyframe.depth)
            self._map.add(delta, CameraView(keyframe.pose, keyframe.intrinsics, depth))
            return
        self._alone.append((delta, CameraView(keyframe.pose, keyframe.intrinsics)))
        seen = _as_seen(keyframe, self._perceiver)
        with suppress(ImageError):
            image = seen.image.decode()
            height, width = image.shape[:2]
            lens = seen.intrinsics or Intrinsics.from_fov(width, height, _ASSUMED_FOV_RAD)
            self._way.add(delta.to_id, find_features(image), lens, delta.motion)

    def finished(self) -> LandmarkMap:
        """The map of all."""
        poses = self._way.poses(START_FRAME, NOMINAL_M)
        for delta, view in self._alone:
            pose = view.pose or poses.get(delta.to_id)
            if pose is None:
                self._map.pass_over()
            else:
                self._map.add(delta, replace(view, pose=pose))
        self._alone = []
        return self._map
