# SPDX-License-Identifier: Apache-2.0
"""Rows that ask the same in other words: `python -m training.data.reword ROWS --out FILE`.

Words for training, or with `--wordings` your own: how does a model understand you?
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from itertools import chain
from pathlib import Path
from random import Random
import re
import sys
from typing import TYPE_CHECKING

from embodied_r_ros.common.errors import InputError
from embodied_r_ros.common.settings import read_yaml
from embodied_r_ros.questions.map_rows import MAP_KINDS
from embodied_r_ros.questions.row import read_rows, write_rows
from embodied_r_ros.questions.wordings import FOREIGN, MAP_WORDINGS, UNKNOWN_PROPERTIES, WORDINGS

from training.data.map_oracle import kind_and_words
from training.data.place_words import MORE_MAP_WORDINGS, MORE_PROPERTIES, OPENERS
from training.run.command import run_command

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from embodied_r_ros.questions.row import Row


def expand_pattern(pattern: str, rng: Random) -> str:
    """A wording of a pattern: one of what stands in each pair of brackets.

    >>> from random import Random
    >>> expand_pattern('How [warm|cold] is it [|now]?', Random(0))
    'How cold is it now?'
    """
    text = re.sub(r'\[([^]]*)\]', lambda match: rng.choice(match[1].split('|')), pattern)
    return re.sub(r' +(?=[ ?.]|$)', '', text)


def wording_regex(wording: str) -> str:
    """A wording as a regular expression whose groups are the names it leaves open."""
    parts = re.split(r'\{(\w+)\}', wording)
    return ''.join(
        f'(?P<{part}>.+)' if index % 2 else re.escape(part) for index, part in enumerate(parts)
    )


# Of what stands in brackets one is chosen.
_ON = '[on|onto|upon|on top of]'
_TO = '[to|towards|up to|over to]'
_FLAT = '[across|along] the [table|table top]'
MORE_TASKS: dict[str, tuple[str, ...]] = {
    'pick up the {thing}': (
        '[pick|lift|take|get] up the {thing}',
        '[lift|raise|grasp|grip|take|get|fetch] the {thing}',
        '[take|get|bring|lift|move|pick] the {thing} [up|off the table|into the air]',
        '[take|get|catch] hold of the {thing} [|and lift it]',
    ),
    'put the {thing} on the {place}': (
        f'[set|lay|place|drop|rest|leave|put] the {{thing}} {_ON} the {{place}}',
        f'[move|bring|take|get|lift|carry] the {{thing}} {_ON} the {{place}}',
        f'[pick|take|lift] up the {{thing}} and [put|set|lay] it {_ON} the {{place}}',
        'the {thing} [belongs|should be|goes|has to be] [on|upon|on top of] the {place}',
    ),
    'push the {thing} to the {place}': (
        f'[slide|shove|drive|nudge|push] the {{thing}} {_TO} the {{place}}',
        f'[move|bring|take|get] the {{thing}} {_FLAT} {_TO} the {{place}}',
        f'[slide|shove|push|move] the {{thing}} {_FLAT} {_TO} the {{place}}',
        f'without lifting it, [move|bring|get] the {{thing}} {_TO} the {{place}}',
    ),
    'open the drawer': (
        '[pull|draw|get|take|bring|move] the drawer [open|out|outwards|out of its case]',
        '[pull|draw|open] the drawer [|a bit|as far as it goes|by its handle|by the handle]',
        '[take|get|catch] hold of the [handle of the drawer|drawer] and [pull|open it|'
        'draw it out]',
        '[move|bring|pull] the handle of the drawer [out|back|outwards|towards you]',
        'the drawer [should be|has to be|must be] [open|pulled open|drawn out]',
    ),
}
_START = 'The task is: '
_TOLD = re.compile(rf'{_START}(?P<task>[^.]*)\.')
_PUSHED = re.compile(r'\b(push|slide|shove|drive|nudge|without lifting|(across|along) the)\b')


def is_pushed(task: str) -> bool:
    """Whether a task is to push something over the table rather than to lift it."""
    return bool(_PUSHED.search(task))


def reworded_task(question: str, rng: Random) -> str:
    """A question about an arm with its task in other words; else as it is."""
    task_match = _TOLD.match(question)
    for wordings_of_task, wordings in MORE_TASKS.items():
        match = task_match and re.fullmatch(wording_regex(wordings_of_task), task_match['task'])
        if task_match and match:
            text = expand_pattern(rng.choice(wordings), rng).format(**match.groupdict())
            return f'{_START}{text}{question[task_match.end("task") :]}'
    return question


# Of what stands in brackets one is chosen.
MORE_WORDINGS: dict[str, tuple[str, ...]] = {
    'net_turn': (
        'Which way [is the robot facing|does the robot point|does the camera look] [by now|at'
        ' present|in the end], [compared with|measured against] [when it started|its first'
        ' heading|the first view]?',
        'In total, [which way|how far and to which side|in which sense] has the [robot|camera]'
        ' [turned|rotated]?',
        '[What is|Tell|Give] the [heading|orientation] of the [robot|camera] now, [compared with|'
        'as seen from] [the first one|its heading at the start].',
        'Add up the [turns|rotations]: how does the robot [face|look] [relative to|against] the'
        ' [start|beginning]?',
        'How has the [direction in which the robot looks|heading|view of the robot] changed since'
        ' [the beginning|the start|it set out]?',
        'Seen from its first [heading|direction], where does the [robot|camera] [look|face|point]'
        ' [now|in the end]?',
        'By how much and to which side did the robot turn [overall|in all|altogether]?',
    ),
    'net_displacement': (
        'Where has the robot [got to|arrived|gone], [relative to|measured from] its [starting'
        ' point|first place]?',
        '[Which way|In which direction] from [the start|its first place] [is the robot|has the'
        ' robot come] [now|by now|at present]?',
        'In which direction has the robot [moved|travelled|driven] [overall|in all|altogether]?',
        '[Adding up all moves|After all its moves|All moves together], where [does the robot end'
        ' up|is the robot in the end]?',
        'Where is the robot, [measured from|compared with] the place and heading it had [first|at'
        ' first|when it set out]?',
        'From the point of view of the start, [where is the robot|where did the robot go]?',
        'Which side of its starting place has the robot [reached|come to]?',
        '[Tell|Say|Give] the [place|position] of the robot as it [looks|appears] from the start.',
    ),
    'height_change': (
        'Is the camera now [above|over|below|under] its first height?',
        '[What happened to|How did the robot change] the height of the camera [|so far|since the'
        ' start]?',
        'Did the camera [rise or sink|go up or down|climb or come down], [all in all|overall|in'
        ' total]?',
        'How high is the camera, [compared with|measured against] [how high it was first|its first'
        ' height]?',
        'Relative to the [beginning|first view], has the camera gone [up or down|down or up]?',
        'What is the height of the camera now, [measured against|compared with] the [start|'
        'first view|beginning]?',
        '[Tell|Say] whether the camera [is|hangs|looks from] higher or lower [now|by now] than [at'
        ' first|before].',
    ),
    'item_direction': (
        'Where would one [find|see|look for] the {item}, [seen|looking] from the robot?',
        'Which way should the robot [turn|look|go] to [see|find|meet] the {item}?',
        'Towards which side of the robot is the {item} [|now|by now]?',
        '[Tell|Give|Say] the direction of the {item} from the robot.',
        'The {item}: [in which direction|on which hand|where] is it [now|at present]?',
        'As the robot stands now, [where is|which way is|where does one see] the {item}?',
        'What is the direction from the robot to the {item} [at present|now|by now]?',
        '[Which way|Where] is the {item} from [here|where the robot is]?',
    ),
    'first_sight': (
        'Which one [was seen|came into view|was in view|was met] first?',
        'Which of them did the [camera show|robot notice|robot meet|camera catch] first?',
        'What [came into view|was seen|was noticed] [first of all|before all else]?',
        'Which of the following was [noticed|seen|shown] before the rest?',
        'In the order of being [seen|met|noticed], which one comes first?',
        'Among these, what had the robot [already seen|met|noticed] before it saw the others?',
        'What was the first of these to be [in view|seen|shown]?',
        '[Name|Tell|Give] the one that the [robot|camera] [saw|met|found] before all others.',
    ),
    'how_many': (
        'What is the count of {colour} objects that [were seen|came into view|were met]?',
        'How many objects that are {colour} has the [camera shown|robot seen|robot met]?',
        'How many {colour} [things|objects|items] were there to be seen?',
        '[Tell|Give|Say] the [number|count] of {colour} objects the robot [came across|saw|met].',
        'In all, how many {colour} [objects|things] has the [robot|camera] seen?',
        'Of {colour} colour, how many objects [were in view at some time|were seen|were found]?',
        'How often did a new {colour} object [come into view|turn up|show itself]?',
        'Count: [how many|which number of] {colour} objects [came into view|were met|turned up]?',
        'What number of {colour} objects [did the camera see|were seen|did the robot find]?',
    ),
    'nearest': (
        'Which of them is [the shortest way from the robot|the fewest steps away|nearest]?',
        'What is [closest|nearest] to the robot [now|by now|at present]?',
        'Which one could the robot [reach|touch|get to] first from where it is?',
        'Which of the following [stands|is|lies] nearest to the [camera|robot]?',
        'At present, which one is the [robot|camera] [nearest|closest] to?',
        'What is the least distance away from the [robot|camera] now?',
        '[Tell|Name|Give] the one that is [nearest|closest] to where the robot [is|stands].',
        'To which one has the robot the [least|smallest] way to go?',
    ),
}
# What a question may begin with; most begin at once.
_OPENERS = ('', '', '', '', 'Tell me: ', 'From all that was seen: ', 'Looking back: ', 'Say: ')
# Likewise questions that nothing seen can answer, with their options.
MORE_FOREIGN: tuple[tuple[str, tuple[str, ...]], ...] = (
    ('What does the [door|lamp|table|carpet|robot] weigh?', ('1 kg', '10 kg', '100 kg')),
    ('[How much|What] did the [lamp|table|camera|window] cost?', ('50', '300', '1000')),
    ('What is the [dog|child|owner|guest] [called|doing]?', ('Max', 'sleeping', 'nothing')),
    ('Who [made|bought|painted|owns] the [door|lamp|room|robot]?', ('Ann', 'a friend', 'nobody')),
    ('How [warm|cold|damp|loud] is [it|the room|the air] [|now]?', ('a little', 'very', 'not')),
    ('What time is it [|now|outside]?', ('morning', 'noon', 'night')),
    ('Which [song|game|film] did they [play|like] [|last]?', ('an old one', 'a new one', 'none')),
    ('What is the capital of [Italy|Spain|Japan]?', ('Rome', 'Madrid', 'Tokyo')),
    ('Will it [snow|rain] [tomorrow|next week]?', ('yes', 'no', 'perhaps')),
    ('How many [people|cats|books|windows] are [outside|upstairs|next door]?', ('0', '2', '5')),
    ('Is the [door|window|oven] [locked|hot|new]?', ('yes', 'no', 'half')),
    (
        'What [will|did] the [owner|guest|child] [eat|say|buy] [|tomorrow]?',
        ('soup', 'yes', 'shoes'),
    ),
    ('[Translate|Spell|Say] the word [robot|room|house].', ('maison', 'house', 'camera')),
    ('What is [12|25|31] [plus|minus|times] [8|19|4]?', ('20', '6', '124')),
    ('When was the [house|robot|lamp] [built|bought|cleaned]?', ('in May', 'last year', 'today')),
)


def kind_and_names(row: Row) -> tuple[str, dict[str, str]] | None:
    """The kind whose wording a row's question has, and the names in it; None: no known one."""
    if row.question in {question for known in FOREIGN.values() for question, _ in known}:
        return 'unanswerable', {}
    for wording, _ in chain.from_iterable(UNKNOWN_PROPERTIES.values()):
        if match := re.fullmatch(wording_regex(wording), row.question):
            return 'unknown_property', match.groupdict()
    if row.question_type in MAP_KINDS:
        return kind_and_words(row.question)
    for kind, wordings in WORDINGS.items():
        for wording in wordings:
            if match := re.fullmatch(wording_regex(wording), row.question):
                return kind, match.groupdict()
    return None


def reword_row(row: Row, rng: Random) -> Row:
    """The same row in words for training; as it is where its words are of no known kind."""
    if row.question_type in MAP_KINDS:
        return _reworded_place(row, rng)
    opener = rng.choice(_OPENERS)
    if row.question in {question for question, _ in FOREIGN[False]}:
        pattern, options = rng.choice(MORE_FOREIGN)
        return replace(row, question=opener + expand_pattern(pattern, rng), options=options)
    kind, words = kind_and_names(row) or ('', {})
    if kind in MORE_WORDINGS:
        text = opener + expand_pattern(rng.choice(MORE_WORDINGS[kind]), rng)
        return replace(row, question=text.format(**words))
    new_question = reworded_task(row.question, rng)
    return row if new_question == row.question else replace(row, question=new_question)


def _reworded_place(row: Row, rng: Random) -> Row:
    kind_words = kind_and_words(row.question)
    if kind_words is None:
        return _other_property(row, rng)
    kind, words = kind_words
    wordings = [w for w in MORE_MAP_WORDINGS[kind] if _slots(w) == set(words)]
    if not wordings:
        return row
    text = expand_pattern(rng.choice(wordings), rng).format(**words)
    question = rng.choice(OPENERS) + text
    # Names may hold words of questions: what would be read otherwise is left as it is.
    return replace(row, question=question) if kind_and_words(question) == kind_words else row


def _other_property(row: Row, rng: Random) -> Row:
    for wording, _ in UNKNOWN_PROPERTIES[False]:
        if match := re.fullmatch(wording_regex(wording), row.question):
            pattern, options = rng.choice(MORE_PROPERTIES)
            question = rng.choice(OPENERS) + expand_pattern(pattern, rng).format(
                **match.groupdict()
            )
            return replace(row, question=question, options=options)
    return row


def _slots(wording: str) -> set[str]:
    return set(re.findall(r'\{(\w+)\}', wording))


def in_other_words(rows: Iterable[Row], share: float, seed: int = 0) -> Iterator[Row]:
    """All rows; a share of those of the training split are asked in other words, with other ids.

    Rows that models are chosen by or evaluated on stay as they are.

    Args:
        rows: Any.
        share: Of the training rows, 0 to 1.
        seed: Of what is drawn. A row is worded the same whatever others stand beside it.
    """
    for row in rows:
        rng = Random(f'{seed}/{row.id}')
        is_asked_anew = row.split == 'train' and rng.random() < share
        other = reword_row(row, rng) if is_asked_anew else row
        is_same = (other.question, other.options) == (row.question, row.options)
        # Samples of the row as it was are none of this one.
        yield row if is_same else replace(other, id=f'{row.id}/reworded')


# What other questions of these kinds leave open.
_WITHOUT_ANSWER = {'unanswerable': ('',), 'unknown_property': ('{item}',)}
# Kind -> text -> options to choose from; empty: those of the row.
Wordings = dict[str, dict[str, tuple[str, ...]]]


def read_wordings(path: Path) -> Wordings:
    """Wordings of kinds of questions, with the names that they leave open in braces.

    A kind has a list of texts. Those that have no answer, `unanswerable` and `unknown_property`,
    have a mapping of texts to options, which may be empty.

    Raises:
        InputError: The file is no mapping of kinds to texts, names a kind that is not known, or
            leaves open other names than the questions of that kind.
    """
    wordings = read_yaml(path)
    kinds: dict[str, tuple[str, ...]] = {**WORDINGS, **MAP_WORDINGS, **_WITHOUT_ANSWER}
    if not isinstance(wordings, dict):
        msg = f'{path}: expected a mapping of kinds of questions to lists of texts'
        raise InputError(msg)
    for kind, texts in wordings.items():
        if kind not in kinds:
            msg = f'{path}: {kind!r}, expected one of {", ".join(sorted(kinds))}'
            raise InputError(msg)
        form, expected = (list, 'list') if kind not in _WITHOUT_ANSWER else (dict, 'mapping')
        if not isinstance(texts, form) or not all(isinstance(text, str) for text in texts):
            what = 'texts' if form is list else 'texts to lists of options'
            msg = f'{path}: {kind}: {texts!r}, expected a {expected} of {what}'
            raise InputError(msg)
        names = [sorted(_slots(wording)) for wording in kinds[kind]]
        for text in texts:
            if sorted(_slots(text)) not in names:
                msg = f'{path}: {kind}: {text!r}, expected a text with these in braces: {names[0]}'
                raise InputError(msg)
    return {
        kind: {text: tuple(texts[text]) if isinstance(texts, dict) else () for text in texts}
        for kind, texts in wordings.items()
    }


def in_words_of(row: Row, wordings: Wordings, rng: Random) -> Row | None:
    """The row in one of these wordings; None: they have no words for it.

    Args:
        row: Any.
        wordings: Of each kind, with the same names in braces as its other wordings.
        rng: Draws one.
    """
    kind, words = kind_and_names(row) or ('', {})
    fitting = [text for text in wordings.get(kind, ()) if _slots(text) == set(words)]
    if kind == 'how_many':  # objects of a colour are counted as things of a name are
        fitting += [
            text.replace('{items}', '{colour} objects')
            for text in wordings.get('count_things', ())
        ]
    if not fitting:
        return None
    wording = text = rng.choice(fitting)
    for name, word in words.items():  # other braces belong to the text
        text = text.replace(f'{{{name}}}', word)
    is_foreign = kind in _WITHOUT_ANSWER  # whose options answer another question
    return replace(
        row, question=text, options=wordings[kind][wording] if is_foreign else row.options
    )


def _run(args: argparse.Namespace) -> int:
    if args.wordings:
        rows = list(read_rows(args.rows))
        wordings = read_wordings(args.wordings)
        others = (in_words_of(row, wordings, Random(f'{args.seed}/{row.id}')) for row in rows)
        worded = [replace(row, id=f'{row.id}/reworded') for row in others if row]
        write_rows(args.out, worded)
        text = f'{len(worded)} of {len(rows)} rows; {args.wordings} has no words for the others'
        sys.stdout.write(f'{text}\n')
        return 0
    if not 0 <= args.share <= 1:
        msg = f'--share {args.share}: expected a share from 0 to 1'
        raise InputError(msg)
    write_rows(args.out, in_other_words(read_rows(args.rows), args.share, args.seed))
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Write a file of rows in other words."""
    parser = argparse.ArgumentParser(prog='training.data.reword', description=__doc__)
    parser.add_argument('rows', type=Path, metavar='ROWS.jsonl')
    parser.add_argument('--out', type=Path, required=True, metavar='FILE')
    help_text = 'of the training rows, 0 to 1 (default: %(default)s)'
    parser.add_argument('--share', type=float, default=0.6, help=help_text)
    help_text = 'YAML, KIND: [text, …]: the rows of these kinds, all of them in these words'
    parser.add_argument('--wordings', type=Path, metavar='FILE', help=help_text)
    parser.add_argument('--seed', type=int, default=0)
    return run_command(parser, _run, arguments)


if __name__ == '__main__':
    sys.exit(main())
