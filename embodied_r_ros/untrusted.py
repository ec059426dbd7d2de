# SPDX-License-Identifier: Apache-2.0
"""Text that came from outside (seen by the camera, written by a model), made harmless."""

from __future__ import annotations

# Brackets become single quotation marks that look alike (U+2039, U+203A).
_NEUTRAL = str.maketrans({'<': '\u2039', '>': '\u203a', '\n': ' ', '\r': ' ', '\t': ' '})


def as_data(text: str) -> str:
    """One line without angle brackets and control characters, so that it cannot pass for a tag."""
    return ''.join(char for char in text.translate(_NEUTRAL) if char.isprintable())
