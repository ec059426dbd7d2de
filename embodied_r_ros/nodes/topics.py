# SPDX-License-Identifier: Apache-2.0
"""Names of topics of several cameras, and of a recording that is played to a namespace."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

# What a node in a camera's namespace has in common with the rest of its robot.
_OF_THE_ROBOT = ('episode_mark', 'provenance', 'odom')
# What has one name for all robots.
_GLOBAL = {'/clock', '/tf', '/tf_static', '/diagnostics', '/rosout', '/parameter_events'}


def camera_topic(camera: str, name: str) -> str:
    """A topic of a camera, which is named by its namespace; '.' is the node's own."""
    return name if camera == '.' else f'{camera.rstrip("/")}/{name}'


def full_name(name: str, namespace: str) -> str:
    """The full name of what is called `name` in a namespace."""
    parts = [] if name.startswith('/') else [namespace.strip('/')]
    return '/' + '/'.join(part for part in [*parts, name.strip('/')] if part)


def robot_remappings(namespace: str) -> dict[str, str]:
    """Remappings of a node in a camera's namespace to what the nodes in `namespace` hear and say.

    Without them it listens beside them: its keyframes then belong to no episode.
    """
    return {name: full_name(name, namespace) for name in _OF_THE_ROBOT}


def playing_remappings(
    topics: Iterable[str], namespace: str, listened: Collection[str] = ()
) -> dict[str, str]:
    """Remappings of a recording's topics to where the nodes in a namespace listen.

    Args:
        topics: Full names, as they are in the recording.
        namespace: Namespace of the nodes; topics that are in it already are left.
        listened: What nodes were remapped to; topics of these full names are left too.

    Returns:
        New name of each topic that gets one.
    """
    inside = full_name('', namespace).rstrip('/') + '/'
    named = {topic for name in listened if name for topic in (name, f'{name}/compressed')}
    left = _GLOBAL | named
    return {
        topic: full_name(topic.lstrip('/'), namespace)
        for topic in topics
        if topic not in left and not topic.startswith(inside)
    }
