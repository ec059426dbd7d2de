# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from typing import Any, TYPE_CHECKING

import pytest

pytest.importorskip('torch')

from embodied_r_ros.common.errors import InputError

from training import evaluate
from training.eval import comparison as compare

if TYPE_CHECKING:
    from pathlib import Path


def report(name: str, right: list[bool], scenes: int = 20) -> dict[str, Any]:
    """A report whose rows lie in scenes in turn, half of them of each question type."""
    outcomes = [
        {
            'id': f'r{i}',
            'scene_id': f's{i % scenes}',
            'question_type': 'net_turn' if i % 2 else '<nearest>',
            'prompt_sha256': f'{i}',
            'solution': 'A',
            'format': True,
            'accuracy': float(value),
            'answer': 'A',
        }
        for i, value in enumerate(right)
    ]
    accuracy = sum(right) / len(right)
    kinds = {'net_turn': accuracy, '<nearest>': accuracy}
    return {
        'n': len(right),
        'accuracy': accuracy,
        'interval_95': (accuracy - 0.1, accuracy + 0.1),
        'format': 1.0,
        'consistency': None,
        'by_type': {
            kind: {
                'n': len(right) // 2,
                'accuracy': rate,
                'interval_95': (rate, rate),
                'question_only_accuracy': 0.2,
            }
            for kind, rate in kinds.items()
        },
        'by_scene': {'s0': {'n': len(right), 'accuracy': accuracy}},
        'words': 40.0,
        'majority_baseline': 0.3,
        'question_only_accuracy': 0.1,
        'unknown': {'precision': None, 'recall': 0.5},
        'answered': 1.0,
        'wrong': 0.0,
        'model': name,
        'identity': f'sha256:{name}',
        'outcomes': outcomes,
    }


def test_better_model_is_told_from_the_rows_both_were_asked() -> None:
    first = report('a', [i % 2 == 0 for i in range(100)])
    second = report('b', [i % 10 != 1 for i in range(100)])
    found = compare.compare(first, second)
    assert (found['first_accuracy'], found['second_accuracy']) == (0.5, 0.9)
    assert found['difference'] == pytest.approx(0.4)
    assert (found['better'], found['worse'], found['scenes']) == (40, 0, 20)
    assert found['p_value'] < 0.01
    assert found['interval_95'][0] > 0
    assert found['by_type']['<nearest>']['difference'] == 0
    assert found['by_type']['net_turn']['difference'] == pytest.approx(0.8)
    assert sum(scene['n'] for scene in found['by_scene'].values()) == 100
    turned = compare.compare(second, first)
    assert turned['difference'] == -found['difference']
    assert turned['p_value'] == found['p_value']


def test_rows_of_one_report_only_are_left_out_and_counted() -> None:
    found = compare.compare(report('a', [True] * 50), report('b', [True] * 40))
    assert (found['n'], found['rows_in_one_only']) == (40, 10)
    assert (found['difference'], found['p_value']) == (0, 1.0)
    assert '10 rows are in one report only' in compare.table(found)


def write_json(path: Path, value: Any) -> str:
    path.write_text(json.dumps(value))
    return str(path)


def test_reports_that_cannot_be_compared_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = report('a', [True] * 4)
    other = report('b', [True] * 4)
    other['outcomes'][2]['prompt_sha256'] = 'another'
    strange = {**good, 'outcomes': [{**o, 'id': 'x' + o['id']} for o in good['outcomes']]}
    old = {name: value for name, value in good.items() if name != 'outcomes'}
    for bad, message in (
        (other, "row 'r2' was another one in the two reports"),
        (strange, 'the two reports share no row'),
        (old, 'lacks the outcomes of its rows'),
    ):
        files = [write_json(tmp_path / 'a.json', good), write_json(tmp_path / 'b.json', bad)]
        assert evaluate.main(['compare', *files, '--json', str(tmp_path / 'out.json')]) == 2
        assert message in capsys.readouterr().err
    assert not (tmp_path / 'out.json').exists()


def test_a_comparison_is_a_suite_of_evaluate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [
        write_json(tmp_path / f'{name}.json', report(name, right))
        for name, right in (('a', [True, False] * 4), ('b', [True] * 8))
    ]
    assert evaluate.main(['compare', *files, '--json', str(tmp_path / 'out' / 'c.json')]) == 0
    assert capsys.readouterr().out.startswith('first    50.0%  a\nsecond  100.0%  b\n')
    assert json.loads((tmp_path / 'out' / 'c.json').read_text())['difference'] == 0.5


def test_runs_of_one_recipe_are_compared_together(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [[True, False] * 4, [True] * 8, [True, True, True, False] * 2]
    files = [write_json(tmp_path / f'{i}.json', report(f'{i}', run)) for i, run in enumerate(runs)]
    assert evaluate.main(['compare', *files, '--json', str(tmp_path / 'c.json')]) == 0
    assert 'mean of 2 runs 87.5% (75.0% to 100.0%): difference +37.5%' in capsys.readouterr().out
    found = json.loads((tmp_path / 'c.json').read_text())
    assert [each['difference'] for each in found['comparisons']] == [0.5, 0.25]
    low, high = found['mean']['interval_95']
    assert low <= found['mean']['difference'] == 0.375 <= high


def test_runs_of_other_rows_have_no_mean() -> None:
    first, *runs = (report(name, [True] * n) for name, n in (('a', 8), ('b', 8), ('c', 4)))
    with pytest.raises(InputError, match='the reports are of other rows'):
        compare.mean_over_runs(first, runs)


@pytest.mark.parametrize('suite', evaluate.SUITES)
def test_every_suite_has_its_help(suite: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        evaluate.main([suite, '--help'])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith('usage: ')
