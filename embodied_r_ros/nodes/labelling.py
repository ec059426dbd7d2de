# SPDX-License-Identifier: Apache-2.0
"""Labels on answers, taken once they are on the disk; recovery when a recorder starts."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
import threading
import time
from typing import Any, TYPE_CHECKING

from embodied_r_ros.bags.format import may_be_of_others
from embodied_r_ros.bags.recovery import episodes_in, mcap_files, recover_all
from embodied_r_ros.bags.writer import is_locked
from embodied_r_ros.common.errors import EmbodiedRError, InputError
from embodied_r_ros.core.types.episodes import AnswerLabel, check_label, LabelVerdict
from embodied_r_ros.data.episodes.label_check import (
    append_live_label,
    LabelTarget,
    solution_in_words,
)
from embodied_r_ros.nodes.worker import in_time, make_future

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from embodied_r_msgs.srv import LabelAnswer
    from embodied_r_ros.bags.recovery import Recovery
    from embodied_r_ros.data.episodes.record import EpisodeWriter
    from embodied_r_ros.nodes.node_base import ManagedNode

_NOT_RECORDED = 'the label was not recorded: the disk is too slow, or full'


class Labelling:
    """Brings labels to the disk and reports them, once each.

    A label that the disk does not take in time waits for it. The same label, given again by
    somebody who was told so, waits with the first one and is not written twice.
    """

    def __init__(self, node: ManagedNode, tell: Callable[[AnswerLabel], None]) -> None:
        """Take the recorder, and what is called with every label that is on the disk."""
        self._node, self._tell = node, tell
        self._on_the_way: dict[tuple[str, AnswerLabel], Any] = {}  # futures, by label

    async def take(
        self,
        episode: EpisodeWriter | None,
        request: LabelAnswer.Request,
        response: LabelAnswer.Response,
        timeout_s: float,
    ) -> LabelAnswer.Response:
        """Record a label in the running episode, and fill in the response.

        Args:
            episode: The running episode; None: there is none.
            request: The operator's verdict.
            response: Gets the id of the answer once the disk has the label, or an error: it was
                refused, or the disk has not taken it yet.
            timeout_s: How long the disk is waited for [s].
        """
        label = _check(episode, request, response)
        if not episode or not label:
            return response
        is_safe = await in_time(self._node, self._write(episode, label), timeout_s)
        if is_safe:
            response.answer_id = label.answer_id
            return response
        response.error_code = response.ERROR_BAD_LABEL
        response.error_msg = episode.stats().error or _NOT_RECORDED
        if is_safe is None:
            response.error_msg = (
                f'the label is not on the disk after {timeout_s:g} s; it waits, and is written '
                'once when the disk is back'
            )
        return response

    def _write(self, episode: EpisodeWriter, draft: AnswerLabel) -> Any:
        """A future that tells whether the disk has a label; the earlier one where it waits."""
        key = episode.start.episode_id, draft
        if key not in self._on_the_way:
            future = self._on_the_way[key] = make_future(self._node)
            label = replace(draft, stamp_ns=self._node.now_ns())
            future.add_done_callback(partial(self._end, key, label))
            if episode.label(label):
                episode.when_safe(partial(self._keep, episode, label, future))
            else:
                future.set_result(False)
        return self._on_the_way[key]

    def _keep(
        self, episode: EpisodeWriter, label: AnswerLabel, future: Any, is_safe: bool
    ) -> None:
        """Write a label that is in the bag into the layer beside it; runs in another thread."""
        if is_safe:
            note = episode.answers.note_of(label.answer_id)
            target = LabelTarget(note.options, note.text)
            try:
                append_live_label(episode.folder, label, target, time.time_ns())
            except EmbodiedRError as error:  # the bag has it, and that counts too
                self._node.get_logger().warning(f'only the bag has the label: {error}')
        future.set_result(is_safe)

    def _end(self, key: tuple[str, AnswerLabel], label: AnswerLabel, future: Any) -> None:
        del self._on_the_way[key]
        if future.result():
            self._tell(label)
        else:
            self._node.get_logger().error(f'the label on {label.answer_id} was not recorded')


def _check(
    episode: EpisodeWriter | None, request: LabelAnswer.Request, response: LabelAnswer.Response
) -> AnswerLabel | None:
    """An operator's label, without a stamp; None: it is refused, and the response says why."""
    if not episode:
        response.error_code = response.ERROR_NOT_RECORDING
        response.error_msg = 'no episode is running: labels belong to the bag of their answer'
        return None
    answer = episode.answers.find(request.answer_id)
    if answer is None:
        response.error_code = response.ERROR_NO_SUCH_ANSWER
        answer_name = repr(request.answer_id) if request.answer_id else 'any'
        response.error_msg = f'this episode has no answer {answer_name}'
        return None
    try:
        verdict = check_label(request.verdict, request.correction)
        if verdict is LabelVerdict.CORRECTED:
            solution_in_words(request.correction, episode.answers.note_of(answer).options)
    except InputError as error:
        response.error_code, response.error_msg = response.ERROR_BAD_LABEL, str(error)
        return None
    return AnswerLabel(0, answer, verdict, request.correction, request.operator_name)


_STOP_TIMEOUT_S = 5.0


class Recovering:
    """Recovers the episodes of a folder that were never closed, in a thread of its own."""

    def __init__(self, folder: Path, logger: Any) -> None:
        """Start the thread.

        Args:
            folder: Folder of the episodes.
            logger: The node's; it gets a line for each episode.
        """
        self._folder = folder
        self._log = logger
        self._recoveries: list[Recovery] = []
        self._failure = ''
        self._is_stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name='recover episodes', daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the work; an episode that is not done is left as it is."""
        self._is_stopped.set()
        self._thread.join(_STOP_TIMEOUT_S)

    def values(self) -> dict[str, Any]:
        """How far it is, for the diagnostics."""
        good = sum(not recovery.reason for recovery in tuple(self._recoveries))
        return {
            'recovering': self._thread.is_alive(),
            'recovered': good,
            'not_recovered': len(self._recoveries) - good,
        }

    def problem(self) -> str:
        """What a person has to repair; empty: nothing."""
        bad = [recovery for recovery in tuple(self._recoveries) if not recovery.is_good]
        return self._failure or (f'{bad[0].episode.name}: {bad[0].text()}' if bad else '')

    def _run(self) -> None:
        try:
            episodes = [path for path in episodes_in(self._folder) if _is_left_behind(path)]
        except OSError as error:
            self._failure = f'episodes cannot be read: {error}'
            return
        for recovery in recover_all(episodes, lambda: not self._is_stopped.is_set()):
            if recovery.was_closed:
                continue
            if self._is_stopped.is_set() and recovery.reason:
                return
            self._recoveries.append(recovery)
            text = f'episode {recovery.episode.name} was not closed: {recovery.text()}'
            if recovery.is_good:  # a place in the code may log at one level only
                self._log.info(text)
            else:
                self._log.error(text)


def _is_left_behind(episode: Path) -> bool:
    """Tell whether no recorder can be writing an episode: only ours lock their folders."""
    return not is_locked(episode) and not any(map(may_be_of_others, mcap_files(episode)))
