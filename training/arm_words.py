# SPDX-License-Identifier: Apache-2.0
"""Tasks of arms in other words, for training alone.

Demonstrations are told in one way for each kind of task. Who learns from them alone goes by the
first word, and takes a task whose first word is new for any of those that are known. Here the same
words begin tasks of several kinds, so that the rest of the sentence has to be read. No wording is
about one thing on another of its kind: that is what the task `stack` holds out.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from training.wording_patterns import chosen, wording_regex

if TYPE_CHECKING:
    from random import Random

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
}
_START = 'The task is: '
_TOLD = re.compile(rf'{_START}(?P<task>[^.]*)\.')
_PUSHED = re.compile(r'\b(push|slide|shove|drive|nudge|without lifting|(across|along) the)\b')


def is_pushed(task: str) -> bool:
    """Whether a task is to push something over the table rather than to lift it."""
    return bool(_PUSHED.search(task))


def reworded_task(question: str, rng: Random) -> str:
    """A question about an arm with its task in other words; else as it is."""
    told = _TOLD.match(question)
    for known, wordings in MORE_TASKS.items():
        match = told and re.fullmatch(wording_regex(known), told['task'])
        if told and match:
            text = chosen(rng.choice(wordings), rng).format(**match.groupdict())
            return f'{_START}{text}{question[told.end("task") :]}'
    return question
