# SPDX-License-Identifier: Apache-2.0
"""What several verbs share: types of arguments, lines for people, progress over images."""

from __future__ import annotations

from argparse import ArgumentTypeError
import math
from pathlib import Path
import sys
from typing import Any, TYPE_CHECKING

from embodied_r_ros.bags.depth import DepthConfig
from embodied_r_ros.bags.sources import DepthSource
from embodied_r_ros.common.errors import ConfigError, InputError
from embodied_r_ros.common.settings import setting_infos
from tqdm import tqdm

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterable, Mapping

    from embodied_r_ros.common.settings import Settings
    from embodied_r_ros.core.types.images import StampedImage


def some_text(text: str) -> str:
    """A text that is not empty.

    Raises:
        ArgumentTypeError: It is, as from a variable of a shell that is not set.
    """
    if not text:
        msg = 'is empty: give a value, or leave it out where it has a default'
        raise ArgumentTypeError(msg)
    return text


def some_path(text: str) -> Path:
    """A path that is not empty, which would mean the current folder.

    Raises:
        ArgumentTypeError: It is.
    """
    return Path(some_text(text))


def some_count(text: str) -> int:
    """A whole number of at least 1.

    Raises:
        ArgumentTypeError: It is not.
    """
    if not text.isdecimal() or int(text) < 1:
        msg = f'{text!r} is not a count: give a whole number from 1 on'
        raise ArgumentTypeError(msg)
    return int(text)


def some_seconds(text: str) -> float:
    """A time limit [s], more than nothing.

    Raises:
        ArgumentTypeError: It is not.
    """
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        msg = f'{text!r} is not a time: give seconds, such as 2.5'
        raise ArgumentTypeError(msg)
    return value


def add_settings(parser: ArgumentParser, kind: type[Settings], options: Mapping[str, str]) -> None:
    """Declare options of a verb as the settings that they fill are declared.

    Args:
        parser: Of the verb.
        kind: Class of the settings.
        options: The setting of each option; the option of one that is on turns it off.
    """
    infos, defaults = setting_infos(kind), kind()
    for option, name in options.items():
        info, default = infos[name], getattr(defaults, name)
        text = info.description.replace('%', '%%')
        if isinstance(default, bool):
            action, text = ('store_false', f'off: {text}') if default else ('store_true', text)
            parser.add_argument(option, dest=name, action=action, help=text)
            continue
        named = f'{text} (default: %(default)s)' if default != '' else text
        more = {'choices': info.choices} if info.choices else {'metavar': name.upper()}
        parser.add_argument(
            option, dest=name, type=type(default), default=default, help=named, **more
        )


def given_settings(args: Namespace, options: Mapping[str, str]) -> dict[str, Any]:
    """The settings that the options fill, by name."""
    return {name: getattr(args, name) for name in options.values()}


def say(line: str) -> None:
    """Print a line for people, who may wait for it."""
    print(line, file=sys.stderr, flush=True)


def image_progress(images: Iterable[StampedImage], length: int | None) -> Iterable[StampedImage]:
    """Show progress over images, of which so many are expected; None: unknown."""
    # disable=None: no bar where stderr is not a terminal.
    return tqdm(images, total=length, unit=' images', disable=None)


def check_folder_of(file: Path | None) -> None:
    """See that a file that is to be written has a folder; None: nothing is written.

    Raises:
        InputError: It has none.
    """
    if file and not file.parent.is_dir():
        msg = f'cannot write {file}: there is no folder {file.parent}'
        raise InputError(msg)


def add_mask_argument(parser: ArgumentParser) -> None:
    """Declare `--mask`, what is fixed to the camera."""
    parser.add_argument(
        '--mask',
        default='',
        metavar='PNG',
        help='of the size of the images, white where they show what is fixed to the camera (a '
        'gripper, a hood); default: it is found',
    )


def add_depth_arguments(parser: ArgumentParser) -> None:
    """Declare where the depth of a source comes from."""
    parser.add_argument(
        '--depth-topic',
        default='',
        metavar='TOPIC',
        help='registered depth of a bag; none: use none; default: the one beside the images',
    )
    parser.add_argument(
        '--depth-unit',
        type=float,
        default=0.001,
        metavar='M',
        help='what one step of depth of integers is [m] (default %(default)s)',
    )


def depth_source(args: Namespace) -> DepthSource:
    """Where depth comes from, by the arguments.

    Raises:
        InputError: The unit is none.
    """
    try:
        return DepthSource(args.depth_topic, DepthConfig(args.depth_unit))
    except ConfigError as error:
        msg = f'--depth-unit {args.depth_unit:g}: {error}'
        raise InputError(msg) from None
