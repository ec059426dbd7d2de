# SPDX-License-Identifier: Apache-2.0
"""Settings: one frozen dataclass configures a thing everywhere; YAML files fill it."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
import difflib
from typing import Any, TYPE_CHECKING, TypeVar

from embodied_r_ros.common.errors import ConfigError
import yaml

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

Config = TypeVar('Config')
Value = TypeVar('Value')


@dataclass(frozen=True)
class SettingInfo:
    """What is known of a setting besides its type and default."""

    description: str  # one line, with the unit and what 0 or empty means
    minimum: float | None = None  # inclusive
    maximum: float | None = None  # inclusive
    choices: tuple[str, ...] = ()
    read_only: bool = False  # True: takes effect only when the node is configured


def setting(
    default: Value,
    description: str,
    *,
    between: tuple[float, float] | None = None,
    choices: Sequence[str] = (),
    read_only: bool = False,
) -> Value:
    """Declare a field of a config dataclass: its default, its meaning and what is allowed."""
    low, high = between if between else (None, None)
    info = SettingInfo(description, low, high, tuple(choices), read_only)
    value: Value = field(default=default, metadata={'setting': info})
    return value


def setting_infos(config: type[Any]) -> dict[str, SettingInfo]:
    """What is known of each setting of a config class, by field name, in order."""
    return {f.name: f.metadata['setting'] for f in fields(config) if 'setting' in f.metadata}


@dataclass(frozen=True)
class Settings:
    """Base of the dataclasses of settings: each refuses what is not allowed when it is made."""

    def __post_init__(self) -> None:
        """Check types, ranges and choices; a subclass adds what its settings must be together.

        Raises:
            ConfigError: Names the setting, its value and what is allowed.
        """
        _check(self)


def _check(config: Settings) -> None:
    defaults: dict[str, Any] = {f.name: f.default for f in fields(config)}
    for name, info in setting_infos(type(config)).items():
        value = getattr(config, name)
        kind, parts = type(defaults[name]), defaults[name]
        if not _is_a(value, kind):
            msg = f'{name} is {value!r}: expected a value of type {kind.__name__}'
            raise ConfigError(msg)
        if kind is tuple and parts and not all(_is_a(v, type(parts[0])) for v in value):
            msg = f'{name} is {value!r}: expected values of type {type(parts[0]).__name__}'
            raise ConfigError(msg)
        if info.choices and value not in info.choices:
            msg = f'{name} is {value!r}: expected one of {", ".join(info.choices)}'
            raise ConfigError(msg)
        low, high = info.minimum, info.maximum
        # Written so that NaN is refused too.
        if low is not None and high is not None and not low <= value <= high:
            msg = f'{name} is {value!r}: expected {low} to {high} ({info.description})'
            raise ConfigError(msg)


def _is_a(value: Any, kind: type) -> bool:
    # An int is a fine float; a bool is never a number.
    fits = isinstance(value, kind) or (kind is float and type(value) is int)
    return fits and (kind is bool or not isinstance(value, bool))


def config_from_mapping(kind: type[Config], values: Mapping[str, Any]) -> Config:
    """Fill a config class from YAML or parameters; what is not named keeps its default.

    Raises:
        ConfigError: A name is unknown (the nearest known one is suggested), or a value refused.
    """
    names = [f.name for f in fields(kind)]  # type: ignore[arg-type]
    for name in values:
        if name not in names:
            near = difflib.get_close_matches(name, names, n=1)
            hint = f'did you mean {near[0]!r}?' if near else f'known: {", ".join(names)}'
            msg = f'{kind.__name__} has no setting {name!r}: {hint}'
            raise ConfigError(msg)
    given = {name: tuple(v) if isinstance(v, list) else v for name, v in values.items()}
    return kind(**given)


_MAX_BYTES = 1024 * 1024
_MAX_VALUES = 100_000  # where every alias is written out, as an error message would


def read_yaml(path: Path) -> Any:
    """Read a YAML file: names, lists and plain values.

    Raises:
        ConfigError: It is missing, not YAML, or too large, in one line.
    """
    try:
        with path.open('rb') as file:
            data = file.read(_MAX_BYTES + 1)
        if len(data) > _MAX_BYTES:
            msg = f'{path} is larger than {_MAX_BYTES} bytes: expected a file of settings'
            raise ConfigError(msg)
        return parse_yaml(data.decode())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        msg = f'{path} cannot be read as YAML: {" ".join(str(error).split())}'
        raise ConfigError(msg) from None


def parse_yaml(text: str, most_values: int = _MAX_VALUES) -> Any:
    """Read YAML text (see `read_yaml`).

    The loader is that of Python: that of C ends the process where lists are nested too deep.

    Raises:
        yaml.YAMLError: It is not YAML of plain values, or holds too many of them.
    """
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        if node is None:
            return None
        if _count(node, {}, most_values) > most_values:
            msg = f'it holds more than {most_values} values'
            raise yaml.YAMLError(msg)
        return loader.construct_document(node)
    except (ValueError, OverflowError, RecursionError) as error:
        # Dates that are none, numbers of thousands of digits, lists a thousand deep.
        msg = f'{type(error).__name__}: {error}'
        raise yaml.YAMLError(msg) from None


def _count(node: Any, counts: dict[int, int], most: int) -> int:
    """Number of values below a node, as often as written; itself within itself: endless."""
    if id(node) not in counts:
        counts[id(node)] = most + 1  # until it is known: where it holds itself
        inner = node.value if isinstance(node, yaml.CollectionNode) else []
        parts = [part for entry in inner for part in (entry if type(entry) is tuple else [entry])]
        counts[id(node)] = 1 + sum(_count(part, counts, most) for part in parts)
    return counts[id(node)]
