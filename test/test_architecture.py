# SPDX-License-Identifier: Apache-2.0
"""Dependencies point one way: launch -> nodes -> core <- sim, training, cli."""

from __future__ import annotations

import ast
from pathlib import Path
import re
import sys

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / 'embodied_r_ros'

# What core may import besides the standard library and itself.
CORE_LIBRARIES = {'numpy', 'cv2', 'yaml', 'rosbags', 'mcap', 'lz4', 'httpx', 'tqdm'}
# Optional extras: imported in functions, which tell what to install.
EXTRA_LIBRARIES = {'yourdfpy', 'pyarrow', 'av'}
SIM_LIBRARIES = CORE_LIBRARIES | {'mujoco', 'metaworld', 'gymnasium'}
# What says 'now' or draws unseeded numbers; monotonic clocks serve deadlines only.
CLOCKS = {'time.time', 'time.time_ns', 'datetime.now', 'datetime.utcnow', 'np.random.rand'}


def layer(path: Path) -> str:
    """Name the layer that a source file belongs to."""
    parts = path.relative_to(ROOT).parts
    if parts[0] != 'embodied_r_ros':
        return parts[0]
    return parts[1] if parts[1] in {'nodes', 'sim', 'cli'} else 'core'


def imports(path: Path) -> set[str]:
    """List the full names of all modules that a file imports, also inside functions."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.update(f'{node.module}.{alias.name}' for alias in node.names)
    return names


def imported_at_start(path: Path) -> set[str]:
    """List the libraries that a file imports outside of its functions."""
    tree = ast.parse(path.read_text())
    inner = ast.FunctionDef | ast.ClassDef
    tree.body = [node for node in tree.body if not isinstance(node, inner)]
    names = {alias.name for n in ast.walk(tree) if isinstance(n, ast.Import) for alias in n.names}
    names |= {n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.module}
    return {name.split('.')[0] for name in names}


def is_ros(name: str) -> bool:
    """Tell whether a module belongs to ROS."""
    top = name.split('.')[0]
    return top.endswith('_msgs') or top in {
        'ament_index_python',
        'builtin_interfaces',
        'cv_bridge',
        'launch',
        'launch_ros',
        'rclpy',
        'rosbag2_py',
        'std_srvs',
        'tf2_ros',
    }


def upward(name: str, layers: tuple[str, ...]) -> bool:
    """Tell whether a module lies in one of the package's layers named."""
    return any(name.startswith(f'embodied_r_ros.{layer}.') for layer in layers)


def violations(path: Path) -> list[str]:
    """List the imports of a file that turn an arrow round."""
    names = imports(path)
    where = layer(path)
    third_party = {
        name
        for name in names
        if name.split('.')[0] not in sys.stdlib_module_names
        and not name.startswith(('embodied_r_ros', '__future__'))
    }
    if where in {'core', 'sim'}:
        allowed = SIM_LIBRARIES if where == 'sim' else CORE_LIBRARIES
        allowed = allowed | (EXTRA_LIBRARIES - imported_at_start(path))
        bad = {name for name in third_party if name.split('.')[0] not in allowed}
        above = ('nodes', 'cli') if where == 'sim' else ('nodes', 'cli', 'sim')
        return sorted(bad | {name for name in names if upward(name, above)})
    if where == 'nodes':
        heavy = {'torch', 'transformers', 'trl', 'peft', 'datasets', 'vllm', 'training', 'mujoco'}
        bad = {name for name in third_party if name.split('.')[0] in heavy}
        return sorted(bad | {name for name in names if upward(name, ('cli', 'sim'))})
    if where in {'training', 'cli'}:
        return sorted(
            name
            for name in names
            if is_ros(name) or (where == 'training' and upward(name, ('nodes', 'cli')))
        )
    return []


SOURCES = sorted(PACKAGE.rglob('*.py')) + sorted((ROOT / 'training').rglob('*.py'))


@pytest.mark.parametrize('path', SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_arrow_turns_round(path: Path) -> None:
    assert violations(path) == []


@pytest.mark.parametrize(
    'path', [path for path in SOURCES if layer(path) == 'core'], ids=lambda path: path.stem
)
def test_core_reads_no_clock_and_no_unseeded_dice(path: Path) -> None:
    calls = {
        ast.unparse(node.func)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
    }
    unseeded = {
        call
        for call in calls
        if call.startswith(('np.random.', 'random.'))
        and call not in {'np.random.default_rng', 'random.Random'}
    }
    assert (calls & CLOCKS) | unseeded == set()


def test_a_turned_arrow_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], 'ROOT', tmp_path)
    path = tmp_path / 'embodied_r_ros' / 'keyframes.py'
    path.parent.mkdir()
    path.write_text('import rclpy\nfrom embodied_r_ros.nodes import qos\nimport numpy\n')
    assert violations(path) == ['embodied_r_ros.nodes.qos', 'rclpy']


def test_the_tree_in_the_guide_lists_every_source() -> None:
    guide = (ROOT / 'CONTRIBUTING.md').read_text()
    listed: dict[str, set[str]] = {}
    for section in re.split(r'\n\s*\n', guide.partition('## The tree')[2].strip()):
        folder, *lines = section.splitlines()
        listed[folder.split()[0].rstrip('/')] = {
            line.split()[0] for line in lines if line[:2] == '  '
        }
    others = [path for folder in ('bench', 'examples') for path in (ROOT / folder).glob('*.py')]
    missing = [
        str(path.relative_to(ROOT))
        for path in (*SOURCES, *sorted(others))
        if path.name != '__init__.py'
        and path.name not in listed.get(str(path.parent.relative_to(ROOT)), set())
    ]
    assert missing == []
