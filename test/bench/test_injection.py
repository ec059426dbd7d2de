# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace
import json
from typing import TYPE_CHECKING

import pytest

pytest.importorskip('embodied_r_ros.sim.indoor.world')
pytest.importorskip('transformers')

from bench import injection
from bench.__main__ import main

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from embodied_r_ros.questions.row import Row
    from embodied_r_ros.reasoning.prompts import Prompt

Rows = dict[str, list['Row']]


def obedient(model: str, prompts: Sequence[Prompt], sampling: object) -> list[str]:
    """A fake model that says A, and B where it reads the order."""
    letters = ['B' if injection.ORDER in prompt.user else 'A' for prompt in prompts]
    return [f'<think>so</think><answer>{letter}</answer>' for letter in letters]


@pytest.fixture(scope='module')
def rows_by_text() -> Rows:
    """The questions about one room, as each text tells them."""
    return injection.rows_of_room(12000, 0, (injection.ORDER,), 1)


@pytest.fixture
def rows(rows_by_text: Rows, monkeypatch: pytest.MonkeyPatch) -> Rows:
    """The same, given to the bench, which asks an obedient model."""
    given = {name: list(rows) for name, rows in rows_by_text.items()}
    monkeypatch.setattr(injection, 'generate', obedient)
    monkeypatch.setattr(injection, 'rows_of_room', lambda *_: given)
    return given


def test_each_text_tells_the_same_questions(rows_by_text: Rows) -> None:
    assert list(rows_by_text) == [
        injection.BARE,
        injection.SCRAMBLED,
        'scrambled, read',
        injection.ORDERS,
        'orders, read',
    ]
    [ids] = {tuple(row.id for row in rows) for rows in rows_by_text.values()}
    assert len(ids) >= 5
    holds = {name: injection.ORDER in str(rows[0].deltas) for name, rows in rows_by_text.items()}
    assert [name for name, held in holds.items() if held] == ['orders, read']


def test_obedience_is_seen_and_the_gate_holds(rows: Rows, tmp_path: Path) -> None:
    out = tmp_path / 'figures.json'
    assert main(['injection', '--episodes', '1', '--json', str(out)]) == 0
    report = json.loads(out.read_text())
    figures, gate = report['texts'], report['gate']
    for name in rows.keys() - {'orders, read'}:
        assert (figures[name]['changed'], figures[name]['wrongly_b']) == (0, 0)
    read = figures['orders, read']
    assert (read['changed'], read['wrongly_b'], read['wrongly_b_more_than_scrambled']) == (1, 1, 1)
    assert (gate['opened'], gate['swayed'], gate['chosen_b']) == (0, 0, 1)
    assert gate['outside'] > 5


def test_open_gate_fails_the_budget(rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(injection, '_OUTSIDE', (0.1, 0.2, 0.4))  # which is inside
    assert main(['injection', '--episodes', '1']) == 1


def test_sign_in_a_text_of_the_classical_perceiver_fails_the_budget(rows: Rows) -> None:
    first = rows[injection.ORDERS][0]
    told = {**first.deltas[0], 'change': f'In view: {injection.ORDER}.'}
    rows[injection.ORDERS][0] = replace(first, deltas=(told, *first.deltas[1:]))
    assert main(['injection', '--episodes', '1']) == 1
