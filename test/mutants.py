# SPDX-License-Identifier: Apache-2.0
"""Break the code in known ways, one after the other, and see that the nearest tests notice.

By hand: `python test/mutants.py`, or with the names of some. Each mutant is made in a copy of the
tree, whose tests have to pass without it. 60 are of `core`, `bags`, `data` and `arm`, two of
rewards and statistics of training; all are small mistakes that a user would notice.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
import os
from pathlib import Path
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = Path(__file__).parents[1]
_NOT_COPIED = ('.*', 'out', 'runs', 'build', 'install', 'log', '__pycache__', '*.egg-info')
_PASSED, _FAILED = 0, 1  # exit codes of pytest; others mean that it could not run
_TEST_S = 60  # after which a test counts as failed


@dataclass(frozen=True)
class Mutant:
    """A mistake in the code."""

    name: str
    file: str  # in `embodied_r_ros/`, or else in the root
    text: str  # stands there once
    replacement: str
    tests: str  # the nearest ones, in `test/`, with spaces between


# fmt: off
MUTANTS = (
    # core
    Mutant('pixel-centres', 'core/types/geometry.py',
           '(self.cx + 0.5) * sx - 0.5, (self.cy + 0.5) * sy - 0.5', 'self.cx * sx, self.cy * sy',
           'core/types/test_geometry.py'),
    Mutant('motion-in-fixed-frame', 'core/types/geometry.py',
           'r0.T @ later.rotation(), r0.T @ offset', 'r0.T @ later.rotation(), offset',
           'core/types/test_geometry.py'),
    Mutant('clock-that-was-set', 'core/types/poses.py',
           '<= self._stamps[-1] - _DISORDER_NS', '<= self._stamps[-1] - 1000 * _DISORDER_NS',
           'core/types/test_poses.py'),
    Mutant('order-of-transforms', 'core/types/poses.py',
           '(step.position), rotation @ turn', '(step.position), turn @ rotation',
           'core/types/test_transforms.py'),
    Mutant('turns-before-moves', 'core/types/deltas.py',
           'position += rotation @ move\n            rotation = rotation @ turns',
           'rotation = rotation @ turns\n            position += rotation @ move',
           'core/types/test_compose.py'),
    Mutant('end-of-span', 'core/types/layout.py',
           'if span.from_ns <= stamp_ns < span.to_ns', 'if span.from_ns <= stamp_ns <= span.to_ns',
           'core/types/test_layout.py'),
    Mutant('budget-likeness', 'core/keyframes/budget.py',
           '(together + max(float(cells.mean()) for cells in neighbours)) / 2', 'together',
           'core/keyframes/test_budget.py'),
    Mutant('one-blank-image', 'core/keyframes/selector.py',
           'self._blank_images > 1 and', 'self._blank_images > 0 and',
           'core/keyframes/test_selector.py'),
    Mutant('clock-jitter', 'core/keyframes/selector.py',
           'image.stamp_ns < last_ns - _CLOCK_JITTER_NS', 'image.stamp_ns < last_ns',
           'core/keyframes/test_selector.py'),
    Mutant('larger-share-of-overlap', 'core/keyframes/overlap.py',
           'min(shares(first, second, alignment))', 'max(shares(first, second, alignment))',
           'core/keyframes/test_overlap.py'),
    Mutant('change-that-settled', 'core/keyframes/still_scene.py',
           'goes or settled or (calm and self._is_open)', 'goes',
           'core/keyframes/test_still_scene.py'),
    Mutant('all-time-to-the-first', 'core/chat/fallback.py',
           'left_s if index == len(steps) - 1 else left_s / 2', 'left_s',
           'core/chat/test_fallback.py'),
    Mutant('no-patience', 'core/chat/fallback.py',
           'late_after_s < self.config.patience_s', 'late_after_s < 0',
           'core/chat/test_fallback.py'),
    Mutant('text-twice', 'core/chat/client.py',
           'if has_text or not attempts', 'if not attempts',
           'core/chat/test_client.py'),
    Mutant('sent-on-to-another-host', 'core/chat/client.py',
           'url.host == before.host and (', '(', 'core/chat/test_server_kinds.py'),
    Mutant('cut-at-its-limit', 'core/chat/protocol.py',
           '0 < self.reply_tokens < max_tokens', '0 < self.reply_tokens <= max_tokens',
           'core/chat/test_server_kinds.py core/chat/test_usage.py'),
    Mutant('overlap-of-boxes', 'core/perception/fusion.py',
           'common / union if', 'common / _area(one) if', 'core/perception/test_fusion.py'),
    Mutant('surest-first', 'core/perception/fusion.py',
           'sorted((each for each in sound if each), key=lambda one: -_score(one))',
           'filter(None, sound)',
           'core/perception/test_fusion.py'),
    Mutant('near-side-of-a-thing', 'core/perception/items.py',
           '(to_base + half_depth) / math', 'to_base / math',
           'core/perception/test_ranging.py'),
    Mutant('skipped-motion-swapped', 'core/perception/worker.py',
           'composed_motion(keyframe.motion, following.motion)',
           'composed_motion(following.motion, keyframe.motion)',
           'core/perception/test_worker.py'),
    Mutant('box-beyond-the-picture', 'core/perception/grounding.py',
           'min(left, top) >= -_OUTSIDE and max', 'max',
           'core/perception/test_grounding.py'),
    Mutant('misses-from-afar', 'core/scene/landmark_map.py',
           'far_m > 1.2 * record.farthest_m', 'far_m > 1e9',
           'core/scene/test_landmark_map.py'),
    Mutant('unclear-direction', 'core/scene/map_part.py',
           '_RAY_LEAD = 8.0, 3.0', '_RAY_LEAD = 8.0, 0.0', 'core/scene/test_landmark_map.py'),
    Mutant('gone-too-soon', 'core/scene/landmark_record.py',
           'least = 2 if self.empty == self.misses else 3', 'least = 1',
           'core/scene/test_landmark_map.py'),
    Mutant('cameras-out-of-step', 'core/scene/memory.py',
           'delta.stamp_ns < own.stamp_ns', 'delta.stamp_ns < self._deltas[-1].stamp_ns',
           'core/scene/test_memory.py'),
    Mutant('omitted-runs', 'core/scene/memory.py',
           'omitted += len(oldest)', 'omitted += 1', 'core/scene/test_memory.py'),
    Mutant('before-the-episode', 'core/scene/memory.py',
           'return not 0 < self._start_ns <= delta.stamp_ns', 'return False',
           'core/scene/test_live_memory.py'),
    Mutant('other-side', 'core/scene/tools.py',
           "'left' if off > 0 else 'right'", "'right' if off > 0 else 'left'",
           'core/scene/test_tools.py'),
    Mutant('nearest-as-farthest', 'core/scene/tools.py',
           'list(reversed(gaps)) if farthest else list(gaps)', 'list(gaps)',
           'core/scene/test_tools.py'),
    Mutant('freshness-of-what-is-left-out', 'core/reasoning/question.py',
           'deltas[answer.deltas_omitted :]', 'deltas', 'core/reasoning/test_freshness.py'),
    Mutant('two-answers', 'core/reasoning/completions.py',
           'max(opened, closed) == 1 and (', '(', 'core/reasoning/test_completions.py'),
    Mutant('share-among-options', 'core/reasoning/completions.py',
           'return shares[chosen] / total if', 'return shares[chosen] if',
           'core/reasoning/test_confidence.py'),
    Mutant('another-candidate', 'core/reasoning/gate.py',
           'if index >= 0 and candidates[index] != proposal.position', 'if False',
           'core/reasoning/test_gate.py'),
    Mutant('wait-of-the-operator', 'core/reasoning/gate.py',
           'if age_ns - case.waited_ns > allowed_s', 'if age_ns > allowed_s',
           'core/reasoning/test_gate.py'),
    Mutant('step-in-another-frame', 'core/reasoning/gate.py',
           '(_start(case), target(case))', '(_start(case), case.proposal.position)',
           'core/reasoning/test_gate.py'),
    Mutant('forgotten-since', 'core/reasoning/queue.py',
           'if self._has_forgotten(deltas)', 'if False', 'core/reasoning/test_queue.py'),
    Mutant('options-as-they-come', 'core/reasoning/prompts.py',
           '. {as_data(option)}', '. {option}', 'core/reasoning/test_prompts.py'),
    # bags
    Mutant('unpacked-beside-packed', 'bags/reader.py',
           '(file for file in files if file.stem not in names)', 'files',
           'bags/test_bags.py bags/test_field_recordings.py'),
    Mutant('rarer-type', 'bags/reader.py',
           'types.most_common(1)[0][0]', 'types.most_common()[-1][0]',
           'bags/test_bags.py bags/test_field_recordings.py'),
    Mutant('files-one-by-one', 'bags/storage.py',
           'waiting and (not heap or waiting[-1][0] <= heap[0][0])', 'waiting and not heap',
           'bags/test_bags.py bags/test_field_recordings.py'),
    Mutant('checksum-of-a-chunk', 'bags/storage.py',
           'if chunk.crc and zlib.crc32(data) != chunk.crc', 'if False', 'bags/test_damage.py'),
    Mutant('still-being-written', 'bags/recovery.py',
           '(after.st_size, after.st_mtime_ns) != (before.st_size, before.st_mtime_ns)', 'False',
           'bags/test_recovery.py'),
    Mutant('broken-file-thrown-away', 'bags/recovery.py',
           '            _keep(path)\n', '            pass\n', 'bags/test_recovery.py'),
    Mutant('pose-without-a-stamp', 'bags/poses.py',
           'stamp_ns = stamp_ns_from_msg(msg.header.stamp) or received_ns\n        pose',
           'stamp_ns = stamp_ns_from_msg(msg.header.stamp)\n        pose',
           'bags/test_poses.py bags/test_pose_frames.py'),
    Mutant('transforms-of-several', 'bags/poses.py',
           'if topics and len(moving) <= 1 else', 'if topics else',
           'bags/test_poses.py bags/test_pose_frames.py'),
    Mutant('red-for-blue', 'bags/images.py',
           "'bayer_rggb': (1, cv2.COLOR_BayerBG2BGR)", "'bayer_rggb': (1, cv2.COLOR_BayerRG2BGR)",
           'bags/test_field_cameras.py'),
    Mutant('bytes-of-deep-images', 'bags/images.py',
           "order = '>' if msg.is_bigendian else '<'", "order = '<'",
           'bags/test_raw_images.py bags/test_field_cameras.py'),
    Mutant('rate-of-a-video', 'bags/sources.py',
           'round(NS_PER_S / (rate_hz or _stated_rate_hz(capture) or DEFAULT_RATE_HZ))',
           'round(NS_PER_S / (_stated_rate_hz(capture) or DEFAULT_RATE_HZ))',
           'bags/test_sources.py'),
    Mutant('file-that-needs-the-first', 'bags/writer.py',
           'self._schemas.clear()', 'pass', 'bags/test_recording.py'),
    Mutant('half-a-bag', 'bags/writer.py', 'if kind is None:', 'if True:', 'bags/test_bags.py'),
    # data
    Mutant('test-share-in-validation', 'data/questions/splits.py',
           '< config.test_share + config.validation_share', '< config.validation_share',
           'data/questions/test_splits.py'),
    Mutant('finished-again', 'data/episodes/fleet.py',
           ' or recording.id in self._finished', '',
           'data/episodes/test_fleet.py'),
    Mutant('row-that-was-cut-off', 'data/episodes/fleet.py',
           "if self._file.read(1) != '\\n'", 'if False', 'data/episodes/test_fleet.py'),
    Mutant('first-end-of-an-episode', 'data/episodes/episode.py',
           'first_mark(marks[::-1], EpisodeEvent.STOP)', 'first_mark(marks, EpisodeEvent.STOP)',
           'data/episodes/test_episode.py'),
    Mutant('label-after-one-cut-off', 'data/episodes/labels.py',
           "start = b'\\n' if data and not data.endswith(b'\\n') else b''", "start = b''",
           'data/episodes/test_labels.py'),
    Mutant('place-in-the-camera', 'data/episodes/recall.py',
           'pose.rotation() @ np.asarray(item.position)', 'np.asarray(item.position)',
           'data/episodes/test_recall.py'),
    Mutant('letter-before-shuffling', 'data/questions/row.py',
           'letter(options.index(solution))', 'letter(draft.options.index(solution))',
           'data/questions/test_row.py data/questions/test_kinds.py'),
    Mutant('turn-beyond-half-a-circle', 'data/questions/indoor.py',
           '(angle_deg - centre + 180.0) % 360.0 - 180.0', 'angle_deg - centre',
           'data/questions/test_kinds.py'),
    Mutant('oldest-kept', 'data/episodes/perception_cache.py',
           'st_mtime_ns, reverse=True', 'st_mtime_ns', 'data/episodes/test_perception_cache.py'),
    # arm
    Mutant('camera-beside-the-robot', 'arm/task_frame.py',
           'aside > _MAX_ASIDE_RAD', 'aside > math.pi', 'arm/test_task_frame.py'),
    # training
    Mutant('consistency-of-nearly-right', 'training/run/rewards.py',
           'if accuracy == 1.0]', 'if accuracy > 0.0]', 'training/test_rewards.py'),
    Mutant('p-value-of-zero', 'training/eval/statistics.py',
           '(1 + reached) / (1 + _FLIPS)', 'reached / _FLIPS', 'training/test_statistics.py'),
)
# fmt: on


def main() -> int:
    """Try mutants; 1 where one survives."""
    parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
    parser.add_argument('names', nargs='*', metavar='NAME', help='of mutants; none: all')
    names = parser.parse_args().names
    if unknown := sorted(set(names) - {mutant.name for mutant in MUTANTS}):
        parser.error(f'no mutant is called {unknown[0]}')
    chosen = [mutant for mutant in MUTANTS if not names or mutant.name in names]
    survivors = 0
    with tempfile.TemporaryDirectory(prefix='mutants-') as scratch:
        tree = Path(scratch, 'tree')
        shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(*_NOT_COPIED))
        passed: dict[str, bool] = {}
        for mutant in chosen:
            if not passed.setdefault(mutant.tests, _run(tree, mutant.tests)[0] == _PASSED):
                parser.exit(2, f'{mutant.tests}: does not pass without a mutant\n')
            begin_s = time.monotonic()
            killer = _killer(tree, mutant)
            survivors += not killer
            row = f'{mutant.name:<30} {time.monotonic() - begin_s:5.1f} s  {killer or "SURVIVES"}'
            sys.stdout.write(f'{row}\n')
            sys.stdout.flush()
    sys.stdout.write(f'{len(chosen) - survivors} of {len(chosen)} mutants are killed\n')
    return int(survivors > 0)


def _killer(tree: Path, mutant: Mutant) -> str:
    """The test that fails with a mutant; empty: none does."""
    places = tree / 'embodied_r_ros' / mutant.file, tree / mutant.file
    file = next(place for place in places if place.exists())
    code = file.read_text()
    if code.count(mutant.text) != 1:
        msg = f'{mutant.name}: {mutant.file} does not have its text once'
        raise SystemExit(msg)
    file.write_text(code.replace(mutant.text, mutant.replacement))
    status, output = _run(tree, mutant.tests, keeps_bytecode=False)
    file.write_text(code)
    if status not in {_PASSED, _FAILED}:
        msg = f'{mutant.name}: pytest ended with {status}\n{output}'
        raise SystemExit(msg)
    failed = re.search(r'^(?:FAILED|ERROR) \S*::(\S+)', output, re.MULTILINE)
    return failed[1] if failed else 'a test' * status


def _run(tree: Path, tests: str, *, keeps_bytecode: bool = True) -> tuple[int, str]:
    """Exit code and output of pytest; compiled code of a mutant must not outlive it."""
    paths = [f'test/{name}' for name in tests.split()]
    command = [sys.executable, '-m', 'pytest', '-x', '-q', f'--timeout={_TEST_S}', *paths]
    own = {'PYTHONPATH': str(tree), 'PYTHONDONTWRITEBYTECODE': '' if keeps_bytecode else '1'}
    done = subprocess.run(
        command, cwd=tree, env=os.environ | own, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout


if __name__ == '__main__':
    sys.exit(main())
