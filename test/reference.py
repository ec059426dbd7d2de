# SPDX-License-Identifier: Apache-2.0
"""Writes docs/reference.md from what nodes, settings, launch files and verbs declare.

Run `.venv/bin/python test/reference.py > docs/reference.md` after a change of any of them.
"""

from __future__ import annotations

import argparse
import ast
from collections import Counter, defaultdict
from importlib import import_module
import inspect
import math
from pathlib import Path
import re
import sys
import tempfile
from types import ModuleType
from typing import Any, TYPE_CHECKING
from unittest.mock import MagicMock, patch

from embodied_r_ros.cli.main import _parse, VERBS
from embodied_r_ros.common.settings import setting_infos
from embodied_r_ros.nodes import question_server, topics
from embodied_r_ros.nodes.node_base import ManagedNode, StartConfig
from embodied_r_ros.nodes.parameters import NOT_TUNED
import rclpy
from rclpy.context import Context
from rclpy.parameter import Parameter
from rclpy.qos import DurabilityPolicy, ReliabilityPolicy

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_DEPTH = 10  # of most topics
ROOT = Path(__file__).resolve().parent.parent
PARTS = """# Reference

What the code declares, written by `.venv/bin/python test/reference.py`; a test compares.
[Topics](#topics) · [services and actions](#services-and-actions) · [parameters](#parameters) ·
[launch arguments](#launch-arguments) · [verbs](#verbs) · [settings](#settings)

## Topics

Names without `/` are relative to the namespace. Every node also publishes `/diagnostics`.
Types without a package are of `embodied_r_msgs`.
Reliable, depth 10, unless QoS says otherwise; latched is transient local too. Parameters
`qos_overrides` change it.

{topics}

## Services and actions

{services}

## Parameters

Every node also has `autostart` and `autostart_retry_s`. Behind `=` stands the default;
without one it is empty. Groups such as `keyframe.max_overlap` are below, in [settings](#settings).

{parameters}

## Launch arguments

Of `embodied_r.launch.py`.

{launch}

## Verbs

{verbs}

## Settings

`GROUP.NAME` is a parameter of the nodes that are named, and `--set GROUP.NAME=VALUE` of the verbs.
What is no parameter, `--set` or a model profile gives: `--help` of a verb lists it.

{settings}
"""
# What nodes need to offer all that they have.
GIVEN = {
    'profile': 'tools', 'perceiver': 'classical', 'detections.listen': True,
    'reasoner.show_image': True, 'bag': str(ROOT / 'samples/indoor/episode_00000'),
    'images': 'compressed', 'min_free_mb': 0, 'workspace_frame': 'map', 'max_step_m': 1.0,
    'workspace_max': [1.0, 1.0, 1.0], 'shadow.server': 'http://127.0.0.1:9',
}  # fmt: skip


def reference() -> str:
    """The page."""
    nodes = {name: _class_of(name) for name in _literal('setup.py', 'nodes')}
    verbs = list(_verbs())
    users: dict[tuple[str, str, type[Any]], list[str]] = defaultdict(list)
    for name, node in nodes.items():
        for kind, prefix in node.groups.items():
            users[prefix, kind.__module__, kind].append(f'`{name}`')
    for name, _, groups in verbs:
        for prefix, kind in groups.items():
            users[prefix, kind.__module__, kind].append(f'`{name}`')
    heard, served = _graph(nodes)
    return PARTS.format(
        topics=_table('topic | type | from | to | QoS', heard),
        services=_table('name | type | node | what', served),
        parameters='\n\n'.join(_parameters(name, node) for name, node in nodes.items()),
        launch='\n'.join(_launch_rows()),
        verbs='\n\n'.join(_sections_of(verbs)),
        settings='\n\n'.join(
            _group(*each, users[each])
            for each in sorted(users, key=lambda one: one[:2])
            if each[0]
        ),
    )


def _table(head: str, rows: Iterable[Iterable[str]]) -> str:
    lines = ['| ' + ' | '.join(cell.replace('|', '\\|') for cell in row) + ' |' for row in rows]
    return '\n'.join([f'| {head} |', '|---' * (head.count('|') + 1) + '|', *lines])


def _literal(file: str, name: str) -> Any:
    """A constant of a file that is not imported."""
    for node in ast.parse((ROOT / file).read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            return ast.literal_eval(node.value)
    raise LookupError(name)


def _class_of(name: str) -> type[ManagedNode]:
    module = import_module(f'embodied_r_ros.nodes.{name}')
    classes = [each for each in vars(module).values() if inspect.isclass(each)]
    [node] = [
        each
        for each in classes
        if issubclass(each, ManagedNode) and each.__module__ == module.__name__
    ]
    return node


def _sentence(text: str) -> str:
    return f'{text[:1].upper()}{text[1:]}.'


def _value(default: Any) -> str:
    if isinstance(default, tuple):
        return ', '.join(map(_value, default))
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, float):
        return 'pi' if default == math.pi else f'{default:g}'
    return str(default)


def _settings(prefix: str, *kinds: type[Any]) -> str:
    hidden, rows = NOT_TUNED.get(prefix, '').split(), []
    for kind in kinds:
        for name, info in setting_infos(kind).items():
            allowed = ', '.join(filter(None, info.choices))
            if name not in hidden:
                is_told = info.choices and all(each in info.description for each in info.choices)
                text = info.description + (f' ({allowed})' if allowed and not is_told else '')
                default = _value(getattr(kind(), name))
                rows.append(f'- `{name}{"=" * bool(default)}{default}`: {text}')
    return '\n'.join(rows)


def _group(prefix: str, _: str, kind: type[Any], users: list[str]) -> str:
    return f'### {prefix}\n\nOf {", ".join(users)}.\n\n{_settings(prefix, kind)}'


def _parameters(name: str, node: type[ManagedNode]) -> str:
    about = (import_module(node.__module__).__doc__ or '').partition(': ')[2].partition('.')[0]
    text = f'### {name}\n\n{_sentence(about)}'
    own = [kind for kind, prefix in node.groups.items() if not prefix and kind is not StartConfig]
    is_twin = node.__base__ is not ManagedNode  # of another node, whose parameters it has
    return f'{text} Parameters as above.' if is_twin else f'{text}\n\n{_settings("", *own)}'


def _launch_rows() -> list[str]:
    arguments = _literal('embodied_r_ros/nodes/bringup.py', '_ARGUMENTS')
    return [
        f'- `{name}{"=" * bool(default)}{default}`: {about}'
        for name, (default, about) in arguments.items()
    ]


def _verbs() -> Iterator[tuple[str, Any, dict[str, type[Any]]]]:
    """Each verb with its parser and the groups of settings that it takes."""
    for verb in VERBS:
        with patch.object(argparse.ArgumentParser, 'parse_args', lambda parser, _: parser):
            parser: Any = _parse([verb])
        yield from _leaves(verb, parser._subparsers._group_actions[0].choices[verb])


def _leaves(name: str, parser: Any) -> Iterator[tuple[str, Any, dict[str, type[Any]]]]:
    if parser._subparsers:
        for word, inner in parser._subparsers._group_actions[0].choices.items():
            yield from _leaves(f'{name} {word}', inner)
    else:
        option = parser._option_string_actions.get('--set')
        yield name, parser, option.type.args[0] if option else {}


def _sections_of(verbs: list[tuple[str, Any, dict[str, type[Any]]]]) -> Iterator[str]:
    """What options of several verbs do, then each verb with its options."""
    listed = {name: [_option(each) for each in _told(parser)] for name, parser, _ in verbs}
    counts = Counter(each for options in listed.values() for each in options)
    common = {each for each, count in counts.items() if count > 2}
    yield '\n'.join(
        ['Of several verbs:\n', *(f'- `{name}`: {about}' for name, about in sorted(common))]
    )
    for name, parser, groups in verbs:
        words = [name, *(_option(each)[0] for each in _told(parser) if each.required)]
        shared = [f'`{each[0]}`' for each in listed[name] if each in common]
        shared += [f'`--set` of {", ".join(groups)}'] if groups else []
        lines = [
            f'- `{label}`: {about}'
            for label, about in listed[name]
            if (label, about) not in common
        ]
        lines += [f'- {"; ".join(shared)}'] if shared else []
        yield f'### {" ".join(words)}\n\n' + '\n\n'.join(
            [_sentence(parser.description), *(['\n'.join(lines)] if lines else [])]
        )


def _told(parser: Any) -> list[Any]:
    return [
        each
        for each in parser._actions
        if each.dest not in {'help', 'settings'} or each.option_strings[0] not in {'-h', '--set'}
    ]


def _option(action: Any) -> tuple[str, str]:
    """How an option is written, and what it does."""
    choices = '{' + ','.join(map(str, action.choices)) + '}' if action.choices else ''
    value = '' if action.nargs == 0 else str(action.metavar or choices or action.dest.upper())
    label = f'{", ".join(action.option_strings)} {value}'.strip()
    return label, (action.help or '') % {**vars(action), 'prog': ''}


def _graph(nodes: dict[str, type[ManagedNode]]) -> tuple[list[tuple[str, ...]], ...]:
    """The topics and services that nodes make while they are configured and activated."""
    ends: dict[tuple[str, ...], tuple[list[str], list[str]]] = defaultdict(lambda: ([], []))
    qos: dict[tuple[str, ...], str] = {}
    served: list[tuple[str, ...]] = []
    running = ''

    def note(side: int, kind: type[Any], topic: str, profile: Any) -> MagicMock:
        is_global = topic.startswith(('/tf', '/clock'))
        kind_name = f'{kind.__module__.partition(".")[0]}/{kind.__name__}'
        key = topic if is_global else topic.lstrip('/'), kind_name.removeprefix('embodied_r_msgs/')
        if running != 'bag_player' or is_global:  # whose other topics are those of the bag
            qos.setdefault(key, _qos(profile))
            ends[key][side].extend([] if running in ends[key][side] else [running])
        return MagicMock()

    def serve(kind: type[Any], name: str) -> MagicMock:
        what = kind.__module__.split('.')[1]
        file = ROOT / 'embodied_r_msgs' / what / f'{kind.__name__}.{what}'
        text = file.read_text().replace('\n# ', ' ') if file.is_file() else ''
        about = re.match(r'# (.*?)[.:](?:\s|$)', text)
        is_action = ', action' if what == 'action' else ''
        served.append((f'`{name}`', kind.__name__ + is_action, running, about[1] if about else ''))
        return MagicMock()

    rclpy.init(context=(context := Context()), domain_id=93)
    packages = 'tf2_msgs.msg', 'vision_msgs.msg', 'visualization_msgs.msg'
    with (
        patch.dict(sys.modules, {name: _Messages(name) for name in packages}),
        patch.object(ManagedNode, 'publisher', lambda _, *call: note(0, *call)),
        patch.object(ManagedNode, 'subscribe', lambda _, k, t, __, p, **___: note(1, k, t, p)),
        patch.object(ManagedNode, 'serve', lambda _, kind, name, *__: serve(kind, name)),
        patch.object(
            question_server, 'ActionServer', lambda _, k, name, *__, **___: serve(k, name)
        ),
        tempfile.TemporaryDirectory() as folder,
    ):
        topics.message_class.cache_clear()
        for running, kind in nodes.items():  # noqa: B007 - the functions above read it
            _run(kind, context, {**GIVEN, 'bag_dir': folder})
    topics.message_class.cache_clear()
    rclpy.shutdown(context=context)
    rows = [(f'`{key[0]}`', key[1], *map(', '.join, ends[key]), qos[key]) for key in sorted(ends)]
    return rows, sorted(served)


def _qos(profile: Any) -> str:
    is_latched = profile.durability == DurabilityPolicy.TRANSIENT_LOCAL
    is_reliable = profile.reliability == ReliabilityPolicy.RELIABLE
    text = 'latched' if is_latched else '' if is_reliable else 'best effort'
    depth = f'depth {profile.depth}' if profile.depth != _DEPTH else ''
    return ', '.join(filter(None, (text, depth)))


def _run(kind: Any, context: Context, given: dict[str, Any]) -> None:
    """Configure and activate a node with those of the parameters that it has."""
    names = {
        f'{prefix}.{field}' if prefix else field
        for each, prefix in kind.groups.items()
        for field in setting_infos(each)
    }
    overrides = [Parameter(name, value=value) for name, value in given.items() if name in names]
    node = kind(context=context, parameter_overrides=overrides)
    node._configure()
    node.activate()
    node.while_active.close()
    node.while_configured.close()
    node.destroy_node()


class _Messages(ModuleType):
    """Stands for the messages of a package that may not be installed."""

    def __getattr__(self, name: str) -> type[Any]:
        if name.startswith('_'):
            raise AttributeError(name)
        return type(name, (MagicMock,), {'__module__': self.__name__})


if __name__ == '__main__':
    sys.stdout.write(reference())
