# SPDX-License-Identifier: Apache-2.0
"""A robot that goes on while its model changes: a served model, and the nodes of `make demo`."""

from __future__ import annotations

from contextlib import contextmanager
import itertools
import json
from pathlib import Path
import time
from typing import TYPE_CHECKING

from embodied_r_ros.bags.playback import playable
from embodied_r_ros.common.errors import EmbodiedRError
from embodied_r_ros.common.files import shared_path
from embodied_r_ros.core.chat.settings import ChatConfig
from embodied_r_ros.nodes.demo.demo import play_to_end, running_pipeline
from embodied_r_ros.serving.profiles import load_profile
import yaml

from examples.children import child

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from embodied_r_ros.apps.demo import DemoQuestion
    from embodied_r_ros.core.types.answers import Answer
    from embodied_r_ros.nodes.demo.client import DemoClient

_ANSWER_S = 120.0
_TURN_S = 300.0  # until a promotion or a rollback must have reached an answer
_PAUSE_S = 1.0
_POLL_S = 0.2


class RobotNodes:
    """Nodes that have seen a recording, and are asked about it."""

    def __init__(
        self,
        client: DemoClient,
        questions: Sequence[DemoQuestion],
        check: Callable[[], None],
        say: Callable[[str], None],
    ) -> None:
        """Take who asks, what, how to see that everything still runs, and who is told."""
        self._client = client
        self._questions = itertools.cycle(questions)
        self._check = check
        self._say = say

    def answer_of(self, digest: str) -> Answer:
        """Ask until the model with this digest answers.

        The one from before answers until the server has heard of the change, and has loaded it.

        Raises:
            EmbodiedRError: It does not answer in time, or a node or the server failed.
        """
        end = time.monotonic() + _TURN_S
        while time.monotonic() < end:
            self._check()
            question = next(self._questions)
            answer, refusal = self._client.ask(question.question, lambda text: None, _ANSWER_S)
            if not refusal and answer.model.digest == digest:
                self._say(f'asked: {question.question.text}')
                self._say(f'answer: {answer.text or "unknown"} (true: {question.truth})')
                return answer
            self._say(f'not yet: {refusal or f"{answer.model.digest[:19]} answered"}')
            self._client.spin_until(lambda: False, _PAUSE_S)
        msg = f'no answer of {digest} within {_TURN_S:.0f} s'
        raise EmbodiedRError(msg)


@contextmanager
def running(
    source: Path,
    out: Path,
    slot: Path,
    questions: Sequence[DemoQuestion],
    say: Callable[[str], None],
) -> Iterator[RobotNodes]:
    """Serve the small model with a slot of its own, start the nodes, show them a recording.

    Everything is recorded as an episode, which is in `out/bag` in the end.

    Args:
        source: The recording.
        out: Folder for the episode, and in it `logs`.
        slot: Slot that the server is to follow.
        questions: What is asked.
        say: Told what happens, a line at a time.

    Raises:
        EmbodiedRError: A node or the model server failed.
    """
    logs = out / 'logs'
    profile = out / 'robot.yaml'
    values = yaml.safe_load(shared_path('config', 'models', 'embedded.yaml').read_text())
    values['servers']['reasoner'] |= {'port': 0, 'promoted': str(slot)}
    profile.write_text(yaml.safe_dump(values))
    play = playable(source, out)
    say('starting the model server')
    with (
        _serve(profile, logs) as (server, check_server),
        running_pipeline(play, server, logs, say) as (nodes, client),
    ):

        def check() -> None:
            nodes.check()
            check_server()

        bag = Path(client.start_episode('the circle'))
        say(f'playing {source} ({play.duration_s:.0f} s)')
        play_to_end(nodes, play, client)
        yield RobotNodes(client, questions, check, say)
        client.stop_episode()
    bag.replace(out / 'bag')


@contextmanager
def _serve(profile: Path, logs: Path) -> Iterator[tuple[ChatConfig, Callable[[], None]]]:
    """`embodied-r serve` in a process; how its model is reached, and how to see that it runs."""
    words = ('embodied-r', 'serve', str(profile), '--log-dir', str(logs))
    output, log = logs / 'serve.out', logs / 'serve.log'
    limit_s = load_profile(str(profile)).servers['reasoner'].start_timeout_s + _TURN_S
    with child(words, output, log) as process:

        def check() -> None:
            if process.poll() is not None:
                tail = ' '.join(log.read_text(errors='replace').split()[-40:])
                msg = f'embodied-r serve ended with code {process.poll()}: {tail}'
                raise EmbodiedRError(msg)

        end = time.monotonic() + limit_s
        while not output.read_text().endswith('\n'):
            check()
            if time.monotonic() > end:
                msg = f'embodied-r serve was not ready within {limit_s:.0f} s: see {log}'
                raise EmbodiedRError(msg)
            time.sleep(_POLL_S)
        yield ChatConfig(url=json.loads(output.read_text())['url']), check
