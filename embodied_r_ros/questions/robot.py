# SPDX-License-Identifier: Apache-2.0
"""Rows of a demonstration: the next keypoint, the state and the movement (Robot-R1)."""

from __future__ import annotations

from dataclasses import asdict, replace
import math
from random import Random
from typing import TYPE_CHECKING

from embodied_r_ros.camera_axes import axis_view
from embodied_r_ros.deltas import row_deltas
from embodied_r_ros.episodes import Outcome
from embodied_r_ros.errors import InputError
from embodied_r_ros.perception.placing import table_view
from embodied_r_ros.questions.kinds import settled, Unsolved
from embodied_r_ros.questions.robot_kinds import arm_kinds, ArmMoment, is_state_told
from embodied_r_ros.questions.splits import split_of
from embodied_r_ros.robots import Robot, RobotMetadata
from embodied_r_ros.rows import Row

if TYPE_CHECKING:
    from collections.abc import Iterator

    from embodied_r_ros.geometry import Pose
    from embodied_r_ros.questions.arm_episode import ArmEpisode
    from embodied_r_ros.questions.coverage import Coverage
    from embodied_r_ros.questions.derive import QuestionsConfig
    from embodied_r_ros.questions.kinds import Draft
    from embodied_r_ros.recordings.episode_bag import Episode

EVERY_KIND = 'every robot kind'
_FAILED = Outcome.FAILURE, Outcome.ABORTED  # what they did is not to be copied


def rows_of_arm(
    shown: ArmEpisode, episode: Episode, config: QuestionsConfig, coverage: Coverage
) -> Iterator[Row]:
    """Derive the rows of a demonstration; what has no solution is counted in `coverage`.

    Args:
        shown: What the arm did.
        episode: The recording of it: its name, its scene, and what was seen.
        config: The robot, and the seed.
        coverage: Counts what had no solution.

    Raises:
        InputError: The robot's task frame is not that of the demonstration.
    """
    recorded = shown.metadata or RobotMetadata(frame_id=shown.frame_id)
    robot = config.robot or Robot(metadata=recorded)
    if shown.frame_id != robot.metadata.frame_id:
        msg = (
            f'episode {episode.id!r} is in frame {shown.frame_id!r}, robot {robot.name!r} in '
            f'{robot.metadata.frame_id!r}: name the robot that was recorded'
        )
        raise InputError(msg)
    if episode.outcome in _FAILED:
        coverage.unsolved[EVERY_KIND, 'the demonstration did not succeed'] += 1
        return
    facing = _facing(shown, robot)
    if isinstance(facing, Unsolved):
        coverage.unsolved[EVERY_KIND, facing.reason] += 1
        return
    view = table_view(_camera(shown), robot.metadata, robot.placing)
    quarters, robot = facing
    config = replace(config, robot=robot)
    view = view and replace(view.turned(quarters), name=episode.camera)
    shown = replace(shown.turned(quarters), view=view)
    for moment in _moments(shown, episode, robot, coverage):
        for kind, ask in arm_kinds(robot).items():
            rng = Random(f'{config.seed}:{episode.id}:{moment.index}:{kind}')
            draft = ask(moment, robot, rng)
            if isinstance(draft, Unsolved):
                coverage.unsolved[kind, draft.reason] += 1
            else:
                yield _row(episode, moment, kind, draft, config, rng)


def _moments(
    shown: ArmEpisode, episode: Episode, robot: Robot, coverage: Coverage
) -> Iterator[ArmMoment]:
    """The moments that are asked about, with what had been seen until then."""
    on_arrival = robot.questions.grip == 'arrival'
    shown = shown.gripping_on_arrival() if on_arrival else shown
    for index, keypoint_index in shown.asked(robot.questions.stride):
        stamp_ns = shown.states[index].stamp_ns
        seen = tuple(delta for delta in episode.deltas if delta.stamp_ns <= stamp_ns)
        moment = ArmMoment(shown, index, keypoint_index, seen, f'{episode.id}/{index}')
        off_m = math.dist(moment.state.position, moment.keypoint.position)
        if on_arrival and off_m < robot.candidates.min_distance_m:
            coverage.unsolved[EVERY_KIND, 'the arm is where its keypoint is'] += 1
        else:
            yield moment


def _camera(shown: ArmEpisode) -> Pose | None:
    """Pose of the camera in the task frame, as recorded; None: it is not."""
    is_known = shown.camera and shown.camera.frame_id == shown.frame_id
    return shown.camera if is_known else None


def _facing(shown: ArmEpisode, robot: Robot) -> tuple[int, Robot] | Unsolved:
    """Quarters by which the task frame is turned, so that its words hold, and the robot in it."""
    allowed = robot.questions.camera
    if allowed == 'declared':
        return 0, robot
    camera = _camera(shown)
    if camera is None and robot.placing.camera_position:
        camera = robot.placing.camera(shown.frame_id)
    if camera is None:
        return Unsolved(
            f'the pose of the camera in {shown.frame_id!r} is not known: record it, give the '
            'robot a camera_position, or set `camera: declared` where it faces the robot'
        )
    view = axis_view(camera, robot.metadata.reference, shown.intrinsics)
    if view.why_not:
        return Unsolved(f'no words for axes hold for the camera: {view.why_not}')
    if view.quarters and allowed == 'facing':
        return Unsolved(
            f'the camera does not face the robot, but stands {90 * view.quarters} degrees round '
            'from there: `camera: any` asks in a frame that is turned so far'
        )
    return view.quarters, replace(robot, metadata=robot.metadata.turned(view.quarters))


def _row(
    episode: Episode,
    moment: ArmMoment,
    kind: str,
    draft: Draft,
    config: QuestionsConfig,
    rng: Random,
) -> Row:
    robot, stamp_ns = config.robot, moment.state.stamp_ns
    assert robot is not None
    options, solution, digest = settled(draft, rng)
    view = moment.view(is_tool_told=is_state_told(kind, robot))
    look = view.describe(moment.deltas) if view else None
    return Row(
        id=f'{episode.id}/{moment.index}/{kind}/{digest}',
        episode_id=episode.id,
        scene_id=episode.scene_id,
        split=split_of(episode.scene_id, config),
        source=draft.source,
        camera=episode.camera,
        question_type=kind,
        question=draft.question,
        answer_kind=draft.answer_kind,
        options=options,
        solution=solution,
        deltas=row_deltas(moment.deltas),
        focus=(asdict(look),) if look else (),
        meta={
            'deltas': episode.delta_source,
            'truth': draft.truth,
            'robot': robot.name,
            'stamp_ns': stamp_ns,
            'state_index': moment.index,
            'keypoint_index': moment.keypoint_index,
        },
        state=moment.state.position,
        keypoint=moment.keypoint.position,
        frame_id=moment.shown.frame_id,
        deadband_m=robot.questions.deadband_m,
    )
