# SPDX-License-Identifier: Apache-2.0
"""Whether the way from camera to answer, and from answer to recording, is whole.

By what its nodes say on `/diagnostics`: they publish there once a second, in every state; one that
falls silent is gone, hangs, or is cut off. A link is late where something went into it and nothing
has come out since. By looking, too: whether model servers can be reached, also while nobody asks
them anything, and whether answers of an episode still reach its recorder; those that may not go to
the log.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
import threading
import time
from typing import TYPE_CHECKING

from diagnostic_msgs.msg import DiagnosticArray
from embodied_r_msgs.msg import EpisodeMark
from embodied_r_ros.common.errors import DeadlineError
from embodied_r_ros.common.settings import setting, Settings
from embodied_r_ros.common.untrusted import as_data
from embodied_r_ros.nodes.diagnostics import Health, Level
from rclpy.qos import QoSProfile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from diagnostic_msgs.msg import DiagnosticStatus
    from embodied_r_ros.core.chat.client import HttpChatClient
    from embodied_r_ros.core.types.answers import Answer
    from embodied_r_ros.core.types.deltas import Rung
    from embodied_r_ros.nodes.node_base import ManagedNode
    from rclpy.node import Node

_EXTRACTOR, _PERCEIVER, _REASONER = 'keyframe_extractor', 'semantic_perceiver', 'spatial_reasoner'
_WAY = {_EXTRACTOR, _PERCEIVER, _REASONER}
_QUEUE = 100  # other programs publish on /diagnostics too
_MOST_NODES = 100
_PERIOD_S = 1.5  # ages come once a second

_RECORDER_S = 1.0
# The middleware needs some time to notice a killed process (Fast DDS 20 s, Cyclone DDS 10 s).
_UNNOTICED_S = 30.0

_MODELS_S = 3.0
_REPLY_S = 5.0


@dataclass(frozen=True)
class PipelineConfig(Settings):
    """What belongs to the way from camera to answer."""

    nodes: tuple[str, ...] = setting(
        (_EXTRACTOR, _PERCEIVER, _REASONER),
        "nodes that should be active, in this node's namespace; without a slash also those of "
        'that name in namespaces below, as of several cameras; an empty name: none',
    )
    silence_s: float = setting(
        5.0,
        'a camera without an image, or a node without diagnostics, for so long is gone [s]',
        between=(0.1, 3600),
    )
    late_s: float = setting(
        30.0,
        'time in which an image is evaluated, a keyframe becomes a delta, and a delta arrives [s]',
        between=(0.1, 3600),
    )


@dataclass(frozen=True)
class _Link:
    """One link of the way."""

    level: Level = Level.OK
    problem: str = ''
    age_s: float | None = None  # of the newest thing that passed; None: nothing did

    def text(self) -> str:
        age = 'nothing yet' if self.age_s is None else f'{self.age_s:.1f} s ago'
        return ': '.join(filter(None, (f'{self.level.name}, {age}', self.problem)))


@dataclass(frozen=True)
class _Peer:
    """What a node said of itself last."""

    level: Level
    message: str
    values: Mapping[str, str]
    received: float  # monotonic time [s]

    @property
    def is_active(self) -> bool:
        return 'state' not in self.values

    def age_s(self, key: str, count: str = '') -> float | None:
        """An age, as it is now; None: it is not stated, or what is counted never came."""
        if count and not self._number(count):
            return None
        age_s = self._number(key)
        return None if age_s is None else age_s + time.monotonic() - self.received

    def _number(self, key: str) -> float | None:
        try:
            return float(self.values[key])
        except (KeyError, ValueError):
            return None


class _Lag:
    """How long something is on its way, by the ages of what went in and of what came out."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._last_out = float('-inf')

    def update(self, in_age_s: float | None, out_age_s: float | None) -> float:
        """Take the ages now; returns for how long nothing has come out of what went in [s]."""
        if in_age_s is None or out_age_s is None:
            self._since = None
            return 0.0
        now = time.monotonic()
        went_in, came_out = now - in_age_s, now - out_age_s
        if went_in <= came_out + _PERIOD_S:
            self._since = None
        elif self._since is None or came_out > self._last_out + _PERIOD_S:
            self._since = went_in
        self._last_out = came_out
        return now - self._since if self._since is not None else 0.0


class PipelineWatch:
    """Follows the way from camera to answer, from a node on it and in every state of that node."""

    def __init__(
        self, node: Node, config: Callable[[], PipelineConfig], own_health: Callable[[], Health]
    ) -> None:
        """Listen to the others.

        Args:
            node: The node.
            config: Gives the settings as they are now.
            own_health: How the node is.
        """
        self._node, self._config, self._own_health = node, config, own_health
        self._peers: dict[str, _Peer] = {}  # by full name, without the first slash
        self._start = time.monotonic()
        self._lags: dict[str, _Lag] = {}
        self._self = _Peer(Level.OK, '', {}, self._start)  # how the node is
        profile = QoSProfile(depth=_QUEUE)
        node.create_subscription(DiagnosticArray, '/diagnostics', self._take, profile)

    def health(self) -> Health:
        """Say whether the way is whole: the worst level of its links, each with its age."""
        links = self._links()
        worst = max((link.level for link in links.values()), key=lambda level: level.rank)
        broken = [
            f'{name}: {link.problem}'
            for name, link in sorted(links.items(), key=lambda entry: -entry[1].level.rank)
            if link.level is not Level.OK
        ]
        values: dict[str, object] = {name: link.text() for name, link in links.items()}
        for name, link in links.items():
            if link.age_s is not None:
                values[f'{name}_age_s'] = link.age_s
        return Health(worst, '; '.join(broken) or 'whole from camera to answer', values)

    def health_of_orphan(self) -> Health | None:
        """The same where the reasoner, which says it otherwise, is gone; None: it is not."""
        silence_s = self._config().silence_s
        newest = max((peer.received for _, peer in self._named(_REASONER)), default=self._start)
        is_gone = time.monotonic() - newest > silence_s
        return self.health() if is_gone and _REASONER in self._config().nodes else None

    def _take(self, msg: DiagnosticArray) -> None:
        for status in msg.status:
            name, _, task = status.name.partition(': ')
            is_known = name in self._peers or len(self._peers) < _MOST_NODES
            if name.rpartition('/')[2] == task and is_known:
                self._peers[name] = _peer(status)

    def _links(self) -> dict[str, _Link]:
        config = self._config()
        self._self = self._own()
        reasoners = [peer for _, peer in self._named(_REASONER)]
        extractors = {name: peer for name, peer in self._named(_EXTRACTOR) if peer.is_active}
        perceivers = [peer for _, peer in self._named(_PERCEIVER) if peer.is_active]
        keyframe_age_s = _newest(
            peer.age_s('keyframe_age_s', 'keyframes') for peer in extractors.values()
        )
        delta_age_s = _newest(peer.age_s('delta_age_s', 'deltas') for peer in perceivers)
        links = {
            'camera': self._camera(extractors.values()),
            'keyframe': self._link(_EXTRACTOR, keyframe_age_s, *self._late_images(extractors)),
            'semantic_delta': self._link(
                _PERCEIVER,
                delta_age_s,
                self._late(
                    _PERCEIVER,
                    keyframe_age_s,
                    _newest(peer.age_s('delta_age_s') for peer in perceivers),
                    'keyframes come, and no delta',
                ),
            ),
            'reasoner': self._link(
                _REASONER,
                _newest(peer.age_s('delta_age_s', 'deltas_received') for peer in reasoners),
                self._late(
                    _REASONER,
                    delta_age_s,
                    _newest(peer.age_s('delta_age_s') for peer in reasoners),
                    'deltas are published, and none arrives',
                ),
            ),
            'answer': _Link(
                age_s=_newest(peer.age_s('answer_age_s', 'answers') for peer in reasoners)
            ),
        }
        others = {name for name in config.nodes if name.strip()} - _WAY
        return links | {name: self._link(name, None) for name in sorted(others)}

    def _camera(self, extractors: Iterable[_Peer]) -> _Link:
        ages_s = [age for peer in extractors if (age := peer.age_s('image_age_s')) is not None]
        if not ages_s:
            is_expected = _EXTRACTOR in self._config().nodes
            problem = f'not known, as no {_EXTRACTOR} is active'
            return _Link(Level.WARN, problem) if is_expected else _Link()
        age_s = max(ages_s)  # of the camera that is worst
        if age_s <= self._config().silence_s:
            return _Link(age_s=age_s)
        return _Link(Level.ERROR, f'no image for {age_s:.0f} s', age_s)

    def _late_images(self, extractors: Mapping[str, _Peer]) -> list[_Link]:
        links = []
        for name, peer in extractors.items():
            image_age_s, late_s = peer.age_s('image_age_s'), self._config().late_s
            ages = image_age_s, peer.age_s('evaluated_age_s')
            links.append(self._late(name, *ages, f'images come to {name}, and none is evaluated'))
            has_none = peer.age_s('keyframe_age_s', 'keyframes') is None
            blind_s = peer.age_s('keyframe_age_s', 'images') or 0.0
            if has_none and blind_s > late_s:
                problem = f'images come to {name}, and no keyframe was chosen yet'
                links.append(_Link(Level.WARN, problem))
        return links

    def _late(
        self, name: str, in_age_s: float | None, out_age_s: float | None, problem: str
    ) -> _Link:
        lag_s = self._lags.setdefault(name, _Lag()).update(in_age_s, out_age_s)
        if lag_s <= self._config().late_s:
            return _Link()
        return _Link(Level.ERROR, f'{problem} for {lag_s:.0f} s')

    def _link(self, name: str, age_s: float | None, *lateness: _Link) -> _Link:
        """A link by the state of its nodes, and by how late it is."""
        states = [_Link(), *lateness, *self._states(name)]
        worst = max(states, key=lambda state: state.level.rank)
        return _Link(worst.level, worst.problem, age_s)

    def _states(self, name: str) -> Iterator[_Link]:
        """How the nodes of a name are."""
        silence_s, now = self._config().silence_s, time.monotonic()
        peers = dict(self._named(name))
        is_expected = name in self._config().nodes
        if not peers and is_expected:
            is_late = now - self._start > silence_s
            problem = f'{name} is not there: start it' if is_late else f'{name} is not heard yet'
            yield _Link(Level.ERROR if is_late else Level.WARN, problem)
        for full_name, peer in peers.items():
            silent_s = now - peer.received
            if silent_s > silence_s:
                problem = f'{full_name} is gone: nothing is heard of it for {silent_s:.0f} s'
                yield _Link(Level.ERROR, problem)
            elif not peer.is_active:
                yield _Link(Level.ERROR, f'{full_name} is {peer.message}')
            elif peer.level is not Level.OK and name in _WAY:  # others are to be there, no more
                level = Level.WARN if peer.level is Level.STALE else peer.level
                yield _Link(level, peer.message)

    def _own(self) -> _Peer:
        health = self._own_health()
        values = {key: str(value) for key, value in health.values.items()}
        return _Peer(health.level, health.message, values, time.monotonic())

    def _named(self, name: str) -> list[tuple[str, _Peer]]:
        """The nodes of a name that were ever heard, in this node's namespace or below it."""
        if name == self._node.get_name():
            return [(name, self._self)]
        namespace = self._node.get_namespace().strip('/')
        full_name = name[1:] if name.startswith('/') else f'{namespace}/{name}'.strip('/')
        if full_name in self._peers:
            return [(full_name, self._peers[full_name])]
        if '/' in name:
            return []
        return [
            (other, peer)
            for other, peer in sorted(self._peers.items())
            if f'/{other}'.endswith(f'/{name}')
            and other.startswith(f'{namespace}/' if namespace else '')
        ]


def _peer(status: DiagnosticStatus) -> _Peer:
    values = {value.key: value.value for value in status.values}
    number = status.level[0] if isinstance(status.level, bytes) else int(status.level)
    level = Level(number) if number in {*Level} else Level.ERROR
    return _Peer(level, status.message, values, time.monotonic())


def _newest(ages_s: Iterable[float | None]) -> float | None:
    """The smallest age; None: there is none."""
    return min((age for age in ages_s if age is not None), default=None)


class RecorderWatch:
    """Looks whether what marked the start of the running episode is still there."""

    def __init__(self, node: ManagedNode) -> None:
        """Look once a second while the node is active."""
        self._node = node
        self._topic = node.resolve_topic_name('episode_mark')
        self._episode_id = ''  # of the running episode
        self._recorders: set[bytes] = set()  # publishers of marks when it started
        self._is_gone = False
        self._open_answers: deque[tuple[float, str]] = (
            deque()
        )  # answers whose fate is open, and when [s]
        self._not_recorded = self._outside = 0
        node.every(_RECORDER_S, self._look)

    def take_mark(self, msg: EpisodeMark) -> None:
        """Take that an episode starts or ends."""
        there = self._publishers()
        is_start = msg.event == EpisodeMark.EVENT_START
        # One that is dead may be listed still when another one has come in its place.
        is_another = is_start and bool(self._recorders) and bool(there - self._recorders)
        self._settle(is_lost=self._is_lost(there) or is_another)
        self._open_answers.clear()
        self._is_gone, self._recorders = False, there
        self._episode_id = msg.episode_id if is_start else ''

    def note(self, answer: Answer) -> None:
        """Take an answer that was published. From any thread."""
        if not self._episode_id:
            self._outside += 1
            return
        text = f'answer {answer.id} to {as_data(answer.question)!r}: {as_data(answer.text)!r}'
        self._open_answers.append((time.monotonic(), text))

    def extend_health(self, health: Health) -> Health:
        """The node's health, with the figures of this watch."""
        values = {
            **health.values,
            'answers_outside_episodes': self._outside,
            'answers_not_recorded': self._not_recorded,
        }
        if self._is_gone and health.level is Level.OK:
            text = (
                f'answers are not recorded: the recorder of episode {self._episode_id} is gone; '
                'start it, and an episode'
            )
            return Health(Level.WARN, text, values)
        return replace(health, values=values)

    def _look(self) -> None:
        there = self._publishers()
        # A mark may come before its publisher is known.
        self._recorders = self._recorders or there
        is_lost = self._is_lost(there)
        self._settle(is_lost=is_lost)
        self._is_gone = is_lost  # reported once its answers are counted

    def _is_lost(self, there: set[bytes]) -> bool:
        return bool(self._episode_id and self._recorders) and not self._recorders & there

    def _settle(self, *, is_lost: bool) -> None:
        """Let go of the answers whose fate is known; those that are lost go to the log."""
        before = time.monotonic() - _UNNOTICED_S
        while self._open_answers and (is_lost or self._open_answers[0][0] < before):
            _, text = self._open_answers.popleft()
            if is_lost:
                self._node.get_logger().warning(f'may be in no recording: {text}')
                self._not_recorded += 1

    def _publishers(self) -> set[bytes]:
        infos = self._node.get_publishers_info_by_topic(self._topic)
        return {bytes(info.endpoint_gid) for info in infos}


class ModelWatch:
    """Asks model servers regularly whether they are there. Decides nothing: health only."""

    def __init__(
        self,
        clients: Mapping[Rung, HttpChatClient],
        is_busy: Callable[[], bool],
        *,
        has_fallback: bool = False,
    ) -> None:
        """Start to look, in a thread of its own.

        Args:
            clients: The clients, by rung.
            is_busy: Whether a server may be generating, and then reply late.
            has_fallback: Whether something works without any server.
        """
        self._servers, self._is_busy, self._has_fallback = clients, is_busy, has_fallback
        self._problems: dict[Rung, str] = {}
        self._end = threading.Event()
        if clients:
            threading.Thread(target=self._watch, name='model watch', daemon=True).start()

    def close(self) -> None:
        """Look no more."""
        self._end.set()
        self._is_busy = bool  # the thread may wait for a reply still, and is to keep no node alive

    def health(self) -> list[Health]:
        """What is wrong with the servers; empty: nothing."""
        problems = dict(self._problems)
        is_down = len(problems) == len(self._servers) and not self._has_fallback
        level = Level.ERROR if is_down else Level.WARN
        return [
            Health(level, f'{rung.name.lower()} model server: {problem}')
            for rung, problem in sorted(problems.items(), key=lambda entry: entry[0].value)
        ]

    def _watch(self) -> None:
        while not self._end.wait(_MODELS_S):
            for rung, client in self._servers.items():
                self._look(rung, client)

    def _look(self, rung: Rung, client: HttpChatClient) -> None:
        try:
            client.reach(_REPLY_S)
        except DeadlineError as error:
            if not self._is_busy():
                self._problems[rung] = str(error)
        except Exception as error:  # whatever it was, the server did not reply
            self._problems[rung] = ' '.join(str(error).split()) or type(error).__name__
        else:
            self._problems.pop(rung, None)
