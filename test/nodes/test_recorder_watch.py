# SPDX-License-Identifier: Apache-2.0
"""Answers given while the recorder of their episode is gone."""

from __future__ import annotations

from typing import Any, TYPE_CHECKING

from embodied_r_msgs.msg import EpisodeMark
from embodied_r_ros.nodes import topics
from embodied_r_ros.nodes.diagnostics import Level
import pytest

from test.chat_server import ChatServer
from test.nodes.graph import wait_for
from test.nodes.test_spatial_reasoner import Asker, RIGHT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from test.nodes.graph import Graph


@pytest.fixture
def asker(graph: Graph) -> Iterator[Asker]:
    with ChatServer(default=RIGHT, models=[{'id': 'scripted'}]) as server:
        made = Asker(graph, server).start()
        made.see('New: red tall object.')
        yield made


def mark(asker: Asker, episode_id: str, event: int = EpisodeMark.EVENT_START) -> Any:
    """Publish a mark as a recorder does; returns its publisher."""
    publisher = asker.graph.publisher(EpisodeMark, '/episode_mark', topics.LATCHED)
    publisher.publish(EpisodeMark(episode_id=episode_id, event=event))
    expected = episode_id if event == EpisodeMark.EVENT_START else ''
    wait_for(lambda: asker.node._memory.episode_id == expected, 'the mark')
    asker.see('New: red tall object.', episode_id=episode_id)
    return publisher


def counts(asker: Asker) -> tuple[int, int]:
    values = asker.node.report().values
    return values['answers_not_recorded'], values['answers_outside_episodes']


def test_answers_without_their_recorder_are_counted_and_kept_in_the_log(
    asker: Asker, capfd: pytest.CaptureFixture[str]
) -> None:
    recorder = mark(asker, 'e1')
    asker.ask()
    assert (asker.node.report().level, counts(asker)) == (Level.OK, (0, 0))
    asker.graph.outsider.destroy_publisher(recorder)
    wait_for(lambda: asker.node.report().level is Level.WARN, 'a warning')
    assert 'the recorder of episode e1 is gone' in asker.node.report().message
    # The first was given when the recorder may have been dead already.
    assert counts(asker) == (1, 0)
    asker.ask()
    wait_for(lambda: counts(asker) == (2, 0), 'the second answer')
    said = capfd.readouterr().err
    for answer in asker.answers.wait(2):
        line = f"answer {answer.id} to '{answer.question}': 'right'"
        assert f'may be in no recording: {line}' in said
    mark(asker, 'e2')
    asker.ask()
    assert (asker.node.report().level, counts(asker)) == (Level.OK, (2, 0))


def test_answers_of_a_recorder_that_another_one_replaced_are_told(asker: Asker) -> None:
    mark(asker, 'e1')
    asker.ask()
    mark(asker, 'e2')  # while the first is listed still, as one that was killed is
    assert (asker.node.report().level, counts(asker)) == (Level.OK, (1, 0))


def test_answers_after_an_episode_ended_are_no_reason_to_warn(asker: Asker) -> None:
    asker.ask()
    recorder = mark(asker, 'e1')
    asker.ask()
    stop = EpisodeMark(episode_id='e1', event=EpisodeMark.EVENT_STOP)
    recorder.publish(stop)
    wait_for(lambda: not asker.node._memory.episode_id, 'the end')
    asker.graph.outsider.destroy_publisher(recorder)
    asker.ask()
    wait_for(lambda: not asker.graph.outsider.count_publishers('/episode_mark'), 'its going')
    asker.node._recorder._look()
    assert (asker.node.report().level, counts(asker)) == (Level.OK, (0, 2))


@pytest.mark.slow
def test_killed_recorder_is_noticed_as_soon_as_the_middleware_does(
    graph: Graph, asker: Asker, tmp_path: Path
) -> None:
    recorder, _ = graph.recording(tmp_path)
    wait_for(lambda: asker.node._memory.episode_id, 'the mark')
    recorder.kill()
    recorder.wait(30)
    asker.ask()
    wait_for(lambda: asker.node.report().level is Level.WARN, 'a warning', 60)
    assert counts(asker)[0] == 1
