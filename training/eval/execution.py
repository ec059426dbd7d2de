# SPDX-License-Identifier: Apache-2.0
"""A second check of consistency: carry out the last step of a reasoning and see where it leads.

A judge reads what the conclusion says. This one takes the last figures of the reasoning, such as
"In all 30 right" or the distances of a list, and works out which option follows from them. It
knows the forms that `traces.py` teaches and says nothing about any other.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from embodied_r_ros.reasoning.completions import number_in, parse_completion, UNKNOWN

from training.data.arm_reader import cm_of
from training.data.arm_traces import closest, likest, movement_words
from training.data.traces import facing, level, standing
from training.eval.grading import named_answer
from training.tiny.dead_reckoning import quarter_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from training.eval.grading import SolvedQuestion

    Step = Callable[[re.Match[str], Sequence[str], str], str | None]

_TURN = r'(?:(?P<degrees>\d+) (?P<hand>left|right)|0)'
_METRES = r'\d+(?:\.\d+)?'
_LABEL = r'[a-z]+(?: [a-z]+)*'
_CM = r'(?P<x>-?\d+) (?P<y>-?\d+) (?P<z>-?\d+)'
_COUNTED = re.compile(rf'{_LABEL} \[[\d-]+\] \d+;')
_LOOKED_UP = re.compile(rf'(?P<label>{_LABEL}) \[(?P<line>\d+)(?:-\d+)?\];')
_TOGETHER = re.compile(rf'in \[[\d-]+\] (?P<first>{_LABEL}), then ')


def executed_conclusion(think: str, options: Sequence[str]) -> str | None:
    """Answer that follows from the last step of a reasoning.

    Args:
        think: The reasoning.
        options: Texts of the options; empty for a free question.

    Returns:
        The option's text, a number as text, or 'unknown'; None where the form is not known, or
        where no option follows.
    """
    text = ' '.join(think.split())
    for pattern, step in _STEPS:
        match = pattern.search(text)
        if match:
            return step(match, options, text)
    return None


def executed_consistency(question: SolvedQuestion, text: str) -> float | None:
    """1 where the reasoning of a completion leads to its answer, else 0; None: not known."""
    completion = parse_completion(text)
    conclusion = executed_conclusion(completion.think, question.options)
    given = completion.answer_to(question.options)
    if given is None or conclusion is None:
        return None
    answer, followed = (named_answer(question, text) for text in (given, conclusion))
    same_number = number_in(answer) is not None and number_in(answer) == number_in(followed)
    return float(answer == followed or same_number)


def _degrees(match: re.Match[str]) -> int:
    return int(match['degrees'] or 0) * (-1 if match['hand'] == 'right' else 1)


def _net_turn(match: re.Match[str], options: Sequence[str], text: str) -> str | None:
    del text
    return facing(options, _degrees(match))


def _net_place(match: re.Match[str], options: Sequence[str], text: str) -> str | None:
    del text
    x = float(match['x']) * (-1 if match['along'] == 'behind' else 1)
    y = float(match['y']) * (-1 if match['across'] == 'right' else 1)
    return standing(options, x, y)


def _net_rise(match: re.Match[str], options: Sequence[str], text: str) -> str | None:
    del text
    rise = level(float(match['metres']) * (-1 if match['way'] == 'down' else 1))
    return rise if rise in options else None


def _bearing(match: re.Match[str], options: Sequence[str], text: str) -> str | None:
    del text
    side = quarter_of(_degrees(match))
    return side if side in options else None


def _first(match: re.Match[str], options: Sequence[str], text: str) -> str | None:
    del match
    lines = {lookup['label']: int(lookup['line']) for lookup in _LOOKED_UP.finditer(text)}
    if not lines or set(lines) != set(options):
        return None
    together = _TOGETHER.search(text)
    return together['first'] if together else min(lines, key=lines.__getitem__)


def _count(match: re.Match[str], options: Sequence[str], text: str) -> str | None:
    count = str(len(_COUNTED.findall(text[: match.start()])))
    return count if not options or count in options else None


def _nearest(match: re.Match[str], options: Sequence[str], text: str) -> str | None:
    del match
    metres_known = {
        option: metres for option in options if (metres := _metres(option, text)) is not None
    }
    if not options or len(metres_known) < len(set(options)):
        return None
    return min(metres_known, key=metres_known.__getitem__)


def _metres(label: str, text: str) -> float | None:
    """Distance [m] with which a list ends what it tells of an item."""
    mention = re.search(rf'(?:^|[\];] ){re.escape(label)} (?:[^;]* )?(\d+\.\d) m;', text)
    return float(mention[1]) if mention else None


def _next_place(match: re.Match[str], options: Sequence[str], text: str) -> str | None:
    del text
    places = [place for option in options if (place := cm_of(option))]
    wanted = int(match['x']), int(match['y']), int(match['z'])
    return options[closest(wanted, places)] if len(places) == len(options) > 0 else None


def _way(match: re.Match[str], options: Sequence[str], text: str) -> str | None:
    del text
    x, y, z = (int(match[axis]) for axis in 'xyz')
    return likest(movement_words((x, y, z)), options)


def _unknown(match: re.Match[str], options: Sequence[str], text: str) -> str | None:
    del match, options, text
    return UNKNOWN


_STEPS: tuple[tuple[re.Pattern[str], Step], ...] = tuple(
    (re.compile(pattern), step)
    for pattern, step in (
        # A reason, and nothing after it.
        (
            r'(?:cannot tell\.|not how far\.|[Nn]ot seen,|not where,|Nothing seen tells that,)'
            rf' [Ss]o {UNKNOWN}\.?$',
            _unknown,
        ),
        (rf'In all {_TURN}, so [^.]*\.?$', _net_turn),
        (
            rf'In all (?P<along>ahead|behind) (?P<x>{_METRES}) (?P<across>left|right)'
            rf' (?P<y>{_METRES}), so [^.]*\.?$',
            _net_place,
        ),
        (rf'In all (?P<way>up|down) (?P<metres>{_METRES}), so [^.]*\.?$', _net_rise),
        (rf'(?:At|:|,) {_TURN}, so [^.]*\.?$', _bearing),
        (r'First is [^.]*\.?$', _first),
        (rf'{_LABEL} objects: \d+\.?$', _count),
        (r'nearest is [^.]*\.?$', _nearest),
        (rf'(?:Next|Or) {_CM}: [^A-Z]*Closest: \d+\.?$', _next_place),
        (rf'Way {_CM}, half \d+: [^.]*\. Most like: [^.]*\.?$', _way),
    )
)
