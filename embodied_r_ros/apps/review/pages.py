# SPDX-License-Identifier: Apache-2.0
"""What the review page asks of its server: plain JSON values, without a web framework.

Times are seconds from the start of the recording. Texts of recordings are data: they are sent as
they are, and the page shows them as text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
import math
from typing import Any, TYPE_CHECKING

from embodied_r_ros.apps.review.library import FILTERS, Mark
from embodied_r_ros.apps.review.recording import with_answer
from embodied_r_ros.common.errors import EmbodiedRError, InputError
from embodied_r_ros.core.reasoning.question import Question, question_problem, Refusal
from embodied_r_ros.core.types.answers import UNKNOWN
from embodied_r_ros.core.types.deltas import ScaleSource
from embodied_r_ros.core.types.episodes import (
    Label,
    LabelKind,
    LabelLayer,
    Verdict,
    WrittenQuestion,
)
from embodied_r_ros.data.episodes.label_check import append_label, label_problem, solution_in_words

if TYPE_CHECKING:
    from embodied_r_ros.apps.review.film import Film
    from embodied_r_ros.apps.review.library import Card, Library
    from embodied_r_ros.apps.review.recording import ReviewQuestion, ReviewRecording
    from embodied_r_ros.core.types.answers import Answer
    from embodied_r_ros.core.types.deltas import SemanticDelta
    from embodied_r_ros.core.types.landmarks import SceneMap
    from embodied_r_ros.data.episodes.episode import Episode

# Answers a question about what an episode shows up to a moment [ns].
Asker = Callable[['Episode', Question, float], 'Answer']
# Learns from the solution of one, in words, and tells what.
Learner = Callable[['Episode', Question, float, str], str]
_FILM_WAIT_S = 2.0
_MOST_CARDS = 200
_LABELS = {
    kind.value: kind
    for kind in (LabelKind.RIGHT, LabelKind.CORRECT, LabelKind.WRONG, LabelKind.UNANSWERABLE)
}


@dataclass(frozen=True)
class ReviewService:
    """Serves one library of recordings to reviewers."""

    library: Library
    now_ns: Callable[[], int]  # since the epoch
    ask: Asker | None = None  # None: nobody answers
    learn: Learner | None = None  # None: labels are kept, and nothing is learned at once

    def recordings(self, query: Mapping[str, str]) -> dict[str, Any]:
        """The list of recordings: first those with the most questions of a filter.

        Where all questions are shown, the most disagreements come first.

        Args:
            query: `filter` (one of FILTERS), `who`, `offset`.

        Raises:
            InputError: There is no such filter.
        """
        name, who = query.get('filter') or 'all', query.get('who', '')
        if name not in FILTERS:
            msg = f'filter is {name!r}: expected one of {", ".join(FILTERS)}'
            raise InputError(msg)
        offset = _whole(query.get('offset', '0'), 'offset')
        entries = [self._entry(card, name, who) for card in self.library.cards()]
        rank = 'disagreements' if name == 'all' else 'hits'
        entries.sort(key=lambda entry: -entry[rank])
        shown = entries[offset : offset + _MOST_CARDS]
        self.library.want(entry['key'] for entry in shown)
        return {
            'recordings': shown,
            'total': len(entries),
            'read': sum(entry['is_read'] for entry in entries),
            'questions': sum(entry['questions'] for entry in entries),
            'labelled': sum(entry['labelled'] for entry in entries),
            'hits': sum(entry['hits'] for entry in entries),
        }

    def _entry(self, card: Card, name: str, who: str) -> dict[str, Any]:
        problem = card.problem
        try:
            layer, marks = self.library.layer(card.key), self.library.marks(card.key)
        except InputError as error:
            layer, marks, problem = LabelLayer(), [], str(error)
        by_question = layer.by_question()
        return {
            'key': card.key,
            'is_read': card.is_read,
            'problem': problem,
            'duration_s': card.duration_s,
            'posters': len(card.posters),
            'questions': len(marks),
            'labelled': sum(who in by_question.get(mark.id, {}) for mark in marks),
            'disagreements': sum(mark.is_disputed for mark in marks),
            'hits': sum(mark.is_in(name, by_question.get(mark.id, {}), who) for mark in marks),
        }

    def poster(self, key: str, number: int) -> bytes | None:
        """A small picture of a recording; None: there is none."""
        pictures = self.library.card(key).posters
        return pictures[number] if 0 <= number < len(pictures) else None

    def picture(self, key: str, camera: str, number: int) -> bytes | None:
        """A picture of the film; None: there is none."""
        return self.library.open(key).film.picture(camera, number)

    def recording(self, query: Mapping[str, str]) -> dict[str, Any]:
        """One recording: deltas, map and film.

        Raises:
            InputError: It cannot be read.
        """
        key = query.get('e', '')
        opened = self.library.open(key)
        opened.film.wait(_FILM_WAIT_S)
        recording = opened.recording
        episode = recording.episode
        return {
            'key': key,
            'episode_id': recording.episode_id,
            'scene_id': episode.scene_id if episode else '',
            'outcome': episode.outcome.name.lower() if episode else '',
            'duration_s': (recording.end_ns - recording.begin_ns) / 1e9,
            'delta_source': episode.delta_source if episode else '',
            'deltas': [_delta(delta, recording.begin_ns) for delta in recording.deltas],
            'map': _map(recording.scene_map, recording.begin_ns),
            'film': _film(opened.film, recording.begin_ns),
            'replay': _replay(recording),
            **self.questions(query),
        }

    def film(self, query: Mapping[str, str]) -> dict[str, Any]:
        """The film so far, while it is being read.

        Raises:
            InputError: The recording cannot be read.
        """
        opened = self.library.open(query.get('e', ''))
        opened.film.wait(_FILM_WAIT_S)
        return _film(opened.film, opened.recording.begin_ns)

    def questions(self, query: Mapping[str, str]) -> dict[str, Any]:
        """The questions of a recording with the labels of everybody.

        Raises:
            InputError: The recording or its labels cannot be read.
        """
        key, name, who = query.get('e', ''), query.get('filter') or 'all', query.get('who', '')
        recording, layer = self.library.open(key).recording, self.library.layer(key)
        by_question = layer.by_question()
        return {
            'questions': [
                {
                    **_question(question, recording),
                    **_labels(question, by_question.get(question.id, {})),
                    'is_hit': Mark.of(question).is_in(name, by_question.get(question.id, {}), who),
                }
                for question in self.library.questions(key)
            ],
            'damage': layer.damage,
        }

    def label(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Take a label, and tell how things are now.

        Args:
            body: `e`, `id` (of the label), `question_id`, `kind`, `who`; `after` of a correction,
                `undoes` of an undo.

        Raises:
            InputError: It does not fit.
            EmbodiedRError: The disk does not take it.
        """
        key, kind = _text(body, 'e'), _text(body, 'kind')
        recording = self.library.open(key).recording
        name, question_id, who = (_text(body, part) for part in ('id', 'question_id', 'who'))
        if kind == LabelKind.UNDO.value:
            undoes = _text(body, 'undoes')
            label = Label(name, question_id, LabelKind.UNDO, who, self.now_ns(), undoes=undoes)
        else:
            label = self._judgement(key, name, question_id, who, body)
        append_label(recording.bag, label, recording.scope)
        told = self.questions({'e': key, 'who': who, 'filter': str(body.get('filter', ''))})
        return {**told, 'lesson': self._lesson(key, recording, label)}

    def _lesson(self, key: str, recording: ReviewRecording, label: Label) -> str:
        """What a correction teaches, and why the answer was wrong; empty: nothing is told."""
        labels = self.library.layer(key).labels
        kinds = [one.kind for one in labels if one.id in (label.id, label.undoes)]
        teaches = label.kind in (LabelKind.CORRECT, LabelKind.UNDO) and LabelKind.CORRECT in kinds
        question = next(
            (q for q in self.library.questions(key) if q.id == label.question_id), None
        )
        episode = recording.episode
        if not (teaches and self.learn and episode and question and question.origin != 'row'):
            return ''
        asked = Question(question.text, question.options)
        try:
            return self.learn(episode, asked, question.stamp_ns, label.after or '')
        except (EmbodiedRError, OSError) as error:  # the label itself is saved
            return f'nothing was learned: {error}'

    def _judgement(
        self, key: str, name: str, question_id: str, who: str, body: Mapping[str, Any]
    ) -> Label:
        """A label on an answer; a correction that is the answer is a yes to it."""
        kind = _LABELS.get(_text(body, 'kind'))
        question = next((q for q in self.library.questions(key) if q.id == question_id), None)
        if kind is None or question is None:
            msg = f'no label {body.get("kind")!r} or no question {question_id!r} is known'
            raise InputError(msg)
        after = question.answer if kind is LabelKind.RIGHT else None
        if kind is LabelKind.UNANSWERABLE:
            after = solution_in_words('unknown', question.options)
        elif kind is LabelKind.CORRECT:
            after = solution_in_words(_text(body, 'after'), question.options)
            if after == question.answer:
                kind = LabelKind.RIGHT
            elif after == solution_in_words('unknown', ()):
                kind = LabelKind.UNANSWERABLE
        return Label(name, question_id, kind, who, self.now_ns(), after=after)

    def write(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Take a new question, answer it where that is wanted, and tell how things are now.

        Args:
            body: `e`, `id`, `who`, `text`, `options`, `t` [s]: the moment up to which it asks;
                `solution` where it is known; `ask`: whether it is to be answered.

        Raises:
            InputError: It does not fit, or there is no answer.
            ModelError: The model fails.
            EmbodiedRError: The disk does not take it.
        """
        key, name, who = (_text(body, part) for part in ('e', 'id', 'who'))
        recording = self.library.open(key).recording
        if any(label.id == name for label in self.library.layer(key).labels):
            return self.questions({'e': key, 'who': who})  # it came through before
        question = _new_question(body, recording)
        solution = str(body.get('solution') or '').strip()
        after = solution_in_words(solution, question.options) if solution else None
        draft = Label(
            name, name, LabelKind.QUESTION, who, self.now_ns(), after=after, question=question
        )
        layer = self.library.layer(key)
        if problem := label_problem(draft, layer, recording.scope):
            msg = f'question refused: {problem}'
            raise InputError(msg)
        if body.get('ask'):
            draft = self._with_answer(draft, question, recording)
        append_label(recording.bag, draft, recording.scope)
        return self.questions({'e': key, 'who': who, 'filter': str(body.get('filter', ''))})

    def _with_answer(
        self, draft: Label, question: WrittenQuestion, recording: ReviewRecording
    ) -> Label:
        """A new question with its answer."""
        if self.ask is None:
            msg = 'nobody answers questions here'
            raise InputError(msg)
        episode = recording.episode
        if not episode or all(d.stamp_ns > question.stamp_ns for d in episode.deltas):
            msg = 'nothing was perceived until this moment: ask at a later one'
            raise InputError(msg)
        asked = Question(question.text, question.options)
        try:
            answer = self.ask(episode, asked, question.stamp_ns)
        except Refusal as error:
            msg = f'there is no answer: {error}'
            raise InputError(msg) from None
        told = with_answer(question, answer)
        return replace(draft, question=told, before=answer.text or UNKNOWN)


def _new_question(body: Mapping[str, Any], recording: ReviewRecording) -> WrittenQuestion:
    options, seconds = body.get('options', []), body.get('t')
    if not isinstance(options, list) or not all(isinstance(one, str) for one in options):
        msg = f'options is {options!r}: expected a list of texts'
        raise InputError(msg)
    if not isinstance(seconds, (int, float)) or not math.isfinite(seconds):
        msg = f't is {seconds!r}: expected seconds'
        raise InputError(msg)
    text, trimmed = _text(body, 'text').strip(), tuple(option.strip() for option in options)
    if problem := question_problem(text, trimmed):
        raise InputError(problem)
    return WrittenQuestion(text, recording.begin_ns + round(seconds * 1e9), trimmed)


def _question(question: ReviewQuestion, recording: ReviewRecording) -> dict[str, Any]:
    value = asdict(question)
    del value['stamp_ns']
    value['t'] = (question.stamp_ns - recording.begin_ns) / 1e9
    value['is_disputed'] = question.is_disputed
    value['opinions'] = [
        {**asdict(one), 'agrees': question.answer is not None and one.agrees(question.answer)}
        for one in question.opinions
    ]
    for look in value['focus']:
        look['t'] = (look.pop('stamp_ns') - recording.begin_ns) / 1e9
    for call in value['calls']:
        del call['stamps_ns']  # more than the numbers of a browser hold
    return value


def _labels(question: ReviewQuestion, labels: dict[str, Label]) -> dict[str, Any]:
    verdict = Verdict.of(labels, question.answer) if labels else None
    return {
        'labels': [
            {
                'id': label.id,
                'who': label.who,
                'kind': label.kind.value,
                'after': label.after,
                'when_s': label.when_ns / 1e9,
            }
            for label in labels.values()
        ],
        'people_differ': bool(verdict and verdict.is_disputed),
    }


def _delta(delta: SemanticDelta, begin_ns: int) -> dict[str, Any]:
    return {
        'id': delta.to_id,
        'camera': delta.camera,
        't': (delta.stamp_ns - begin_ns) / 1e9,
        'kind': delta.kind.name,
        'action': delta.action,
        'change': delta.change,
        'error': delta.error,
        'model': delta.model.name,
    }


def _replay(recording: ReviewRecording) -> dict[str, Any] | None:
    """What another perceiver says of each keyframe, those that differ most first."""
    report = recording.replay
    if report is None or report['perceiver'] is None:
        return None
    places = {(d.camera, d.stamp_ns): n for n, d in enumerate(recording.deltas)}
    moments = [
        {
            'camera': entry['camera'],
            'keyframe': entry['keyframe'],
            't': (entry['stamp_ns'] - recording.begin_ns) / 1e9,
            'position': places.get((entry['camera'], entry['stamp_ns'])),
            'differences': entry['differences'],
            'added': entry['added'],
            'gone': entry['gone'],
            'renamed': entry['renamed'],
            'action_differs': entry['action_differs'],
            **{side: _side(entry[side]) for side in ('recorded', 'replayed')},
        }
        for entry in report['keyframes']
    ]
    moments.sort(key=lambda moment: (-moment['differences'], moment['t']))
    return {'perceiver': report['perceiver']['name'], 'moments': moments}


def _side(delta: dict[str, Any] | None) -> dict[str, str] | None:
    names = ('action', 'change', 'error')
    return {name: str(delta[name]) for name in names} if delta else None


def _map(scene: SceneMap | None, begin_ns: int) -> dict[str, Any] | None:
    if scene is None:
        return None
    return {
        'is_metric': scene.scale is not ScaleSource.RELATIVE,
        'landmarks': [
            {
                'label': one.label,
                'position': one.position[:2],
                'size': one.size[:2] if one.size else None,
                'from_t': (one.first_seen_ns - begin_ns) / 1e9,
                'status': one.status.value,
            }
            for one in scene.landmarks
            if all(map(math.isfinite, one.position))
        ],
        'path': [
            {
                't': (point.stamp_ns - begin_ns) / 1e9,
                'position': point.position[:2],
                'yaw_rad': point.yaw_rad,
            }
            for point in scene.path
        ],
    }


def _film(film: Film, begin_ns: int) -> dict[str, Any]:
    return {
        'is_whole': film.wait(0),
        'problem': film.problem,
        'cameras': {
            name: [(stamp - begin_ns) / 1e9 for stamp in stamps]
            for name, stamps in sorted(film.stamps().items())
        },
        'keyframes': [
            {
                'id': mark.id,
                'camera': mark.camera,
                't': (mark.stamp_ns - begin_ns) / 1e9,
                'reason': mark.reason,
                'overlap': mark.overlap,
            }
            for mark in list(film.keyframes)
        ],
    }


def _text(body: Mapping[str, Any], name: str) -> str:
    value = body.get(name)
    if not isinstance(value, str) or not value:
        msg = f'{name} is {value!r}: expected a text'
        raise InputError(msg)
    return value


def _whole(text: str, name: str) -> int:
    if not text.isdecimal():
        msg = f'{name} is {text!r}: expected a whole number'
        raise InputError(msg)
    return int(text)
