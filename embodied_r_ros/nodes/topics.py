# SPDX-License-Identifier: Apache-2.0
"""Names of topics of several cameras."""

from __future__ import annotations

# What a node in a camera's namespace has in common with the rest of its robot.
_OF_THE_ROBOT = ('episode_mark', 'provenance', 'odom')


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
