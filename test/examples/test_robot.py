# SPDX-License-Identifier: Apache-2.0
"""A robot that runs takes a promoted model and goes back, while its nodes stay as they are."""

from __future__ import annotations

from itertools import groupby
import shutil
from typing import TYPE_CHECKING

import pytest

pytest.importorskip('rclpy')
pytest.importorskip('torch')

from embodied_r_ros.bags.reader import open_bag, read_messages
from embodied_r_ros.chat.settings import model_digest
from embodied_r_ros.common.files import shared_path
from embodied_r_ros.questions.row import write_rows
from embodied_r_ros.serving.promotion import in_force
from safetensors.torch import load_file, save_file
import torch

from examples.children import run_child
from examples.robot import running
from test.training.test_evaluate import ROWS

if TYPE_CHECKING:
    from pathlib import Path

START = shared_path('models', 'arm')
SAMPLE = shared_path('samples', 'indoor', 'episode_00000')
LIMIT_S = 600.0


@pytest.fixture
def candidate(tmp_path: Path) -> Path:
    """The shipped model with noise in its weights that changes hardly anything it says."""
    folder = tmp_path / 'candidate'
    shutil.copytree(START, folder)
    weights = load_file(folder / 'model.safetensors')
    generator = torch.Generator().manual_seed(0)
    noisy = {
        name: value + 1e-6 * torch.randn(value.shape, generator=generator).to(value.dtype)
        for name, value in weights.items()
    }
    save_file(noisy, folder / 'model.safetensors', metadata={'format': 'pt'})
    return folder


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_nodes_that_run_answer_with_what_is_promoted_and_rolled_back(
    tmp_path: Path, candidate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv('ROS_DOMAIN_ID', '0')  # the robot takes its own; this restores ours
    start, new = model_digest(START), model_digest(candidate)
    assert start != new
    out, slot = tmp_path / 'out', tmp_path / 'slot'
    (out / 'logs').mkdir(parents=True)
    write_rows(tmp_path / 'rows.jsonl', ROWS)
    words = ['training.promote', str(candidate), '--rows', str(tmp_path / 'rows.jsonl')]
    words += ['--profile', 'embedded-arm', '--latency-rows', '0', '--cache', 'none']
    # It answers as the start does: the gate is tested elsewhere.
    words += ['--min-format', '0', '--min-gain', '-1']
    said: list[str] = []
    with running(SAMPLE, out, slot, START, said.append) as robot:
        assert robot.answer_of(start).model.digest == start
        run_child([*words, '--slot', str(slot)], tmp_path / 'promote.log', LIMIT_S)
        assert in_force(slot)
        assert robot.answer_of(new).model.digest == new
        back = ['training.promote', '--rollback', '--slot', str(slot)]
        run_child(back, tmp_path / 'rollback.log', LIMIT_S)
        assert robot.answer_of(start).model.digest == start
    with open_bag(out / 'bag') as reader:
        answers = [msg for _, _, msg in read_messages(reader, ['/answer'])]
    spoke = [digest for digest, _ in groupby(msg.model.digest for msg in answers if msg.text)]
    assert spoke == [start, new, start]
