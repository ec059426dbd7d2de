# SPDX-License-Identifier: Apache-2.0
"""The quality of service in use, named for what it serves.

Every topic can be overridden by parameters (`qos_overrides./topic.subscription.reliability`).
"""

from __future__ import annotations

from typing import Any, TYPE_CHECKING

from rclpy.qos import DurabilityPolicy, HistoryPolicy, QoSProfile, ReliabilityPolicy
from rclpy.qos_overriding_options import QoSOverridingOptions

try:
    from rclpy.event_handler import SubscriptionEventCallbacks
except ImportError:  # Humble
    from rclpy.qos_event import SubscriptionEventCallbacks

if TYPE_CHECKING:
    from collections.abc import Callable

# Input from sensors: matches every publisher. A short queue rides out a busy moment; which image
# is worth its time is decided behind it.
SENSOR = QoSProfile(
    reliability=ReliabilityPolicy.BEST_EFFORT, history=HistoryPolicy.KEEP_LAST, depth=10
)
# What this package computes: each message counts.
RESULT = QoSProfile(
    reliability=ReliabilityPolicy.RELIABLE, history=HistoryPolicy.KEEP_LAST, depth=10
)
# The newest state of each publisher, also for those who come later.
LATCHED = QoSProfile(
    reliability=ReliabilityPolicy.RELIABLE,
    durability=DurabilityPolicy.TRANSIENT_LOCAL,
    history=HistoryPolicy.KEEP_LAST,
    depth=1,
)
# Everyone's newest state: room for the latched message of many publishers (`/tf_static`).
LATCHED_OF_MANY = QoSProfile(
    reliability=ReliabilityPolicy.RELIABLE,
    durability=DurabilityPolicy.TRANSIENT_LOCAL,
    history=HistoryPolicy.KEEP_LAST,
    depth=100,
)
# `/tf`, as tf2 listens to it.
TRANSFORMS = QoSProfile(
    reliability=ReliabilityPolicy.RELIABLE, history=HistoryPolicy.KEEP_LAST, depth=100
)


def overridable() -> QoSOverridingOptions:
    """Let parameters override history, depth and reliability of a topic."""
    return QoSOverridingOptions.with_default_policies()


def subscription_events(on_incompatible: Callable[[], None]) -> Any:
    """Event callbacks that tell of a publisher whose quality of service does not match."""
    return SubscriptionEventCallbacks(incompatible_qos=lambda event: on_incompatible())
