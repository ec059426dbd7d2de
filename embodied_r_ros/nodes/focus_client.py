# SPDX-License-Identifier: Apache-2.0
"""Looking at keyframes again, through the perceiver's service `focus`."""

from __future__ import annotations

from itertools import groupby
import threading
import time
from typing import TYPE_CHECKING

from embodied_r_msgs.srv import Focus
from embodied_r_ros.bags.own_messages import focus_from_msg
from embodied_r_ros.common.errors import CancelledError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from embodied_r_ros.nodes.node_base import ManagedNode
    from embodied_r_ros.types.answers import FocusText
    from embodied_r_ros.types.deltas import SemanticDelta

# How late a cancel may be noticed [s]; two events cannot be waited for at once.
_POLL_S = 0.05


class FocusClient:
    """Calls `focus` from a thread of its caller's; the executor delivers the response."""

    def __init__(self, node: ManagedNode) -> None:
        """Connect for as long as the node is configured."""
        self._node = node
        self._client = node.create_client(Focus, 'focus')
        node.while_configured.callback(node.destroy_client, self._client)

    def look(
        self,
        question: str,
        options: Sequence[str],
        deltas: Sequence[SemanticDelta],
        deadline_s: float,
        cancel: threading.Event | None,
    ) -> list[FocusText]:
        """Ask what the newer keyframes of some deltas show; what comes too late is left out.

        Args:
            question: The question.
            options: Its options.
            deltas: Deltas whose newer keyframes are to be looked at.
            deadline_s: Time for all of them [s].
            cancel: Ends the look soon after it is set.

        Raises:
            CancelledError: `cancel` was set.
        """
        end = time.monotonic() + deadline_s
        texts: list[FocusText] = []
        by_camera = sorted(deltas, key=lambda delta: delta.camera)
        for camera, group in groupby(by_camera, key=lambda delta: delta.camera):
            request = Focus.Request(
                question=question,
                options=list(options),
                keyframe_ids=[delta.to_id for delta in group],
                camera=camera,
            )
            texts += self._call(request, end, cancel)
        return texts

    def _call(
        self, request: Focus.Request, end: float, cancel: threading.Event | None
    ) -> list[FocusText]:
        left_s = end - time.monotonic()
        if left_s <= 0 or not self._client.service_is_ready():
            return []
        request.deadline_s = left_s
        arrival = threading.Event()
        future = self._client.call_async(request)
        future.add_done_callback(lambda _: arrival.set())
        try:
            while not arrival.wait(_POLL_S):
                if cancel is not None and cancel.is_set():
                    msg = 'the look was cancelled'
                    raise CancelledError(msg)
                if time.monotonic() >= end:
                    return []
        finally:
            self._client.remove_pending_request(future)
        response = future.result()
        if response.error:
            self._node.get_logger().warning(f'focus: {response.error}', throttle_duration_sec=5.0)
        return [focus_from_msg(msg) for msg in response.focus]
