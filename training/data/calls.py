# SPDX-License-Identifier: Apache-2.0
"""Rows that teach a small model to call tools: `python -m training.data.calls --out FOLDER`.

A row asks about a random room, and its label is the calls that read the question, in the compact
form of `reasoning.calls`. Some questions are those of `random_maps` in other words, the rest are
put together at random from reasoning/sentences.yaml, with openers, typing errors and two questions
in one. A label counts where its calls give the row's solution; the others are left out and
counted.
"""

from __future__ import annotations

import argparse
from collections import Counter
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from random import Random
import re
import sys
from typing import Any, TYPE_CHECKING

from embodied_r_ros.common.settings import read_yaml
from embodied_r_ros.core.reasoning.calls import format_calls, parse_calls, UNKNOWN_CALL
from embodied_r_ros.core.reasoning.forms import asks_yes_no
from embodied_r_ros.core.reasoning.reading import Call, NEW_TOOLS
from embodied_r_ros.core.reasoning.sentences import expand_pattern, read_sentences
from embodied_r_ros.core.scene.names import resolve, SHAPE_WORDS
from embodied_r_ros.core.scene.sightings import LabelParts
from embodied_r_ros.core.scene.tools import START
from embodied_r_ros.core.types.answers import UNKNOWN
from embodied_r_ros.core.types.things import (
    named_things,
    near_misses,
    other_names,
    plural,
    with_article,
)
from embodied_r_ros.core.types.vocabulary import COLOURS, item_label, SHAPES
from embodied_r_ros.data.questions.coverage import Coverage
from embodied_r_ros.data.questions.derive import QuestionsConfig
from embodied_r_ros.data.questions.map_rows import names_for, rows_of_map_moment
from embodied_r_ros.data.questions.wordings import (
    FOREIGN,
    MAP_WORDINGS,
    UNKNOWN_PROPERTIES,
    wording_pattern,
)

from training.data.call_rows import CallRow, outcome_of, scene_of, write_call_rows
from training.data.random_maps import random_map_moment
from training.run.command import run_command

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from embodied_r_ros.core.scene.tools import Scene
    from embodied_r_ros.core.types.landmarks import SceneMap
    from embodied_r_ros.data.questions.map_kinds import MapMoment
    from embodied_r_ros.data.questions.row import Row

_WORDINGS = Path(__file__).parents[1] / 'wordings'
_FILE = read_yaml(_WORDINGS / 'calls.yaml')
_OF_ROOM = 64  # questions put together at random about each room
_ABSENT, _UNANSWERABLE, _TWO, _SYNONYM = 0.12, 0.07, 0.08, 0.25  # shares
_LOWER, _UNMARKED, _MISTYPED, _OPENED, _CLOSED = 0.5, 0.4, 0.15, 0.2, 0.1
_OF_PEOPLE = 0.5  # share of these that people asked
_FOREIGN_KEPT = 0.35  # share of the questions of kinds that no tool answers
_COLOURED, _NAMED = 0.5, 0.2  # share of rooms, and of these such with names
_OPTIONAL = 0.3  # share of the questions put together that have options, where there are some
_SHORTEST = 4  # letters of a word that is mistyped
_ALIKE = 0.6  # share of the absent things that are like one that is there
_STOP = re.compile(r'^go forward until (?:past )?(?:the )?', re.IGNORECASE)
_Words = dict[str, str]


def written_words(part: str) -> dict[str, tuple[str, ...]]:
    """Sentences by their calls; `unknown()` where the compact form has not the tool."""
    words: dict[str, tuple[str, ...]] = {}
    for calls, texts in read_sentences()[part].items():
        is_new = calls.split('(')[0] in NEW_TOOLS
        key = 'unknown()' if is_new else calls
        words[key] = (*words.get(key, ()), *texts)
    return words


CALL_WORDS = written_words('patterns')
CALL_OPTIONS = {call: tuple(map(tuple, options)) for call, options in _FILE['options'].items()}
PEOPLE_WORDS = written_words('people')
OPENERS, CLOSERS, JOINTS = (tuple(_FILE[name]) for name in ('openers', 'closers', 'joints'))
YES_NO = (('yes', 'no'), ('no', 'yes'), ('yes', 'no', 'unknown'))


def _weight(call: str) -> float:
    return 3.0 if len(CALL_WORDS[call]) > 9 else 1.0


# Questions of `random_maps`, in other words.


def _item(tool: str, slot: str = 'name', word: str = 'item', **more: str) -> Callable[..., Call]:
    return lambda words, options: Call(tool, {slot: words[word], **more})


def _nearest(words: _Words, options: Sequence[str]) -> Call:
    to = words.get('reference') or words.get('item', '')
    among = list(options) or words['options'].split(', ')
    return Call('nearest', {**({'to': to} if to else {}), 'among': among})


def _stance(words: _Words, options: Sequence[str]) -> Call:
    del options
    return Call('where', {'name': words['item'], 'at': words['at'], 'facing': words['facing']})


def _route(words: _Words, options: Sequence[str]) -> Call:
    del options
    *via, goal = route_stops(words['steps'])
    return Call(
        'way_to', {'goal': goal, 'start': words['start'], 'facing': words['facing'], 'via': via}
    )


def _counted(words: _Words, options: Sequence[str]) -> Call:
    del options
    return Call('count', {'name': words.get('item') or _singular(words['items'])})


def _singular(several: str) -> str:
    return next((name for name in named_things() if plural(name) == several), several)


_CALLS: dict[str, Callable[..., Call]] = {
    'object_counting': _counted,
    'count_things': _counted,
    'object_abs_distance': lambda w, _: Call('distance', {'a': w['a'], 'b': w['b']}),
    'object_rel_distance': _nearest,
    'object_recall': _nearest,
    'nearest_thing': _nearest,
    'object_rel_direction_easy': _stance,
    'object_rel_direction_medium': _stance,
    'object_rel_direction_hard': _stance,
    'object_size_estimation': _item('size', dimension='longest'),
    'room_size_estimation': lambda *_: Call('floor_area', {}),
    'obj_appearance_order': lambda w, _: Call('order', {'among': w['options'].split(', ')}),
    'route_planning': _route,
    'landmark_position': _item('where'),
    'where_is': _item('where'),
    'last_seen': _item('seen', sight='last'),
    'how_far': _item('distance', 'a'),
    'way_back': lambda *_: Call('way_to', {'goal': START}),
    'way_to': _item('way_to', 'goal'),
    'action_generation': _item('way_to', 'goal'),
    'list_things': lambda *_: Call('things', {'scope': 'all'}),
    'is_there': lambda w, _: Call('count', {'name': re.sub(r'^an? ', '', w['a_item'])}),
}


@cache
def _patterns() -> list[tuple[str, re.Pattern[str]]]:
    """Kinds and their wordings, the wordiest first: what is left open takes in the least."""
    texts = [(kind, text) for kind in MAP_WORDINGS for text in MAP_WORDINGS[kind]]
    texts.sort(key=lambda each: -len(re.sub(r'\{\w+\}', '', each[1])))
    return [(kind, wording_pattern(text)) for kind, text in texts]


def kind_and_words(question: str) -> tuple[str, _Words] | None:
    """The kind of a question about a map, and the names in it; None: it is of no known wording.

    >>> kind_and_words('How far is the chair from you now (in meters)?')
    ('how_far', {'item': 'chair'})
    """
    for kind, pattern in _patterns():
        if match := pattern.fullmatch(question):
            return kind, match.groupdict()
    return None


def route_stops(steps_text: str) -> list[str]:
    """The stops of a route's numbered steps."""
    steps = re.split(r'(?:^|\s)\d+\. ?', steps_text)[1:]
    return [_STOP.sub('', step.strip(' .')) for step in steps if not step.startswith('[')]


class CallWriter:
    """Writes the rows of random rooms."""

    def __init__(self, seed: int) -> None:
        """Take the seed of rooms and questions."""
        self.seed = seed
        self.left_out: Counter[str] = Counter()
        self._names = names_for('train')
        self._wordings: dict[str, list[str]] = read_yaml(_WORDINGS / 'household.yaml')
        without = read_yaml(_WORDINGS / 'without_answer.yaml')
        self._foreign = [*FOREIGN[False], *UNKNOWN_PROPERTIES[False]]
        self._foreign += [each for texts in without.values() for each in texts.items()]

    def rows_of_room(self, number: int) -> tuple[SceneMap, list[CallRow]]:
        """The map of a room, and its rows."""
        rng = Random(f'calls:{self.seed}:{number}')
        moment = random_map_moment(f'calls:{self.seed}:{number}', self._names)
        if rng.random() < _COLOURED:
            moment = _coloured(moment, rng)
        scene = scene_of(moment.scene)
        own = f'room-{self.seed}-{number}'
        config = QuestionsConfig(moments=1, seed=self.seed, maps=True)
        drafts = []
        for row in rows_of_map_moment(moment, own, config, Coverage()):
            drafts.append(self._reworded(row, scene, rng))
        for _ in range(_OF_ROOM):
            drafts.append(self._composed(scene, rng))
        rows = [self._checked(draft, own, scene) for draft in drafts if draft]
        unique = {(row.question, row.options): row for row in rows if row}
        return moment.scene, list(unique.values())

    def _checked(self, draft: _Draft, own: str, scene: Scene) -> CallRow | None:
        """The row of a draft; None: its calls do not give its solution."""
        calls = parse_calls(draft.call, scene.labels)
        outcome = outcome_of(draft.question, draft.options, scene, calls)
        is_unread = bool(outcome[2]) and draft.call.strip() != 'unknown()'
        if calls is None or (is_unread and not draft.may_be_unread) or not draft.fits(outcome):
            self.left_out[draft.kind] += 1
            return None
        return CallRow(own, 'train', draft.kind, draft.question, draft.options, scene.labels,
                       draft.call, outcome)  # fmt: skip

    def _reworded(self, row: Row, scene: Scene, rng: Random) -> _Draft | None:
        """A row of a map in other words, and its call."""
        kind_words = kind_and_words(row.question)
        if kind_words is None:
            if rng.random() > _FOREIGN_KEPT:
                return None
            unread = format_calls([UNKNOWN_CALL])
            return _Draft('unanswerable', row.question, row.options, unread, UNKNOWN)
        kind, words = kind_words
        call = _CALLS[kind](words, row.options)
        call = Call(call.tool, {k: _as_label(v, scene) for k, v in call.arguments.items()})
        spoken = dict(words)
        for slot in ('item', 'a', 'b', 'reference', 'at', 'facing'):
            if slot in spoken:
                spoken[slot] = _spoken(spoken[slot], scene, rng)
        question = self._worded(kind, spoken, row.question, rng)
        question = question if kind == 'route_planning' else _noisy(question, rng, 0.5)
        return _Draft(kind, question, row.options, format_calls([call]), row.solution_text())

    def _worded(self, kind: str, words: _Words, own: str, rng: Random) -> str:
        """A question of a kind in other words, of the list as often as the package's own."""
        lists = [texts for texts in (self._wordings.get(kind), MAP_WORDINGS[kind][:-1]) if texts]
        texts = rng.choice(lists)
        fitting = [text for text in texts if set(re.findall(r'\{(\w+)\}', text)) == set(words)]
        if not fitting:
            return own
        text = rng.choice(fitting)
        for name, word in words.items():
            text = text.replace(f'{{{name}}}', word)
        return text

    def _composed(self, scene: Scene, rng: Random) -> _Draft | None:
        """A question that is put together at random."""
        if rng.random() < _UNANSWERABLE:
            return self._unanswerable(scene, rng)
        if rng.random() < _OF_PEOPLE:
            question, call, options = self._one(PEOPLE_WORDS, scene, rng)
            return _Draft('people', _noisy(question, rng, 0.5), options, call, is_given=True)
        count = 1 + (rng.random() < _TWO)
        drafts = [self._one(CALL_WORDS, scene, rng) for _ in range(count)]
        call = ' + '.join(draft[1].strip() for draft in drafts)
        options = drafts[0][2] if len(drafts) == 1 else ()
        if len(drafts) > 1 and 'unknown()' in call:
            return None
        question = drafts[0][0]
        for other, *_ in drafts[1:]:
            question += rng.choice(JOINTS) + other
        kind = '+'.join(sorted({re.split(r'\(', draft[1].strip())[0] for draft in drafts}))
        return _Draft(kind, _noisy(question, rng, 1.0), options, f' {call}')

    def _one(
        self, words: dict[str, tuple[str, ...]], scene: Scene, rng: Random
    ) -> tuple[str, str, tuple[str, ...]]:
        """Words, calls and options of one question."""
        is_of_people = words is PEOPLE_WORDS
        weights = [len(words[c]) if is_of_people else _weight(c) for c in words]
        kind = call = rng.choices(list(words), weights)[0]
        text = expand_pattern(rng.choice(words[call]), rng)
        slots = [slot for slot in 'xyz' if re.search(rf'\{{(a?{slot}s?)\}}', text + call)]
        spoken_names = []
        for slot, label in zip(slots, _labels_for(slots, scene, rng), strict=False):
            if rng.random() < _ABSENT:
                name = spoken = _absent(label, scene, self._names, rng)
            else:
                name, spoken = _name_and_words(label, scene, rng)
            spoken_names.append(spoken)
            call = call.replace(f'{{{slot}}}', name)
            text = text.replace(f'{{{slot}s}}', plural(spoken))
            text = text.replace(f'{{a{slot}}}', with_article(spoken))
            text = text.replace(f'{{{slot}}}', spoken)
        if '{c}' in text:
            colour = rng.choice(COLOURS).name
            text, call = text.replace('{c}', colour), f'count({colour} thing)'
        text = text.replace('{n}', rng.choice(('2', '3', '4', 'two', 'three', '1.5')))
        options = _options(kind, text, spoken_names, rng) if rng.random() < _OPTIONAL else ()
        return ' '.join(text.split()), f' {call}', options

    def _unanswerable(self, scene: Scene, rng: Random) -> _Draft:
        """A question that nothing answers."""
        text, options = rng.choice(self._foreign)
        text = text.replace('{item}', rng.choice(scene.labels or self._names))
        kept = tuple(options) if rng.random() < 0.4 else ()
        return _Draft('unanswerable', _noisy(text, rng, 0.6), kept, ' unknown()')


@dataclass(frozen=True)
class _Draft:
    """A question with its calls, not checked yet."""

    kind: str
    question: str
    options: tuple[str, ...]
    call: str
    solution: str | None = None  # None: what the calls give
    is_given: bool = False  # by a person: right, also where the question's words are not read

    @property
    def may_be_unread(self) -> bool:
        """Whether the solution says that nothing is known."""
        return self.is_given or self.solution == UNKNOWN

    def fits(self, outcome: Sequence[str]) -> bool:
        """Whether an outcome is the solution."""
        if self.solution is None:
            return True
        if UNKNOWN in (self.solution, outcome[0]):
            return self.solution == outcome[0]
        if outcome[0] == 'number':
            value = float(re.sub(r'[^\d.]', '', self.solution) or 'nan')
            return abs(value - float(outcome[1])) <= max(0.051, 0.03 * value)
        return outcome[1].lower() == self.solution.lower()


def _coloured(moment: MapMoment, rng: Random) -> MapMoment:
    """The room as a perceiver of colours names it: a red chair, or a red tall object."""
    labels = list(dict.fromkeys(landmark.label for landmark in moment.scene.landmarks))
    is_named = rng.random() < _NAMED
    others = [item_label(each.name, shape) for each in COLOURS for shape in SHAPES]
    rng.shuffle(others)
    if is_named or len(labels) > len(others):
        others = [f'{rng.choice(COLOURS).name} {label}' for label in labels]
    new = dict(zip(labels, others, strict=False))
    landmarks = tuple(replace(each, label=new[each.label]) for each in moment.scene.landmarks)
    doubtful = frozenset(new.get(label, label) for label in moment.doubtful)
    scene = replace(moment.scene, landmarks=landmarks)
    return replace(moment, scene=scene, doubtful=doubtful)


def _as_label(value: Any, scene: Scene) -> Any:
    """Names as the scene has them."""
    if isinstance(value, list):
        return [_as_label(each, scene) for each in value]
    if value in scene.labels:
        return value
    alike = [each for each in scene.labels if value in (plural(each), *other_names(each))]
    return alike[0] if len(alike) == 1 else value


def _spoken(name: str, scene: Scene, rng: Random) -> str:
    """A thing of the scene as people may call it: by its other name, where that is clear."""
    thing = named_things().get(name)
    other = thing.synonym if thing else ''
    is_clear = other and other not in scene.labels
    return other if is_clear and rng.random() < _SYNONYM else name


def _labels_for(slots: Sequence[str], scene: Scene, rng: Random) -> list[str]:
    return rng.sample(scene.labels, min(len(slots), len(scene.labels)))


def _name_and_words(label: str, scene: Scene, rng: Random) -> tuple[str, str]:
    """The name of a thing of the scene in a call, and in people's words.

    What is known by colour and shape is "the red one" or "the red box" to people; where that may
    be several things, the call says so too.
    """
    parts = LabelParts.of(label)
    if parts.name or not parts.colour:
        return label, _spoken(label, scene, rng)
    colour, shape = parts.colour, parts.shape
    forms = [f'{colour} thing', f'{colour} one', f'{colour} object', label]
    if shape:
        forms += [f'{colour} {word}' for word in SHAPE_WORDS[shape]]
        forms += [f'{shape} {colour} thing', f'{colour} {shape} thing']
    spoken = rng.choice(forms)
    meant = resolve(spoken, scene.labels).labels
    if meant == (label,):
        return label, spoken
    return (f'{colour} thing', spoken) if len(meant) > 1 else (label, label)


def _options(kind: str, text: str, names: Sequence[str], rng: Random) -> tuple[str, ...]:
    """Options that go with a question; none: nothing does."""
    if asks_yes_no(text, ()):
        return rng.choice(YES_NO)
    if kind in CALL_OPTIONS:
        return rng.choice(CALL_OPTIONS[kind])
    compared = kind.startswith(('nearest(', 'farthest(', 'order(', 'visited('))
    own = names[:2] if kind.startswith(('nearest({z}', 'order(')) else names
    return tuple(own) if compared and len(own) > 1 else ()


def _absent(label: str, scene: Scene, names: Sequence[str], rng: Random) -> str:
    """A thing that the scene has not: like one that it has, or any."""
    known = {other for each in scene.labels for other in (each, *other_names(each))}
    alike = [name for name in near_misses(label) if name not in known]
    others = [name for name in names if name not in known]
    return rng.choice(alike if alike and rng.random() < _ALIKE else others)


def _noisy(text: str, rng: Random, amount: float) -> str:
    """A question as people type it."""
    text = text.strip()
    if rng.random() < amount * _OPENED:
        text = f'{rng.choice(OPENERS)}{rng.choice((" ", ", "))}{text}'
    if rng.random() < amount * _CLOSED:
        text = f'{text.rstrip("?.")}{rng.choice((" ", ", "))}{rng.choice(CLOSERS)}'
    if rng.random() < amount * _MISTYPED:
        text = _mistyped(text, rng)
    is_marked = text.endswith(('?', '.', '!'))
    if rng.random() < amount * _UNMARKED:
        text = text.rstrip('?.!')
    elif not is_marked:
        text += '?'
    if rng.random() < amount * _LOWER:
        return text.lower() if rng.random() < 0.9 else text.upper()
    return text[:1].upper() + text[1:]


def _mistyped(text: str, rng: Random) -> str:
    """The text with a letter left out, doubled or exchanged with the next one."""
    words = text.split(' ')
    long = [i for i, word in enumerate(words) if len(word) >= _SHORTEST and word.isalpha()]
    if not long:
        return text
    index = rng.choice(long)
    word, at = words[index], rng.randrange(1, len(words[index]) - 1)
    forms = (
        word[:at] + word[at + 1 :],
        word[:at] + word[at] + word[at:],
        word[:at] + word[at + 1] + word[at] + word[at + 2 :],
    )
    words[index] = rng.choice(forms)
    return ' '.join(words)


def write_calls(folder: Path, count: int, seed: int) -> Counter[str]:
    """Write so many rows as `train.jsonl.gz`; returns what was left out, by kind."""
    folder.mkdir(parents=True, exist_ok=True)
    writer = CallWriter(seed)
    rows: list[CallRow] = []
    number = 0
    while len(rows) < count:
        rows += writer.rows_of_room(number)[1]
        number += 1
    Random(seed).shuffle(rows)
    write_call_rows(folder / 'train.jsonl.gz', rows[:count])
    return writer.left_out


def _run(args: argparse.Namespace) -> int:
    left_out = write_calls(args.out, args.train, args.seed)
    for kind, count in left_out.most_common():
        sys.stderr.write(f'{count:6} left out: {kind}\n')
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Write rows; what was left out goes to stderr."""
    parser = argparse.ArgumentParser(prog='training.data.calls', description=__doc__)
    parser.add_argument('--out', type=Path, required=True, metavar='FOLDER')
    parser.add_argument('--train', type=int, default=20_000, help='rows (default: %(default)s)')
    parser.add_argument('--seed', type=int, default=0)
    return run_command(parser, _run, arguments)


if __name__ == '__main__':
    sys.exit(main())
