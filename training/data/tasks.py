# SPDX-License-Identifier: Apache-2.0
"""Tasks of an arm in other words, for training: patterns, and what they are read by."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from embodied_r_ros.data.questions.wordings import wording_pattern

if TYPE_CHECKING:
    from random import Random

_INNERMOST = r'\[([^\[\]]*)\]'


def expand_pattern(pattern: str, rng: Random) -> str:
    """A wording of a pattern: one of what stands in each pair of brackets, which may be nested.

    >>> from random import Random
    >>> expand_pattern('How [warm|cold] is it [|now]?', Random(0))
    'How cold is it now?'
    """
    text = pattern
    while (found := re.sub(_INNERMOST, lambda m: rng.choice(m[1].split('|')), text)) != text:
        text = found
    return re.sub(r' +(?=[ ?.,]|$)', '', text)


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
        match = task_match and wording_pattern(wordings_of_task).fullmatch(task_match['task'])
        if task_match and match:
            text = expand_pattern(rng.choice(wordings), rng).format(**match.groupdict())
            return f'{_START}{text}{question[task_match.end("task") :]}'
    return question
