# SPDX-License-Identifier: Apache-2.0
"""Files of JSON lines: an object a line, with the place for messages about it."""

from __future__ import annotations

import json
from typing import Any, TYPE_CHECKING

from embodied_r_ros.common.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def read_lines(
    path: Path, fields: dict[str, type | tuple[type, ...]]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each line's place and object, whose fields are checked; empty lines are passed over.

    Args:
        path: The file.
        fields: Names and types of the fields that every object has.

    Raises:
        InputError: The file cannot be read, or a line is no object with these fields.
    """
    try:
        # No other end of a line: texts may hold those that only Unicode knows.
        lines = path.read_text(encoding='utf-8').split('\n')
    except (OSError, UnicodeDecodeError) as error:
        msg = f'{path} cannot be read: {error}'
        raise InputError(msg) from None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        place = f'{path}:{number}'
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            msg = f'{place}: {line[:60]!r} is not JSON ({error})'
            raise InputError(msg) from None
        for name, kind in fields.items():
            if not isinstance(value, dict) or not isinstance(value.get(name), kind):
                entry = value.get(name) if isinstance(value, dict) else value
                kinds = kind if isinstance(kind, tuple) else (kind,)
                expected = ' or '.join(kind.__name__ for kind in kinds)
                msg = f'{place}: {name} is {entry!r}, expected a {expected}'
                raise InputError(msg)
        if not isinstance(value, dict):
            msg = f'{place}: {line[:60]!r} is no JSON object'
            raise InputError(msg)
        yield place, value
