# SPDX-License-Identifier: Apache-2.0
"""A question about the scene becomes an answer with its reasoning."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
import logging
import math
import time
from typing import Any, TYPE_CHECKING

from embodied_r_ros.common.errors import CancelledError, ConfigError, DeadlineError, ModelError
from embodied_r_ros.common.untrusted import as_data
from embodied_r_ros.core.chat.fallback import Fallback, FallbackConfig, FallbackStep, NoReplyError
from embodied_r_ros.core.chat.protocol import (
    ChatClient,
    ChatMessage,
    ChatRequest,
    ending_problem,
    left_s,
    NO_TIME,
    see_that_it_speaks,
)
from embodied_r_ros.core.reasoning.calling import answer_by_calls, is_repeated, run_calls
from embodied_r_ros.core.reasoning.calls import (
    calls_prompt,
    CALLS_PROMPT_VERSION,
    grammar,
    labels_to_list,
    MOST_TOKENS,
    parse_calls,
    read_calls,
)
from embodied_r_ros.core.reasoning.completions import (
    form_grammar,
    number_in,
    option_confidence,
    parse_completion,
    read_answer,
)
from embodied_r_ros.core.reasoning.prompts import (
    build_prompt,
    image_prompt,
    MOST_CALLS,
    Prompt,
    recorded_prompt,
    REPAIR,
    with_tools,
)
from embodied_r_ros.core.reasoning.question import (
    age_ns,
    freshness_of,
    last_look_ns,
    Phase,
    Question,
    question_problem,
    ReasonerConfig,
    Refusal,
    RefusalCode,
    staleness,
)
from embodied_r_ros.core.reasoning.saying import (
    answer_by_tools,
    answer_readings,
    combine_readings,
    holds,
    is_doubtful,
    ToolAnswer,
    with_check,
    with_tool_answer,
    without_support,
)
from embodied_r_ros.core.reasoning.sentences import known
from embodied_r_ros.core.scene.memory import mentions, question_terms
from embodied_r_ros.core.scene.tools import Scene
from embodied_r_ros.core.types.answers import (
    Answer,
    AnswerKind,
    Check,
    Freshness,
    RejectedCompletion,
    Sampling,
)
from embodied_r_ros.core.types.deltas import DeltaKind, ModelInfo, Rung
from embodied_r_ros.core.types.geometry import NS_PER_S
from embodied_r_ros.core.types.landmarks import newest_stamp_ns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    import threading

    from embodied_r_ros.core.chat.protocol import FunctionCall, TokenAlternatives
    from embodied_r_ros.core.reasoning.question import Listener, Look
    from embodied_r_ros.core.reasoning.reading import Call
    from embodied_r_ros.core.types.answers import FocusText
    from embodied_r_ros.core.types.deltas import SemanticDelta
    from embodied_r_ros.core.types.images import EncodedImage
    from embodied_r_ros.core.types.landmarks import Landmark, SceneMap


_log = logging.getLogger(__name__)
NO_FORMAT = (
    'the completion is not <think>…</think><answer>…</answer>, and no answer to the question can '
    'be read in it'
)
# Fields of an answer that come from the scene, and not from the model or its prompt.
_OF_A_SCENE = (
    'options', 'delta_ids', 'deltas_merged', 'deltas_omitted', 'map_revision', 'landmark_ids',
    'landmark_age_ns', 'focus', 'sampling', 'observation_stamp_ns', 'standing', 'frame_id',
    'episode_id',
)  # fmt: skip


@dataclass
class _Generation:
    """What came from the model so far."""

    start_ns: int = 0  # when it was asked, in the monotonic clock
    text: str = ''
    tokens: list[TokenAlternatives] = field(default_factory=list)
    calls: tuple[FunctionCall, ...] = ()  # of tools, that it asks for
    first_token_ns: int = 0
    end_ns: int = 0
    ending: str = ''  # why it ended, where that is not as usual


@dataclass
class _PendingQuestion:
    """A question on its way through the fallback."""

    question: Question
    deltas: Sequence[SemanticDelta]
    prompt: Prompt
    start_ns: int  # when it arrived, in the monotonic clock
    now_ns: Callable[[], int]
    listener: Listener
    cancel: threading.Event | None
    was_begun: bool = False  # a model spoke, which gave no answer
    repair: tuple[str, str] | None = None  # a completion without support, and why it has none

    @property
    def is_seen(self) -> bool:
        """Whether deltas or a map are there to compare with."""
        return bool(self.deltas) or _has_map(self.question)

    def request(self, sampling: Sampling, *, may_call: bool) -> ChatRequest:
        """The prompt, with what was wrong with the previous completion."""
        request = self.prompt.request(sampling, may_call=may_call)
        if self.repair is None:
            return request
        said, reason = self.repair
        told = ChatMessage('user', REPAIR.format(reason=as_data(reason)))
        messages = (*request.messages, ChatMessage('assistant', said), told)
        return replace(request, messages=messages)


@dataclass(frozen=True)
class _Turn:
    """The turn of one model at a question."""

    step: ChatStep
    end: int  # until when it must answer, in the monotonic clock
    pending: _PendingQuestion
    scene: Scene

    def left_s(self) -> float:
        """Time that is left [s].

        Raises:
            DeadlineError: None is.
        """
        return left_s(self.end / NS_PER_S)


def _with_calls(pending: _PendingQuestion, answer: Answer) -> _PendingQuestion:
    """The question with what its model has called so far."""
    if not answer.turns:
        return pending
    prompt = with_tools(pending.prompt, answer.turns, answer.calls)
    return replace(pending, prompt=prompt, was_begun=False)


def worth_looking(
    deltas: Sequence[SemanticDelta], landmarks: Sequence[Landmark], count: int
) -> list[SemanticDelta]:
    """Deltas whose newer keyframes are to be looked at again, oldest first.

    Args:
        deltas: All that are known, oldest first.
        landmarks: What the question names: the keyframe that shows each best comes first, and the
            newest ones fill what is left.
        count: How many at most.
    """
    best = {landmark.keyframe_ids[0] for landmark in landmarks if landmark.keyframe_ids}
    # Of ids that came twice, after a restart, the newest is meant.
    places = {delta.to_id: place for place, delta in enumerate(deltas)}
    shown = sorted(places[best_id] for best_id in best if best_id in places)[-count:]
    rest = [place for place in range(len(deltas)) if place not in shown]
    chosen = sorted([*shown, *rest[len(rest) - min(len(rest), count - len(shown)) :]])
    return [deltas[place] for place in chosen]


def _scene_of(question: Question, deltas: Sequence[SemanticDelta], now_ns: int) -> Scene:
    scene = Scene(deltas, question.scene_map, now_ns=now_ns, has_times=question.has_times)
    scene.earlier = question.earlier
    return scene


def _with_prompt(
    draft: Answer,
    prompt: Prompt,
    deltas: Sequence[SemanticDelta],
    scene_map: SceneMap | None,
    now_ns: int,
) -> Answer:
    """A draft with its prompt, and with what of the deltas and of the scene map that holds."""
    scene, place = prompt.scene, prompt.place
    draft = replace(
        draft,
        prompt=prompt.user,
        prompt_sha256=prompt.sha256(),
        delta_ids=tuple(delta.to_id for delta in deltas[scene.omitted :]),
        deltas_merged=scene.merged,
        deltas_omitted=scene.omitted,
    )
    if scene_map is None or not place.text:
        return draft
    return replace(
        draft,
        map_revision=scene_map.revision,
        landmark_ids=place.landmark_ids,
        landmark_age_ns=age_ns(place.oldest_seen_ns, now_ns),
    )


def _map_stamp_ns(question: Question) -> int:
    return newest_stamp_ns(question.scene_map) if question.scene_map else 0


def _has_map(question: Question) -> bool:
    return question.scene_map is not None and bool(
        question.scene_map.landmarks or question.scene_map.path
    )


def _prompt(
    question: Question,
    deltas: Sequence[SemanticDelta],
    focus: Sequence[FocusText],
    config: ReasonerConfig,
) -> Prompt:
    if question.shown:
        return image_prompt(question.text, question.options, question.shown.image)
    parts = question.text, question.options, deltas, focus, config.memory(), question.scene_map
    prompt = build_prompt(*parts)
    return with_tools(prompt) if config.tools and not question.of_task else prompt


def _reader_problem() -> str:
    """Why questions cannot be read without a model; empty: they can, and at once."""
    try:
        known()
    except ConfigError as error:
        return str(error)
    return ''


class Reasoner:
    """Answers questions about deltas with a language model, or with several in a fallback.

    >>> from embodied_r_ros import Landmark, PathPoint, Reasoner, Scene, SceneMap
    >>> place = SceneMap((Landmark('chair', (2.0, 0.0, 0.5)),), (PathPoint(0, (0, 0, 0.5), 0),))
    >>> Reasoner().ask('How far is the chair?', Scene(place=place)).sentence
    'The chair is 2.0 m away, straight ahead.'
    """

    def __init__(
        self,
        models: ChatClient | ChatFallback | None = None,
        config: ReasonerConfig | None = None,
        look: Look | None = None,
    ) -> None:
        """Take the models, and what looks at keyframes again.

        Args:
            models: One model, or several in a fallback; none: the tools of the scene answer.
            config: How questions are answered; None: as usual.
            look: Looks at keyframes again; None: nothing does.

        Raises:
            ConfigError: There is no model, and what reads questions without one is not installed.
        """
        if isinstance(models, Fallback):
            self._fallback = models
        else:
            self._fallback = chat_fallback({Rung.PRIMARY: models} if models else {})
        self._reader_problem = _reader_problem()
        if not self._fallback.steps and self._reader_problem:
            raise ConfigError(self._reader_problem)
        if self._reader_problem:
            _log.warning('no answer of a model is checked: %s', self._reader_problem)
        self._config = config or ReasonerConfig()
        self._look = look
        self._count = 0

    def ask(
        self,
        question: str | Question,
        scene: Scene,
        listener: Listener = lambda phase, text: None,
    ) -> Answer:
        """Answer a question about a scene, whose newest observation is now.

        Args:
            question: In words, or with options and limits.
            scene: What is known of the place.
            listener: As of `answer`.

        Raises:
            Refusal: There is no answer.
        """
        self._count += 1
        asked = Question(question) if isinstance(question, str) else question
        return self.answer(
            replace(
                asked, scene_map=scene.place, has_times=scene.has_times, earlier=scene.earlier
            ),
            scene.deltas,
            answer_id=f'offline-{self._count}',
            now_ns=lambda: asked.shown.stamp_ns if asked.shown else scene.now_ns,
            listener=listener,
        )

    def answer(
        self,
        question: Question,
        deltas: Sequence[SemanticDelta],
        *,
        answer_id: str,
        now_ns: Callable[[], int],
        listener: Listener = lambda phase, text: None,
        cancel: threading.Event | None = None,
    ) -> Answer:
        """Answer a question from deltas.

        Args:
            question: The question.
            deltas: The deltas, oldest first; of a question that shows an image, none is read.
            answer_id: Id that the answer gets.
            now_ns: Gives the time in the clock of the image stamps, for the age [ns].
            listener: Gets each phase as it begins, and each piece of text as it comes; QUEUED
                after text means that another model begins anew.
            cancel: Ends the generation soon after it is set.

        Raises:
            Refusal: There is no answer: no observation, too old, no model, no time, no format.
            CancelledError: `cancel` was set.
        """
        start = time.monotonic_ns()
        if question.shown:
            question, deltas = replace(question, scene_map=None), ()
        draft = self._draft(question, deltas, answer_id)
        self._check(question, deltas, draft, now_ns())
        end = start + round((question.deadline_s or self._config.deadline_s) * NS_PER_S)
        with _refusing(lambda: draft):
            focus = self._focus(question, deltas, end, listener, cancel)
        prompt = _prompt(question, deltas, focus, self._config)
        draft = _with_prompt(draft, prompt, deltas, question.scene_map, now_ns())
        draft = replace(draft, focus=tuple(focus))
        pending = _PendingQuestion(question, deltas, prompt, start, now_ns, listener, cancel)
        if not self._fallback.steps:
            if question.of_task:
                raise Refusal(RefusalCode.MODEL, 'a task of an arm needs a model', draft)
            return self._by_tools(pending, draft, Rung.PRIMARY)
        try:
            answer = ask_with_fallback(
                self._fallback,
                end,
                lambda step, until: self._ask(step, until, pending, draft),
                draft,
            )
        except Refusal as refusal:
            if self._reader_problem or not self._config.check or question.of_task:
                raise
            # Where no model answers, the tools may.
            answer = self._by_tools(pending, refusal.answer, Rung.LOCAL)
            has_called = refusal.code is RefusalCode.FORMAT and refusal.answer.turns
            if answer.kind is AnswerKind.UNKNOWN and not has_called:
                raise
        return answer

    def _by_tools(self, pending: _PendingQuestion, draft: Answer, rung: Rung) -> Answer:
        """The answer that the tools of the scene give without a model, or by its last calls."""
        question, now_ns = pending.question, pending.now_ns()
        scene = _scene_of(question, pending.deltas, now_ns)
        found, check = self._found(question, scene), None
        own = answer_by_calls(question.text, question.options, scene, draft.calls)
        if own and (own.is_known or not found):
            found, check, _ = combine_readings(own, found)
        assert found  # the reader is there
        draft = replace(
            draft,
            model=ModelInfo('tools', rung=rung),
            observation_age_ns=age_ns(last_look_ns(draft, pending.deltas), now_ns),
            latency_ns=time.monotonic_ns() - pending.start_ns,
        )
        return with_tool_answer(draft, found, self._freshness(draft, pending, now_ns), check)

    def repeat(  # noqa: PLR0913
        self,
        answer: Answer,
        *,
        answer_id: str,
        now_ns: Callable[[], int],
        image: EncodedImage | None = None,
        prompt: Prompt | None = None,
        scene: Scene | None = None,
        cancel: threading.Event | None = None,
    ) -> Answer:
        """Answer from the very prompt of another answer, sampled as that one was.

        Where its model called tools, the prompt holds their results, and no more are called. Where
        either model writes calls, the question is asked anew about the same scene.

        Args:
            answer: The other answer, with its prompt.
            answer_id: Id that the new one gets.
            now_ns: As of `answer`.
            image: That the prompt shows; None: it shows none.
            prompt: In place of the recorded one; None: that one.
            scene: What was known then, for calls; None: nothing can tell.
            cancel: As of `answer`.

        Raises:
            Refusal: There is no answer: no model, no time, no format.
            CancelledError: `cancel` was set.
        """
        is_of_calls = answer.model.prompt_version == CALLS_PROMPT_VERSION
        if scene and (is_of_calls or self._config.writes == 'calls'):
            question = Question(answer.question, answer.options, scene_map=scene.place)
            return self.answer(
                question, scene.deltas, answer_id=answer_id, now_ns=now_ns, cancel=cancel
            )
        if not prompt and (is_of_calls or self._config.writes == 'calls'):
            msg = 'calls are run over the scene, of which a prompt alone holds the names: ask anew'
            raise Refusal(RefusalCode.MODEL, msg, answer)
        start = time.monotonic_ns()
        prompt = prompt or recorded_prompt(answer, (image,) if image else ())
        kept: dict[str, Any] = {name: getattr(answer, name) for name in _OF_A_SCENE}
        draft = Answer(
            answer_id,
            answer.question,
            AnswerKind.UNKNOWN,
            prompt=prompt.user,
            prompt_sha256=prompt.sha256(),
            turns=prompt.turns,
            calls=prompt.calls,
            **kept,
        )
        question = Question(answer.question, answer.options)
        pending = _PendingQuestion(
            question, (), prompt, start, now_ns, lambda phase, text: None, cancel
        )
        end = start + round(self._config.deadline_s * NS_PER_S)
        if not self._fallback.steps:
            raise Refusal(RefusalCode.MODEL, 'no model is there that reads a prompt', draft)
        return ask_with_fallback(
            self._fallback, end, lambda step, until: self._ask(step, until, pending, draft), draft
        )

    def _ask(self, step: ChatStep, end: int, pending: _PendingQuestion, draft: Answer) -> Answer:
        """Have one model answer until a point of the monotonic clock, and check what it says.

        An answer without support in what was seen is asked for once more; then the tools of the
        scene answer, else nothing does.

        Raises:
            Refusal: It gave no answer that can be read.
            CancelledError: The asker does not wait any more.
        """
        question = pending.question
        is_plain = not (question.shown or question.of_task)
        scene = _scene_of(question, pending.deltas, draft.observation_stamp_ns)
        turn = _Turn(step, end, pending, scene)
        if self._config.writes == 'calls':
            return self._ask_for_calls(turn, draft)
        answer = self._attempt(turn, draft)
        if not (self._config.check and is_plain and pending.is_seen):
            return answer
        found = self._found(question, scene)
        own = answer_by_calls(question.text, question.options, scene, answer.calls)
        checked = with_check(answer, scene, found, own)
        if checked.check is not Check.UNSUPPORTED:
            return checked
        rejected = [RejectedCompletion(answer.completion, checked.check_reason, answer.model.name)]
        if turn.left_s() > 2 * answer.generation_ns / NS_PER_S:
            again = _with_calls(pending, answer)
            again = replace(again, repair=(answer.completion, checked.check_reason))
            with suppress(Refusal):
                second = self._attempt(replace(turn, pending=again), answer)
                second = with_check(second, scene, found, own)
                if second.check is not Check.UNSUPPORTED:
                    return replace(second, rejected=tuple(rejected))
                reason = second.check_reason
                rejected.append(RejectedCompletion(second.completion, reason, second.model.name))
        is_fresh = answer.freshness is Freshness.FRESH
        freshness = Freshness.DEGRADED if is_fresh else answer.freshness
        computed = combine_readings(own, found)[0] if own and own.is_known else found
        return replace(
            without_support(answer, computed, freshness),
            rejected=tuple(rejected),
            latency_ns=time.monotonic_ns() - pending.start_ns,
        )

    def _ask_for_calls(self, turn: _Turn, draft: Answer) -> Answer:
        """Have a model that was taught so read the question into calls, and run them.

        Where the reader without a model reads the question too, both agree, or the model is sure.

        Raises:
            Refusal: It gave no calls that can be read, or the question is none for tools.
            CancelledError: The asker does not wait any more.
        """
        question = turn.pending.question
        if question.shown or question.of_task:
            msg = 'this model reads questions into calls of tools: it knows no images and no arm'
            raise Refusal(RefusalCode.MODEL, msg, draft)
        draft, calls, read = self._read_calls(turn, draft)
        least = self._config.least_confidence
        if is_doubtful(read, draft.confidence, least):
            with suppress(Refusal):
                second = self._read_calls(turn, draft, without=calls[:1])
                is_other = second[1] != calls  # a server may take no grammar
                if is_other and holds(read, second[2], second[0].confidence):
                    least = 0.0
                    draft, _, read = (draft, calls, read) if read.is_known else second
        other = self._found(question, turn.scene) if self._config.check else None
        answer, check, reason = combine_readings(read, other, draft.confidence, least)
        done = with_tool_answer(draft, answer, draft.freshness, check)
        return replace(done, check_reason=done.check_reason or reason)

    def _read_calls(
        self, turn: _Turn, draft: Answer, *, without: Sequence[Call] = ()
    ) -> tuple[Answer, tuple[Call, ...], ToolAnswer]:
        """Have a model write calls of other tools than some, and run them.

        Raises:
            Refusal: It gave no calls that can be read.
        """
        question, scene = turn.pending.question, turn.scene
        labels = labels_to_list(question.text, question.options, scene)
        draft, generation = self._generate_calls(turn, draft, labels, without)
        calls = parse_calls(generation.text, labels)
        if calls is None:
            message = f'the completion is no call of a tool: {generation.text[-80:]!r}'
            raise Refusal(RefusalCode.FORMAT, message, draft)
        readings = read_calls(question.text, question.options, scene.labels, calls)
        return draft, calls, answer_readings(readings, question.options, scene)

    def _generate_calls(
        self, turn: _Turn, draft: Answer, labels: Sequence[str], without: Sequence[Call]
    ) -> tuple[Answer, _Generation]:
        """Have a model write calls; the answer with what is known of them, and the text."""
        question = turn.pending.question
        prompt = calls_prompt(question.text, question.options, labels)
        sampling = Sampling(max_tokens=MOST_TOKENS, seed=draft.sampling.seed)
        draft = replace(
            draft, prompt=prompt.user, prompt_sha256=prompt.sha256(), sampling=sampling, focus=()
        )
        rules = grammar(labels, without)
        request = ChatRequest(prompt.messages(), sampling, None, rules, top_logprobs=1)
        generation = _Generation()
        with _refusing(lambda: replace(draft, completion=generation.text)):
            self._generate(turn, request, generation)
            draft = self._with_model(draft, turn)
        draft = self._with_times(draft, turn.pending, generation)
        confidence = math.exp(sum(token.logprob for token in generation.tokens))
        confidence = confidence if generation.tokens else math.nan
        return replace(draft, confidence=confidence), generation

    def _found(self, question: Question, scene: Scene) -> ToolAnswer | None:
        """What the tools answer; None: what reads questions is not installed."""
        if self._reader_problem:
            return None
        return answer_by_tools(
            question.text, question.options, scene, takes_orders=question.takes_orders
        )

    def _attempt(self, turn: _Turn, draft: Answer) -> Answer:
        """Have one model answer until a point of the monotonic clock.

        Where it may, it calls tools of the scene first; after the last call that it may make, or
        calls that it made before, it must answer.

        Raises:
            Refusal: It gave no answer that can be read.
            CancelledError: The asker does not wait any more.
        """
        pending = turn.pending
        may_call = pending.prompt.has_tools and pending.is_seen and not pending.repair
        draft, generation = self._complete(turn, draft, may_call=may_call)
        start_ns, first_ns = generation.start_ns, generation.first_token_ns
        while may_call and generation.calls:
            calls = run_calls(turn.scene, generation.calls, draft.calls, len(draft.turns) + 1)
            for call in calls:
                pending.listener(Phase.THINK, f'\n{call.tool}({call.request}): {call.text}\n')
            is_loop = is_repeated(calls, draft.calls)
            turns, calls = (*draft.turns, generation.text), [*draft.calls, *calls]
            draft = replace(draft, turns=turns, calls=tuple(calls))
            may_call = len(calls) < MOST_CALLS and not is_loop
            pending = _with_calls(pending, draft)
            turn = replace(turn, pending=pending)
            draft, generation = self._complete(turn, draft, may_call=may_call)
        generation.start_ns, generation.first_token_ns = start_ns, first_ns
        draft = self._with_times(draft, pending, generation)
        return self._read(draft, generation, draft.freshness)

    def _complete(
        self, turn: _Turn, draft: Answer, *, may_call: bool
    ) -> tuple[Answer, _Generation]:
        """Ask one model once; returns the answer with the model, and its completion."""
        pending, generation = turn.pending, _Generation()
        with _refusing(lambda: replace(draft, completion=generation.text)):
            draft = self._with_model(draft, turn)
            request = pending.request(draft.sampling, may_call=may_call)
            top_logprobs = self._config.top_logprobs if pending.question.options else 0
            request = replace(request, top_logprobs=top_logprobs)
            if self._config.writes == 'form' and not may_call:
                request = replace(request, grammar=form_grammar(pending.question.options))
            self._generate(turn, request, generation)
            # Another model may have been promoted since: the client knows now which one spoke.
            draft = self._with_model(draft, turn)
        return draft, generation

    def _with_times(
        self, draft: Answer, pending: _PendingQuestion, generation: _Generation
    ) -> Answer:
        now_ns = pending.now_ns()
        return replace(
            draft,
            observation_age_ns=age_ns(last_look_ns(draft, pending.deltas), now_ns),
            completion=generation.text,
            freshness=self._freshness(draft, pending, now_ns),
            time_to_first_token_ns=max(0, generation.first_token_ns - pending.start_ns),
            latency_ns=generation.end_ns - pending.start_ns,
            generation_ns=generation.end_ns - generation.start_ns,
        )

    def _freshness(self, draft: Answer, pending: _PendingQuestion, now_ns: int) -> Freshness:
        max_age_s = pending.question.max_age_s or self._config.max_age_s
        return freshness_of(draft, pending.deltas, now_ns, max_age_s)

    def _draft(
        self, question: Question, deltas: Sequence[SemanticDelta], answer_id: str
    ) -> Answer:
        # A keyframe that could not be perceived is no observation.
        observations = [delta for delta in deltas if delta.kind is not DeltaKind.FAILED]
        newest = question.shown or max(
            observations, key=lambda delta: delta.stamp_ns, default=None
        )
        return replace(
            question.unanswered(answer_id),
            sampling=self._sampling(question),
            observation_stamp_ns=newest.stamp_ns if newest else _map_stamp_ns(question),
            frame_id=newest.frame_id if newest else '',
        )

    def _sampling(self, question: Question) -> Sampling:
        config = self._config
        seed = question.seed or config.seed
        return Sampling(config.temperature, config.top_p, config.max_tokens, seed)

    def _check(
        self, question: Question, deltas: Sequence[SemanticDelta], draft: Answer, now_ns: int
    ) -> None:
        """Refuse what cannot be answered, before any model gets it."""
        problem = question_problem(question.text, question.options)
        if problem:
            raise Refusal(RefusalCode.BAD_QUESTION, problem, draft)
        is_seen = question.shown is not None or _has_map(question)
        if not is_seen and all(delta.kind is DeltaKind.FAILED for delta in deltas):
            detail = (
                f'perception failed for all {len(deltas)} keyframes' if deltas else 'no keyframe'
            )
            message = f'nothing was seen yet ({detail}): check the camera and the perceiver'
            raise Refusal(RefusalCode.NO_OBSERVATION, message, draft)
        limit_s = question.max_age_s or self._config.max_age_s
        problem = staleness(last_look_ns(draft, deltas), now_ns, limit_s)
        if problem and self._config.stale == 'refuse':
            raise Refusal(RefusalCode.STALE, problem, draft)

    def _focus(
        self,
        question: Question,
        deltas: Sequence[SemanticDelta],
        end: int,
        listener: Listener,
        cancel: threading.Event | None,
    ) -> Sequence[FocusText]:
        """Look at keyframes again, where that is wanted; a failed look is no look."""
        if question.shown:
            return []
        view_text = question.view.describe(deltas) if question.view else None
        first = [view_text] if view_text else []
        terms = question_terms(question.text, question.options)
        landmarks = [
            landmark
            for landmark in (question.scene_map.landmarks if question.scene_map else ())
            if terms & question_terms(landmark.label)
        ]
        is_known = landmarks or any(mentions(delta, terms) for delta in deltas)
        missing = bool(terms) and not is_known
        must_look = self._config.focus == 'always' or (
            self._config.focus == 'auto' and missing and not first
        )
        if self._look is None or not must_look:
            return first
        listener(Phase.FOCUS, '')
        chosen = worth_looking(deltas, landmarks, self._config.focus_keyframes)
        # Half of what is left: the answer itself needs time too.
        focus_texts = self._look(
            question.text, question.options, chosen, left_s(end / NS_PER_S) / 2, cancel
        )
        return [*first, *(text for text in focus_texts if text.text.strip())]

    def _with_model(self, draft: Answer, turn: _Turn) -> Answer:
        model = model_of(turn.step, turn.left_s())
        is_of_calls = self._config.writes == 'calls'
        version = CALLS_PROMPT_VERSION if is_of_calls else turn.pending.prompt.version
        return replace(draft, model=replace(model, prompt_version=version))

    def _generate(self, turn: _Turn, request: ChatRequest, generation: _Generation) -> None:
        """Fill in a model's text, as it comes."""
        pending = turn.pending
        if pending.was_begun:
            pending.listener(Phase.QUEUED, '')
        generation.start_ns = time.monotonic_ns()
        for chunk in turn.step.model.stream(request, turn.left_s(), pending.cancel):
            pending.was_begun = True
            generation.first_token_ns = generation.first_token_ns or time.monotonic_ns()
            generation.text += chunk.text
            generation.tokens += chunk.tokens
            generation.calls += chunk.calls
            generation.ending = chunk.ending
            phase = Phase.ANSWER if '<answer>' in generation.text else Phase.THINK
            if chunk.text:
                pending.listener(phase, chunk.text)
        generation.end_ns = time.monotonic_ns()

    def _read(self, draft: Answer, generation: _Generation, freshness: Freshness) -> Answer:
        completion = parse_completion(generation.text, is_cut=bool(generation.ending))
        draft = replace(draft, think=completion.think)
        read = read_answer(completion, draft.options, draft.prompt)
        if read is None:
            limit = draft.sampling.max_tokens
            message = ending_problem(generation.text, generation.ending, limit) or NO_FORMAT
            if generation.text.strip():
                message += f': it ends with {generation.text[-80:]!r}'
            raise Refusal(RefusalCode.FORMAT, message, draft)
        kind, index, text = read
        number = number_in(text) if kind is AnswerKind.NUMBER else None
        return replace(
            draft,
            kind=kind,
            option_index=index,
            text=text,
            number=math.nan if number is None else number,
            confidence=option_confidence(generation.tokens, draft.options, index),
            freshness=freshness,
        )


@contextmanager
def _refusing(draft: Callable[[], Answer]) -> Iterator[None]:
    """Turn what a model did into a refusal with what is known of the answer by then."""
    try:
        yield
    except CancelledError:
        raise
    except DeadlineError as error:
        raise Refusal(RefusalCode.DEADLINE, str(error), draft()) from error
    except (ModelError, ConfigError) as error:
        raise Refusal(RefusalCode.MODEL, str(error), draft()) from error


ChatStep = FallbackStep[ChatClient]
ChatFallback = Fallback[ChatClient]


def chat_fallback(
    clients: Mapping[Rung, ChatClient], config: FallbackConfig | None = None
) -> ChatFallback:
    """The fallback through several clients; the lowest rung is the best one."""
    return Fallback.by_rung(clients, see_that_it_speaks, config)


def model_of(step: ChatStep, deadline_s: float) -> ModelInfo:
    """The model of a step, with its rung.

    Raises:
        ModelError: Its server is not reachable or serves another model.
    """
    info = step.model.info(deadline_s)
    # A client that stands in for another one by itself knows its rung better.
    return info if info.rung is not Rung.UNSET else replace(info, rung=step.rung)


def models_at_start(fallback: ChatFallback, timeout_s: float) -> list[ModelInfo]:
    """The models of the fallback that answer, best first.

    All are queried at once. One that does not answer is left out until it does.

    Raises:
        ModelError: What the config wants to answer at the start does not, in time.
    """
    models: list[ModelInfo] = []
    problems: list[str] = []
    if not fallback.steps:
        return models  # the tools of the scene answer
    with ThreadPoolExecutor(len(fallback.steps), 'models') as pool:
        futures = [pool.submit(model_of, step, timeout_s) for step in fallback.steps]
    for step, future in zip(fallback.steps, futures, strict=True):
        try:
            models.append(future.result())
        except (ModelError, ConfigError) as error:
            problems.append(str(error))
            if not models and fallback.config.start == 'primary':
                raise
            fallback.note_failure(step, str(error))
    if not models:
        raise ModelError('; '.join(problems))
    return models


def ask_with_fallback(
    fallback: ChatFallback, end_ns: int, ask: Callable[[ChatStep, int], Answer], before: Answer
) -> Answer:
    """Answer of the best model that gives one.

    Args:
        fallback: The models.
        end_ns: When the answer must be complete, in the monotonic clock [ns].
        ask: Asks one model until a point of that clock; refuses where it gives no answer.
        before: The answer as it stands before any model generates.

    Raises:
        Refusal: No model answered; its answer is the last one's, on the rung REFUSE.
        CancelledError: The asker does not wait any more.
    """
    try:
        return fallback.ask(
            lambda step, given_s: ask(step, time.monotonic_ns() + round(given_s * NS_PER_S)),
            (end_ns - time.monotonic_ns()) / NS_PER_S,
            errors=Refusal,
            is_late=lambda refusal: refusal.code is RefusalCode.DEADLINE,
        )
    except NoReplyError as error:
        raise _refusal_of_all(error.failures, before) from None


def _refusal_of_all(refusals: Sequence[tuple[ChatStep, Refusal]], before: Answer) -> Refusal:
    """One refusal with the reason of each model that gave no answer."""
    if not refusals:
        return Refusal(RefusalCode.DEADLINE, NO_TIME, before)
    last = refusals[-1][1]
    nobody = replace(last.answer.model, rung=Rung.REFUSE)
    answer = replace(last.answer, model=nobody, freshness=Freshness.REFUSED)
    reasons = [f'{step.rung.name.lower()}: {refusal}' for step, refusal in refusals]
    message = str(last) if len(reasons) == 1 else f'no model could answer; {"; ".join(reasons)}'
    return Refusal(last.code, message, answer)
