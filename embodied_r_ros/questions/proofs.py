# SPDX-License-Identifier: Apache-2.0
"""What a recording proves of a question in one of our wordings: by poses, true layout, or its map.

A solution is found by asking the kinds of that wording, until one asks the very same.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from random import Random
import re
from typing import TYPE_CHECKING

from embodied_r_ros.episodes.labels import answer_in_words
from embodied_r_ros.questions.indoor import Draft, KINDS, Moment, Unsolved
from embodied_r_ros.questions.logged import (
    as_proof,
    DISPUTED,
    Proof,
    proof_of_label,
    solution_of_recording,
)
from embodied_r_ros.questions.map_rows import (
    layout_map,
    MAP_KINDS,
    moment_of_map,
    perceived_map,
    UNKNOWN_KINDS,
)
from embodied_r_ros.questions.path_kinds import clear_quarter
from embodied_r_ros.questions.wordings import MAP_WORDINGS, MOTION_KINDS, WORDINGS
from embodied_r_ros.reasoning.completions import UNKNOWN
from embodied_r_ros.types.episodes import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator

    from embodied_r_ros.episodes.episode import Episode
    from embodied_r_ros.questions.map_kinds import MapMoment
    from embodied_r_ros.types.answers import Answer

_TRIES = 60  # of a kind, which chooses by itself what it asks about
_SPLIT = 'test'  # all names may be asked for
_SLACK_M = 0.3  # how far places of a map that no truth proves may be off
_COUNTS = ('object_counting', 'count_things', 'how_many')  # whose numbers are exact
_DIRECTION = 'item_direction'
_UNPROVEN = 'nothing proves it'


@dataclass(frozen=True)
class _Wording:
    """A wording of a kind of question."""

    kind: str
    is_held_out: bool
    pattern: re.Pattern[str]
    names_things: bool  # else the options alone say what it is about


def solution_of_place(episode: Episode, answer: Answer) -> tuple[str, str] | None:
    """What a recording proves of a question that was answered live.

    Returns:
        The solution in words, and its source ('odometry', 'tf', 'layout' or 'map'); None: nothing
        is proven.
    """
    if solution := solution_of_recording(episode, answer):
        return solution
    wordings = [one for one in _wordings() if one.pattern.fullmatch(answer.question)]
    moment = _moment_of(episode, answer) if wordings else None
    if moment is None or answer_in_words(answer) is None:
        return None
    place = _place_of(episode, moment)
    for wording in wordings:
        for draft in _drafts(wording, moment, place, answer.question):
            if draft.question == answer.question and _decides(draft, wording, answer.options):
                return draft.solution, draft.source
    return None


@cache
def _wordings() -> tuple[_Wording, ...]:
    """All wordings of kinds that a place decides."""
    wordings = []
    for kind, texts in (*WORDINGS.items(), *MAP_WORDINGS.items()):
        if kind in MOTION_KINDS or kind in UNKNOWN_KINDS:
            continue
        for text in texts:
            parts = re.split(r'\{\w+\}', text)
            pattern = re.compile('.+'.join(map(re.escape, parts)), re.DOTALL)
            wordings.append(_Wording(kind, text == texts[-1], pattern, len(parts) > 1))
    return tuple(wordings)


def _moment_of(episode: Episode, answer: Answer) -> Moment | None:
    """What had been seen when the question was asked; None: nothing."""
    until_ns = answer.observation_stamp_ns
    count = sum(delta.stamp_ns <= until_ns for delta in episode.deltas)
    if not count:
        return None
    until_then = episode.deltas[:count], episode.poses[:count]
    return Moment(*until_then, episode.layout, episode.no_poses, episode.pose_source)


def _place_of(episode: Episode, moment: Moment) -> MapMoment | Unsolved:
    """The true place, the recorded map of that time, or what deltas and poses give."""
    if moment.layout:
        return layout_map(moment)
    known = [
        scene
        for scene in episode.log.maps
        if scene.landmarks and scene.path and scene.path[-1].stamp_ns <= moment.now_ns
    ]
    if known:
        return moment_of_map(known[-1], _SPLIT, _SLACK_M)
    return perceived_map(moment, _SPLIT, _SLACK_M)


def _drafts(
    wording: _Wording, moment: Moment, place: MapMoment | Unsolved, question: str
) -> Iterator[Draft]:
    """What a kind asks at a moment, again and again."""
    if wording.kind in KINDS and moment.layout:
        drafts = (
            KINDS[wording.kind](moment, Random(number), wording.is_held_out)
            for number in range(_TRIES)
        )
    elif isinstance(place, Unsolved):
        return
    elif wording.kind == _DIRECTION:
        yield from _directions(place, question)
        return
    elif wording.kind in MAP_KINDS:
        drafts = (
            MAP_KINDS[wording.kind](place, Random(number), wording.is_held_out)
            for number in range(_TRIES)
        )
    else:
        return
    yield from (draft for draft in drafts if isinstance(draft, Draft))


def _directions(place: MapMoment, question: str) -> Iterator[Draft]:
    """In which quarter each thing of a map is now, as the kind of a true layout asks it."""
    for thing in place.singles:
        is_named = any(text.format(item=thing.label) == question for text in WORDINGS[_DIRECTION])
        if is_named and (where := clear_quarter(place, thing.position)):
            yield Draft(question, (where[0],), where[0], source=place.source)


def _decides(draft: Draft, wording: _Wording, options: tuple[str, ...]) -> bool:
    """Whether a solution is that of a question with these options."""
    if not options:
        return not draft.options and wording.kind in _COUNTS
    return draft.solution in options and (
        wording.names_things or set(draft.options) == set(options)
    )


@dataclass(frozen=True)
class RecordedQuestion:
    """A question of a recording, at its moment, with the best answer that is known."""

    id: str
    stamp_ns: int  # of the newest observation
    camera: str
    question: str
    options: tuple[str, ...]
    answer: str  # in words
    source: str  # what proves it; 'answered': nothing, and it is what the robot said
    answered: str = ''  # what the robot said; empty: nobody asked it
    think: str = ''
    model: str = ''


def solution_of_answer(episode: Episode, answer: Answer) -> Proof | Unsolved:
    """The solution that people gave, else the one that the recording proves."""
    if answer.id in episode.log.disputed:
        return Unsolved(DISPUTED)
    if label := episode.log.labels.get(answer.id):
        return proof_of_label(answer, label)
    words, source = solution_of_place(episode, answer) or ('', '')
    if not words:
        return Unsolved(_UNPROVEN)
    proof = as_proof(words, answer.options)
    return proof if isinstance(proof, Unsolved) else Proof(proof.solution, source)


def recorded_questions(episode: Episode) -> list[RecordedQuestion]:
    """The questions of an episode with their answers: those asked live, then those written.

    What people call wrong, or answer differently, and what has no answer at all is left out.
    """
    found = [_of_answer(episode, answer) for answer in episode.log.answers]
    by_question = episode.labels.by_question()
    for name, written in episode.labels.questions().items():
        question = written.question
        verdict = Verdict.of(by_question[name], written.before) if name in by_question else None
        if question and verdict and verdict.solution is not None:
            found.append(
                RecordedQuestion(
                    name,
                    question.stamp_ns,
                    episode.camera,
                    question.text,
                    question.options,
                    verdict.solution,
                    'label',
                )
            )
    return [one for one in found if one]


def _of_answer(episode: Episode, answer: Answer) -> RecordedQuestion | None:
    said = answer_in_words(answer)
    proof = solution_of_answer(episode, answer)
    if isinstance(proof, Proof):
        right, source = _words_of(proof.solution, answer.options), proof.source
    elif said is not None and proof.reason == _UNPROVEN:
        right, source = said, 'answered'
    else:
        return None
    seen = [d.camera for d in episode.deltas if d.stamp_ns <= answer.observation_stamp_ns]
    return RecordedQuestion(
        answer.id,
        answer.observation_stamp_ns,
        seen[-1] if seen else episode.camera,
        answer.question,
        answer.options,
        right,
        source,
        said or '',
        answer.think,
        answer.model.name,
    )


def _words_of(solution: str, options: tuple[str, ...]) -> str:
    """A solution as a row has it, in words."""
    is_letter = bool(options) and solution != UNKNOWN
    return options[ord(solution) - ord('A')] if is_letter else solution
