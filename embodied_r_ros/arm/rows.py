# SPDX-License-Identifier: Apache-2.0
"""Rows of a demonstration: every kind of question about an arm at several moments."""

from __future__ import annotations

from dataclasses import asdict, replace
import math
from random import Random
from typing import TYPE_CHECKING

from embodied_r_ros.arm.questions import arm_kinds, ArmMoment
from embodied_r_ros.arm.robot import Robot, RobotMetadata
from embodied_r_ros.arm.table import table_view
from embodied_r_ros.arm.task_frame import facing_problem
from embodied_r_ros.common.errors import InputError
from embodied_r_ros.core.types.episodes import EpisodeOutcome
from embodied_r_ros.data.questions.indoor import NoSolution
from embodied_r_ros.data.questions.row import builder_of, QuestionWithSolution
from embodied_r_ros.data.questions.splits import split_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from embodied_r_ros.arm.demonstration import ArmEpisode
    from embodied_r_ros.core.types.geometry import Pose
    from embodied_r_ros.data.episodes.episode import Episode
    from embodied_r_ros.data.questions.coverage import Coverage
    from embodied_r_ros.data.questions.derive import QuestionsConfig
    from embodied_r_ros.data.questions.indoor import Draft
    from embodied_r_ros.data.questions.row import Row

EVERY_KIND = 'every robot kind'
_FAILED = EpisodeOutcome.FAILURE, EpisodeOutcome.ABORTED  # what they did is not to be copied


def rows_of_arm(
    demonstration: ArmEpisode, episode: Episode, config: QuestionsConfig, coverage: Coverage
) -> Iterator[Row]:
    """Derive the rows of a demonstration; what has no solution is counted in `coverage`.

    Args:
        demonstration: What the arm did.
        episode: The recording of it: its name, its scene and its deltas.
        config: The robot, and the seed.
        coverage: Counts what had no solution.

    Raises:
        InputError: The robot's task frame is not that of the demonstration.
    """
    own_metadata = demonstration.metadata or RobotMetadata(frame_id=demonstration.frame_id)
    robot = config.robot or Robot(metadata=own_metadata)
    if demonstration.frame_id != robot.metadata.frame_id:
        msg = (
            f'episode {episode.id!r} is in frame {demonstration.frame_id!r}, robot '
            f'{robot.name!r} in {robot.metadata.frame_id!r}: name the robot that was recorded'
        )
        raise InputError(msg)
    if episode.outcome in _FAILED:
        coverage.unsolved[EVERY_KIND, 'the demonstration did not succeed'] += 1
        return
    problem = _facing_problem(demonstration, robot)
    if problem:
        coverage.unsolved[EVERY_KIND, problem] += 1
        return
    view = table_view(_camera(demonstration), robot.metadata, robot.placing)
    config = replace(config, robot=robot)
    view = view and replace(view, name=episode.camera)
    demonstration = replace(demonstration, view=view)
    moments = list(_arm_moments(demonstration, episode, robot, coverage))
    asks = [(moment, *each) for moment in moments for each in arm_kinds(robot).items()]
    for moment, kind, ask in asks:
        rng = Random(f'{config.seed}:{episode.id}:{moment.index}:{kind}')
        draft = ask(moment, robot, rng)
        if isinstance(draft, NoSolution):
            coverage.unsolved[kind, draft.reason] += 1
        else:
            yield _arm_row(episode, moment, kind, draft, config, rng)


def _arm_moments(
    demonstration: ArmEpisode, episode: Episode, robot: Robot, coverage: Coverage
) -> Iterator[ArmMoment]:
    """The moments of the questions, each with the deltas until then."""
    on_arrival = robot.questions.grip == 'arrival'
    demonstration = demonstration.gripping_on_arrival() if on_arrival else demonstration
    for index, keypoint_index in demonstration.keypoint_pairs(robot.questions.stride):
        stamp_ns = demonstration.states[index].stamp_ns
        deltas = tuple(delta for delta in episode.deltas if delta.stamp_ns <= stamp_ns)
        moment = ArmMoment(demonstration, index, keypoint_index, deltas, f'{episode.id}/{index}')
        off_m = math.dist(moment.state.position, moment.keypoint.position)
        if on_arrival and off_m < robot.candidates.min_distance_m:
            coverage.unsolved[EVERY_KIND, 'the arm is where its keypoint is'] += 1
        else:
            yield moment


def _camera(demonstration: ArmEpisode) -> Pose | None:
    """Pose of the camera in the task frame, as recorded; None: it is not."""
    is_known = demonstration.camera and demonstration.camera.frame_id == demonstration.frame_id
    return demonstration.camera if is_known else None


def _facing_problem(demonstration: ArmEpisode, robot: Robot) -> str:
    """Why words for axes do not hold for the camera; empty: they do, or it is declared."""
    if robot.questions.camera == 'declared':
        return ''
    camera = _camera(demonstration)
    if camera is None and robot.placing.camera_position:
        camera = robot.placing.camera(demonstration.frame_id)
    if camera is None:
        return (
            f'the pose of the camera in {demonstration.frame_id!r} is not known: record it, give '
            'the robot a camera_position, or set `camera: declared` where it faces the robot'
        )
    return facing_problem(camera, robot.metadata.reference, demonstration.intrinsics)


def _arm_row(
    episode: Episode,
    moment: ArmMoment,
    kind: str,
    draft: Draft,
    config: QuestionsConfig,
    rng: Random,
) -> Row:
    robot, stamp_ns = config.robot, moment.state.stamp_ns
    assert robot is not None
    view = moment.view(with_tool=kind != 'current_state')  # which asks for it
    look = view.describe(moment.deltas) if view else None
    question = QuestionWithSolution.of_draft(kind, draft, rng)
    return builder_of(episode, split_of(episode.scene_id, config)).row(
        f'{moment.index}/{kind}/{question.digest}',
        question,
        moment.deltas,
        focus=(asdict(look),) if look else (),
        meta={
            'truth': draft.truth,
            'robot': robot.name,
            'stamp_ns': stamp_ns,
            'state_index': moment.index,
            'keypoint_index': moment.keypoint_index,
        },
        state=moment.state.position,
        keypoint=moment.keypoint.position,
        frame_id=moment.demonstration.frame_id,
        deadband_m=robot.questions.deadband_m,
    )
