# SPDX-License-Identifier: Apache-2.0
"""`embodied-r episodes ACTION DIR`: what became of recordings, and care for them."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime, timezone
from enum import Enum
import json
import sys
from typing import Any, TYPE_CHECKING

from embodied_r_ros.bags.audit import AuditReport
from embodied_r_ros.bags.recovery import find_episodes, recover_all
from embodied_r_ros.bags.sources import find_bags
from embodied_r_ros.cli.arguments import some_count, some_path
from embodied_r_ros.common.errors import BagError, EmbodiedRError, InputError
from embodied_r_ros.common.files import whole_folder
from embodied_r_ros.data.episodes.inspect import (
    audit_bag,
    delete_episode,
    EpisodeSummary,
    summarize,
)
from embodied_r_ros.data.episodes.labels import agreements
from tqdm import tqdm

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from embodied_r_ros.data.episodes.label_check import LabelReport

_ACTIONS = {
    'list': 'which episodes there are, and whether they were closed',
    'labels': 'labels of people: how many, whether they fit, and how far people agree',
    'audit': 'whether episodes hold what they should: rates, gaps, stamps, missing topics, drops',
    'recover': 'repair recordings that were never closed',
    'delete': 'delete episodes',
}
_MB = 1024 * 1024


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the verb."""
    actions = parser.add_subparsers(dest='action', metavar='ACTION', required=True)
    for name, summary in _ACTIONS.items():
        action = actions.add_parser(name, help=summary, description=summary)
        action.add_argument(
            'dir',
            type=some_path,
            metavar='DIR',
            help='an episode, or a folder of episodes'
            + ('; or one file of a bag' if name == 'audit' else ''),
        )
        if name == 'delete':
            action.add_argument(
                '--yes', action='store_true', help='delete; without it, only say what would go'
            )
        else:
            action.add_argument('--json', action='store_true', help='one line of JSON per episode')
    summary = 'recordings with their questions and answers, for other programs'
    action = actions.add_parser('export', help=summary, description=summary)
    text = 'a dataset of LeRobot, v3.0; or an MCAP file of annotations per recording'
    action.add_argument('format', choices=('lerobot', 'foxglove'), help=text)
    text = 'recordings, or folders of them'
    action.add_argument('paths', nargs='+', type=some_path, metavar='DIR', help=text)
    action.add_argument('--out', type=some_path, required=True, metavar='DIR', help='new or empty')
    text = 'frames a second of a dataset of LeRobot (default %(default)s)'
    action.add_argument('--rate', type=some_count, default=10, metavar='HZ', help=text)


def main(args: argparse.Namespace) -> int:
    """Run the action on each episode; its result goes to stdout."""
    if args.action == 'export':
        return _export(args)
    is_file = args.action == 'audit' and args.dir.is_file()
    episodes = find_bags([args.dir]) if is_file else find_episodes(args.dir)
    return int(_DO[args.action](episodes, args))


def _list(episodes: list[Path], args: argparse.Namespace) -> int:
    width = max(len(episode.name) for episode in episodes)
    if not args.json:
        print(f'{"episode":<{width}}  {"state":<8}  {"start (UTC)":<19}  ', end='')
        print(f'{"s":>7}  {"messages":>8}  {"MB":>7}  {"audit":<5}  labels')
    for episode in episodes:
        summary = summarize(episode)
        print(_json(asdict(summary)) if args.json else _row(summary, width))
    return 0


def _row(summary: EpisodeSummary, width: int) -> str:
    start = (
        datetime.fromtimestamp(summary.start_ns / 1e9, timezone.utc) if summary.start_ns else None
    )
    return (
        f'{summary.episode.name:<{width}}  {summary.state.value:<8}  '
        f'{start.strftime("%Y-%m-%d %H:%M:%S") if start else "-":<19}  '
        f'{summary.duration_s:>7.1f}  {summary.messages:>8}  {summary.bytes / _MB:>7.1f}  '
        f'{summary.audit or "-":<5}  {_labels_text(summary)}'
    )


def _labels_text(summary: EpisodeSummary) -> str:
    text = f'{summary.labels} by {", ".join(summary.people)}' if summary.labels else '-'
    damaged = summary.damaged_labels
    return f'{text}, {damaged} damaged' if damaged else text


def _labels(episodes: list[Path], args: argparse.Namespace) -> int:
    from embodied_r_ros.data.episodes.label_check import check_labels

    reports = {episode: check_labels(episode) for episode in episodes}
    pairs = agreements(report.layer for report in reports.values())
    if args.json:
        for episode, report in reports.items():
            print(_json(_label_entry(episode, report)))
        print(_json({'agreement': [{**asdict(pair), 'share': pair.share} for pair in pairs]}))
    else:
        _print_labels(reports)
        for pair in pairs:
            kappa = '-' if pair.kappa is None else f'{pair.kappa:.2f}'
            print(
                f'{" and ".join(pair.people)} agree on {pair.agreed} of {pair.questions} '
                f"questions ({pair.share:.0%}), Cohen's kappa {kappa}"
            )
    bad = sum(len(r.layer.damage) + len(r.unfit) for r in reports.values())
    good = sum(sum(report.counts.values()) for report in reports.values())
    print(f'{good} labels stand, {bad} are damaged or do not fit', file=sys.stderr)
    return 1 if bad else 0


def _label_entry(episode: Path, report: LabelReport) -> dict[str, Any]:
    return {
        'episode': episode,
        'labels': report.counts,
        'questions': len(report.layer.by_question()),
        'people': report.layer.people(),
        'damage': report.layer.damage,
        'unfit': report.unfit,
    }


def _print_labels(reports: dict[Path, LabelReport]) -> None:
    for episode, report in reports.items():
        if not report.layer.labels and not report.layer.damage:
            continue
        counts = ', '.join(f'{count} {kind}' for kind, count in sorted(report.counts.items()))
        people = ', '.join(report.layer.people())
        print(f'{episode.name}: {counts or "none"}' + (f' (by {people})' if people else ''))
        for problem in (*report.layer.damage, *report.unfit):
            print(f'  {problem}')


def _audit(episodes: list[Path], args: argparse.Namespace) -> int:
    failed = 0
    for episode in episodes:
        try:
            report = audit_bag(episode)
        except BagError as error:
            report = AuditReport(0.0, (), (str(error),))
        failed += bool(report.problems)
        if args.json:
            print(_json({'episode': episode, **asdict(report)}))
            continue
        print(f'{episode.name}: {"fails" if report.problems else "ok"}, {report.duration_s:.1f} s')
        for text in (*report.problems, *report.left_out):
            print(f'  {text}')
        if len(episodes) == 1:
            _print_topics(report)
    print(f'{len(episodes) - failed} of {len(episodes)} episodes pass', file=sys.stderr)
    return 1 if failed else 0


def _print_topics(report: AuditReport) -> None:
    width = max((len(topic.topic) for topic in report.topics), default=0)
    print(f'{"topic":<{width}}  messages       Hz  longest gap [s]  out of order  dropped')
    for topic in report.topics:
        print(
            f'{topic.topic:<{width}}  {topic.messages:>8}  {topic.rate_hz:>7.2f}  '
            f'{topic.longest_gap_s:>15.2f}  {topic.out_of_order:>12}  {topic.dropped:>7}'
        )


def _recover(episodes: list[Path], args: argparse.Namespace) -> int:
    bad = unclosed = 0
    for recovery in recover_all(episodes, is_thorough=True):
        unclosed += not recovery.was_closed
        bad += not recovery.is_good
        if args.json:
            print(_json(asdict(recovery)), flush=True)
        elif not recovery.was_closed:
            print(f'{recovery.episode.name}: {recovery.text()}', flush=True)
    print(f'{unclosed} of {len(episodes)} episodes were not closed', file=sys.stderr)
    return 1 if bad else 0


def _delete(episodes: list[Path], args: argparse.Namespace) -> int:
    if not args.yes:
        names = ', '.join(episode.name for episode in episodes)
        msg = f'would delete {len(episodes)} episodes ({names}): add --yes to do it'
        raise InputError(msg)
    failures = 0
    for episode in episodes:
        try:
            delete_episode(episode)
        except BagError as error:
            failures += 1
            print(f'kept: {error}', file=sys.stderr)
        else:
            print(f'deleted {episode}', flush=True)
    return 1 if failures else 0


def _export(args: argparse.Namespace) -> int:
    bags = find_bags(args.paths)
    if args.format == 'foxglove':
        return _export_foxglove(bags, args.out)
    from embodied_r_ros.apps.lerobot import LeRobotExport
    from embodied_r_ros.apps.lerobot_frames import known_poses

    with whole_folder(args.out) as folder:
        dataset = LeRobotExport(folder, args.rate, known_poses(bags))
        results = [dataset.add(bag) for bag in tqdm(bags, unit=' recordings', disable=None)]
        for result in results:
            if result.left_out:
                print(f'left out: {result.name}: {result.left_out}', file=sys.stderr)
        dataset.end()
    frames, questions = (
        sum(getattr(r, name) for r in results) for name in ('frames', 'questions')
    )
    count = sum(not result.left_out for result in results)
    print(args.out)
    print(f'{count} episodes, {frames} frames, {questions} questions', file=sys.stderr)
    return 0


def _export_foxglove(bags: list[Path], out: Path) -> int:
    from embodied_r_ros.apps.foxglove import export_foxglove

    written = 0
    with whole_folder(out) as folder:
        for bag in bags:
            name = f'{bag.stem}.mcap'
            try:
                keyframes, questions = export_foxglove(bag, folder / name)
            except EmbodiedRError as error:
                (folder / name).unlink(missing_ok=True)
                print(f'left out: {bag.name}: {error}', file=sys.stderr)
                continue
            written += 1
            print(f'{name}: {keyframes} keyframes, {questions} questions', file=sys.stderr)
        if not written:
            msg = 'no recording could be exported'
            raise InputError(msg)
    print(out)
    return 0


def _json(value: dict[str, Any]) -> str:
    def plain(item: Any) -> Any:
        return item.value if isinstance(item, Enum) else str(item)

    return json.dumps(value, default=plain)


_DO = {'list': _list, 'labels': _labels, 'audit': _audit, 'recover': _recover, 'delete': _delete}
