# SPDX-License-Identifier: Apache-2.0
"""A chooser answers the reasoner over HTTP as a model would."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

if find_spec('metaworld') is None:
    pytest.skip('Meta-World is not installed', allow_module_level=True)
pytest.importorskip('embodied_r_ros.sim.indoor.world')

from embodied_r_ros.arm.proposal import GRIPPER_NEXT, keypoint_question
from embodied_r_ros.arm.robot import load_robot
from embodied_r_ros.core.chat.client import HttpChatClient
from embodied_r_ros.core.reasoning.question import Question, ReasonerConfig
from embodied_r_ros.core.reasoning.reasoner import Reasoner
from embodied_r_ros.core.types.answers import AnswerKind
from embodied_r_ros.core.types.deltas import DeltaKind, SemanticDelta
from embodied_r_ros.sim.arm.chooser_server import ChooserServer
from embodied_r_ros.sim.arm.tasks import draw_scene, Waypoint
from embodied_r_ros.sim.arm.trials import OracleChooser
from embodied_r_ros.sim.arm.world import SimulatedArm

ROBOT = load_robot('sawyer_sim').metadata
SEEN = (SemanticDelta(1, DeltaKind.FIRST, change='New: red block (0.1, 0.1, 0.1).'),)
PLACES = (0.1, 0.1, 0.15), (-0.05, 0.0, 0.02), (0.2, -0.2, 0.1)
WAY = Waypoint((-0.05, 0.0, 0.02), closed=True), Waypoint((0.1, 0.1, 0.14), closed=False)


def ask_server(server: ChooserServer, question: Question) -> tuple[AnswerKind, int]:
    reasoner = Reasoner(HttpChatClient(server.chat), ReasonerConfig(focus='never'))
    answer = reasoner.answer(question, SEEN, answer_id='a', now_ns=lambda: 1)
    return answer.kind, answer.option_index


def test_position_and_gripper_are_those_of_the_chooser() -> None:
    position = keypoint_question('pick', 'table_center', PLACES, (), ROBOT, (0.0, 0.0, 0.16))
    labelled = keypoint_question('pick', 'table_center', PLACES, ('a', 'b', 'c'))
    gripper = GRIPPER_NEXT.of_task('pick', 'table_center', ROBOT, (0.0, 0.0, 0.16))
    with ChooserServer('oracle') as server, SimulatedArm(draw_scene('pick', 1, 0), None) as arm:
        assert ask_server(server, position)[0] is AnswerKind.UNKNOWN  # nobody chooses yet
        server.serve(OracleChooser(WAY), arm)
        assert ask_server(server, position) == (AnswerKind.CHOICE, 1)
        assert ask_server(server, labelled) == (AnswerKind.CHOICE, 1)
        assert ask_server(server, gripper) == (AnswerKind.CHOICE, 1)
        arm.go(WAY[0].position, closed=True)
        arm.advance(4.0)
        server.note_arrival(arm)
        assert ask_server(server, position) == (AnswerKind.CHOICE, 0)
        assert ask_server(server, gripper) == (AnswerKind.CHOICE, 0)
