# SPDX-License-Identifier: Apache-2.0
"""The answers of a bag, their labels, and the recorded deltas that give their very prompts."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
import json
from typing import Any, TYPE_CHECKING

from embodied_r_ros.bags.messages import encoded_image_from_msg, stamp_ns_from_msg
from embodied_r_ros.bags.reader import read_messages, read_values, topics_of_type
from embodied_r_ros.common.errors import ConfigError, ImageError
from embodied_r_ros.core.reasoning.calls import calls_prompt, CALLS_PROMPT_VERSION, labels_to_list
from embodied_r_ros.core.reasoning.prompts import (
    as_asked,
    build_prompt,
    image_prompt,
    recorded_prompt,
    shown_image,
    shows_image,
)
from embodied_r_ros.core.reasoning.question import ReasonerConfig
from embodied_r_ros.core.scene.memory import MemoryConfig
from embodied_r_ros.core.scene.tools import Scene
from embodied_r_ros.core.types.answers import is_of_shadow, shadow_id
from embodied_r_ros.core.types.deltas import row_deltas, SemanticDelta
from embodied_r_ros.core.types.episodes import AnswerLabel, LabelVerdict, Verdict
from embodied_r_ros.data.episodes.labels import answer_in_words
from embodied_r_ros.data.own_messages import (
    answer_from_msg,
    label_from_msg,
    scene_map_from_msg,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from embodied_r_ros.bags.reader import BagReader
    from embodied_r_ros.core.reasoning.prompts import Prompt
    from embodied_r_ros.core.types.answers import Answer, FocusText
    from embodied_r_ros.core.types.episodes import LabelLayer
    from embodied_r_ros.core.types.images import EncodedImage
    from embodied_r_ros.core.types.landmarks import SceneMap

_ANSWER = 'embodied_r_msgs/msg/Answer'
_KEYFRAME = 'embodied_r_msgs/msg/Keyframe'
_LABEL = 'embodied_r_msgs/msg/AnswerLabel'
_LANDMARKS = 'embodied_r_msgs/msg/LandmarkArray'
_STRING = 'std_msgs/msg/String'
_BUDGET, _SHADOW = 'reasoner.token_budget', 'shadow.server'


@dataclass(frozen=True)
class AnswerLog:
    """Answers of an episode, and what is needed to build their prompts again."""

    answers: tuple[Answer, ...] = ()
    labels: dict[str, AnswerLabel] = field(default_factory=dict)  # the one that counts, by answer
    deltas: tuple[SemanticDelta, ...] = ()  # recorded deltas in the order of their receipt
    maps: tuple[SceneMap, ...] = ()  # recorded scene maps, oldest first
    # Budgets of the scene in prompts: as reasoners published them, newest first, then the default.
    memories: tuple[MemoryConfig, ...] = (MemoryConfig(),)
    disputed: frozenset[str] = frozenset()  # ids of answers about which people differ
    # Recorded keyframes that answers were shown, by the stamp that they observed [ns].
    images: dict[int, EncodedImage] = field(default_factory=dict)
    # What a candidate answered beside, by the id of the answer that was given.
    shadows: dict[str, Answer] = field(default_factory=dict)
    had_shadow: bool = False  # whether the reasoner had a candidate to ask


def read_answer_log(reader: BagReader, deltas: tuple[SemanticDelta, ...]) -> AnswerLog:
    """Read the answers of a bag.

    Args:
        reader: The open bag.
        deltas: Its recorded deltas, in the order of their receipt.

    Raises:
        BagError: A message is damaged.
    """
    topics = topics_of_type(reader, _ANSWER)
    given = [topic for topic in topics if not is_of_shadow(topic)]
    answers = tuple(read_values(reader, given, answer_from_msg))
    maps = tuple(read_values(reader, topics_of_type(reader, _LANDMARKS), scene_map_from_msg))
    if not answers:
        return AnswerLog(maps=maps)
    beside = [topic for topic in topics if is_of_shadow(topic)]
    of_shadow = {answer.id: answer for answer in read_values(reader, beside, answer_from_msg)}
    shadows = {a.id: of_shadow[shadow_id(a.id)] for a in answers if shadow_id(a.id) in of_shadow}
    records = [*_parameter_records(reader)]
    had_shadow = bool(of_shadow) or any(record.get(_SHADOW) for record in records)
    topics = topics_of_type(reader, _LABEL)
    labels = list(read_values(reader, topics, label_from_msg))
    memories = dict.fromkeys([*reversed([*_memories(records)]), MemoryConfig()])
    by_answer = {label.answer_id: label for label in labels}
    images = _shown_images(reader, answers)
    log = AnswerLog(answers, by_answer, deltas, maps, tuple(memories), images=images)
    return replace(log, shadows=shadows, had_shadow=had_shadow)


def _shown_images(reader: BagReader, answers: Sequence[Answer]) -> dict[int, EncodedImage]:
    """The keyframes that answers were shown, by their stamps [ns]."""
    wanted = {each.observation_stamp_ns for each in answers if shows_image(each.prompt)}
    images: dict[int, EncodedImage] = {}
    topics = topics_of_type(reader, _KEYFRAME) if wanted else []
    for _, _, msg in read_messages(reader, topics):
        stamp_ns = stamp_ns_from_msg(msg.header.stamp)
        if stamp_ns in wanted and len(msg.image.data):
            images[stamp_ns] = encoded_image_from_msg(msg.image)
    return images


def with_labels(log: AnswerLog, layer: LabelLayer) -> AnswerLog:
    """The log with the labels beside the recording, which count before those in it.

    Of a person the newest label counts; where people differ, none does. Of an answer that the
    layer mentions, the label in the recording no longer counts: it may have been taken back.
    """
    labels = {name: one for name, one in log.labels.items() if name not in layer.mentions()}
    disputed = set()
    by_question = layer.by_question()
    for answer in log.answers:
        if answer.id not in by_question:
            continue
        people = by_question[answer.id]
        verdict = Verdict.of(people, answer_in_words(answer))
        if verdict.is_disputed:
            disputed.add(answer.id)
            continue
        kind = LabelVerdict.WRONG if verdict.solution is None else LabelVerdict.CORRECTED
        newest_ns = max(label.when_ns for label in people.values())
        name = ', '.join(verdict.people)
        labels[answer.id] = AnswerLabel(newest_ns, answer.id, kind, verdict.solution or '', name)
    return replace(log, labels=labels, disputed=frozenset(disputed))


def _parameter_records(reader: BagReader) -> Iterator[dict[str, Any]]:
    """Parameters that nodes published with their provenance; oldest first."""
    topics = [t for t in topics_of_type(reader, _STRING) if t.endswith('/provenance')]
    for _, _, msg in read_messages(reader, topics):
        yield _parameters(msg.data)


def _memories(records: Iterable[dict[str, Any]]) -> Iterator[MemoryConfig]:
    """Memory settings of reasoners, in the order of their records."""
    for record in records:
        budget = record.get(_BUDGET, 0)
        with suppress(ConfigError):
            yield ReasonerConfig(token_budget=budget).memory()


def _parameters(record: str) -> dict[str, Any]:
    """Parameters in a provenance record; empty where it is of another kind."""
    try:
        content = json.loads(record)
    except (ValueError, RecursionError):
        return {}
    parameters = content.get('parameters') if isinstance(content, dict) else None
    return parameters if isinstance(parameters, dict) else {}


@dataclass(frozen=True)
class Inputs:
    """What a prompt is built from, and the prompt."""

    deltas: tuple[SemanticDelta, ...]  # in memory then, those that the prompt omits included
    memory: MemoryConfig  # of the reasoner then
    prompt: Prompt
    scene_map: SceneMap | None = None  # in the prompt; None: none was


@dataclass(frozen=True)
class Lost:
    """The prompt of an answer cannot be built again."""

    reason: str
    # To send in its place: the recorded text, or under another system message the likeliest prompt
    # of today. None: there was no prompt.
    instead: Prompt | None = None


def find_inputs(answer: Answer, log: AnswerLog) -> Inputs | Lost:
    """Find what gives the very prompt that was answered.

    Ids of deltas count anew with every run of the extractor, and are those of one camera, so that
    only the prompt's digest tells whether these were the deltas.
    """
    if not answer.prompt_sha256:
        return Lost('no prompt was sent to a model')
    return (_find_image if shows_image(answer.prompt) else _find_text)(answer, log)


def _find_text(answer: Answer, log: AnswerLog) -> Inputs | Lost:
    attempts: list[Inputs] = []
    for inputs in _attempts(answer, log):
        if inputs.prompt.sha256() == answer.prompt_sha256:
            return inputs
        attempts.append(inputs)
    original = recorded_prompt(answer)
    if not attempts:
        return Lost(_missing(answer, log), original)
    reason = 'its prompt cannot be built again: another digest'
    if original.sha256() == answer.prompt_sha256:
        return Lost(reason, original)
    return Lost(reason, min(attempts, key=lambda inputs: _unlikeness(answer, inputs)).prompt)


def _find_image(answer: Answer, log: AnswerLog) -> Inputs | Lost:
    """Find the image that was shown; without it, nothing else would ask the same."""
    image = log.images.get(answer.observation_stamp_ns)
    if image is None:
        return Lost('the image of its prompt is not recorded')
    try:
        prompt = image_prompt(answer.question, answer.options, shown_image(image))
    except ImageError as error:
        return Lost(f'the image of its prompt is damaged: {error}')
    if prompt.sha256() != answer.prompt_sha256:
        return Lost('its prompt cannot be built again: another image, or another digest', prompt)
    return Inputs((), log.memories[0], prompt)


def _attempts(answer: Answer, log: AnswerLog) -> Iterator[Inputs]:
    """All that may have given the prompt, the likeliest first."""
    for deltas in _candidates(log.deltas, answer):
        for memory in log.memories:
            for scene_map in _maps(answer, log):
                yield _inputs(answer, deltas, memory, scene_map)


def _maps(answer: Answer, log: AnswerLog) -> list[SceneMap | None]:
    """Maps that the prompt may hold: of its revision, which counts anew in each run."""
    if not answer.map_revision:
        return [None]
    return [scene for scene in reversed(log.maps) if scene.revision == answer.map_revision]


def _missing(answer: Answer, log: AnswerLog) -> str:
    """What of a prompt is not recorded."""
    if not _maps(answer, log):
        return 'the scene map of its prompt is not recorded'
    return 'not all deltas of its prompt are recorded'


def _candidates(
    deltas: Sequence[SemanticDelta], answer: Answer
) -> Iterator[tuple[SemanticDelta, ...]]:
    """Deltas with the ids that the prompt read, and the omitted ones before them; newest first.

    The answer came some time after its question, so the last deltas may be too new.
    """
    if not answer.delta_ids and answer.map_revision:
        yield ()  # of the map alone
    for newest in reversed(range(len(deltas))):
        if (deltas[newest].to_id,) != answer.delta_ids[-1:]:
            continue
        read = _positions(deltas, answer.delta_ids, newest + 1)
        if not read or read[0] < answer.deltas_omitted:
            return  # nor can there be older ones
        omitted = deltas[read[0] - answer.deltas_omitted : read[0]]
        yield (*omitted, *(deltas[position] for position in read))


def _positions(deltas: Sequence[SemanticDelta], ids: Sequence[int], end: int) -> list[int]:
    """The last positions before `end` of deltas with these ids, in this order; empty: none.

    Others may stand in between: the reasoner leaves out what comes late, the recorder does not.
    """
    positions: list[int] = []
    for delta_id in reversed(ids):
        end = next((i for i in reversed(range(end)) if deltas[i].to_id == delta_id), -1)
        if end < 0:
            return []
        positions.insert(0, end)
    return positions


def _inputs(
    answer: Answer,
    deltas: tuple[SemanticDelta, ...],
    memory: MemoryConfig,
    scene_map: SceneMap | None,
) -> Inputs:
    """The prompt that a row of these deltas gives."""
    read = [SemanticDelta.from_row(delta) for delta in row_deltas(deltas)]
    if answer.model.prompt_version == CALLS_PROMPT_VERSION:
        scene = Scene(read, scene_map)
        labels = labels_to_list(answer.question, answer.options, scene)
        prompt = calls_prompt(answer.question, answer.options, labels)
        return Inputs(deltas, memory, prompt, scene_map)
    parts = answer.question, answer.options, read, answer.focus, memory, scene_map
    return Inputs(deltas, memory, as_asked(build_prompt(*parts), answer), scene_map)


def with_other_scene(
    answer: Answer,
    inputs: Inputs,
    deltas: Sequence[SemanticDelta],
    focus: tuple[FocusText, ...],
    scene_map: SceneMap | None,
) -> Inputs:
    """What the same question would have been built from, had other things been perceived."""
    other = replace(answer, focus=focus, turns=(), prompt_sha256='')  # what tools said is of then
    return _inputs(other, tuple(deltas), inputs.memory, scene_map)


def _unlikeness(answer: Answer, inputs: Inputs) -> tuple[bool, bool]:
    """How far inputs are from those that the answer states; the least is the likeliest."""
    scene = inputs.prompt.scene
    others = all(delta.stamp_ns != answer.observation_stamp_ns for delta in inputs.deltas)
    counts = (scene.merged, scene.omitted)
    return others, counts != (answer.deltas_merged, answer.deltas_omitted)
