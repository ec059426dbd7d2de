# SPDX-License-Identifier: Apache-2.0
"""Open questions about simulated demonstrations: `python -m training.robot_bench.questions BAG…`.

Four types (planning, next action, movement, how things lie), each with a reference from the truth
that the bag holds. A bag without it needs questions and references by people (`items.py`).
"""

from __future__ import annotations

import argparse
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path
from random import Random
import sys
from typing import TYPE_CHECKING

from embodied_r_ros.arm.demonstration import DemonstrationTruth, TRUTH_TOPIC
from embodied_r_ros.arm.proposal import coordinates_text
from embodied_r_ros.arm.robot import RobotMetadata
from embodied_r_ros.arm.table import PlacingConfig, table_view
from embodied_r_ros.arm.task_frame import axis_view
from embodied_r_ros.bags.reader import open_bag, read_values
from embodied_r_ros.bags.sources import find_bags
from embodied_r_ros.common.errors import InputError
from embodied_r_ros.core.pipeline import classical_perceiver
from embodied_r_ros.core.types.deltas import row_deltas
from embodied_r_ros.data.arm_room import keyframing_of
from embodied_r_ros.data.episodes.episode import read_episode
from embodied_r_ros.data.episodes.offline import perceive_path
from tqdm import tqdm

from training.robot_bench.items import BenchItem, KINDS, write_items
from training.robot_bench.references import moments_of, open_questions
from training.run.command import run_command

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from embodied_r_ros.arm.demonstration import ArmEpisode
    from embodied_r_ros.core.types.answers import FocusText
    from embodied_r_ros.core.types.deltas import SemanticDelta
    from embodied_r_ros.data.episodes.episode import Episode

    from training.robot_bench.references import BenchMoment


def items_of(bag: Path, moments: int, seed: int) -> Iterator[BenchItem]:
    """Open questions about a simulated demonstration, with what was seen until then.

    Args:
        bag: With images and the truth.
        moments: How many moments to ask at, at most; each gives one question of each type.
        seed: Of the moments, and of what is asked.

    Raises:
        InputError: The bag is no such demonstration, or words for directions do not hold for its
            camera.
    """
    truth = _truth(bag)
    episode = read_episode(bag, perceive=_perceived)
    shown = episode.arm
    if shown is None or not episode.deltas:
        msg = f'{bag} shows no arm: record it with images and /arm_setup'
        raise InputError(msg)
    _check_words_hold(shown, bag)
    rng = Random(f'{seed}:{episode.id}')
    for moment in moments_of(truth, shown.states, moments, rng):
        yield from _items(bag, episode, moment, rng)


def _perceived(bag: Path) -> list[SemanticDelta]:
    return list(perceive_path(bag, classical_perceiver(), keyframing_of(bag, None)))


def _truth(bag: Path) -> DemonstrationTruth:
    with open_bag(bag) as reader:
        if TRUTH_TOPIC not in reader.topics:
            msg = (
                f'{bag} has no {TRUTH_TOPIC}, so nothing proves a reference: use bags of '
                '`embodied-r sim arm`, or write the file by hand'
            )
            raise InputError(msg)
        return next(
            DemonstrationTruth.from_json(text)
            for text in read_values(reader, [TRUTH_TOPIC], lambda msg: str(msg.data))
        )


def _check_words_hold(shown: ArmEpisode, bag: Path) -> None:
    why_not = 'its pose is not known'
    if shown.camera and shown.camera.frame_id == shown.frame_id:
        view = axis_view(shown.camera, _metadata(shown).reference, shown.intrinsics)
        why_not = view.why_not or (f'it stands {90 * view.quarters} degrees round from there')
        if view.is_facing:
            return
    msg = f'{bag}: left, right, forward need a camera that faces the robot: {why_not}'
    raise InputError(msg)


def _metadata(shown: ArmEpisode) -> RobotMetadata:
    return shown.metadata or RobotMetadata(frame_id=shown.frame_id)


def _items(bag: Path, episode: Episode, moment: BenchMoment, rng: Random) -> Iterator[BenchItem]:
    shown, stamp_ns = episode.arm, moment.state.stamp_ns
    assert shown is not None
    context = coordinates_text(shown.frame_id, shown.metadata, moment.state.position)
    observations = [delta for delta in episode.deltas if delta.stamp_ns <= stamp_ns]
    look = _look(shown, episode.camera, observations)
    for open_question in open_questions(moment, rng):
        yield BenchItem(
            id=f'{episode.id}/{stamp_ns}/{open_question.question_type}',
            question_type=open_question.question_type,
            question=open_question.question,
            reference=open_question.reference,
            task=shown.task,
            context=context,
            scene_id=episode.scene_id,
            deltas=row_deltas(observations),
            focus=(asdict(look),) if look else (),
            bag=str(bag),
            stamp_ns=stamp_ns,
            meta={'deltas': episode.delta_source, 'source': 'demonstration'},
        )


def _look(shown: ArmEpisode, camera: str, deltas: Sequence[SemanticDelta]) -> FocusText | None:
    """Where things are on the table, as rows tell it; None: nothing is placed."""
    if not deltas:
        return None
    then = shown.state_at(deltas[-1].stamp_ns)
    view = table_view(
        shown.camera, _metadata(shown), PlacingConfig(), then.position if then else None
    )
    return replace(view, name=camera).describe(deltas) if view else None


def _run(args: argparse.Namespace) -> int:
    if args.moments < 1:
        msg = f'--moments is {args.moments}: expected at least 1'
        raise InputError(msg)
    bags = tqdm(find_bags(args.bags), unit=' bags', disable=None)
    items = [item for bag in bags for item in items_of(bag, args.moments, args.seed)]
    if not items:
        msg = 'there is no moment to ask at in any of the bags'
        raise InputError(msg)
    write_items(args.out, items)
    counts = Counter(item.question_type for item in items)
    for kind in KINDS:
        sys.stdout.write(f'{kind:<20} {counts[kind]:>5}\n')
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the file, and say what is in it."""
    parser = argparse.ArgumentParser(prog='training.robot_bench.questions', description=__doc__)
    parser.add_argument('bags', nargs='+', type=Path, metavar='BAG', help='or folders of bags')
    parser.add_argument('--out', required=True, type=Path, metavar='BENCH.jsonl')
    parser.add_argument('--moments', type=int, default=3, help='of each bag (default: 3)')
    parser.add_argument('--seed', type=int, default=0)
    return run_command(parser, _run, arguments)


if __name__ == '__main__':
    sys.exit(main())
