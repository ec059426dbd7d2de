# SPDX-License-Identifier: Apache-2.0
"""The real nodes, each a process, and an arm that does what their gate lets through."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
import tempfile
from typing import Any, TYPE_CHECKING

from embodied_r_ros.errors import EmbodiedRError
from embodied_r_ros.keypoints.trial import TrialConfig
from embodied_r_ros.nodes.arm_stage import ArmStage
from embodied_r_ros.nodes.demo_client import demo_client
from embodied_r_ros.nodes.processes import NodeProcesses, own_environment
from rcl_interfaces.srv import SetParameters
from rclpy.parameter import Parameter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from embodied_r_ros.keypoints.trial import Trial, TrialArm
    from embodied_r_ros.models.chat_config import ChatConfig
    from embodied_r_ros.nodes.demo_client import DemoClient
    from embodied_r_ros.robots import Robot

_NODES = ('keyframe_extractor', 'semantic_perceiver', 'spatial_reasoner', 'proposal_gate')
_START_S = 60.0
_KEYFRAME_S = 0.5  # a still camera sees nothing new, and yet things are moved
_GATE_HZ = 5.0


@dataclass(frozen=True)
class LoopSettings:
    """What the nodes are told, and when a trial ends."""

    robot_file: str  # name in config/robots, or path
    robot: Robot
    trial: TrialConfig = field(default_factory=TrialConfig)
    min_confidence: float = 0.0  # of the gate; 0: any, an unknown one too
    speed: float = 1.0  # how fast time passes, at most
    token_budget: int = 1200  # of the scene in a prompt


class ClosedLoop:
    """Nodes that run, and a stage for arms."""

    def __init__(self, client: DemoClient, nodes: NodeProcesses, settings: LoopSettings) -> None:
        """Set up the stage."""
        self._client, self._nodes, self._settings = client, nodes, settings
        frame_id = settings.robot.metadata.frame_id
        self._stage = ArmStage(client, frame_id, settings.speed)

    def play(
        self, arm: TrialArm, episode_id: str, reached: Callable[[], None] = lambda: None
    ) -> Trial:
        """Let the nodes lead an arm until its task succeeds, or for long enough.

        Args:
            arm: The arm, at its start.
            episode_id: Id of the trial.
            reached: Called where a keypoint is reached.

        Raises:
            EmbodiedRError: A node failed.
        """
        self._client.forget()
        config, check = self._settings.trial, self._nodes.check
        return self._stage.play(arm, episode_id, config, self._set_task, reached, check)

    def _set_task(self, task: str) -> None:
        request = SetParameters.Request()
        request.parameters = [Parameter('arm.task', value=task).to_parameter_msg()]
        [result] = self._client.call(
            SetParameters, 'spatial_reasoner/set_parameters', request
        ).results
        if not result.successful:
            raise EmbodiedRError(result.reason)


@contextmanager
def closed_loop(
    settings: LoopSettings, server: ChatConfig, say: Callable[[str], None]
) -> Iterator[ClosedLoop]:
    """Start the nodes in a domain of their own, and end them.

    Args:
        settings: What they are told.
        server: The model server that the reasoner asks.
        say: Told what happens, a line at a time.

    Raises:
        EmbodiedRError: A node failed, or is not active in time.
    """
    with (
        tempfile.TemporaryDirectory(prefix='embodied_r_loop-') as scratch,
        NodeProcesses(Path(scratch), own_environment()) as nodes,
        demo_client(lambda line: None) as client,
    ):
        say('starting the nodes')
        loop = ClosedLoop(client, nodes, settings)
        for name, parameters in _parameters(settings, server).items():
            nodes.start(name, {'use_sim_time': True, **parameters})
        client.await_active(_NODES, _START_S, nodes.check)
        listeners = {'image': 1, 'keyframe': 2, 'semantic_delta': 2, 'keypoint_proposal': 1}
        client.await_listeners({**listeners, 'keypoint_accepted': 2, '/clock': 5}, _START_S)
        yield loop


def _parameters(settings: LoopSettings, server: ChatConfig) -> dict[str, dict[str, Any]]:
    """Parameters of each node."""
    low, high = settings.robot.metadata.workspace()
    arm = {
        'robot': settings.robot_file,
        'gripper': True,
        'task_rate_hz': 2.0,
        'reach_s': 1.2,  # the gripper acts and the arm settles
        'look_s': 3.0,
        'give_up_s': 8.0,
    }
    gate = {
        'workspace_frame': settings.robot.metadata.frame_id,
        'workspace_min': list(low),
        'workspace_max': list(high),
        'max_step_m': 1.0,
        'min_confidence': settings.min_confidence,
        'max_rate_hz': _GATE_HZ,
    }
    return {
        'keyframe_extractor': {'queue': 10, 'keyframe': {'max_interval_s': _KEYFRAME_S}},
        'semantic_perceiver': {'perceiver': 'classical'},
        'spatial_reasoner': {
            'chat': {'url': server.url, 'model': server.model},
            'arm': arm,
            'reasoner': {'focus': 'never', 'token_budget': settings.token_budget},
        },
        'proposal_gate': gate,
    }
