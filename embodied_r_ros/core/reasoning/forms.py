# SPDX-License-Identifier: Apache-2.0
"""What form an answer must have, by the first words of its question: a number is no "what"."""

from __future__ import annotations

from enum import Enum
import re
from typing import TYPE_CHECKING

from embodied_r_ros.core.reasoning.quantities import unit_in

if TYPE_CHECKING:
    from collections.abc import Sequence

YES_NO = re.compile(
    r'^(?:so|and|ok|okay|hey|please|tell me|can you tell me|do you know|um+|well)?[,\s]*(?:if\s+)?'
    r'(?:is|are|was|were|do|does|did|have|has|had|am|r (?:you|u)|any|'
    r'(?:can|could) (?:you|u|i|we) (?:still |even |also |ever |already )?(?:see|spot|make out)|'
    r'would|will|isn.t|aren.t|didn.t)\b'
)
# What asks first in a question that does not begin with it: "in this run, did you ...".
_FIRST_ASKING = re.compile(
    r'\b(?:(?:how|what|which|where|when|who|why)\w*|'
    r'(?P<verb>did|does|do|is|are|was|were|has|have) '
    r'(?:you|u|it|we|they|i|there|the|an?|this|that|any|my|your|our)\b)'
)
_TAG = re.compile(r'\b(?:is (?:it|correct|true)|isn.t it|wasn.t it|am i right|correct)\s*\??$')
STATEMENT = re.compile(
    r'^(?:so )?(?:you|u|we|it|they|i|the \w+) .*\w(?P<tag> right)\?$|'
    r'(?P<after>,\s*(?:right|correct|true|no|yes|yes or no|'
    r'(?:is|was|were|are|did|do|does|has|have)n.?t (?:it|we|you|they|there))\s*)\??$'
)
_TOLD = re.compile(
    r'(?:so |and |i (?:guess|think|suppose) )*(?:you|u|we|it|they|there|the \w+)\b(?! or\b).*\?$'
)
_UNIT_OF = {1.0: 'm', 0.01: 'cm', 0.3048: 'ft', 0.0254: 'in', 0.9144: 'yd', 0.0929: 'ft'}
_NUMBER = re.compile(
    r'\b(?:how (?:many|much|far|long|tall|high|wide|deep|big|large|close|near)|number of|'
    r'what (?:is the |was the |total )?(?:distance|length|height|size|width|depth|number)|'
    r'(?:at )?(?:what|which) (?:second|minute))\b'
)
_LENGTH = re.compile(
    r'\b(?:far|distance|long|close|near|cm|met(?:er|re)s?|m|feet|ft|foot|yards?|inch(?:es)?)\b'
)
_TIME = re.compile(
    r'\b(?:for how long|how long\b.*\b(?:take|took|wait|stay|look)|how much time)\b'
)
_NAME = re.compile(
    r'^(?:(?:so|and|ok|hey|hi|please|now|then|tell me|say)[ ,]+)*'
    r'(?:what|which|who)(?: (?:is|are|was|were|else|thing|object|one|did you see|do you see|'
    r'can you see|could you see|of)\b|$)'
)
_OF_PLACE = re.compile(
    r'\b(?:way|direction|side|position|place|location|heading|bearing|clock|route|path|colou?rs?)\b'
)


def dimension_of(question: str) -> str:
    """The dimension of the number that a question wants; empty: it does not say."""
    unit = unit_in(question)
    return 'time' if _TIME.search(question) else unit.dimension if unit else ''


def is_of_length(question: str) -> bool:
    """Whether a question for a number is one for a length."""
    return bool(_LENGTH.search(question))


class Wanted(Enum):
    """What a question wants."""

    ANY = 'any'
    NUMBER = 'a number'
    NAME = 'a name'
    YES_NO = 'yes or no'


def wanted_by(question: str, *, is_yes_no: bool) -> Wanted:
    """What a question without options wants.

    Args:
        question: In lower case.
        is_yes_no: Whether it is one of yes or no.
    """
    if is_yes_no:
        return Wanted.ANY if re.search(r'\bor\b|\bhow\b', question) else Wanted.YES_NO
    if _NUMBER.search(question):
        return Wanted.NUMBER
    return Wanted.NAME if _NAME.match(question) and not _OF_PLACE.search(question) else Wanted.ANY


def unit_of(part: str) -> str:
    """The unit of a length that a question names; empty: none."""
    unit = unit_in(part)
    named = _UNIT_OF.get(round(unit.factor, 4), '') if unit else ''
    return 'ft' if not named and re.search(r'\b(?:feet|ft|foot)\b', part) else named


def asks_yes_no(part: str, options: Sequence[str]) -> bool:
    """Whether a question, one of `parts_of`, wants yes or no."""
    first = _FIRST_ASKING.search(part)
    is_inner = first is not None and bool(first['verb'])
    is_tag = bool(STATEMENT.search(part)) or (
        first is None and bool(_TAG.search(part) or (_TOLD.match(part) and not unit_in(part)))
    )
    return bool(YES_NO.match(part)) or is_inner or is_tag or _are_yes_no(options)


def _are_yes_no(options: Sequence[str]) -> bool:
    words = {re.split(r'\W+', option.strip().lower())[0] for option in options}
    return bool(options) and words <= {'yes', 'no', 'not', 'unknown', 'maybe'}
