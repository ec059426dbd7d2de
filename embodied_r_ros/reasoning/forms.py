# SPDX-License-Identifier: Apache-2.0
"""What form an answer must have, by the first words of its question: a number is no "what"."""

from __future__ import annotations

from enum import Enum
import re

_NUMBER = re.compile(
    r'\b(?:how (?:many|much|far|long|tall|high|wide|deep|big|large|close|near)|number of|'
    r'what (?:is the |was the |total )?(?:distance|length|height|size|width|depth|number)|'
    r'(?:at )?(?:what|which) (?:second|minute))\b'
)
_LENGTH = re.compile(
    r'\b(?:far|distance|long|close|near|cm|met(?:er|re)s?|m|feet|ft|foot|yards?|inch(?:es)?)\b'
)
_NAME = re.compile(
    r'^(?:(?:so|and|ok|hey|hi|please|now|then|tell me|say)[ ,]+)*'
    r'(?:what|which|who)(?: (?:is|are|was|were|else|thing|object|one|did you see|do you see|'
    r'can you see|could you see|of)\b|$)'
)
_OF_PLACE = re.compile(
    r'\b(?:way|direction|side|position|place|location|heading|bearing|clock|route|path|colou?rs?)\b'
)


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
