# SPDX-License-Identifier: Apache-2.0
"""Words of questions and the calls that they ask for (training/wordings/calls.yaml)."""

from __future__ import annotations

from pathlib import Path
import re

from embodied_r_ros.common.settings import read_yaml

_FILE = read_yaml(Path(__file__).parents[1] / 'wordings' / 'calls.yaml')
_HELD_OUT = 0.15  # share of the wordings of a call


def _with_fragments(pattern: str) -> str:
    return re.sub(r'<(\w+)>', lambda match: str(_FILE['fragments'][match[1]]), pattern)


CALL_WORDS = {
    call: tuple(map(_with_fragments, patterns)) for call, patterns in _FILE['calls'].items()
}
CALL_OPTIONS = {call: tuple(map(tuple, options)) for call, options in _FILE['options'].items()}
OPENERS, CLOSERS, JOINTS = (tuple(_FILE[name]) for name in ('openers', 'closers', 'joints'))
YES_NO = (('yes', 'no'), ('no', 'yes'), ('yes', 'no', 'unknown'))


def held_out(call: str) -> tuple[str, ...]:
    """The wordings of a call that no training reads."""
    words = CALL_WORDS[call]
    return words[len(words) - max(1, round(_HELD_OUT * len(words))) :] if len(words) > 2 else ()


def for_training(call: str) -> tuple[str, ...]:
    """The wordings of a call for training."""
    return CALL_WORDS[call][: len(CALL_WORDS[call]) - len(held_out(call))]
