# SPDX-License-Identifier: Apache-2.0
"""Labels on answers: which answers can be labelled, and with what."""

from __future__ import annotations

from collections import OrderedDict

from embodied_r_ros.episodes import Verdict
from embodied_r_ros.errors import InputError

_REMEMBERED = 10_000


class AnswerBook:
    """Ids of the answers of an episode, the newest ones."""

    def __init__(self) -> None:
        self._ids: OrderedDict[str, None] = OrderedDict()

    def note(self, answer_id: str) -> None:
        """Remember an answer."""
        self._ids[answer_id] = None
        if len(self._ids) > _REMEMBERED:
            self._ids.popitem(last=False)

    def find(self, answer_id: str) -> str | None:
        """Id of the answer that is meant; an empty one means the latest; None: unknown."""
        if not answer_id and self._ids:
            return next(reversed(self._ids))
        return answer_id if answer_id in self._ids else None


def check_label(verdict: int, correction: str) -> Verdict:
    """The verdict that a number means, where it goes with the correction.

    Raises:
        InputError: It is none, or a correction is missing or contradicts it.
    """
    try:
        found = Verdict(verdict)
    except ValueError:
        known = ', '.join(f'{v.value} {v.name.lower()}' for v in Verdict)
        msg = f'verdict {verdict} is none: expected one of {known}'
        raise InputError(msg) from None
    if (found is Verdict.CORRECTED) != bool(correction.strip()):
        msg = f'verdict {found.name.lower()} with correction {correction!r}: a correction goes '
        msg += 'with the verdict corrected, and only with it'
        raise InputError(msg)
    return found
