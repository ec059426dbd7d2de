# SPDX-License-Identifier: Apache-2.0
"""The page of reference says what the code declares now."""

from __future__ import annotations

from test.reference import reference, ROOT


def test_the_reference_is_what_the_code_declares() -> None:
    written = (ROOT / 'docs' / 'reference.md').read_text()
    assert written == reference(), 'run .venv/bin/python test/reference.py > docs/reference.md'
