# SPDX-License-Identifier: Apache-2.0
"""What a recording shows of a candidate that answered in the shadow of the model that serves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from embodied_r_ros.questions.indoor import Unsolved
from embodied_r_ros.questions.logged import as_proof, DISPUTED, proof_of_label
from embodied_r_ros.questions.proofs import solution_of_place

if TYPE_CHECKING:
    from embodied_r_ros.episodes.episode import Episode
    from embodied_r_ros.types.answers import Answer


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
            pairs.append(ShadowPair(episode.id, answer, shadow, *_solution(episode, answer)))
    return pairs


def _solution(episode: Episode, answer: Answer) -> tuple[str, str]:
    """The solution that people gave, else the one that the recording proves, and its source."""
    if answer.id in episode.log.disputed:
        return '', DISPUTED
    if label := episode.log.labels.get(answer.id):
        proof = proof_of_label(answer, label)
        return ('', proof.reason) if isinstance(proof, Unsolved) else (proof.solution, 'label')
    words, source = solution_of_place(episode, answer) or ('', 'nothing proves it')
    if not words:
        return '', source
    proof = as_proof(words, answer.options)
    return ('', proof.reason) if isinstance(proof, Unsolved) else (proof.solution, source)
