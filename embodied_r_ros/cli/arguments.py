# SPDX-License-Identifier: Apache-2.0
"""Types of arguments that several verbs have."""

from __future__ import annotations

from argparse import ArgumentTypeError
from pathlib import Path


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
