# SPDX-License-Identifier: Apache-2.0
"""Counterfactual replay: what other models say to the questions of a recording.

Every question is asked again from the inputs that were recorded with its answer, so that only the
model differs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, TYPE_CHECKING

from embodied_r_ros.answers import Answer, AnswerKind, Freshness
from embodied_r_ros.episodes import Verdict
from embodied_r_ros.errors import InputError, ModelError
from embodied_r_ros.models.chat import ChatRequest
from embodied_r_ros.models.http_chat import HttpChatClient
from embodied_r_ros.reasoning.completions import choice_index, is_unknown, parse_completion
from embodied_r_ros.reasoning.memory import SceneText
from embodied_r_ros.reasoning.prompts import build_prompt, Prompt, REASON_PROMPT_VERSION, SYSTEM
from embodied_r_ros.reasoning.reasoner import read_answer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from embodied_r_ros.models.chat_config import ChatConfig
    from embodied_r_ros.recordings.recorded_answers import RecordedAnswer

_INFO_S = 60.0
_NO_FORMAT, _REFUSED, _FAILED, _UNKNOWN = '(no format)', '(refused)', '(failed)', 'unknown'


class PromptSource(Enum):
    """Where the prompt of a replayed question comes from."""

    SAME = 'same'  # built anew, and the same as the recorded one
    AS_RECORDED = 'as recorded'  # building it anew gives another one: the recorded text was sent
    CHANGED = 'changed'  # the system message is another one today, so no prompt can be the same


@dataclass(frozen=True)
class Replay:
    """What models say to one recorded question."""

    recorded: RecordedAnswer
    prompt: Prompt
    source: PromptSource
    answers: tuple[Answer, ...] = ()  # of each model, in the order of asking
    errors: tuple[str, ...] = ()  # likewise; empty: there is an answer


def prepared(recorded: Iterable[RecordedAnswer]) -> list[Replay]:
    """The recorded questions that a model was asked, with their prompts."""
    return [_prepared(each) for each in recorded if each.answer.prompt_sha256]


def _prepared(recorded: RecordedAnswer) -> Replay:
    answer = recorded.answer
    as_recorded = Prompt(SYSTEM, answer.prompt, SceneText(''))
    rebuilt = as_recorded
    if recorded.deltas is not None:
        rebuilt = build_prompt(
            answer.question, answer.options, recorded.deltas, answer.focus, recorded.memory
        )
        if rebuilt.sha256() == answer.prompt_sha256:
            return Replay(recorded, rebuilt, PromptSource.SAME)
    if as_recorded.sha256() == answer.prompt_sha256:
        return Replay(recorded, as_recorded, PromptSource.AS_RECORDED)
    return Replay(recorded, rebuilt, PromptSource.CHANGED)


def ask_again(replays: Iterable[Replay], chat: ChatConfig, deadline_s: float) -> list[Replay]:
    """Ask one more model every question, sampled as it was then.

    A question that the model fails to answer does not end the replay.

    Args:
        replays: The questions.
        chat: Where the model is served.
        deadline_s: Time in which each answer must be complete [s].

    Raises:
        InputError: The model server does not answer.
    """
    client = HttpChatClient(chat)
    try:
        client.info(_INFO_S)
    except ModelError as error:
        raise InputError(str(error)) from None
    return [_asked(replay, client, deadline_s) for replay in replays]


def _asked(replay: Replay, client: HttpChatClient, deadline_s: float) -> Replay:
    asked = replay.recorded.answer
    answer = Answer(
        asked.id,
        asked.question,
        AnswerKind.UNKNOWN,
        asked.options,
        prompt=replay.prompt.user,
        prompt_sha256=replay.prompt.sha256(),
        sampling=asked.sampling,
    )
    error = ''
    try:
        request = ChatRequest(replay.prompt.messages(), asked.sampling)
        said = ''.join(chunk.text for chunk in client.stream(request, deadline_s))
        # After the text: only now the server's model is sure to be the one that spoke.
        model = replace(client.info(_INFO_S), prompt_version=REASON_PROMPT_VERSION)
        answer = _read(replace(answer, completion=said, model=model))
    except ModelError as failure:
        error = str(failure)
    return replace(replay, answers=(*replay.answers, answer), errors=(*replay.errors, error))


def _read(answer: Answer) -> Answer:
    completion = parse_completion(answer.completion)
    answer = replace(answer, think=completion.think)
    read = read_answer(completion, answer.options)
    if read is None:
        return answer
    kind, index, text = read
    return replace(answer, kind=kind, option_index=index, text=text, freshness=Freshness.FRESH)


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
    return any(said != outcome(replay.recorded.answer) for said in outcomes(replay))


def truth(replay: Replay) -> str | None:
    """The right answer, where an operator said it; None: nobody did."""
    label, recorded = replay.recorded.label, outcome(replay.recorded.answer)
    if label is None or label.verdict is Verdict.WRONG:
        return None
    right = label.correction if label.verdict is Verdict.CORRECTED else recorded
    options = replay.recorded.answer.options
    index = choice_index(right, options) if options else None
    if index is not None:
        return options[index]
    return _UNKNOWN if is_unknown(right) else right


def replay_to_json(replay: Replay) -> dict[str, Any]:
    """Plain JSON values of a replayed question."""
    recorded = replay.recorded.answer
    return {
        'id': recorded.id,
        'question': recorded.question,
        'options': list(recorded.options),
        'prompt': replay.source.value,
        'prompt_sha256': replay.prompt.sha256(),
        'recorded_prompt_sha256': recorded.prompt_sha256,
        'truth': truth(replay),
        'changed': is_changed(replay),
        'recorded': _answer_to_json(recorded, ''),
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
        'think': answer.think,
        'completion': answer.completion,
        'error': error,
    }


def replay_table(replays: list[Replay], models: list[str]) -> str:
    """What changed, for people: one block per question that changed, and a summary."""
    lines: list[str] = []
    names = ['recorded', *models]
    width = max(map(len, names))
    for number, replay in enumerate(replays, 1):
        if not is_changed(replay):
            continue
        right = truth(replay)
        lines.append(f'{number}. {replay.recorded.answer.question}')
        said = [outcome(replay.recorded.answer), *outcomes(replay)]
        for name, text in zip(names, said, strict=True):
            mark = '' if right is None else ('  right' if text == right else '  wrong')
            lines.append(f'   {name:<{width}}  {text}{mark}')
        lines += [f'   {error}' for error in replay.errors if error]
    return '\n'.join([*lines, *_summary(replays, models)])


def _summary(replays: list[Replay], models: list[str]) -> list[str]:
    lines = [f'{len(replays)} questions']
    for index, model in enumerate(models):
        changed = sum(outcomes(r)[index] != outcome(r.recorded.answer) for r in replays)
        lines.append(f'{model}: {changed} answers changed')
    labelled = [replay for replay in replays if truth(replay) is not None]
    if labelled:
        right = [sum(outcome(r.recorded.answer) == truth(r) for r in labelled)]
        right += [sum(outcomes(r)[i] == truth(r) for r in labelled) for i in range(len(models))]
        of = ', '.join(map(str, right))
        lines.append(f'of {len(labelled)} with a label, right are: {of} (recorded, then each)')
    for source, what in (
        (PromptSource.AS_RECORDED, 'cannot be rebuilt: the recorded text was asked'),
        (PromptSource.CHANGED, 'is another one today: recorded with another system message'),
    ):
        count = sum(replay.source is source for replay in replays)
        lines += [f'the prompt of {count} {what}'] if count else []
    return lines
