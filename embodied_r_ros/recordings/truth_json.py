# SPDX-License-Identifier: Apache-2.0
"""What is true of a simulation, as one line of JSON that names its version."""

from __future__ import annotations

import json
import math
from typing import Any, TYPE_CHECKING, TypeVar

from embodied_r_ros.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

Truth = TypeVar('Truth')


def truth_to_json(value: dict[str, Any], digits: int) -> str:
    """One line of JSON, its numbers rounded to so many decimal places."""
    return json.dumps(_rounded(value, digits), separators=(',', ':'))


def truth_from_json(
    text: str, name: str, version: int, read: Callable[[dict[str, Any]], Truth], advice: str
) -> Truth:
    """Read what `truth_to_json` wrote.

    Args:
        text: The JSON.
        name: What it is called in errors.
        version: The version that can be read.
        read: Makes it of the value, where that is of this version.
        advice: What to do where it cannot be read.

    Raises:
        InputError: It is not JSON, is of another version, or a field is missing or unknown.
    """
    try:
        value = json.loads(text)
        found = value['version']
        truth = read(value) if found == version else None
    except (ArithmeticError, LookupError, RecursionError, TypeError, ValueError) as error:
        msg = f'{name} {text[:60]!r}... is not readable ({error}): {advice}'
        raise InputError(msg) from None
    if truth is None:
        msg = f'{name} has version {found!r}: expected {version}'
        raise InputError(msg)
    return truth


def as_vector(value: Any) -> tuple[float, float, float]:
    """Three numbers of JSON.

    Raises:
        TypeError, ValueError: They are none.
    """
    x, y, z = (float(item) for item in value)
    return x, y, z


def _rounded(value: Any, digits: int) -> Any:
    if isinstance(value, float):
        # Adding zero turns -0.0 into 0.0.
        return round(value, digits) + 0.0 if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _rounded(item, digits) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_rounded(item, digits) for item in value]
    return value
