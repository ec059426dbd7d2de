# SPDX-License-Identifier: Apache-2.0
"""Names of topics of several cameras."""

from __future__ import annotations


def camera_topic(camera: str, name: str) -> str:
    """A topic of a camera, which is named by its namespace; '.' is the node's own."""
    return name if camera == '.' else f'{camera.rstrip("/")}/{name}'
