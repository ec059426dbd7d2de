# SPDX-License-Identifier: Apache-2.0
"""What recordings show of a candidate in the shadow of the model that serves.

Both models answered from the very same prompts, on the robot. Whole recordings are resampled,
because questions of one recording are not independent.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any, TYPE_CHECKING

from embodied_r_ros.bags.sources import find_bags
from embodied_r_ros.common.errors import InputError
from embodied_r_ros.core.reasoning.calls import CALLS_PROMPT_VERSION
from embodied_r_ros.core.types.answers import AnswerKind, Freshness
from embodied_r_ros.core.types.geometry import NS_PER_S
from embodied_r_ros.data.episodes.episode import read_episode
from embodied_r_ros.data.episodes.inspect import bag_digest, labels_sha256
from embodied_r_ros.data.questions.indoor import NoSolution
from embodied_r_ros.data.questions.proofs import solution_of_answer
import numpy as np

from training.eval.grading import completion_of, grade_completions
from training.eval.statistics import paired_test

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from pathlib import Path

    from embodied_r_ros.core.types.answers import Answer
    from embodied_r_ros.data.episodes.episode import Episode

    from training.eval.judging import Judge


@dataclass(frozen=True)
class ShadowPair:
    """A question that was answered to somebody, and what the candidate said."""

    episode_id: str
    given: Answer
    shadow: Answer | None  # None: the candidate did not come to it
    solution: str = ''  # as of a row; empty: nothing proves one
    source: str = ''  # what proves it, or why nothing does

    @property
    def question(self) -> str:
        """The question."""
        return self.given.question

    @property
    def options(self) -> tuple[str, ...]:
        """Its options; empty for a free question."""
        return self.given.options


def shadow_pairs(episode: Episode) -> list[ShadowPair]:
    """The questions of an episode that went to a model while a candidate stood in the shadow."""
    if not episode.log.had_shadow:
        return []
    pairs = []
    for answer in episode.log.answers:
        if answer.prompt_sha256:
            shadow = episode.log.shadows.get(answer.id)
            proof = solution_of_answer(episode, answer)
            if isinstance(proof, NoSolution):
                known = '', proof.reason
            else:
                known = proof.solution, proof.source
            pairs.append(ShadowPair(episode.id, answer, shadow, *known))
    return pairs


@dataclass(frozen=True)
class ShadowedRecordings:
    """Recordings with a shadow, read."""

    pairs: tuple[ShadowPair, ...]
    recordings: tuple[dict[str, str], ...]  # name, sha256, and labels of each


def read_shadowed(
    paths: Sequence[Path], say: Callable[[str], None] = lambda line: None
) -> ShadowedRecordings:
    """Read the recordings in which a candidate stood in the shadow.

    Args:
        paths: Recordings, or folders of them.
        say: Told which of them had none.

    Raises:
        BagError: A recording cannot be read.
        InputError: None had a shadow, or labels cannot be read.
    """
    pairs: list[ShadowPair] = []
    recordings, without = [], 0
    for bag in find_bags(paths):
        own = shadow_pairs(read_episode(bag, 'recorded'))
        without += not own
        if own:
            pairs += own
            labels = labels_sha256(bag)
            digest = bag_digest(bag).sha256
            recordings.append({'name': bag.name, 'sha256': digest, 'labels': labels or ''})
    if not pairs:
        msg = f'none of {without} recordings has a shadow: record with shadow:=URL first'
        raise InputError(msg)
    if without:
        say(f'{without} recordings have no shadow, or no question: left out')
    return ShadowedRecordings(tuple(pairs), tuple(recordings))


def shadow_report(
    shadowed: ShadowedRecordings, incumbent: str, candidate: str, judge: Judge | None = None
) -> dict[str, Any]:
    """How the candidate did beside the incumbent.

    Args:
        shadowed: The recordings.
        incumbent: Digest of the model that serves.
        candidate: Digest of the candidate. A question that it did not come to counts as dropped.
        judge: Grades free texts; None: only those that are the solution to the letter are right.

    Raises:
        InputError: The candidate answered nothing there, or never beside the incumbent.
    """
    pairs = _of_models(shadowed.pairs, incumbent, candidate)
    both = [(pair, pair.shadow) for pair in pairs if pair.shadow]
    answered = [(pair, own) for pair, own in both if own.freshness is not Freshness.REFUSED]
    timed = [(pair.given, own) for pair, own in answered if _is_answer(pair.given)]
    return {
        'recordings': list(shadowed.recordings),
        'incumbent': incumbent,
        'candidate': candidate,
        'questions': len(pairs),
        'of_other_models': len(shadowed.pairs) - len(pairs),
        'answered': len(answered),
        'failed': len(both) - len(answered),
        'dropped': len(pairs) - len(both),
        'same': sum(_words(a) == _words(b) for a, b in timed),
        'unknown': [_share_unknown([pair[side] for pair in timed]) for side in (0, 1)],
        'latency_s': [_quantiles([_taken_up_ns(pair[side]) for pair in timed]) for side in (0, 1)],
        'generation_s': [
            _quantiles([pair[side].generation_ns for pair in timed if _is_timed(pair)])
            for side in (0, 1)
        ],
        'waited_s': [_quantiles([pair[side].wait_ns for pair in timed]) for side in (0, 1)],
        **_accuracies(both, judge),
    }


def _of_models(pairs: Sequence[ShadowPair], incumbent: str, candidate: str) -> list[ShadowPair]:
    """The pairs of these two models.

    A refusal may come without a model, when none could be reached: it is that of the one model.

    Raises:
        InputError: There are none.
    """
    beside = {p.shadow.model.digest for p in pairs if p.shadow} - {''}
    if candidate not in beside:
        others = ', '.join(sorted(beside)) or 'none that its server tells'
        msg = (
            f'the candidate ({candidate}) is not what stood in the shadow ({others}): serve the '
            'very folder that is to be promoted'
        )
        raise InputError(msg)
    of_others = {p.episode_id for p in pairs if _is_of(p, beside - {candidate})}
    of_others -= {p.episode_id for p in pairs if _is_of(p, {candidate})}
    chosen = [
        pair
        for pair in pairs
        if pair.given.model.digest == incumbent
        and pair.episode_id not in of_others
        and (pair.shadow is None or _is_of(pair, {candidate, ''}))
    ]
    if not any(pair.shadow for pair in chosen):
        given = ', '.join(sorted({pair.given.model.digest or 'unknown' for pair in pairs}))
        msg = f'the candidate was never beside the incumbent ({incumbent}), only beside {given}'
        raise InputError(msg)
    return chosen


def _is_of(pair: ShadowPair, digests: Collection[str]) -> bool:
    """Tell whether one of these models answered in the shadow."""
    return pair.shadow is not None and pair.shadow.model.digest in digests


def _accuracies(both: Sequence[tuple[ShadowPair, Answer]], judge: Judge | None) -> dict[str, Any]:
    """Who is right how often, on questions whose answer is known."""
    solved = [(pair, own) for pair, own in both if pair.solution]
    questions = [pair for pair, _ in solved]
    texts = [_text(pair.given) for pair in questions], [_text(own) for _, own in solved]
    grades = [grade_completions(questions, list(some), judge) for some in texts]
    # A readable text that only a judge could grade says nothing, of either.
    known = [
        (pair, a.accuracy or 0.0, b.accuracy or 0.0)
        for pair, a, b in zip(questions, *grades, strict=True)
        if not any(g.answer is not None and g.accuracy is None for g in (a, b))
    ]
    names = [pair.episode_id for pair, _, _ in known]
    paired = paired_test([b - a for _, a, b in known], names)
    return {
        'solved': len(known),
        'not_gradable': len(solved) - len(known),
        'by_source': dict(sorted(Counter(pair.source for pair, _, _ in known).items())),
        'first_accuracy': sum(a for _, a, _ in known) / max(len(known), 1),
        'second_accuracy': sum(b for _, _, b in known) / max(len(known), 1),
        **(asdict(paired) if paired else {'difference': 0.0, 'interval_95': None}),
    }


def _text(answer: Answer) -> str:
    """What a model said; of one that writes calls, what came of them."""
    is_of_calls = answer.model.prompt_version == CALLS_PROMPT_VERSION
    return completion_of(answer) if is_of_calls else answer.completion


def _is_answer(answer: Answer) -> bool:
    return answer.freshness is not Freshness.REFUSED


def _words(answer: Answer) -> tuple[AnswerKind, str]:
    return answer.kind, answer.text


def _share_unknown(answers: Sequence[Answer]) -> float:
    return sum(answer.kind is AnswerKind.UNKNOWN for answer in answers) / max(len(answers), 1)


def _taken_up_ns(answer: Answer) -> int:
    """Time from where the question was taken up to the whole answer [ns]."""
    return answer.latency_ns - answer.wait_ns


def _is_timed(pair: tuple[Answer, Answer]) -> bool:
    """Tell whether it is known of both how long the model took."""
    return all(answer.generation_ns for answer in pair)


def _quantiles(times_ns: Sequence[int]) -> list[float]:
    """Median and 95th percentile of times, in seconds; zeros: there are none."""
    times = [time / NS_PER_S for time in times_ns]
    return [float(value) for value in np.quantile(times, [0.5, 0.95])] if times else [0.0, 0.0]
