# SPDX-License-Identifier: Apache-2.0
"""Choosers and the simulated arm: who knows the way succeeds, and chance does not."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
import math

import pytest

if find_spec('metaworld') is None:
    pytest.skip('Meta-World is not installed', allow_module_level=True)
pytest.importorskip('embodied_r_ros.sim.indoor.world')

from embodied_r_ros.arm.candidates import SeenThing
from embodied_r_ros.arm.robot import load_robot
from embodied_r_ros.arm.task import Trial, TrialConfig
from embodied_r_ros.sim.arm.tasks import draw_scene, HOME, TASKS, Waypoint
from embodied_r_ros.sim.arm.trials import (
    baseline,
    Choice,
    ClassicalSight,
    gripping_on_arrival,
    NearestChooser,
    OracleChooser,
    RandomChooser,
    TrialPlan,
)
from embodied_r_ros.sim.arm.world import CartesianController, SimulatedArm
from embodied_r_ros.sim.runs import SimArmConfig
import numpy as np

ROBOT = load_robot('sawyer_sim')
EPISODES = 2


@pytest.mark.parametrize('task', sorted(TASKS))
def test_who_knows_the_way_succeeds(task: str) -> None:
    robot = load_robot('sawyer_sim_drawer') if task == 'drawer' else ROBOT
    for index, stay in enumerate((True, False)):
        choosing = replace(robot, candidates=replace(robot.candidates, stay=stay))
        assert baseline('oracle', TrialPlan(task, 3, index), choosing).is_success


@pytest.mark.parametrize('name', ['random', 'nearest'])
def test_who_does_not_know_it_rarely_does(name: str) -> None:
    played = [baseline(name, TrialPlan('stack', 3, index), ROBOT) for index in range(EPISODES)]
    assert not any(episode.is_success for episode in played)
    assert {len(episode.steps) for episode in played} == {TrialConfig().max_keypoints}


def test_what_is_seen_of_a_block_is_enough_to_pick_it_up() -> None:
    plan = TrialPlan('pick', 1, 2)
    trial = baseline('oracle', plan, ROBOT, SimArmConfig('pick').camera())
    assert trial.task == 'pick up the blue block'
    assert trial.is_success
    assert [len(step['candidates']) for step in trial.to_json()['steps']]


def test_the_handle_of_the_drawer_is_seen_where_it_is() -> None:
    robot = load_robot('sawyer_sim_drawer')
    with TrialPlan('drawer', 1, 0).arm(SimArmConfig('drawer').camera()) as arm:
        [handle] = ClassicalSight(robot)(arm)
        [true] = arm.true_things()
    assert handle.label.startswith('yellow')
    assert np.abs(np.subtract(handle.position, true.position)).max() < 0.03


def test_the_seed_decides_an_episode() -> None:
    def play_trial(index: int) -> Trial:
        return baseline('random', TrialPlan('pick', 3, index), ROBOT)

    assert play_trial(1) == play_trial(1)
    assert play_trial(1).steps != play_trial(2).steps


def test_choosers_begin_with_the_same_candidates() -> None:
    names = 'oracle', 'random', 'nearest'
    first = {baseline(name, TrialPlan('push', 3, 0), ROBOT).steps[0].candidates for name in names}
    assert len(first) == 1


def test_what_is_held_is_not_put_down() -> None:
    scene = draw_scene('stack', 3, 0)
    x, y, _ = scene.thing('support').position
    with SimulatedArm(scene, camera=None) as arm:
        for waypoint in TASKS['stack'].plan(scene)[:6]:  # above the other block
            arm.go(waypoint.position, closed=waypoint.closed)
            while arm.is_busy():
                arm.advance(arm.now_s + 0.1)
        assert math.dist(arm.tool().position[:2], (x, y)) < 0.02
        assert not arm.is_done()
        arm.go(arm.tool().position, closed=False)
        arm.advance(arm.now_s + 1.5)
        assert arm.is_done()


def test_the_way_to_a_keypoint_is_smooth_and_ends_at_rest() -> None:
    controller = CartesianController((0.0, 0.0, 0.2))
    controller.go((0.1, 0.2, 0.1), 1.0, closed=True)
    times = np.arange(1.0, 4.0, 0.01).tolist()
    way = np.array([controller.command(now).tool for now in times])
    speeds = np.linalg.norm(np.diff(way, axis=0), axis=1) / 0.01
    assert way[0] == pytest.approx((0.0, 0.0, 0.2))
    assert way[-1] == pytest.approx((0.1, 0.2, 0.1))
    assert speeds[0] == pytest.approx(0.0, abs=0.01)
    assert speeds.max() < 0.6
    assert np.abs(np.diff(speeds)).max() / 0.01 < 3.0  # [m/s^2]: no jump


def test_the_gripper_acts_where_the_way_ends() -> None:
    controller = CartesianController((0.0, 0.0, 0.2))
    controller.go((0.0, 0.0, 0.1), 0.0, closed=True)
    acts = next(t for t in np.arange(0.0, 3.0, 0.01).tolist() if controller.command(t).closed)
    assert controller.command(acts).tool == pytest.approx((0.0, 0.0, 0.1))
    assert controller.is_busy(acts + 0.5)  # until the fingers stand
    assert not controller.is_busy(acts + 1.0)


def test_a_gripper_that_is_not_told_stays_as_it_is() -> None:
    controller = CartesianController((0.0, 0.0, 0.2), closed=True)
    controller.go((0.0, 0.0, 0.1), 0.0)
    assert all(controller.command(now).closed for now in (0.0, 0.3, 3.0))


def test_a_keypoint_on_the_way_is_gone_to_from_there() -> None:
    controller = CartesianController((0.0, 0.0, 0.0))
    controller.go((0.2, 0.0, 0.0), 0.0)
    now = controller.command(0.4).tool
    controller.go((0.0, 0.2, 0.0), 0.4)
    assert controller.command(0.4).tool == pytest.approx(now)
    assert controller.command(5.0).tool == pytest.approx((0.0, 0.2, 0.0))


VIEW = Choice(
    (SeenThing('block', (0.1, 0.1, 0.02)), SeenThing('mat', (0.2, -0.2, 0.0))),
    (0.0, 0.0, 0.16),
    (
        (0.2, -0.2, 0.15),  # above the mat
        (0.1, 0.1, 0.15),  # above the block
        (0.1, 0.1, 0.03),  # at it
    ),
)


def test_the_nearest_thing_is_gone_to_and_gripped() -> None:
    chosen = NearestChooser().choose(VIEW)
    assert (chosen.index, chosen.closed) == (2, True)


def test_chance_takes_every_candidate_and_both_states_of_the_gripper() -> None:
    chooser = RandomChooser('run')
    drawn = [chooser.choose(VIEW) for _ in range(100)]
    assert {each.index for each in drawn} == {0, 1, 2}
    assert {each.closed for each in drawn} == {True, False}


def test_the_oracle_goes_on_only_where_it_has_come_to() -> None:
    way = Waypoint((0.1, 0.1, 0.15), closed=False), Waypoint((0.1, 0.1, 0.02), closed=True)
    oracle = OracleChooser(way)
    assert oracle.choose(VIEW).index == 1
    oracle.note_arrival((0.2, -0.2, 0.15), closed=False)
    assert oracle.choose(VIEW).index == 1
    oracle.note_arrival((0.11, 0.1, 0.15), closed=False)
    assert (oracle.choose(VIEW).index, oracle.choose(VIEW).closed) == (2, True)


def test_grips_in_place_become_grips_on_arrival() -> None:
    grip = Waypoint(HOME, closed=True, is_grip=True)
    way = grip, Waypoint((0.1, 0.0, 0.1), closed=True), replace(grip, closed=False)
    assert gripping_on_arrival(way) == (Waypoint((0.1, 0.0, 0.1), closed=False),)
