# SPDX-License-Identifier: Apache-2.0
"""Checks of an installation, each with what to do where it fails.

All but `look_for_camera` works without ROS, whose absence is a finding too.
"""

from __future__ import annotations

import ctypes
from dataclasses import asdict, dataclass, field
from importlib import import_module
from importlib.util import find_spec
from itertools import pairwise
import os
from pathlib import Path
import shutil
import sys
import time
from typing import Any, NamedTuple, TYPE_CHECKING

from embodied_r_ros.bags.messages import stamp_ns_from_msg
from embodied_r_ros.common.errors import ConfigError, EmbodiedRError, ModelError
from embodied_r_ros.common.files import interface_path, shared_path
from embodied_r_ros.core.chat.client import HttpChatClient
from embodied_r_ros.core.chat.settings import ChatConfig, file_sum, model_digest
from embodied_r_ros.core.perception.grounding import NO_BOXES
from embodied_r_ros.core.perception.vlm import VlmConfig, VlmPerceiver
from embodied_r_ros.nodes.transport import remedy_for_lost_images
from embodied_r_ros.serving.model_files import detector_path, MODEL_FILES
from embodied_r_ros.serving.profiles import load_profile
from embodied_r_ros.serving.servers import install_remedy, missing_requirements

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rclpy.executors import SingleThreadedExecutor
    from rclpy.node import Node

_MIN_FREE_GB = 2.0
_SERVER_S = 5.0
_GOLDEN_S = 120.0  # for a look at one picture, on a CPU too
_MAX_AGE_S = 2.0  # older images are not of now
_CLOCK_ERROR_S = 0.1  # images from the future
_TIMEX_BYTES = 512  # more than the kernel's struct timex has
_UNSYNCHRONISED = 5  # TIME_ERROR of adjtimex(2)
_GB = 1024**3
_KINDS = ('sensor_msgs/msg/Image', 'sensor_msgs/msg/CompressedImage')
_DRAWN = '/items/image/compressed'  # what the perceiver draws on keyframes, of no camera
_LOOK_S = 5.0  # for topics; discovery takes less, but on a busy machine
_LISTEN_S = 2.0


@dataclass(frozen=True)
class Diagnosis:
    """The outcome of one check."""

    ok: bool  # False: a failure; where it is True and there is a remedy, it is a warning
    detail: str  # the result, in words
    remedy: str = ''  # what to do; empty where all is well
    values: dict[str, Any] = field(default_factory=dict)  # what was measured

    @property
    def mark(self) -> str:
        """`ok`, `warn` or `FAIL`."""
        if not self.ok:
            return 'FAIL'
        return 'warn' if self.remedy else 'ok'

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; what was measured stands beside the rest."""
        value = asdict(self)
        return {**{k: v for k, v in value.items() if k != 'values'}, **self.values}


def installation_checks() -> dict[str, Diagnosis]:
    """Everything that can be checked without starting anything."""
    return {
        'python': _python(),
        'ros': _ros(),
        'rmw': _rmw(),
        'messages': _messages(),
        'model': _model(),
        'model_server': _model_server(),
        'detector': _detector(),
        'simulator': _simulator(),
        'disk': _disk(),
        'clock': _clock(),
    }


def _python() -> Diagnosis:
    version = '.'.join(map(str, sys.version_info[:3]))
    ok = (3, 10) <= sys.version_info[:2] <= (3, 13)
    return Diagnosis(ok, f'Python {version}', '' if ok else 'use Python 3.10 to 3.13')


def _ros() -> Diagnosis:
    distro = os.environ.get('ROS_DISTRO', '')
    try:
        where = import_module('rclpy').__file__
    except ImportError as error:
        return Diagnosis(
            False, f'rclpy is not there ({error})', 'source ROS 2, or run `make setup`'
        )
    middleware = os.environ.get('RMW_IMPLEMENTATION', '') or 'default middleware'
    name = f'ROS 2 {distro}' if distro else 'ROS 2 from wheels'
    return Diagnosis(True, f'{name}, {middleware}, {where}')


def _rmw() -> Diagnosis:
    try:
        name = import_module('rclpy').get_rmw_implementation_identifier()
    except (ImportError, RuntimeError) as error:
        middleware = os.environ.get('RMW_IMPLEMENTATION') or 'the default middleware'
        why = ' '.join(str(error).split())[:200]
        return Diagnosis(
            False, f'{middleware} does not load ({why})', 'install it, or unset the variable'
        )
    reach = os.environ.get('ROS_AUTOMATIC_DISCOVERY_RANGE') or 'SUBNET'
    return Diagnosis(
        True, f'{name}, domain {os.environ.get("ROS_DOMAIN_ID") or 0}, reaches {reach}'
    )


def _messages() -> Diagnosis:
    remedy = 'colcon build --packages-select embodied_r_msgs, and source the workspace'
    try:
        # In a clone, the folder of its definitions can be imported too: a package without a file.
        has_messages = import_module('embodied_r_msgs').__file__ is not None
        definitions = interface_path('msg')
    except (ImportError, EmbodiedRError) as error:
        return Diagnosis(False, f'embodied_r_msgs is not there ({error})', remedy)
    if not has_messages:
        return Diagnosis(False, f'embodied_r_msgs is not compiled: only {definitions}', remedy)
    return Diagnosis(True, f'embodied_r_msgs, definitions in {definitions}')


def _model() -> Diagnosis:
    try:
        folder = shared_path('models', 'arm')
        return Diagnosis(True, f'{folder}, {model_digest(folder)}')
    except (EmbodiedRError, OSError) as error:
        return Diagnosis(False, str(error), 'fetch the models that ship with the package')


def _model_server() -> Diagnosis:
    """The program that serves the shipped models, with what it needs to serve."""
    here = Path(sys.executable).parent
    path = os.pathsep.join([str(here), os.environ.get('PATH', '')])
    program = shutil.which('transformers', path=path)
    if not program:
        return Diagnosis(False, 'transformers is not installed', install_remedy('transformers'))
    # Of another environment nothing is known.
    is_here = Path(program).parent == here
    missing = missing_requirements('transformers', 'serving') if is_here else []
    if missing:
        detail = f'{program} cannot serve without {", ".join(missing)}'
        return Diagnosis(False, detail, install_remedy('transformers'))
    return Diagnosis(True, program)


def _detector() -> Diagnosis:
    """The detector files that `auto` would take, and whether they are the publishers'."""
    paths = detector_path('')
    if not paths:
        return Diagnosis(
            True, 'none was fetched (to name things: embodied-r models fetch detector)'
        )
    checks = [_detector_file(path) for path in paths.split(',')]
    return next((check for check in checks if not check.ok), checks[0])


def _detector_file(path: str) -> Diagnosis:
    name, entry = next(
        item for item in MODEL_FILES.items() if item[1].file_name == Path(path).name
    )
    try:
        is_whole = file_sum(Path(path)) == entry.sha256
    except OSError as error:
        return Diagnosis(False, f'{path} is unreadable: {error.strerror}', 'fetch it anew')
    if not is_whole:
        remedy = f'remove it, then: embodied-r models fetch {name}'
        return Diagnosis(False, f'{path} is not the file that its publisher states', remedy)
    is_tflite = path.endswith('.tflite')
    library, extra = ('ai_edge_litert', 'tflite') if is_tflite else ('onnxruntime', 'detector')
    if find_spec(library) is None:
        remedy = f"pip install '.[{extra}]' in a clone"
        return Diagnosis(False, f'{path} needs {library}, which is not installed', remedy)
    return Diagnosis(True, f'{path}: {entry.description}')


def _simulator() -> Diagnosis:
    if find_spec('mujoco') is None:
        return Diagnosis(
            True, 'mujoco is not installed', "to simulate: pip install '.[sim]' in a clone"
        )
    return Diagnosis(True, 'mujoco')


def _disk() -> Diagnosis:
    free_gb = shutil.disk_usage(Path.home()).free / _GB
    ok = free_gb >= _MIN_FREE_GB
    remedy = '' if ok else f'make room: episodes need at least {_MIN_FREE_GB:.0f} GB'
    return Diagnosis(ok, f'{free_gb:.1f} GB free in {Path.home()}', remedy)


def _clock() -> Diagnosis:
    # The kernel knows whether a time service disciplines its clock; -1 where it does not say.
    try:
        state = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES))
    except (OSError, AttributeError):
        state = -1
    values = {'synchronised': None if state < 0 else state != _UNSYNCHRONISED}
    if state == _UNSYNCHRONISED:
        remedy = 'run chrony on every host where cameras, models and nodes are on several'
        return Diagnosis(True, 'no time service keeps this clock', remedy, values)
    detail = 'kept by a time service' if state >= 0 else 'not known to be kept by a time service'
    return Diagnosis(True, detail, '', values)


def server_check(url: str, *, is_wanted: bool) -> Diagnosis:
    """Ask a model server what it serves, and compare that with what should be served.

    Args:
        url: Its base URL.
        is_wanted: Whether its absence is a failure; else it only is not running now.
    """
    config = ChatConfig(url, retries=0)
    try:
        info = HttpChatClient(config).info(_SERVER_S)
    except (ConfigError, ModelError) as error:
        # A wrong variable for tokens or certificates is wrong for every server.
        is_setting = isinstance(error, ConfigError)
        remedy = 'embodied-r serve, or give --server URL'
        remedy = 'correct the variable, or unset it' if is_setting else remedy
        return Diagnosis(not (is_wanted or is_setting), str(error), remedy, {'url': url})
    values = {'url': url, 'name': info.name, 'digest': info.digest}
    if not info.digest:
        return Diagnosis(True, f'{url} serves {info.name}; its files are not here', '', values)
    try:
        digest = _digest_in_force()
    except (EmbodiedRError, OSError) as error:
        return Diagnosis(False, str(error), 'promote a model anew, or roll back', values)
    detail = f'{url} serves {info.name}, {info.digest}'
    if info.digest == digest:
        return Diagnosis(True, detail, '', values)
    remedy = f'this is not the model of profile embedded ({digest}): start its server again'
    return Diagnosis(not is_wanted, detail, remedy, values)


def _digest_in_force() -> str:
    return model_digest(load_profile('embedded').servers['reasoner'].in_force().identity())


def boxes_check(name: str) -> Diagnosis:
    """See in which coordinates a vision-language model gives boxes.

    Args:
        name: URL of its server, or a profile with a perceiver.
    """
    is_url = name.startswith(('http://', 'https://'))
    try:
        profile = None if is_url else load_profile(name)
        client = profile.client('perceiver') if profile else ChatConfig(name)
        config = profile.vlm if profile else VlmConfig()
        result = VlmPerceiver(HttpChatClient(client), config).look_at_golden_image(_GOLDEN_S)
    except (ConfigError, ModelError) as error:
        return Diagnosis(
            False, str(error), 'embodied-r serve PROFILE, or give --vlm URL or PROFILE'
        )
    values = {'fits': {key: round(value, 3) for key, value in result.fits.items()}}
    if not result.best:
        detail = 'boxes of the golden image are nowhere near its shapes'
        if result.is_swapped:
            detail = 'boxes of the golden image fit with rows before columns only'
        remedy = 'this model cannot place what it names: set vlm.box_convention to none'
        uses_boxes = config.box_convention != NO_BOXES
        return Diagnosis(not uses_boxes, detail, remedy, values)
    detail = f'boxes of the golden image fit as {result.best} ({result.fits[result.best]:.2f})'
    if result.best == config.box_convention:
        return Diagnosis(True, detail, '', values)
    remedy = f'vlm.box_convention is {config.box_convention}: set it to {result.best}'
    return Diagnosis(config.box_convention == NO_BOXES, detail, remedy, values)


def camera_check(report: dict[str, Any], topic: str) -> Diagnosis:
    """Judge the report of `look_for_camera`."""
    topics = ', '.join(report['topics']) or 'none'
    if not report['topic']:
        detail = f'nobody publishes {topic or "images"} (topics with images: {topics})'
        return Diagnosis(not topic, detail, 'start the camera, then run doctor again', report)
    if report['age_s'] is None:
        remedy = 'embodied-r doctor --json: see transport; or the camera publishes nothing'
        return Diagnosis(False, f'{report["topic"]}: no image arrived', remedy, report)
    detail = f'{report["topic"]}: {report["rate_hz"]} Hz, the newest {report["age_s"]} s old'
    if report['lost']:
        detail += f', {report["lost"]} were lost on the way'
        return Diagnosis(False, detail, remedy_for_lost_images(os.environ), report)
    ok = -_CLOCK_ERROR_S <= report['age_s'] <= _MAX_AGE_S
    remedy = 'stamps and clock differ: set use_sim_time, or synchronise the hosts with chrony'
    return Diagnosis(ok, detail, '' if ok else remedy, report)


def transport_check(measured: dict[str, Any]) -> Diagnosis:
    """Judge what `nodes.transport_check.measure` counted."""
    sent_count, received_count = measured['sent'], measured['received']
    detail = f'{received_count} of {sent_count} images arrived ({measured["reliability"]})'
    remedy = '' if received_count == sent_count else remedy_for_lost_images(os.environ)
    return Diagnosis(received_count == sent_count, detail, remedy, measured)


def other_publisher_check(measured: dict[str, Any]) -> Diagnosis:
    """Judge what came of a publisher with the settings of this shell; that is no failure."""
    check = transport_check(measured)
    detail = f'from a publisher started in this shell, {check.detail}'
    return Diagnosis(True, detail, check.remedy, measured)


def table(checks: dict[str, Diagnosis]) -> str:
    """The checks as text."""
    lines = []
    for name, check in checks.items():
        lines.append(f'{check.mark:<5} {name:<13} {check.detail}')
        if check.remedy:
            lines.append(f'{"":<19} -> {check.remedy}')
    return '\n'.join(lines)


class _Image(NamedTuple):
    age_s: float
    number: int | None  # as its publisher counts


def look_for_camera(wanted_topic: str = '') -> dict[str, Any]:
    """Listen to the images that are published.

    Args:
        wanted_topic: Topic to listen to; empty: the first one of a camera.

    Returns:
        `topics` with images, the `topic` that was listened to (empty: none), `rate_hz`,
        `age_s`: how old the newest image was by its stamp (None: none came), and `lost`: images
        that were published meanwhile and did not come (None: the middleware does not tell).
    """
    import rclpy
    from rclpy.context import Context
    from rclpy.executors import SingleThreadedExecutor
    from rclpy.node import Node

    context = Context()
    rclpy.init(context=context)
    node = Node('doctor', context=context)
    executor = SingleThreadedExecutor(context=context)
    executor.add_node(node)
    try:
        topics = _topics(node, executor, wanted_topic)
        topic = next((name for name in topics if name == wanted_topic or not wanted_topic), '')
        images = _listen(node, executor, topic, topics[topic]) if topic else []
        is_one = bool(topic) and node.count_publishers(topic) == 1
    finally:
        executor.shutdown()
        node.destroy_node()
        rclpy.try_shutdown(context=context)
    return {
        'topics': list(topics),
        'topic': topic,
        'rate_hz': round(len(images) / _LISTEN_S, 1),
        'age_s': round(images[-1].age_s, 3) if images else None,
        'lost': lost_count([image.number for image in images]) if is_one else None,
    }


def lost_count(numbers: Sequence[int | None]) -> int | None:
    """How many images of one publisher did not come, by the numbers of those that did.

    Args:
        numbers: Of the images that came, as the publisher counts; None: the middleware does not
            tell.

    Returns:
        None where it is unknown.
    """
    valid = [number for number in numbers if number is not None]
    if not valid or len(valid) < len(numbers):
        return None
    # A publisher that was started again counts from one again.
    return sum(max(0, after - before - 1) for before, after in pairwise(valid))


def _topics(node: Node, executor: SingleThreadedExecutor, wanted_topic: str) -> dict[str, str]:
    end = time.monotonic() + _LOOK_S
    while True:
        kinds_by_topic = {
            name: kind
            for name, kinds in sorted(node.get_topic_names_and_types())
            for kind in kinds
            if kind in _KINDS and node.count_publishers(name)
            if name == wanted_topic or not name.endswith(_DRAWN)
        }
        if (
            time.monotonic() > end
            or wanted_topic in kinds_by_topic
            or (kinds_by_topic and not wanted_topic)
        ):
            return kinds_by_topic
        executor.spin_once(timeout_sec=0.1)


def _listen(node: Node, executor: SingleThreadedExecutor, topic: str, kind: str) -> list[_Image]:
    """The images that come, in order."""
    from embodied_r_ros.nodes import topics
    from embodied_r_ros.nodes.topics import message_class

    images: list[_Image] = []

    def take(msg: Any, info: dict[str, int | None]) -> None:
        now_ns = node.get_clock().now().nanoseconds
        age_s = (now_ns - stamp_ns_from_msg(msg.header.stamp)) / 1e9
        images.append(_Image(age_s, info.get('publication_sequence_number')))

    node.create_subscription(message_class(kind), topic, take, topics.SENSOR)
    end = time.monotonic() + _LISTEN_S
    while (left_s := end - time.monotonic()) > 0:
        executor.spin_once(timeout_sec=left_s)
    return images
