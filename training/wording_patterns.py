# SPDX-License-Identifier: Apache-2.0
"""Patterns of wordings: `Is it [here|there]?` is two questions, `{name}` leaves something open."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random


def chosen(pattern: str, rng: Random) -> str:
    """A wording of a pattern: one of what stands in each pair of brackets.

    >>> from random import Random
    >>> chosen('How [warm|cold] is it [|now]?', Random(0))
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
