# SPDX-License-Identifier: Apache-2.0
"""Node `spatial_reasoner`: answers questions from the semantic deltas that it receives."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from importlib import import_module
import itertools
from itertools import groupby
import threading
import time
from typing import Any, ClassVar, TYPE_CHECKING
from uuid import uuid4

from embodied_r_msgs.action import Ask
from embodied_r_msgs.msg import Answer, EpisodeMark, KeypointProposal, SemanticDelta
from embodied_r_msgs.srv import AskOnce, Focus, ResetMemory
from embodied_r_ros.bags.messages import stamp_ns_from_msg
from embodied_r_ros.common.errors import CancelledError, InputError
from embodied_r_ros.common.settings import setting, Settings
from embodied_r_ros.core.chat.client import HttpChatClient
from embodied_r_ros.core.chat.fallback import FallbackConfig, LatestModels
from embodied_r_ros.core.chat.settings import ChatConfig
from embodied_r_ros.core.reasoning.image_targets import asked_kind
from embodied_r_ros.core.reasoning.question import Question, ReasonerConfig, RefusalCode
from embodied_r_ros.core.reasoning.queue import Outcome, QuestionQueue, QueueConfig, Termination
from embodied_r_ros.core.reasoning.reasoner import chat_fallback, models_at_start, Reasoner
from embodied_r_ros.core.reasoning.shadow import ShadowConfig
from embodied_r_ros.core.scene.goals import goal_proposal, is_order
from embodied_r_ros.core.scene.landmark_map import MapConfig
from embodied_r_ros.core.scene.memory import LiveMemory
from embodied_r_ros.core.types.answers import Check
from embodied_r_ros.core.types.deltas import Rung
from embodied_r_ros.data.own_messages import (
    answer_to_msg,
    delta_from_msg,
    focus_from_msg,
    proposal_to_msg,
)
from embodied_r_ros.nodes import topics
from embodied_r_ros.nodes.diagnostics import fallback_health, Health, Meter
from embodied_r_ros.nodes.newest_image import NewestImage, NoImageError
from embodied_r_ros.nodes.node_base import ManagedNode, seconds
from embodied_r_ros.nodes.question_server import (
    AskingServer,
    fill_ending,
    StandingConfig,
    StandingQuestion,
)
from embodied_r_ros.nodes.run import run
from embodied_r_ros.nodes.scene_mapper import SceneMapper, SceneMapperConfig
from embodied_r_ros.nodes.shadow import ShadowOfReasoner
from embodied_r_ros.nodes.topics import ROS_MESSAGES
from embodied_r_ros.nodes.watches import ModelWatch, RecorderWatch
from embodied_r_ros.serving.profiles import load_profile, stand_in_server
from rclpy.callback_groups import ReentrantCallbackGroup
from sensor_msgs.msg import TimeReference
from std_srvs.srv import Trigger

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from embodied_r_ros.core.reasoning.question import Listener
    from embodied_r_ros.core.reasoning.queue import QueuedQuestion
    from embodied_r_ros.core.types import answers, deltas
    from embodied_r_ros.core.types.answers import FocusText

# Keypoints of an arm are a part of the node that is loaded by its name: the arm is nobody else's.
_KEYPOINTS: Any = import_module('embodied_r_ros.nodes.arm.keypoint_server')
# How late a cancel may be noticed [s]; two events cannot be waited for at once.
_POLL_S = 0.05


class FocusClient:
    """Calls `focus` from a thread of its caller's; the executor delivers the response."""

    def __init__(self, node: ManagedNode) -> None:
        """Connect for as long as the node is configured."""
        self._node = node
        self._client = node.create_client(Focus, 'focus')
        node.while_configured.callback(node.destroy_client, self._client)

    def look(
        self,
        question: str,
        options: Sequence[str],
        deltas: Sequence[deltas.SemanticDelta],
        deadline_s: float,
        cancel: threading.Event | None,
    ) -> list[FocusText]:
        """Ask what the newer keyframes of some deltas show; what comes too late is left out.

        Args:
            question: The question.
            options: Its options.
            deltas: Deltas whose newer keyframes are to be looked at.
            deadline_s: Time for all of them [s].
            cancel: Ends the look soon after it is set.

        Raises:
            CancelledError: `cancel` was set.
        """
        end = time.monotonic() + deadline_s
        texts: list[FocusText] = []
        by_camera = sorted(deltas, key=lambda delta: delta.camera)
        for camera, group in groupby(by_camera, key=lambda delta: delta.camera):
            request = Focus.Request(
                question=question,
                options=list(options),
                keyframe_ids=[delta.to_id for delta in group],
                camera=camera,
            )
            texts += self._call(request, end, cancel)
        return texts

    def _call(
        self, request: Focus.Request, end: float, cancel: threading.Event | None
    ) -> list[FocusText]:
        left_s = end - time.monotonic()
        if left_s <= 0 or not self._client.service_is_ready():
            return []
        request.deadline_s = left_s
        arrival = threading.Event()
        future = self._client.call_async(request)
        future.add_done_callback(lambda _: arrival.set())
        try:
            while not arrival.wait(_POLL_S):
                if cancel is not None and cancel.is_set():
                    msg = 'the look was cancelled'
                    raise CancelledError(msg)
                if time.monotonic() >= end:
                    return []
        finally:
            self._client.remove_pending_request(future)
        response = future.result()
        if response.error:
            self._node.get_logger().warning(f'focus: {response.error}', throttle_duration_sec=5.0)
        return [focus_from_msg(msg) for msg in response.focus]


@dataclass(frozen=True)
class ReasonerNodeConfig(Settings):
    """Which models answer."""

    profile: str = setting(
        '',
        'model profile that answers, with its settings reasoner.*; empty: the server of chat.*',
        read_only=True,
    )
    secondary: str = setting(
        '',
        'answers where the model fails: a URL or a profile; empty: none',
        read_only=True,
    )
    local: str = setting(
        '',
        'what answers where that fails too: a small model on the robot, likewise',
        read_only=True,
    )
    model_timeout_s: float = setting(
        10.0,
        'time in which the model server must say what it serves [s]',
        between=(0.1, 600),
        read_only=True,
    )

    def suited_settings(self) -> Mapping[str, Any]:
        """Settings of `ReasonerConfig` that suit the model of the profile."""
        return load_profile(self.profile).reasoner if self.profile else {}

    def clients(
        self, chat: ChatConfig, say: Callable[[str], None] = lambda line: None
    ) -> dict[Rung, HttpChatClient]:
        """Clients of all models.

        Args:
            chat: The server, where no profile is named.
            say: Told where the profile's slot holds what has gone: the tools answer then.

        Raises:
            ConfigError: A profile, URL or token cannot be used.
        """
        servers = {Rung.PRIMARY: chat}
        if self.profile:
            profile = load_profile(self.profile)
            client = None if profile.has_no_model else profile.client('reasoner')
            is_here = client and 'reasoner' in profile.without_gone(say).clients
            servers = {Rung.PRIMARY: client} if client and is_here else {}
        for rung, name in ((Rung.SECONDARY, self.secondary), (Rung.LOCAL, self.local)):
            if name:
                servers[rung] = stand_in_server(name, 'reasoner', rung.name)
        return {rung: HttpChatClient(server) for rung, server in servers.items()}


# Outcomes that say nothing of the scene or the model are not published.
_SILENT_CODES = {RefusalCode.NOT_ACTIVE, RefusalCode.BAD_QUESTION, RefusalCode.BUSY}
_SILENT_ENDS = {Termination.CANCELLED, Termination.DEACTIVATED}


class SpatialReasoner(ManagedNode):
    """Answers questions about the deltas."""

    groups: ClassVar = {
        ReasonerNodeConfig: '',
        StandingConfig: '',
        SceneMapperConfig: '',
        ChatConfig: 'chat',
        ReasonerConfig: 'reasoner',
        QueueConfig: 'queue',
        MapConfig: 'map',
        FallbackConfig: 'fallback',
        **_KEYPOINTS.GROUPS,
        ShadowConfig: 'shadow',
    }
    at_configure: ClassVar = _KEYPOINTS.AT_CONFIGURE | {
        ChatConfig, FallbackConfig, MapConfig, SceneMapperConfig, ShadowConfig
    }  # fmt: skip

    def __init__(self, **options: Any) -> None:
        super().__init__('spatial_reasoner', **options)
        self._run_id = f'{datetime.now(timezone.utc):%Y%m%dT%H%M%SZ}-{uuid4().hex[:6]}'
        self._counter = itertools.count(1)
        self._shadow: ShadowOfReasoner | None = None
        self.diagnostics.tasks['shadow'] = lambda: self._shadow.health() if self._shadow else None

    def configure(self) -> None:
        """Reach the model and offer to answer.

        Raises:
            ModelError: The model server is not reachable.
            ConfigError: The profile or the token cannot be used.
            InputError: The map in `map_dir` cannot be read.
        """
        self._images = NewestImage()
        self._keypoints = _KEYPOINTS.KeypointServer(self, self._images, self._run_id)
        config = self.parameters.config(ReasonerNodeConfig)
        clients = config.clients(self.parameters.config(ChatConfig), self.get_logger().warning)
        self._fallback = chat_fallback(clients, self.parameters.config(FallbackConfig))
        self.while_configured.callback(self._fallback.close)
        self.parameters.suggest(ReasonerConfig, config.suited_settings())
        at_start = models_at_start(self._fallback, config.model_timeout_s)
        self._models = LatestModels('reasoner', at_start)
        self._memory = LiveMemory(self.parameters.config(ReasonerConfig).memory())
        self._mapper = SceneMapper(
            self,
            self.parameters.config(SceneMapperConfig),
            self.parameters.config(MapConfig),
        )
        self._outcomes: Counter[str] = Counter()
        self._checks: Counter[Check] = Counter()
        self._last_problem = self._goal_problem = ''
        self._focus = FocusClient(self)
        self._answers = self.publisher(Answer, 'answer', topics.RESULT)
        self._goals = self.publisher(KeypointProposal, 'goal_proposal', topics.RESULT)
        self._shadow = ShadowOfReasoner.of(self, self.parameters.config(ShadowConfig))
        self._queue = self._new_queue(is_open=False)
        self._model_watch = ModelWatch(clients, lambda: not self.is_idle())
        self.while_configured.callback(self._model_watch.close)
        self._offer()

    def activate(self) -> None:
        """Listen and answer, remembering nothing from before."""
        self._memory.reset()
        self._mapper.publish()
        self._mapper.listen()
        self.while_active.callback(self._mapper.save)
        self._delta_meter, self._answer_meter = Meter(), Meter()
        self._recorder = RecorderWatch(self)
        self._queue = self._new_queue(is_open=True)
        self.while_active.callback(self._queue.close, Termination.DEACTIVATED)
        if self._shadow:
            self._shadow.start(self.parameters.config(ReasonerConfig), self.is_idle)
        self.subscribe(
            SemanticDelta,
            'semantic_delta',
            self._take_delta,
            topics.RESULT,
            sender='semantic_perceiver',
        )
        self.subscribe(TimeReference, 'unchanged', self._take_unchanged, topics.RESULT)
        self.subscribe(EpisodeMark, 'episode_mark', self._take_mark, topics.LATCHED)
        self.when_clock_jumps_back(self._forget_the_future)
        self._standing.start()
        self._keypoints.start()

    def reconfigure(self) -> None:
        """Answer with other settings from the next question on."""
        self._keypoints.reconfigure()
        deadline_s = self.parameters.config(ReasonerConfig).deadline_s
        self._queue.reconfigure(self._reasoner(), deadline_s)
        if self._shadow:
            self._shadow.reconfigure(self.parameters.config(ReasonerConfig))
        self._standing.news()

    def models(self) -> list[dict[str, Any]]:
        """The models that answer, best first."""
        return self._models.record()

    def report(self) -> Health:
        """Say how the answering goes."""
        values = {
            **self._models.values(next((s.rung for s in self._fallback.order()), Rung.PRIMARY)),
            'deltas': len(self._memory.deltas()),
            'deltas_received': self._delta_meter.count,
            'delta_age_s': self._delta_meter.age_s(),
            'answers': self._answer_meter.count,
            'answer_age_s': self._answer_meter.age_s(),
            **{check.name.lower(): self._checks[check] for check in Check},
            **self._mapper.values(),
            'deltas_left_out': self._memory.left_out,
            'memory_resets': self._memory.resets,
            'questions_waiting': self._queue.pending(),
            'turned_away': self._queue.turned_away,
            'goal_problem': self._goal_problem,
            **self._keypoints.values(),
            **self._outcomes,
        }
        problems = self._fallback.problems()
        return self._recorder.extend_health(fallback_health(problems, self._last_problem, values))

    def concerns(self) -> list[Health]:
        """Say what is wrong around the node, its model servers included."""
        return [*super().concerns(), *self._model_watch.health()]

    def _new_queue(self, *, is_open: bool) -> QuestionQueue:
        return QuestionQueue(
            self._reasoner(),
            self._memory.deltas,
            self.now_ns,
            self.parameters.config(QueueConfig),
            self.parameters.config(ReasonerConfig).deadline_s,
            is_open=is_open,
        )

    def _reasoner(self) -> Reasoner:
        return Reasoner(self._fallback, self.parameters.config(ReasonerConfig), self._focus.look)

    def _offer(self) -> None:
        """Offer the actions and services while configured."""
        asking = AskingServer(self, (Ask, AskOnce), 'ask', self._ask_goal, _fill_ask, self.cancel)
        self._servers = [asking, self._keypoints.offer(self._memory)]
        self._standing = StandingQuestion(self, self._is_free, self._put_standing)
        self.serve(Trigger, 'cancel_ask', self._cancel_all, ReentrantCallbackGroup())
        self.serve(ResetMemory, 'reset_memory', self._reset_memory)

    def _take_delta(self, msg: SemanticDelta) -> None:
        self._delta_meter.tick()
        delta = delta_from_msg(msg)
        if self._memory.add(delta):
            self._mapper.add(delta)
            self._standing.news()

    def _take_unchanged(self, msg: TimeReference) -> None:
        keyframe_ns = stamp_ns_from_msg(msg.time_ref)
        self._memory.confirm(msg.source, keyframe_ns, stamp_ns_from_msg(msg.header.stamp))

    def _take_mark(self, msg: EpisodeMark) -> None:
        self._recorder.take_mark(msg)
        if msg.event == EpisodeMark.EVENT_START:
            self._memory.start_episode(msg.episode_id, stamp_ns_from_msg(msg.header.stamp))
            self._keypoints.begin_anew(stamp_ns_from_msg(msg.header.stamp))
        else:
            self._memory.stop_episode()

    def _forget_the_future(self) -> None:
        self.get_logger().info(f'time jumped back: {self._memory.reset()} deltas are forgotten')

    def _reset_memory(
        self, request: ResetMemory.Request, response: ResetMemory.Response
    ) -> ResetMemory.Response:
        response.forgotten = self._memory.reset()
        if request.forget_map:
            self._mapper.forget()
        why = request.reason or 'no reason given'
        self.get_logger().info(f'{response.forgotten} deltas are forgotten: {why}')
        return response

    def put(
        self,
        question: Question,
        deliver: Callable[[Outcome], None] = lambda outcome: None,
        listener: Listener = lambda phase, text: None,
    ) -> QueuedQuestion:
        """Put a question into the queue; its answer is published, and `deliver` is called once."""

        def finish(outcome: Outcome) -> None:
            try:
                outcome = self._publish(outcome, episode_question)
            except Exception as error:  # the asker must hear of the outcome, whatever it was
                self.log_problem(error)
            deliver(outcome)

        scene_map = self._mapper.scene_map()
        is_used = self.parameters.config(ReasonerConfig).use_map and scene_map.landmarks
        episode_question = replace(
            question,
            episode_id=self._memory.episode_id,
            scene_map=scene_map if is_used else None,
            earlier=self._mapper.earlier(),
        )
        answer_id = f'{self._run_id}-{next(self._counter)}'
        request = self._queue.ask(episode_question, answer_id, finish, listener)
        if self._shadow:
            self._shadow.give_way()
        return request

    def _ask_goal(
        self, goal: Any, deliver: Callable[[Outcome], None], listener: Listener
    ) -> QueuedQuestion | None:
        try:
            limits = seconds(goal.max_age_s, 'max_age_s'), seconds(goal.deadline_s, 'deadline_s')
        except InputError as error:
            bad = Question(goal.question, tuple(goal.options))
            deliver(Outcome.refusal(bad, '', RefusalCode.BAD_QUESTION, str(error)))
            return None
        question = Question(
            goal.question, tuple(goal.options), *limits, int(goal.seed), takes_orders=True
        )
        config = self.parameters.config(ReasonerConfig)
        if config.show_image and asked_kind(question.text, question.options):
            try:
                question = replace(question, shown=self._images.shown())
            except NoImageError as error:
                code = RefusalCode.NO_OBSERVATION
                deliver(Outcome.refusal(question, '', code, str(error)))
                return None
        return self.put(question, deliver, listener)

    def _publish(self, outcome: Outcome, question: Question) -> Outcome:
        """Publish and count the outcome of a question, and propose the goal that it means.

        Runs in a thread of the queue. Returns the outcome, whose answer says whether a goal came
        of it.
        """
        result = outcome.code.name.lower() if outcome.code else outcome.termination.value
        self._outcomes[result] += 1
        if outcome.termination in _SILENT_ENDS or outcome.code in _SILENT_CODES:
            return outcome
        is_error = outcome.termination is Termination.ERROR
        self._last_problem = outcome.message if is_error else ''
        # Whoever hears an answer may ask at once who gave it.
        if self._models.note(outcome.answer.model):
            self.publish_provenance()
        answer, goal = outcome.answer, None
        if outcome.is_completed:
            self._answer_meter.tick()
            self._checks[answer.check] += 1
            answer, goal = self._with_goal(answer)
        self._answers.publish(answer_to_msg(ROS_MESSAGES, answer))
        if goal:
            self._goals.publish(proposal_to_msg(ROS_MESSAGES, goal))
        self._recorder.note(answer)
        if self._shadow:
            self._shadow.offer(answer, question, self._memory.deltas())
        return replace(outcome, answer=answer)

    def _with_goal(
        self, answer: answers.Answer
    ) -> tuple[answers.Answer, answers.KeypointProposal | None]:
        """An answer that says whether a goal came of it, and the goal; None: none did."""
        if not is_order(answer.question):
            return answer, None
        standoff_m = self.parameters.config(SceneMapperConfig).goal_standoff_m
        try:
            goal = goal_proposal(answer, self._mapper.scene_map(), standoff_m)
        except InputError as error:
            self._goal_problem = f'no goal for {answer.question!r}: {error}'
            self.log_problem(error)
            reasons = filter(None, (answer.check_reason, f'no goal: {error}'))
            return replace(answer, check_reason='; '.join(reasons)), None
        self._goal_problem = ''
        return replace(answer, has_goal=True), goal

    def cancel(self, request: QueuedQuestion) -> None:
        """Cancel a question."""
        self._queue.cancel(request)

    def is_idle(self) -> bool:
        """Tell whether no question waits for an answer."""
        return not self._queue.pending()

    def _is_free(self) -> bool:
        """Tell whether the standing question may be put: it and the standing task take turns."""
        return self.is_idle() and not self._keypoints.has_turn()

    def _put_standing(self, question: Question) -> None:
        self._keypoints.note_standing_question()
        self.put(question)

    async def _cancel_all(
        self, request: Trigger.Request, response: Trigger.Response
    ) -> Trigger.Response:
        del request
        count = sum([await server.cancel() for server in self._servers])
        response.success = count > 0
        response.message = f'{count} questions cancelled'
        return response


def _fill_ask(goal: Any, result: Any, outcome: Outcome) -> Any:
    del goal
    fill_ending(result, outcome)
    result.answer = answer_to_msg(ROS_MESSAGES, outcome.answer)
    return result


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the node."""
    return run(SpatialReasoner, arguments)
