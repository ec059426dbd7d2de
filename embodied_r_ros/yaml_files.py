# SPDX-License-Identifier: Apache-2.0
"""YAML files of settings, which anybody may have written."""

from __future__ import annotations

from typing import Any, TYPE_CHECKING

from embodied_r_ros.errors import ConfigError
import yaml

if TYPE_CHECKING:
    from pathlib import Path

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


def parse_yaml(text: str) -> Any:
    """Read YAML text (see `read_yaml`).

    Raises:
        yaml.YAMLError: It is not YAML of plain values, or holds too many of them.
    """
    try:
        node = yaml.compose(text, yaml.SafeLoader)
        if node is not None and _count(node, {}) > _MAX_VALUES:
            msg = f'it holds more than {_MAX_VALUES} values'
            raise yaml.YAMLError(msg)
        return yaml.safe_load(text)
    except (ValueError, OverflowError, RecursionError) as error:
        # Dates that are none, numbers of thousands of digits, lists a thousand deep.
        msg = f'{type(error).__name__}: {error}'
        raise yaml.YAMLError(msg) from None


def _count(node: Any, counts: dict[int, int]) -> int:
    """Number of values below a node, as often as they are told; itself within itself: endless."""
    if id(node) not in counts:
        counts[id(node)] = _MAX_VALUES + 1  # until it is known: where it holds itself
        inner = node.value if isinstance(node, yaml.CollectionNode) else []
        parts = [part for entry in inner for part in (entry if type(entry) is tuple else [entry])]
        counts[id(node)] = 1 + sum(_count(part, counts) for part in parts)
    return counts[id(node)]
