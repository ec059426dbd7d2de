# SPDX-License-Identifier: Apache-2.0
"""The notebook and the blocks of the page about Python run from their first line to their last."""

from __future__ import annotations

import json
from pathlib import Path
import re
from typing import Any, TYPE_CHECKING

import embodied_r_ros

if TYPE_CHECKING:
    import pytest

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOK = ROOT / 'examples' / 'python.ipynb'
PAGE = ROOT / 'docs' / 'python.md'


def cells() -> list[str]:
    """The code of the notebook, by cell."""
    found = json.loads(NOTEBOOK.read_text())['cells']
    return [''.join(cell['source']) for cell in found if cell['cell_type'] == 'code']


def blocks() -> list[str]:
    """The code of the page, by block."""
    return re.findall(r'^```python\n(.*?)^```', PAGE.read_text(), re.MULTILINE | re.DOTALL)


def run(parts: list[str]) -> dict[str, Any]:
    """Run parts one after the other, as one program; returns what they leave."""
    left: dict[str, Any] = {}
    for number, part in enumerate(parts):
        exec(compile(part, f'part {number}', 'exec'), left)
    return left


def test_the_notebook_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(NOTEBOOK.parent)
    left = run(cells())
    said = capsys.readouterr().out
    assert 'My way was' in said
    assert 'I have not seen a unicorn' in said
    assert left['answer'].text in left['options']
    assert len(left['rows']) > 10


def test_the_page_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert run(blocks())['turn'].is_known


def test_the_page_shows_every_public_name_of_the_loop() -> None:
    shown = set(re.findall(r'\w+', '\n'.join(blocks())))
    values = {'Answer', 'Landmark', 'PathPoint', 'SceneMap'}  # which the others give
    assert set(embodied_r_ros.__all__) - values <= shown


def test_the_notebook_is_shipped_without_output() -> None:
    found = json.loads(NOTEBOOK.read_text())['cells']
    assert all(not cell.get('outputs') for cell in found)
