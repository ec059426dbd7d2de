# SPDX-License-Identifier: Apache-2.0
"""Node `semantic_perceiver`: keyframes of one or several cameras become semantic deltas.

Callbacks hand keyframes to the perception worker, whose threads perceive and publish in order. A
focus runs in a thread of its own, a few at a time.
"""

from __future__ import annotations

from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
import threading
import time
from typing import Any, ClassVar, TYPE_CHECKING

from embodied_r_msgs.msg import Keyframe, SemanticDelta
from embodied_r_msgs.srv import Focus
from embodied_r_ros.apps.sheet import with_fixed, with_items
from embodied_r_ros.bags.messages import encoded_image_to_msg
from embodied_r_ros.bags.vision_messages import (
    DETECTIONS_3D,
    items_to_msg,
    MARKERS,
    markers_to_msg,
    placed_items,
    read_boxes,
)
from embodied_r_ros.common.errors import ConfigError, EmbodiedRError, ImageError, InputError
from embodied_r_ros.common.settings import setting, Settings
from embodied_r_ros.core.chat.client import HttpChatClient
from embodied_r_ros.core.chat.fallback import FallbackConfig, LatestModels
from embodied_r_ros.core.chat.settings import ChatConfig
from embodied_r_ros.core.perception.classical import ClassicalConfig, ClassicalPerceiver
from embodied_r_ros.core.perception.detector import Detector, DetectorConfig, DetectorPerceiver
from embodied_r_ros.core.perception.perceiver import FallbackPerceiver
from embodied_r_ros.core.perception.vlm import VlmConfig, VlmPerceiver
from embodied_r_ros.core.perception.worker import PerceptionWorker, WorkerConfig
from embodied_r_ros.core.types.deltas import DeltaKind, Rung
from embodied_r_ros.core.types.geometry import NS_PER_S
from embodied_r_ros.core.types.images import decode_image, encode_image
from embodied_r_ros.data.own_messages import delta_to_msg, focus_to_msg, keyframe_from_msg
from embodied_r_ros.nodes import topics
from embodied_r_ros.nodes.diagnostics import (
    fallback_health,
    Health,
    Level,
    Meter,
)
from embodied_r_ros.nodes.live_detections import DetectionsConfig, LiveDetections
from embodied_r_ros.nodes.node_base import ManagedNode, seconds
from embodied_r_ros.nodes.run import run
from embodied_r_ros.nodes.topics import (
    camera_topic,
    installed_class,
    PatientPublisher,
    ROS_MESSAGES,
)
from embodied_r_ros.nodes.watches import ModelWatch
from embodied_r_ros.nodes.worker import make_future
from embodied_r_ros.serving.model_files import detector_path
from embodied_r_ros.serving.profiles import load_profile, stand_in_server
from rclpy.callback_groups import ReentrantCallbackGroup
from sensor_msgs.msg import CompressedImage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from embodied_r_ros.core.perception.perceiver import PairPerceiver
    from embodied_r_ros.core.types import deltas, keyframes

_FOCUS_THREADS = 2
_FOCUS_IN_LINE = 8

_PICTURE = 'sensor_msgs/msg/CompressedImage'


class ItemExport:
    """Publishes items, as far as their messages are installed and somebody hears."""

    def __init__(self, node: ManagedNode) -> None:
        """Announce `items`, `items/markers` and `items/image` while the node is configured."""
        topic = 'items/image/compressed'
        picture = node.publisher(CompressedImage, topic, topics.RESULT)
        self._outputs: dict[str, Any] = {_PICTURE: picture}
        for kind, topic in ((DETECTIONS_3D, 'items'), (MARKERS, 'items/markers')):
            if message := installed_class(kind):
                self._outputs[kind] = node.publisher(message, topic, topics.RESULT)
        self._shown: defaultdict[str, int] = defaultdict(int)  # markers by camera
        self._lock = threading.Lock()

    def publish(self, delta: deltas.SemanticDelta, keyframe: keyframes.Keyframe | None) -> None:
        """Publish the items of a delta, in the frame of its image.

        Args:
            delta: The delta.
            keyframe: The newer of its keyframes; None: it is gone already.
        """
        publishers = {
            kind: publisher
            for kind, publisher in self._outputs.items()
            if publisher.get_subscription_count()
        }
        if not publishers:
            return
        lens = keyframe.intrinsics if keyframe else None
        places = placed_items(delta, lens.width / lens.height) if lens else placed_items(delta)
        if DETECTIONS_3D in publishers:
            publishers[DETECTIONS_3D].publish(items_to_msg(ROS_MESSAGES, delta, places))
        if MARKERS in publishers:
            with self._lock:
                before, self._shown[delta.camera] = self._shown[delta.camera], len(places)
            publishers[MARKERS].publish(markers_to_msg(ROS_MESSAGES, delta, places, before))
        if _PICTURE in publishers and keyframe:
            with suppress(ImageError):  # of a damaged keyframe nothing is drawn
                image = with_fixed(decode_image(keyframe.image.data), keyframe.fixed_mask)
                picture = encode_image(with_items(image, delta.items))
                msg = encoded_image_to_msg(
                    ROS_MESSAGES, keyframe.stamp_ns, keyframe.frame_id, picture
                )
                publishers[_PICTURE].publish(msg)


@dataclass(frozen=True)
class PerceiverConfig(Settings):
    """Which model perceives, and for which cameras."""

    cameras: tuple[str, ...] = setting(
        ('.',), "namespaces of the cameras; '.' is this node's own", read_only=True
    )
    perceiver: str = setting(
        'auto',
        'classical: geometry and colour, no model; detector: names things; vlm: a vision-language '
        'model; fused: vlm and detector together; auto: those of vlm and detector that are given '
        'or fetched, else classical',
        choices=('auto', 'classical', 'detector', 'vlm', 'fused'),
        read_only=True,
    )
    profile: str = setting(
        '',
        'model profile that perceives, with its vlm.* and worker.*; empty: the server of chat.*',
        read_only=True,
    )
    secondary: str = setting(
        '',
        'perceives where the model fails: a URL or a profile; each of the two has half of '
        'vlm.deadline_s; empty: none',
        read_only=True,
    )
    stand_in: bool = setting(
        True,
        'the detector, else the classical perceiver, stands in where all models fail',
        read_only=True,
    )
    focus_deadline_s: float = setting(
        10.0, 'time for a focus that names none [s]', between=(0.1, 600)
    )


class SemanticPerceiver(ManagedNode):
    """Publishes what each keyframe adds."""

    groups: ClassVar = {
        PerceiverConfig: '',
        ChatConfig: 'chat',
        VlmConfig: 'vlm',
        ClassicalConfig: 'classical',
        DetectorConfig: 'detector',
        DetectionsConfig: 'detections',
        WorkerConfig: 'worker',
        FallbackConfig: 'fallback',
    }
    at_configure: ClassVar = frozenset(
        {ChatConfig, VlmConfig, ClassicalConfig, DetectorConfig, WorkerConfig, FallbackConfig}
    )

    def __init__(self, **options: Any) -> None:
        super().__init__('semantic_perceiver', **options)
        self._looking = 0  # requests of a focus, in any thread or in line

    def configure(self) -> None:
        """Reach the model, where there is one.

        Raises:
            ModelError: The model server is not reachable.
            ConfigError: The profile or the token cannot be used.
            BagError: The recording whose boxes are used cannot be read.
        """
        self._worker_config = self.parameters.config(WorkerConfig)
        self._model_clients: dict[Rung, HttpChatClient] = {}
        detections = self.parameters.config(DetectionsConfig)
        self._detections = LiveDetections(detections) if detections.listen else None
        recording = detections.recording
        self._recorded = read_boxes(Path(recording)) if recording else None
        self._perceiver: PairPerceiver = self._choose()
        self._models = LatestModels('perceiver', [self._start()])
        self._model_watch = ModelWatch(
            self._model_clients,
            lambda: self.is_active and self._worker.stats().in_flight > 0,
            has_fallback=self.parameters.config(PerceiverConfig).stand_in,
        )
        self.while_configured.callback(self._model_watch.close)
        self._publisher = self.publisher(SemanticDelta, 'semantic_delta', topics.RESULT)
        self._items = ItemExport(self)
        self.serve(Focus, 'focus', self._focus, ReentrantCallbackGroup())

    def activate(self) -> None:
        """Perceive, starting new streams."""
        self._last_error = ''
        self._output = PatientPublisher(self, self._publisher)
        self._bad_keyframes = 0
        self._deltas = Meter()
        self._worker = PerceptionWorker(self._perceiver, self._publish, self._worker_config)
        self._pool = ThreadPoolExecutor(_FOCUS_THREADS, 'focus')
        self.while_active.callback(self._pool.shutdown, wait=False)
        self.while_active.callback(self._worker.close)
        cameras = self.parameters.config(PerceiverConfig).cameras
        if self._detections:
            self._detections.listen(self, cameras)
        for camera in cameras:
            topic = camera_topic(camera, 'keyframe')
            self.subscribe(Keyframe, topic, self._take, topics.RESULT, sender='keyframe_extractor')

    def models(self) -> list[dict[str, Any]]:
        """The models that perceive, best first."""
        return self._models.record()

    def report(self) -> Health:
        """Say how the perceiving goes."""
        stats = self._worker.stats()
        fallback = self._perceiver if isinstance(self._perceiver, FallbackPerceiver) else None
        values: dict[str, Any] = {
            **self._models.values(fallback.rung if fallback else Rung.PRIMARY),
            'keyframes': stats.submitted,
            'deltas': stats.published,
            'delta_age_s': self._deltas.age_s(),
            'failed': stats.failed,
            'coalesced': stats.coalesced,
            'discarded': stats.discarded,
            'bad_keyframes': self._bad_keyframes,
            'waiting': stats.waiting,
            'latency_s': stats.last_latency_ns / NS_PER_S,
        }
        if self._detections:
            values |= self._detections.values()
        if fallback:
            values['stood_in'] = fallback.stood_in
            problems = fallback.problems()
            if problems and not self._last_error:
                return fallback_health(problems, '', values)
        if self._last_error:
            return Health(Level.WARN, self._last_error, values)
        return Health(Level.OK, 'perceiving', values)

    def concerns(self) -> list[Health]:
        """Say what is wrong around the node, its model servers included."""
        return [*super().concerns(), *self._model_watch.health()]

    def _choose(self) -> PairPerceiver:
        """Make the perceiver that the parameters name.

        Raises:
            ConfigError: The profile or the token cannot be used.
        """
        config = self.parameters.config(PerceiverConfig)
        asked = self._asked_model(config)
        if asked is None:
            return self._local(config.perceiver, Rung.PRIMARY)
        chat, vlm = asked
        if config.secondary:
            vlm = replace(vlm, deadline_s=max(0.1, vlm.deadline_s / 2))
        self._model_clients[Rung.PRIMARY] = HttpChatClient(chat)
        if config.secondary:
            other = HttpChatClient(stand_in_server(config.secondary, 'perceiver', 'secondary'))
            self._model_clients[Rung.SECONDARY] = other
        must_detect = config.perceiver == 'fused' and not (self._detections or self._recorded)
        local = self._local('detector' if must_detect else 'auto', Rung.LOCAL)
        is_fused = config.perceiver != 'vlm' and isinstance(local, DetectorPerceiver)
        perceivers: dict[Rung, PairPerceiver] = {
            rung: VlmPerceiver(client, vlm, rung, local if is_fused else None)
            for rung, client in self._model_clients.items()
        }
        if config.stand_in:
            perceivers[Rung.LOCAL] = local
        return FallbackPerceiver(perceivers, self.parameters.config(FallbackConfig))

    def _asked_model(self, config: PerceiverConfig) -> tuple[ChatConfig, VlmConfig] | None:
        """How the model is reached and asked; None: there is none.

        Raises:
            ConfigError: The profile cannot be used.
        """
        is_named = config.perceiver in {'vlm', 'fused'}
        if not config.profile:
            chat, vlm = self.parameters.config(ChatConfig), self.parameters.config(VlmConfig)
            return (chat, vlm) if is_named else None
        profile = load_profile(config.profile)
        has_model = config.perceiver == 'auto' and 'perceiver' in profile.clients
        if not is_named and not has_model:
            return None
        self._worker_config = profile.worker
        return profile.client('perceiver'), profile.vlm

    def _local(self, kind: str, rung: Rung) -> ClassicalPerceiver:
        """A perceiver without a server: with names where there is a detector, or must be.

        Raises:
            ConfigError: The detector is missing where it was asked for, or cannot be used.
        """
        classical = self.parameters.config(ClassicalConfig)
        detector = self.parameters.config(DetectorConfig)
        source = self._detections or self._recorded
        boxes_of = source.of if source else None
        boxes_name = self._recorded.name if self._recorded else ''
        path = detector_path(detector.model) if kind != 'classical' else ''
        if not path and kind == 'detector':
            chosen = self.parameters.config(PerceiverConfig).perceiver
            msg = f'perceiver is {chosen}: set detector.model, or embodied-r models fetch detector'
            raise ConfigError(msg)
        if not path and boxes_of:
            return DetectorPerceiver(None, classical, rung, boxes_of, boxes_name)
        if not path:
            return ClassicalPerceiver(classical, rung)
        try:
            network = Detector(replace(detector, model=path))
        except ConfigError as error:
            if kind == 'detector' or detector.model:
                raise
            self.get_logger().warning(f'things get no names: {error}')
            if boxes_of:
                return DetectorPerceiver(None, classical, rung, boxes_of, boxes_name)
            return ClassicalPerceiver(classical, rung)
        self.get_logger().info(f'things get their names from {path}')
        return DetectorPerceiver(network, classical, rung, boxes_of)

    def _start(self) -> deltas.ModelInfo:
        """Which model perceives, now that it was reached.

        Raises:
            ModelError: What has to answer at the start does not.
        """
        if not isinstance(self._perceiver, FallbackPerceiver):
            return self._perceiver.info()
        self.while_configured.callback(self._perceiver.close)
        any_will_do = self.parameters.config(FallbackConfig).start == 'any'
        return self._perceiver.start() if any_will_do else self._perceiver.info()

    def _take(self, msg: Keyframe) -> None:
        try:
            self._worker.submit(keyframe_from_msg(msg))
        except EmbodiedRError as error:
            self._bad_keyframes += 1
            self.log_problem(error)

    def _publish(self, delta: deltas.SemanticDelta) -> None:
        """Publish a delta. Runs in a thread of the worker."""
        self._last_error = delta.error if delta.kind is DeltaKind.FAILED else ''
        # Whoever hears a delta may ask at once who wrote it.
        if self._models.note(delta.model):
            self.publish_provenance()
        self._output.publish(delta_to_msg(ROS_MESSAGES, delta))
        self._items.publish(delta, self._worker.keyframe(delta.to_id, delta.camera))
        self._deltas.tick()

    async def _focus(self, request: Focus.Request, response: Focus.Response) -> Focus.Response:
        if not self.is_active or self._looking >= _FOCUS_IN_LINE:
            busy = f'{_FOCUS_IN_LINE} looks are in line: ask later'
            response.error = busy if self.is_active else 'the perceiver is not active'
            return response
        self._looking += 1
        look_future = make_future(self)

        def look() -> None:
            try:
                self._look(request, response)
            except Exception as error:  # the asker must hear of it, whatever it was
                response.error = f'the look failed: {type(error).__name__}: {error}'
            look_future.set_result(None)

        self._pool.submit(look)
        await look_future
        self._looking -= 1
        return response

    def _look(self, request: Focus.Request, response: Focus.Response) -> None:
        """Fill a response. Runs in a thread of the pool."""
        default_s = self.parameters.config(PerceiverConfig).focus_deadline_s
        try:
            end = time.monotonic() + (seconds(request.deadline_s, 'deadline_s') or default_s)
        except InputError as error:
            response.error = str(error)
            return
        for keyframe_id in request.keyframe_ids:
            keyframe = self._worker.keyframe(keyframe_id, request.camera)
            left_s = end - time.monotonic()
            if keyframe is None or left_s <= 0 or not self.is_active:
                continue
            try:
                text = self._perceiver.focus(request.question, request.options, keyframe, left_s)
            except Exception as error:  # the asker must hear of it, whatever it was
                response.error = f'keyframe {keyframe_id}: {error}'
                continue
            if text.text:
                response.focus.append(focus_to_msg(ROS_MESSAGES, text))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the node."""
    return run(SemanticPerceiver, arguments)
