# SPDX-License-Identifier: Apache-2.0
"""What all suites of an evaluation are told: how much is asked, how, and where it is kept."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any, TYPE_CHECKING, TypeVar

from embodied_r_ros.common.errors import InputError
from embodied_r_ros.common.files import write_whole
from embodied_r_ros.core.chat.cache import ReplyCache
from embodied_r_ros.core.scene.memory import MemoryConfig
from embodied_r_ros.core.types.answers import Sampling

if TYPE_CHECKING:
    import argparse

Item = TypeVar('Item')

CACHE = 'runs/cache'
_AS_PROFILE = 'as the shipped profile that serves the model has it, otherwise'


def add_asking_options(parser: argparse.ArgumentParser) -> None:
    """Declare which questions are asked, with how much of a scene, and what is kept."""
    add = parser.add_argument
    add('--limit', type=int, default=0, help='so many questions, drawn by the seed; 0: all')
    add('--seed', type=int, default=0)
    text = f'tokens that the scene may take in a prompt; default: {_AS_PROFILE}'
    add('--token-budget', type=int, metavar='N', help=f'{text} {MemoryConfig.token_budget}')
    text = f'of each completion; default: {_AS_PROFILE} {Sampling.max_tokens}'
    add('--max-tokens', type=int, metavar='N', help=text)
    add_cache_option(parser, CACHE)


def add_cache_option(parser: argparse.ArgumentParser, default: str) -> None:
    """Declare `--cache`, which `opened_cache` takes."""
    text = 'folder of what was perceived and said before; none: anew (default: %(default)s)'
    parser.add_argument('--cache', default=default, metavar='DIR', help=text)


def add_report_option(parser: argparse.ArgumentParser) -> None:
    """Declare `--json`, which `write_report` takes."""
    parser.add_argument('--json', type=Path, metavar='FILE', help='write the report here too')


def write_report(path: Path | None, report: dict[str, Any]) -> None:
    """Write a report as JSON; None: not at all.

    Raises:
        InputError: It cannot be written.
    """
    if path:
        text = json.dumps(report, indent=2, ensure_ascii=False) + '\n'
        write_whole(path, text, makes_folder=True)


def draw_rows(rows: list[Item], limit: int, seed: int) -> list[Item]:
    """So many of the rows, drawn at random: the first ones would all be of a few scenes."""
    return Random(seed).sample(rows, limit) if 0 < limit < len(rows) else rows


def opened_cache(folder: str) -> ReplyCache:
    """What models said before; 'none': nothing, and nothing is kept.

    Raises:
        InputError: The folder cannot be made.
    """
    try:
        return ReplyCache(0, None if folder == 'none' else Path(folder).expanduser())
    except OSError as error:
        msg = f'the cache {folder} cannot be used: {error.strerror}'
        raise InputError(msg) from None
