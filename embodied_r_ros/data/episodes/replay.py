# SPDX-License-Identifier: Apache-2.0
"""Counterfactual replay: what other models say to the questions of a recording.

Every question is put again from the inputs that were recorded with its answer, so that only the
model differs; or from what another perceiver makes of the recorded keyframes.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from enum import Enum
import json
from typing import Any, TYPE_CHECKING

from embodied_r_ros.common.errors import InputError, ModelError
from embodied_r_ros.core.chat.client import HttpChatClient
from embodied_r_ros.core.reasoning.completions import choice_index, is_unknown
from embodied_r_ros.core.reasoning.question import ReasonerConfig, Refusal
from embodied_r_ros.core.reasoning.reasoner import NO_FORMAT, Reasoner
from embodied_r_ros.core.scene.tools import Scene
from embodied_r_ros.core.types.answers import Check, Freshness
from embodied_r_ros.core.types.episodes import LabelVerdict
from embodied_r_ros.data.episodes.answers import find_inputs, Inputs, with_other_scene
from embodied_r_ros.data.episodes.replay_deltas import pair_to_json

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from embodied_r_ros.core.chat.settings import ChatConfig
    from embodied_r_ros.core.reasoning.prompts import Prompt
    from embodied_r_ros.core.types.answers import Answer
    from embodied_r_ros.core.types.episodes import AnswerLabel
    from embodied_r_ros.data.episodes.answers import AnswerLog
    from embodied_r_ros.data.episodes.replay_deltas import OtherScene

_INFO_S = 60.0
REPORT_VERSION = 1
_NO_FORMAT, _REFUSED, _FAILED, _UNKNOWN = '(no format)', '(refused)', '(failed)', 'unknown'


class PromptSource(Enum):
    """Where the prompt of a replayed question comes from."""

    SAME = 'same'  # built anew, and the same as the recorded one
    AS_RECORDED = 'as recorded'  # building it anew gives another one: the recorded text was sent
    OTHER_DELTAS = 'other deltas'  # built of what another perceiver says
    CHANGED = 'changed'  # the system message is another one today, so no prompt can be the same


@dataclass(frozen=True)
class Replay:
    """What models say to one recorded question."""

    original: Answer
    label: AnswerLabel | None  # an operator's verdict
    prompt: Prompt
    source: PromptSource
    scene: Scene | None = None  # what was known then; None: it cannot be built again
    answers: tuple[Answer, ...] = ()  # of each model, in the order of asking
    errors: tuple[str, ...] = ()  # likewise; empty: there is an answer


def prepare_replays(log: AnswerLog, scene: OtherScene | None = None) -> list[Replay]:
    """The recorded questions that went to a model, with their prompts.

    Args:
        log: The answers of a recording.
        scene: What another perceiver says; None: the prompts are the recorded ones.
    """
    replays = []
    maps = scene.maps(log.answers) if scene else {}
    looks = scene.looks(log.answers) if scene else {}
    for answer in log.answers:
        inputs = find_inputs(answer, log)
        prompt = inputs.prompt if isinstance(inputs, Inputs) else inputs.instead
        if not prompt:
            continue
        source = _source(answer, prompt, is_built=isinstance(inputs, Inputs))
        if scene and not prompt.images:
            known = inputs if isinstance(inputs, Inputs) else _until_then(answer, log, prompt)
            deltas, focus = scene.deltas(known.deltas), looks.get(answer.id, ())
            other = with_other_scene(answer, known, deltas, focus, maps.get(answer.id))
            inputs, prompt, source = other, other.prompt, PromptSource.OTHER_DELTAS
        seen = Scene(inputs.deltas, inputs.scene_map) if isinstance(inputs, Inputs) else None
        replays.append(Replay(answer, log.labels.get(answer.id), prompt, source, seen))
    return replays


def _until_then(answer: Answer, log: AnswerLog, prompt: Prompt) -> Inputs:
    """All deltas until the newest observation of an answer, where its own cannot be told."""
    until_ns = answer.observation_stamp_ns
    deltas = tuple(d for d in log.deltas if not until_ns or d.stamp_ns <= until_ns)
    return Inputs(deltas, log.memories[0], prompt)


def _source(answer: Answer, prompt: Prompt, *, is_built: bool) -> PromptSource:
    if is_built:
        return PromptSource.SAME
    is_recorded = prompt.sha256() == answer.prompt_sha256
    return PromptSource.AS_RECORDED if is_recorded else PromptSource.CHANGED


def ask_again(
    replays: Iterable[Replay], chat: ChatConfig, deadline_s: float, writes: str = 'text'
) -> list[Replay]:
    """Ask one more model every question, sampled as it was then.

    A question that the model fails to answer does not end the replay.

    Args:
        replays: The questions.
        chat: Where the model is served.
        deadline_s: Time in which each answer must be complete [s].
        writes: What the model writes, as of `ReasonerConfig`.

    Raises:
        InputError: The model server does not answer.
    """
    client = HttpChatClient(chat)
    try:
        client.info(_INFO_S)
    except ModelError as error:
        raise InputError(str(error)) from None
    config = ReasonerConfig(deadline_s=deadline_s, top_logprobs=0, writes=writes)
    reasoner = Reasoner(client, config)
    return [_ask(replay, reasoner) for replay in replays]


def _ask(replay: Replay, reasoner: Reasoner) -> Replay:
    original, error = replay.original, ''
    try:
        answer = reasoner.repeat(
            original,
            answer_id=original.id,
            now_ns=lambda: original.observation_stamp_ns,
            prompt=replay.prompt,
            scene=replay.scene,
        )
    except Refusal as refusal:
        answer = refusal.answer
        error = '' if str(refusal).startswith(NO_FORMAT) else str(refusal)
    return replace(replay, answers=(*replay.answers, answer), errors=(*replay.errors, error))


def outcome(answer: Answer, error: str = '') -> str:
    """What came of a question, in one word or the words of the answer."""
    if error:
        return _FAILED
    if answer.freshness is Freshness.REFUSED:
        return _NO_FORMAT if answer.completion else _REFUSED
    return answer.text or _UNKNOWN


def outcomes(replay: Replay) -> list[str]:
    """What came of a question with each model."""
    return [outcome(*pair) for pair in zip(replay.answers, replay.errors, strict=True)]


def is_changed(replay: Replay) -> bool:
    """Tell whether any model says something else than what was recorded."""
    return any(_differs(replay, index) for index in range(len(replay.answers)))


def _differs(replay: Replay, model: int) -> bool:
    """Tell whether one model says something else; where it failed, it says nothing."""
    return not replay.errors[model] and outcomes(replay)[model] != outcome(replay.original)


def never_answered(replays: list[Replay], models: list[str]) -> list[str]:
    """What went wrong last with each model that failed all its questions."""
    return [
        f'{model} failed all {len(replays)} questions: {replays[-1].errors[index]}'
        for index, model in enumerate(models)
        if all(replay.errors[index] for replay in replays)
    ]


def truth(replay: Replay) -> str | None:
    """The right answer, where an operator gave it; None: none did."""
    label, original = replay.label, outcome(replay.original)
    if label is None or label.verdict is LabelVerdict.WRONG:
        return None
    right = label.correction if label.verdict is LabelVerdict.CORRECTED else original
    options = replay.original.options
    index = choice_index(right, options) if options else None
    if index is not None:
        return options[index]
    return _UNKNOWN if is_unknown(right) else right


def replay_to_json(replay: Replay) -> dict[str, Any]:
    """Plain JSON values of a replayed question."""
    original = replay.original
    return {
        'id': original.id,
        'question': original.question,
        'options': list(original.options),
        'prompt': replay.source.value,
        'prompt_sha256': replay.prompt.sha256(),
        'recorded_prompt_sha256': original.prompt_sha256,
        'truth': truth(replay),
        'changed': is_changed(replay),
        'recorded': _answer_to_json(original, ''),
        'replayed': [
            _answer_to_json(*pair) for pair in zip(replay.answers, replay.errors, strict=True)
        ],
    }


def _answer_to_json(answer: Answer, error: str) -> dict[str, Any]:
    return {
        'model': answer.model.name,
        'digest': answer.model.digest,
        'adapter': answer.model.adapter,
        'answer': outcome(answer, error),
        'sentence': answer.sentence,
        'check': answer.check.name.lower(),
        'think': answer.think,
        'completion': answer.completion,
        'error': error,
    }


def replay_table(replays: list[Replay], models: list[str]) -> str:
    """What changed, for people: one block per question that changed or failed, and a summary."""
    lines: list[str] = []
    names = ['recorded', *models]
    width = max(map(len, names))
    for number, replay in enumerate(replays, 1):
        if not is_changed(replay) and not any(replay.errors):
            continue
        right = truth(replay)
        lines.append(f'{number}. {replay.original.question}')
        texts = [outcome(replay.original), *outcomes(replay)]
        for name, text, error in zip(names, texts, ('', *replay.errors), strict=True):
            is_graded = right is not None and not error
            mark = ('  right' if text == right else '  wrong') if is_graded else ''
            lines.append(f'   {name:<{width}}  {text}{mark}')
        lines += [f'   {error}' for error in replay.errors if error]
    return '\n'.join([*lines, *_summary(replays, models)])


def _is_other_scene(replays: list[Replay]) -> bool:
    return any(replay.source is PromptSource.OTHER_DELTAS for replay in replays)


def _summary(replays: list[Replay], models: list[str]) -> list[str]:
    lines = [f'{len(replays)} questions']
    for index, model in enumerate(models):
        changes = sum(_differs(r, index) for r in replays)
        failed = sum(bool(r.errors[index]) for r in replays)
        lines.append(
            f'{model}: {changes} answers changed' + (f', {failed} failed' if failed else '')
        )
    others = {replay.original.model.name for replay in replays}
    for index, model in enumerate(models):
        now = {replay.answers[index].model.name for replay in replays} - {''}
        if _is_other_scene(replays) and now and not now & others:
            lines.append(
                f'{model} is not the model of the recording ({", ".join(sorted(others))}): what '
                'that changes by itself, a replay without --perceiver shows'
            )
    labelled = [replay for replay in replays if truth(replay) is not None]
    if labelled:
        right = [sum(outcome(r.original) == truth(r) for r in labelled)]
        right += [sum(outcomes(r)[i] == truth(r) for r in labelled) for i in range(len(models))]
        of = ', '.join(map(str, right))
        lines.append(f'of {len(labelled)} with a label, right are: {of} (recorded, then each)')
    checks = Counter(replay.original.check for replay in replays)
    if set(checks) - {Check.UNCHECKED}:
        of = ', '.join(f'{checks[check]} {check.name.lower()}' for check in Check)
        lines.append(f'recorded answers: {of}')
    for source, what in (
        (PromptSource.AS_RECORDED, 'cannot be rebuilt: the recorded text was asked'),
        (PromptSource.OTHER_DELTAS, 'is built of what the other perceiver says'),
        (PromptSource.CHANGED, 'is another one today: recorded with another system message'),
    ):
        count = sum(replay.source is source for replay in replays)
        lines += [f'the prompt of {count} {what}'] if count else []
    return lines


def replay_report(
    name: str,
    episode_id: str,
    replays: list[Replay],
    models: list[str],
    scene: OtherScene | None,
) -> dict[str, Any]:
    """The whole replay of a recording, as plain JSON values.

    Args:
        name: Of the recording.
        episode_id: Of its episode.
        replays: The questions, asked again.
        models: As they were named.
        scene: What another perceiver says; None: it was not replayed.
    """
    pairs = scene.pairs if scene else ()
    perceiver = pairs[0].replayed.model if pairs else None
    return {
        'version': REPORT_VERSION,
        'recording': name,
        'episode_id': episode_id,
        'perceiver': {'name': perceiver.name, 'digest': perceiver.digest} if perceiver else None,
        'models': models,
        'keyframes': [pair_to_json(pair) for pair in pairs],
        'questions': [replay_to_json(replay) for replay in replays],
    }


def read_report(path: Path) -> dict[str, Any]:
    """Read what `replay --out` wrote.

    Raises:
        InputError: It is none.
    """
    try:
        report = json.loads(path.read_text(encoding='utf-8'))
    except (OSError, ValueError, RecursionError) as error:
        msg = f'{path} is no report of `embodied-r replay --out`: {error}'
        raise InputError(msg) from None
    if not isinstance(report, dict) or report.get('version') != REPORT_VERSION:
        msg = f'{path} is no report of `embodied-r replay --out` of version {REPORT_VERSION}'
        raise InputError(msg)
    return report
