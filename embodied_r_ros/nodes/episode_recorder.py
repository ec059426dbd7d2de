# SPDX-License-Identifier: Apache-2.0
"""Node `episode_recorder`: one bag per episode, safe on the disk while it grows.

Messages are taken serialised and go into the bag untouched. Writing has a thread of its own, and a
bag is closed in another; only opening one is waited for.
"""

from __future__ import annotations

from array import array
from collections import deque
from dataclasses import replace
from datetime import datetime, timezone
from functools import partial
import threading
import time
from typing import Any, ClassVar, TYPE_CHECKING
from uuid import uuid4

from embodied_r_msgs.msg import Answer, AnswerLabel, EpisodeMark, Keyframe
from embodied_r_msgs.srv import LabelAnswer, StartEpisode, StopEpisode
from embodied_r_ros.bags.audit import AUDIT_NOTE, AuditConfig
from embodied_r_ros.common.errors import BagError
from embodied_r_ros.common.files import node_of
from embodied_r_ros.core.types import episodes
from embodied_r_ros.core.types.answers import SHADOW_ANSWER
from embodied_r_ros.core.types.episodes import AnswerNote, EpisodeEvent, EpisodeOutcome
from embodied_r_ros.data.episodes.labels import answer_in_words
from embodied_r_ros.data.episodes.record import (
    BagTopic,
    DiskForecast,
    EpisodeWriter,
    OwnTopics,
    StorageConfig,
)
from embodied_r_ros.data.own_messages import answer_from_msg, label_to_msg, mark_to_msg
from embodied_r_ros.nodes import topics
from embodied_r_ros.nodes.diagnostics import Health, Level
from embodied_r_ros.nodes.labelling import Labelling, Recovering
from embodied_r_ros.nodes.node_base import ManagedNode
from embodied_r_ros.nodes.run import run
from embodied_r_ros.nodes.topics import (
    ANSWER,
    image_topic,
    KEYFRAME,
    message_class,
    recorded_topics,
    RecordedTopic,
    RecorderConfig,
    ROS_MESSAGES,
    topic_values,
)
from embodied_r_ros.nodes.worker import in_time, make_future
from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.serialization import deserialize_message, serialize_message

if TYPE_CHECKING:
    from collections.abc import Sequence

_MB = 1024 * 1024
_LATCHED_MESSAGES = 100
_LATE_SYNC_S = 1.0
_SHORT_MIN = 10.0  # the disk is full so soon: a warning
_CLOSE_TIMEOUT_S = 20.0
_CLOCK_WAIT_S = 3.0  # for the first /clock
_LOOK_S = 0.1


class EpisodeRecorder(ManagedNode):
    """Records episodes and takes labels for their answers."""

    groups: ClassVar = {RecorderConfig: '', StorageConfig: '', AuditConfig: 'audit'}

    def __init__(self, **options: Any) -> None:
        super().__init__('episode_recorder', **options)
        self._episode: EpisodeWriter | None = None
        self._failure = ''  # why the last episode was not recorded to its end
        self._last_problems: Sequence[str] = ()  # of the last episode that ended

    def configure(self) -> None:
        """Check the disk and offer the services.

        Raises:
            BagError: The folder cannot be written, or the disk is nearly full.
        """
        self._storage = self.parameters.config(StorageConfig)
        self._storage.check()
        self._marks = self.publisher(EpisodeMark, 'episode_mark', topics.LATCHED)
        self._labels = self.publisher(AnswerLabel, 'answer_label', topics.RESULT)
        group = ReentrantCallbackGroup()
        self.serve(StartEpisode, 'start_episode', self._start, group)
        self.serve(StopEpisode, 'stop_episode', self._stop, group)
        self.serve(LabelAnswer, 'label_answer', self._label, group)
        self._labelling = Labelling(
            self, lambda label: self._labels.publish(label_to_msg(ROS_MESSAGES, label))
        )
        self._recovering = Recovering(self._storage.folder(), self.get_logger())
        self.while_configured.callback(self._recovering.stop)

    def activate(self) -> None:
        """Listen; what is latched is kept for the episodes to come."""
        self._failure = ''
        self._config = self.parameters.config(RecorderConfig)
        self._closing: list[threading.Thread] = []
        self._latched: dict[str, deque[bytes]] = {}
        self._topics = {
            image_topic(self.resolve_topic_name(topic.name), topic.transport): topic
            for topic in recorded_topics(self._config)
        }
        self.while_active.callback(self._abort)
        for name, topic in self._topics.items():
            take = partial(self._take, name, topic)
            self.subscribe(message_class(topic.type_name), name, take, topic.listen, raw=True)
        self.every(1.0, self._watch_the_disk)

    def reconfigure(self) -> None:
        """Take another limit of free space."""
        self._storage = self.parameters.config(StorageConfig)

    def report(self) -> Health:
        """Say how the recording goes."""
        values = {'free_mb': self._storage.free_mb(), **self._recovering.values()}
        if not self._episode:
            return self._idle(values)
        stats, audit = self._episode.stats(), self._episode.audit(self.now_ns())
        values |= {
            'episode': self._episode.start.episode_id,
            'messages': sum(stats.messages.values()),
            'dropped': sum(stats.dropped.values()),
            'queued_mb': stats.queued_bytes / _MB,
            'longest_unsynced_s': stats.longest_unsynced_s,
            'audit': '; '.join(audit.problems) or 'ok',
            **stats.messages,
            **topic_values(audit),
        }
        left_min = self._forecast.minutes_left(self._storage.min_free_mb)
        values['disk_minutes_left'] = 'unknown' if left_min is None else round(left_min)
        if stats.dropped or stats.longest_unsynced_s > _LATE_SYNC_S:
            return Health(Level.WARN, 'the disk is slower than the messages', values)
        if left_min is not None and left_min < _SHORT_MIN:
            return Health(Level.WARN, f'the disk is full in {left_min:.0f} minutes', values)
        if audit.problems:
            return Health(Level.WARN, f'recording, but {audit.problems[0]}', values)
        return Health(Level.OK, 'recording', values)

    def _idle(self, values: dict[str, Any]) -> Health:
        """How the node is while no episode runs."""
        values['last_audit'] = '; '.join(self._last_problems) or 'ok'
        values['nothing_publishes'] = ', '.join(self._unpublished())
        if self._failure:
            return Health(Level.ERROR, self._failure, values)
        if problem := self._recovering.problem():
            return Health(Level.WARN, problem, values)
        if lacking := self._lacking():
            message = f'an episode would lack {", ".join(lacking)}: nothing publishes it'
            return Health(Level.WARN, message, values)
        return Health(Level.OK, 'no episode is running', values)

    def _unpublished(self) -> list[str]:
        """Topics of an episode that nothing publishes now."""
        return [name for name in self._topics if not self.count_publishers(name)]

    def _lacking(self) -> list[str]:
        """Those of them without which an episode fails its audit."""
        needed = tuple(self.parameters.config(AuditConfig).expected_rates())
        return [name for name in self._unpublished() if name.endswith(needed)]

    def _take(self, name: str, topic: RecordedTopic, data: bytes) -> None:
        if topic.is_latched:
            # Of many publishers each newest one belongs into an episode; of one, its newest.
            kept = _LATCHED_MESSAGES if topic.listen is topics.LATCHED_OF_MANY else 1
            self._latched.setdefault(name, deque(maxlen=kept)).append(data)
        if not self._episode:
            return
        if topic.type_name == ANSWER and topic.name != SHADOW_ANSWER:
            msg = deserialize_message(data, Answer)
            self._episode.answers.note(msg.id, _note_of(msg))
        if topic.type_name == KEYFRAME and self._config.images == 'none':
            data = _without_image(data)
        self._episode.write(name, data, self.now_ns())

    async def _start(
        self, request: StartEpisode.Request, response: StartEpisode.Response
    ) -> StartEpisode.Response:
        if self.is_active and not await self._has_time():
            response.error_code = response.ERROR_NOT_ACTIVE
            response.error_msg = 'no /clock came, and use_sim_time is set'
            return response
        # During each wait another start may come, or the end of all recording: what is open then
        # is closed first, and from there on nothing waits until the new one is open.
        while self._episode:
            await self._close(self._end(EpisodeOutcome.ABORTED))
        if not self.is_active:
            response.error_code = response.ERROR_NOT_ACTIVE
            response.error_msg = 'the recorder is not active'
            return response
        try:
            episode = self._open(request.task, request.scene_id)
        except BagError as error:
            self._failure = response.error_msg = str(error)
            response.error_code = response.ERROR_STORAGE
            return response
        response.episode_id, response.bag_path = episode.start.episode_id, str(episode.folder)
        return response

    async def _has_time(self) -> bool:
        """Wait for the clock of a simulation or a recording; an episode cannot begin at 0."""
        end_s = time.monotonic() + _CLOCK_WAIT_S
        while not self.now_ns() and time.monotonic() < end_s:
            await in_time(self, make_future(self), _LOOK_S)
        return self.now_ns() > 0

    async def _stop(
        self, request: StopEpisode.Request, response: StopEpisode.Response
    ) -> StopEpisode.Response:
        if not self._episode:
            response.error_code = response.ERROR_NOT_RECORDING
            response.error_msg = f'no episode is running. {self._failure}'.strip()
            return response
        episode = self._end(_outcome(request.outcome))
        await self._close(episode)
        if self._failure:
            response.error_code, response.error_msg = response.ERROR_STORAGE, self._failure
            return response
        response.episode_id, response.bag_path = episode.start.episode_id, str(episode.folder)
        response.messages = sum(episode.stats().messages.values())
        return response

    async def _label(
        self, request: LabelAnswer.Request, response: LabelAnswer.Response
    ) -> LabelAnswer.Response:
        wait_s = self._storage.label_wait_s
        return await self._labelling.take(self._episode, request, response, wait_s)

    def _open(self, task: str, scene_id: str) -> EpisodeWriter:
        """Start an episode.

        Raises:
            BagError: The disk does not take it.
        """
        self._storage.check()
        episode_id = f'{datetime.now(timezone.utc):%Y%m%dT%H%M%SZ}-{uuid4().hex[:6]}'
        start = episodes.EpisodeMark(self.now_ns(), episode_id, EpisodeEvent.START, task, scene_id)
        episode = EpisodeWriter(
            self._storage.folder() / episode_id,
            start,
            [
                BagTopic(name, topic.type_name, topic.offer, topic.is_bulk, topic.is_urgent)
                for name, topic in self._topics.items()
            ],
            OwnTopics(self._marks.topic_name, self._labels.topic_name),
            self._notes(),
            self._storage.queue_mb * _MB,
        )
        self._failure = ''
        self._forecast = DiskForecast()
        self._forecast.note(time.monotonic(), self._storage.free_mb())
        if lacking := self._lacking():
            names = ', '.join(lacking)
            self.get_logger().warning(f'episode {episode_id} begins without {names}: no publisher')
        for name, messages in self._latched.items():
            for data in messages:
                episode.write(name, data, start.stamp_ns)
        self._episode = episode
        self._marks.publish(mark_to_msg(ROS_MESSAGES, start))
        return episode

    def _notes(self) -> dict[str, str]:
        """Provenance of every node that has published it, this one first."""
        notes = {
            self.get_fully_qualified_name(): self.provenance(),
            AUDIT_NOTE: self.parameters.config(AuditConfig).to_json(),
        }
        for data in self._latched.get(self.resolve_topic_name('provenance'), ()):
            text = deserialize_message(data, message_class('std_msgs/msg/String')).data
            if name := node_of(text):
                notes[name] = text
        return notes

    def _end(self, outcome: EpisodeOutcome) -> EpisodeWriter:
        """Mark the end of the running episode and let go of it; its bag is still open."""
        assert self._episode
        episode, self._episode = self._episode, None
        stop = replace(
            episode.start, stamp_ns=self.now_ns(), event=EpisodeEvent.STOP, outcome=outcome
        )
        episode.stop(stop)
        self._last_problems = episode.result.problems if episode.result else ()
        if self._last_problems:
            problems = '; '.join(self._last_problems)
            self.get_logger().warning(f'episode {stop.episode_id} fails its audit: {problems}')
        self._marks.publish(mark_to_msg(ROS_MESSAGES, stop))
        return episode

    def _close(self, episode: EpisodeWriter) -> Any:
        """Close a bag in a thread of its own; returns what can be awaited."""
        future = make_future(self)

        def close() -> None:
            self._close_now(episode)
            future.set_result(None)

        self._closing = [thread for thread in self._closing if thread.is_alive()]
        self._closing.append(threading.Thread(target=close, name='close bag'))
        self._closing[-1].start()
        return future

    def _close_now(self, episode: EpisodeWriter) -> None:
        try:
            episode.close()
        except BagError as error:
            how = f'`embodied-r episodes recover {episode.folder}`'
            self._failure = f'{error}; what was written is kept, {how} closes it'
            self.get_logger().error(self._failure)

    def _abort(self) -> None:
        """End the running episode, its bag closed, because the node is being deactivated."""
        if self._episode:
            self._close_now(self._end(EpisodeOutcome.ABORTED))
        for thread in self._closing:
            thread.join(_CLOSE_TIMEOUT_S)

    def _watch_the_disk(self) -> None:
        if not self._episode:
            return
        self._forecast.note(time.monotonic(), self._storage.free_mb())
        failure = self._episode.stats().error
        if not failure and self._storage.free_mb() < self._storage.min_free_mb:
            failure = f'the episode was ended: {self._storage.free_mb()} MB are left on the disk'
        if failure:
            self._failure = failure
            self.get_logger().error(failure)
            self._close(self._end(EpisodeOutcome.ABORTED))


def _outcome(value: int) -> EpisodeOutcome:
    return (
        EpisodeOutcome(value)
        if value in {outcome.value for outcome in EpisodeOutcome}
        else EpisodeOutcome.UNSET
    )


def _note_of(msg: Answer) -> AnswerNote:
    """What labels need to know of an answer; of one with values that are none, nothing."""
    try:
        answer = answer_from_msg(msg)
    except (ArithmeticError, ValueError):
        return AnswerNote()
    return AnswerNote(answer.options, answer_in_words(answer))


def _without_image(data: bytes) -> bytes:
    msg = deserialize_message(data, Keyframe)
    msg.image.data = array('B')
    return bytes(serialize_message(msg))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the node."""
    return run(EpisodeRecorder, arguments)
