# SPDX-License-Identifier: Apache-2.0
"""What the gate asks of a candidate that stood in the shadow."""

from __future__ import annotations

from dataclasses import replace
import json
from typing import Any, TYPE_CHECKING

import pytest

pytest.importorskip('torch')
pytest.importorskip('peft')

from embodied_r_ros.common.errors import InputError
from embodied_r_ros.core.chat.settings import model_digest
from embodied_r_ros.core.types.answers import Answer, AnswerKind, Freshness, shadow_id
from embodied_r_ros.core.types.deltas import ModelInfo
from embodied_r_ros.core.types.episodes import AnswerLabel, LabelVerdict
from embodied_r_ros.data.episodes.episode import read_episode
from embodied_r_ros.data.episodes.label_check import append_label, read_scope
from embodied_r_ros.data.questions.wordings import PLACES, WORDINGS

from test.data.episodes.test_labels import correct
from test.data.questions.test_logged import answer, label, logged_rows, write_bag
from test.training.test_promote import weights, words  # noqa: F401 - fixtures
from training import promote
from training.eval.shadow import shadow_pairs, shadow_report, ShadowedRecordings, ShadowPair
from training.promote import PromotionGateConfig, shadow_checks, ShadowGateConfig

if TYPE_CHECKING:
    from pathlib import Path

OPTIONS = ('left', 'right')
P50_P95 = ('p50', 'p95')
SERVING, CANDIDATE = ModelInfo('serving', 'sha256:s'), ModelInfo('candidate', 'sha256:c')
REFUSED = Answer('', '', AnswerKind.UNKNOWN, model=CANDIDATE)


def answer_of(
    model: ModelInfo, letter: str, latency_s: float = 1.0, waited_s: float = 0.0
) -> Answer:
    """An answer: a letter, or unknown; of its time in hand the model takes nine tenths."""
    is_known = letter in 'AB'
    return Answer(
        'run-1',
        'Which way?',
        AnswerKind.CHOICE if is_known else AnswerKind.UNKNOWN,
        OPTIONS,
        text=OPTIONS['AB'.index(letter)] if is_known else '',
        completion=f'<think>so</think><answer>{letter}</answer>',
        prompt_sha256='p',
        freshness=Freshness.FRESH,
        model=model,
        latency_ns=round((latency_s + waited_s) * 1e9),
        wait_ns=round(waited_s * 1e9),
        generation_ns=round(latency_s * 0.9e9),
    )


def pairs_of(
    given: str, own: str, solution: str = 'B', latency_s: float = 1.0
) -> tuple[ShadowPair, ...]:
    """Pairs of eight recordings in turn; a letter of each model, '-': dropped, '!': failed."""
    return tuple(
        ShadowPair(
            f'e{number % 8}',
            answer_of(SERVING, first),
            {'-': None, '!': REFUSED}.get(second, answer_of(CANDIDATE, second, latency_s)),
            solution,
            'label' if number % 2 else 'odometry',
        )
        for number, (first, second) in enumerate(zip(given, own, strict=True))
    )


def report(*pairs: ShadowPair) -> dict[str, Any]:
    return shadow_report(ShadowedRecordings(pairs, ()), 'sha256:s', 'sha256:c')


def failed_checks(found: dict[str, Any], **settings: Any) -> list[str]:
    checks = shadow_checks(found, ShadowGateConfig(**settings), PromotionGateConfig())
    return [check.name for check in checks if not check.passed]


BETTER = pairs_of('AB' * 40, 'BB' * 40)
SLOWER = pairs_of('AB' * 40, 'BB' * 40, latency_s=2.0)
LAMP, CHAIR = (f'<think>a</think><answer>a {what}</answer>' for what in ('lamp', 'chair'))


def test_better_candidate_passes_with_its_figures() -> None:
    found = report(*BETTER)
    assert (found['questions'], found['solved'], found['dropped']) == (80, 80, 0)
    assert (found['first_accuracy'], found['second_accuracy']) == (0.5, 1.0)
    assert found['difference'] == 0.5
    low, high = found['interval_95']
    assert low <= 0.5 <= high
    assert found['by_source'] == {'label': 40, 'odometry': 40}
    assert found['same'] == 40
    assert failed_checks(found) == []


@pytest.mark.parametrize(
    ('pairs', 'names'),
    [
        (BETTER[:20], ['shadow: questions']),
        (pairs_of('AB' * 40, 'BB' * 40, ''), ['shadow: questions', 'shadow: gain']),
        (pairs_of('BB' * 40, 'AB' * 40), ['shadow: gain']),
        (pairs_of('AA' * 40, 'B!BB' * 20), ['shadow: answered']),
        (pairs_of('AB' * 80, 'B---' * 40), ['shadow: dropped']),
        (pairs_of('BBBB' * 20, 'BBBU' * 20, 'B'), ['shadow: gain', 'shadow: unknown']),
        (
            SLOWER,
            [f'shadow: {what} {name}' for what in ('latency', 'generation') for name in P50_P95],
        ),
    ],
)
def test_what_the_shadow_did_worse_is_named(
    pairs: tuple[ShadowPair, ...], names: list[str]
) -> None:
    assert failed_checks(report(*pairs)) == names


def test_waiting_counts_for_neither_model() -> None:
    late = tuple(
        replace(
            pair,
            given=answer_of(SERVING, 'A', waited_s=7.0),
            shadow=answer_of(CANDIDATE, 'B', 1.4),
        )
        for pair in BETTER
    )
    found = report(*late)
    assert found['latency_s'] == [[1.0, 1.0], pytest.approx([1.4, 1.4])]
    assert found['generation_s'] == [pytest.approx([0.9, 0.9]), pytest.approx([1.26, 1.26])]
    assert found['waited_s'] == [[7.0, 7.0], [0.0, 0.0]]
    assert failed_checks(found) == []
    slower = (replace(pair, shadow=answer_of(CANDIDATE, 'B', 1.6)) for pair in late)
    assert 'shadow: latency p50' in failed_checks(report(*slower))


def test_recordings_of_before_tell_no_generation() -> None:
    before = (replace(pair, given=replace(pair.given, generation_ns=0)) for pair in SLOWER)
    found = report(*before)
    assert found['generation_s'] == [[0.0, 0.0]] * 2
    assert failed_checks(found) == ['shadow: latency p50', 'shadow: latency p95']


def test_pairs_of_other_models_do_not_count() -> None:
    before = tuple(replace(p, given=replace(p.given, model=CANDIDATE)) for p in BETTER[:8])
    other = ModelInfo('other', 'sha256:o')
    beside = tuple(
        replace(p, episode_id='x', shadow=answer_of(other, 'A'))
        for p in pairs_of('B' * 8, 'A' * 8)
    )
    dropped_by_other = replace(beside[0], shadow=None)
    found = report(*BETTER, *before, *beside, dropped_by_other)
    assert (found['questions'], found['of_other_models'], found['dropped']) == (80, 17, 0)
    with pytest.raises(InputError, match=r'is not what stood in the shadow \(sha256:o\)'):
        report(*beside)
    with pytest.raises(InputError, match='never beside the incumbent'):
        report(*before)


def test_free_text_that_nobody_can_grade_counts_for_neither() -> None:
    free = [
        replace(
            pair,
            given=replace(pair.given, options=(), completion=LAMP),
            shadow=replace(answer_of(CANDIDATE, 'B'), completion=CHAIR),
            solution='a chair',
        )
        for pair in BETTER[:8]
    ]
    found = report(*BETTER, *free)
    assert (found['solved'], found['not_gradable']) == (80, 8)


def recordings(folder: Path, weak: str, strong: str) -> Path:
    """Recordings in which the strong model was right in the shadow of the weak one."""
    for number in range(3):
        given = replace(answer(f'run-{number}'), model=ModelInfo('weak', weak))
        given = replace(given, completion='<think>so</think><answer>A</answer>', latency_ns=10**9)
        own = replace(
            given,
            id=shadow_id(given.id),
            completion='<think>so</think><answer>B</answer>',
            text='right',
            model=ModelInfo('strong', strong),
        )
        corrected = AnswerLabel(9 * 10**9, given.id, LabelVerdict.CORRECTED, 'right', 'ann')
        write_bag(
            folder / f'bag{number}', [given], [corrected], shadows=[own], episode_id=f'e{number}'
        )
    return folder


def test_promotion_after_shadow(
    words: list[str],  # noqa: F811
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    digests = [model_digest(tmp_path / name) for name in ('weak', 'strong')]
    bags = recordings(tmp_path / 'bags', *digests)
    after = [*words, '--judge', 'none', '--after-shadow', str(bags)]
    assert promote.main(after) == 1
    assert 'REFUSED  shadow: questions' in capsys.readouterr().out
    assert promote.main([*after, '--shadow-min-questions', '3']) == 0
    record = json.loads((tmp_path / 'slot' / 'manifest.json').read_text())
    assert record['shadow']['difference'] == 1.0
    assert len(record['shadow']['recordings']) == 3
    assert record['shadow']['gate']['shadow_min_questions'] == 3
    assert any(check['name'] == 'shadow: gain' for check in record['checks'])


def test_recordings_without_a_shadow_are_refused(
    words: list[str],  # noqa: F811
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_bag(tmp_path / 'bags' / 'bag', [answer()])
    after = [*words, '--judge', 'none', '--after-shadow', str(tmp_path / 'bags')]
    assert promote.main(after) == 2
    assert 'none of 1 recordings has a shadow' in capsys.readouterr().err


MOVED = WORDINGS['net_displacement'][0]
SHADOWED = json.dumps({'parameters': {'shadow.server': 'http://127.0.0.1:8101'}})


def shadow_of(given: Answer, option: int = 1) -> Answer:
    """What a candidate said to the same question: another option."""
    text = given.options[option]
    return replace(given, id=shadow_id(given.id), option_index=option, text=text)


def test_pairs_hold_both_answers_and_what_proves_the_right_one(tmp_path: Path) -> None:
    corrected, unproven = answer('run-1'), answer('run-3')
    moved = answer('run-2', MOVED, tuple(PLACES.values()))
    bag = write_bag(
        tmp_path / 'bag',
        [corrected, moved, unproven],
        [label(LabelVerdict.CORRECTED, 'right', 'run-1')],
        shadows=[shadow_of(corrected), shadow_of(moved)],
    )
    pairs = {pair.given.id: pair for pair in shadow_pairs(read_episode(bag))}
    assert list(pairs) == ['run-1', 'run-2', 'run-3']
    first, second, third = pairs.values()
    assert (first.solution, first.source) == ('B', 'label')
    assert first.shadow
    assert (first.given.text, first.shadow.text, first.shadow.id) == (
        'left',
        'right',
        'run-1-shadow',
    )
    assert second.source == 'odometry'
    assert second.options[ord(second.solution) - ord('A')] == 'ahead of the start'
    assert (third.shadow, third.solution, third.source) == (None, '', 'nothing proves it')


def test_people_who_differ_solve_nothing(tmp_path: Path) -> None:
    given = answer('run-1')
    bag = write_bag(tmp_path / 'bag', [given], shadows=[shadow_of(given)])
    for one in (correct('left'), correct('right', 'bob')):
        append_label(bag, one, read_scope(bag))
    [pair] = shadow_pairs(read_episode(bag))
    assert (pair.solution, pair.source) == ('', 'people differ about its answer')


def test_shadow_is_no_answer_that_was_given(tmp_path: Path) -> None:
    given = answer('run-1')
    bag = write_bag(
        tmp_path / 'bag',
        [given],
        [label(LabelVerdict.RIGHT)],
        shadows=[shadow_of(given)],
    )
    assert [row.meta['answer_id'] for row in logged_rows(bag)] == ['run-1']
    assert [one.id for one in read_episode(bag).log.answers] == ['run-1']


def test_shadow_that_never_came_to_a_question_is_known_by_the_parameters(tmp_path: Path) -> None:
    given, unasked = answer('run-1'), replace(answer('run-2'), prompt='', prompt_sha256='')
    bag = write_bag(tmp_path / 'bag', [given, unasked], provenance=SHADOWED)
    assert [(p.given.id, p.shadow) for p in shadow_pairs(read_episode(bag))] == [('run-1', None)]
    without = write_bag(tmp_path / 'without', [given])
    assert shadow_pairs(read_episode(without)) == []
