# SPDX-License-Identifier: Apache-2.0
"""What several verbs share: types of arguments, `--set`, lines for people, progress."""

from __future__ import annotations

from argparse import ArgumentTypeError, RawDescriptionHelpFormatter
from dataclasses import dataclass
import difflib
from functools import partial
import math
from pathlib import Path
import sys
from typing import Any, TYPE_CHECKING, TypeVar

from embodied_r_ros.bags.depth import DepthConfig
from embodied_r_ros.bags.sources import DepthSource
from embodied_r_ros.common.errors import ConfigError, InputError
from embodied_r_ros.common.settings import config_from_mapping, setting, setting_infos, Settings
from tqdm import tqdm

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterable, Mapping, Sequence

    from embodied_r_ros.core.types.images import StampedImage

Config = TypeVar('Config', bound=Settings)
_SWITCH = {'true': True, 'false': False}


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


@dataclass(frozen=True)
class SourceConfig(Settings):
    """How images of a source come, and where their depth comes from."""

    rate_hz: float = setting(
        0.0,
        "images per second instead of the source's own times [Hz]; 0: these",
        between=(0, 1000),
    )
    depth_topic: str = setting('', 'registered depth; none: none; empty: that beside the images')
    depth_unit_m: float = setting(0.001, 'step of depth of integers [m]', between=(1e-6, 1))


@dataclass(frozen=True)
class GivenSetting:
    """A setting of the command line."""

    group: str
    name: str
    value: Any


def add_settings(
    parser: ArgumentParser, groups: Mapping[str, type[Settings]], options: Sequence[str] = ()
) -> None:
    """Declare what fills the settings of a verb: `--set`, and options for the usual ones.

    Args:
        parser: Of the verb.
        groups: Classes of the settings, by their group.
        options: Settings with an option of their own, as 'group.name'; that of one that is on
            turns it off.
    """
    for text in options:
        _add_option(parser, groups, text)
    told = [
        f'  {group}.{name}: {setting_infos(groups[group])[name].description}'
        for group, name in _names(groups)
    ]
    parser.formatter_class = RawDescriptionHelpFormatter
    parser.epilog = '\n'.join(['settings, as nodes and profiles have them:', *told])
    parser.add_argument(
        '--set',
        dest='settings',
        action='append',
        default=[],
        type=partial(_given_setting, dict(groups)),
        metavar='NAME=VALUE',
        help='another setting, of those below; repeat for more',
    )


def _add_option(parser: ArgumentParser, groups: Mapping[str, type[Settings]], text: str) -> None:
    group, _, name = text.partition('.')
    default, info = getattr(groups[group](), name), setting_infos(groups[group])[name]
    about = info.description.replace('%', '%%')
    word = name.removesuffix('_s').removesuffix('_hz').replace('_', '-')
    add = partial(parser.add_argument, dest='settings', default=[])
    if isinstance(default, bool):
        option, about = (f'--no-{word}', f'off: {about}') if default else (f'--{word}', about)
        add(
            option, action='append_const', const=GivenSetting(group, name, not default), help=about
        )
        return
    add(
        f'--{word}',
        action='append',
        type=partial(_given_value, dict(groups), group, name),
        metavar=f'{{{",".join(info.choices)}}}' if info.choices else name.upper(),
        help=about if default == '' else f'{about} (default: {default})',
    )


def _names(groups: Mapping[str, type[Settings]]) -> list[tuple[str, str]]:
    return [(group, name) for group, kind in groups.items() for name in setting_infos(kind)]


def _given_setting(groups: Mapping[str, type[Settings]], text: str) -> GivenSetting:
    """A setting as NAME=VALUE.

    Raises:
        ArgumentTypeError: There is no such setting, or the value is not allowed.
    """
    name, has_value, value = text.partition('=')
    known = ['.'.join(each) for each in _names(groups)]
    if not has_value or name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f'did you mean {near[0]}?' if near else f'known: {", ".join(known)}'
        msg = f'{text!r} is no setting of this verb, expected NAME=VALUE: {hint}'
        raise ArgumentTypeError(msg)
    group, _, name = name.partition('.')
    return _given_value(groups, group, name, value)


def _given_value(
    groups: Mapping[str, type[Settings]], group: str, name: str, text: str
) -> GivenSetting:
    kind = groups[group]
    default = getattr(kind(), name)
    try:
        value: Any = tuple(text.split(',')) if isinstance(default, tuple) else text
        if isinstance(default, bool):
            value = _SWITCH[text.lower()]
        elif isinstance(default, (int, float)):
            value = type(default)(text)
    except (KeyError, ValueError):
        expected = 'true or false' if isinstance(default, bool) else type(default).__name__
        msg = f'{group}.{name} is {text!r}: expected {expected}'
        raise ArgumentTypeError(msg) from None
    return GivenSetting(group, name, value)


def given_settings(args: Namespace, group: str) -> dict[str, Any]:
    """The settings of a group that the command line gives, by name."""
    return {each.name: each.value for each in args.settings if each.group == group}


def given_config(args: Namespace, group: str, kind: type[Config], **others: Any) -> Config:
    """The settings of a group as the command line gives them.

    Args:
        args: The arguments.
        group: Its name.
        kind: Its class.
        **others: Settings that hold where none are given.

    Raises:
        InputError: One is not allowed.
    """
    try:
        return config_from_mapping(kind, {**others, **given_settings(args, group)})
    except ConfigError as error:
        msg = f'--set {group}.{error}'
        raise InputError(msg) from None


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


def depth_source(args: Namespace) -> DepthSource:
    """Where depth comes from, by the arguments.

    Raises:
        InputError: The unit is none.
    """
    config = given_config(args, 'source', SourceConfig)
    return DepthSource(config.depth_topic, DepthConfig(config.depth_unit_m))


def rate_of(args: Namespace) -> float | None:
    """The rate of images that the arguments give [Hz]; None: the source's own times.

    Raises:
        InputError: It is none.
    """
    return given_config(args, 'source', SourceConfig).rate_hz or None
