# SPDX-License-Identifier: Apache-2.0
"""The rooms of the package stand in the order of the pipeline, and nothing imports upward."""

from __future__ import annotations

import ast
from collections import defaultdict
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
import subprocess
import sys
from typing import Any, TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = 'embodied_r_ros'
SAMPLE = ROOT / 'samples' / 'indoor' / 'episode_00000'

# Each room imports only from rooms above it; `core` is ordered within.
ROOMS = (
    'common', 'core.types', 'core.keyframes', 'core.chat', 'core.perception', 'core.scene',
    'core.reasoning', 'core.pipeline', 'bags', 'serving', 'data', 'apps', 'arm',
)  # fmt: skip
# These import from all of them, and from one another only as listed.
OUTER_ROOMS = {'sim': set(), 'nodes': set(), 'cli': {'nodes', 'sim'}}


CORE_LIBRARIES = {
    'safetensors', 'tokenizers',
    'numpy', 'cv2', 'yaml', 'rosbags', 'mcap', 'lz4', 'backports', 'compression', 'httpx',
    'httpx_sse', 'tqdm', 'scipy', 'starlette', 'uvicorn',
}  # fmt: skip
# Optional extras: imported in functions that say what to install.
EXTRA_LIBRARIES = {
    'yourdfpy', 'pyarrow', 'av', 'onnxruntime', 'ai_edge_litert', 'fsspec',
    'ray', 'mcp', 'pydantic', 'huggingface_hub', 'xllamacpp',
}  # fmt: skip
SIM_LIBRARIES = {'mujoco', 'metaworld', 'gymnasium'}
MODEL_LIBRARIES = {
    'torch', 'transformers', 'trl', 'peft', 'datasets', 'vllm', 'training', 'mujoco',
}  # fmt: skip
# A shorter module with one importer belongs into that one; verbs and nodes have none.
FRAGMENT_LINES = 60
# What reads a clock or draws unseeded numbers; monotonic clocks serve deadlines only.
CLOCKS = {'time.time', 'time.time_ns', 'datetime.now', 'datetime.utcnow', 'np.random.rand'}


def room(module: str) -> str:
    """Name the room that a module of the package belongs to."""
    parts = module.split('.')
    if len(parts) > 2 and parts[1] == 'core':
        return f'core.{parts[2]}'
    return parts[1] if len(parts) > 1 else ''


def module_name(path: Path, root: Path) -> str:
    """Name the module of a source file."""
    return '.'.join(path.relative_to(root).with_suffix('').parts)


def imports(tree: ast.AST) -> set[str]:
    """List the full names of all imports, those in functions and under TYPE_CHECKING included."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.update(f'{node.module}.{alias.name}' for alias in node.names)
    return names


@cache
def imports_of(path: Path) -> set[str]:
    """List the full names of all imports of a file."""
    return imports(ast.parse(path.read_text()))


def imports_at_start(path: Path) -> set[str]:
    """List the libraries that a file imports outside of its functions."""
    tree = ast.parse(path.read_text())
    inner = ast.FunctionDef | ast.ClassDef
    tree.body = [node for node in tree.body if not isinstance(node, inner)]
    return {name.split('.')[0] for name in imports(tree)}


def is_ros(name: str) -> bool:
    """Tell whether a module belongs to ROS."""
    top = name.split('.')[0]
    return top.endswith('_msgs') or top in {
        'ament_index_python', 'builtin_interfaces', 'cv_bridge', 'launch', 'launch_ros', 'rclpy',
        'rosbag2_py', 'std_srvs',
    }  # fmt: skip


def rooms_above(name: str) -> set[str]:
    """List the rooms from which a room may import."""
    if name in OUTER_ROOMS:
        return {name, *ROOMS} | OUTER_ROOMS[name]
    return set(ROOMS[: ROOMS.index(name) + 1])


def upward_imports(path: Path, root: Path = ROOT) -> list[str]:
    """List the imports of a file that lead to a room below its own."""
    above = rooms_above(room(module_name(path, root)))
    names = {n for n in imports_of(path) if n.startswith(f'{PACKAGE}.')}
    return sorted(name for name in names if room(name) not in above)


def foreign_libraries(path: Path) -> list[str]:
    """List the libraries that a file of a room may not import."""
    where = room(module_name(path, ROOT))
    names = {name.split('.')[0] for name in imports_of(path)}
    others = {n for n in names if n not in sys.stdlib_module_names and n != PACKAGE}
    if where == 'nodes':
        return sorted(others & MODEL_LIBRARIES)
    if where == 'cli':
        return sorted(name for name in others if is_ros(name))
    allowed = CORE_LIBRARIES | (SIM_LIBRARIES if where == 'sim' else set())
    return sorted(others - allowed - (EXTRA_LIBRARIES - imports_at_start(path)))


SOURCES = sorted(
    path
    for path in (ROOT / PACKAGE).rglob('*.py')
    if path.parent.name not in {PACKAGE, 'core'} or path.name != '__init__.py'
)
TRAINING = sorted((ROOT / 'training').rglob('*.py'))
CORE = [path for path in SOURCES if room(module_name(path, ROOT)) in ROOMS]


def test_every_folder_is_a_room() -> None:
    folders = {path.parent for path in (ROOT / PACKAGE).glob('*/__init__.py')}
    folders |= {path.parent for path in (ROOT / PACKAGE / 'core').glob('*/__init__.py')}
    names = {module_name(path, ROOT / PACKAGE) for path in folders}
    assert names == {*ROOMS, *OUTER_ROOMS, 'core'} - {'core.pipeline'}


def offenders(paths: list[Path], faults: Callable[[Path], Collection[str]]) -> dict[str, Any]:
    """The files that have faults, with these."""
    return {str(path.relative_to(ROOT)): found for path in paths if (found := faults(path))}


def test_nothing_imports_upward() -> None:
    assert offenders(SOURCES, upward_imports) == {}


def test_rooms_import_their_own_libraries_alone() -> None:
    assert offenders(SOURCES, foreign_libraries) == {}


def test_training_knows_no_ros_nodes_and_commands() -> None:
    rooms = (f'{PACKAGE}.nodes', f'{PACKAGE}.cli')

    def of_ros(path: Path) -> list[str]:
        return [name for name in imports_of(path) if is_ros(name) or name.startswith(rooms)]

    assert offenders(TRAINING, of_ros) == {}


def loaded_by(*arguments: str) -> list[str]:
    """The modules of the package, empty ones left out, that a command has loaded at its end."""
    code = (
        'import sys; from embodied_r_ros.cli.main import main; main(sys.argv[1:]); '
        'print(*(n for n, m in sys.modules.items() if n.startswith("embodied_r_ros.")'
        ' and not hasattr(m, "__path__")), file=sys.stderr)'
    )
    command = [sys.executable, '-c', code, *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)
    return done.stderr.splitlines()[-1].split()


@pytest.mark.parametrize(
    ('most', 'arguments'),
    [(71, ['perceive', str(SAMPLE), '--json']), (40, ['episodes', 'list', str(SAMPLE)])],
)
def test_a_command_loads_what_it_needs_and_no_arm(most: int, arguments: list[str]) -> None:
    modules = loaded_by(*arguments)
    assert len(modules) <= most, modules
    assert not [name for name in modules if name.startswith('embodied_r_ros.arm')]


# The parts of the arm. `data.arm_room`, `nodes.spatial_reasoner` and two verbs load them by name.
OF_ARM = ('arm', 'nodes.arm', 'sim.arm', 'cli.arm')


def test_nobody_else_imports_the_arm() -> None:
    parts = tuple(f'{PACKAGE}.{name}' for name in OF_ARM)
    found = {
        module_name(path, ROOT / PACKAGE)
        for path in SOURCES
        if any(name.startswith(parts) for name in imports_of(path))
    }
    assert {name for name in found if not name.startswith(OF_ARM)} == set()


def importers() -> dict[str, set[str]]:
    """Which modules import each module, those of tests left out."""
    folders = (PACKAGE, 'training', 'bench', 'examples', 'launch')
    found: dict[str, set[str]] = defaultdict(set)
    for path in [path for folder in folders for path in (ROOT / folder).rglob('*.py')]:
        for name in imports_of(path):
            # Of `from package.module import name` the module; of `import module` the whole.
            for module in {name, name.rpartition('.')[0]} - {module_name(path, ROOT)}:
                found[module].add(module_name(path, ROOT))
    return found


def test_no_fragment_stands_apart_from_the_only_module_that_imports_it() -> None:
    found = importers()
    fragments = {
        module_name(path, ROOT): found[module_name(path, ROOT)]
        for path in [*SOURCES, *TRAINING]
        if path.name != '__init__.py' and len(path.read_text().splitlines()) < FRAGMENT_LINES
    }
    assert {name: where for name, where in fragments.items() if len(where) == 1} == {}


def test_rooms_form_no_circle() -> None:
    graph: dict[str, set[str]] = defaultdict(set)
    for path in SOURCES:
        names = imports_of(path)
        own = room(module_name(path, ROOT))
        graph[own] |= {room(n) for n in names if n.startswith(f'{PACKAGE}.')} - {own, ''}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f'rooms import one another: {error.args[1]}')


def test_no_two_public_classes_share_a_name() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    beside = [path for folder in ('bench', 'examples') for path in (ROOT / folder).rglob('*.py')]
    for path in SOURCES + TRAINING + beside:
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith('_'):
                places[node.name].append(str(path.relative_to(ROOT)))
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def clocks_and_unseeded_numbers(path: Path) -> set[str]:
    """The calls of a file that read a clock or draw unseeded numbers."""
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
    return (calls & CLOCKS) | unseeded


def test_core_reads_no_clock_and_draws_no_unseeded_numbers() -> None:
    assert offenders(CORE, clocks_and_unseeded_numbers) == {}


def test_an_upward_import_is_found_under_type_checking_too(tmp_path: Path) -> None:
    path = tmp_path / PACKAGE / 'core' / 'reasoning' / 'prompts.py'
    path.parent.mkdir(parents=True)
    path.write_text(
        'from typing import TYPE_CHECKING\n'
        'from embodied_r_ros.core.types.deltas import SemanticDelta\n'
        'if TYPE_CHECKING:\n'
        '    from embodied_r_ros.arm.robot import Robot\n'
    )
    assert upward_imports(path, tmp_path) == ['embodied_r_ros.arm.robot.Robot']


_MOST_BYTES = 1_000_000
# What is shipped; models of stages in between, and larger files elsewhere, are in no commit.
_LARGE = {
    'models/arm/gguf/arm.gguf', 'models/arm/model.safetensors', 'models/reader/reader.gguf',
    'samples/indoor/episode_00000/episode_00000.mcap',
}  # fmt: skip


def large_files(root: Path) -> set[str]:
    """Files under version control that have more than a megabyte."""
    command = ('git', '-C', str(root), 'ls-files', '-z')
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    names = [name for name in done.stdout.split('\0') if (root / name).is_file()]
    return {name for name in names if (root / name).stat().st_size > _MOST_BYTES}


@pytest.mark.skipif(not (ROOT / '.git').exists(), reason='no clone: nothing is under git here')
def test_only_what_is_shipped_is_large() -> None:
    assert large_files(ROOT) == _LARGE


def test_a_large_file_is_found(tmp_path: Path) -> None:
    (tmp_path / 'stage.safetensors').write_bytes(bytes(_MOST_BYTES + 1))
    for words in (['init', '-q'], ['add', '.']):
        subprocess.run(['git', '-C', str(tmp_path), *words], check=True)
    assert large_files(tmp_path) == {'stage.safetensors'}


# Lines of code that a room may have: more than what it has now only where something else goes.
# Two visits to a place (joining, changes, their page, bench and rendered pairs) added 950.
# A running robot that finds itself in its old maps added 410, and took 25 from `data`.
# Labels that teach at once and what changed since a visit added 240; reading lost 270, cuts 1,000.
_MOST_LINES = {
    'common': 402, 'core': 18_095, 'bags': 4_700, 'serving': 1_290, 'data': 5_897, 'apps': 3_040,
    'arm': 3_495, 'sim': 2_795, 'nodes': 5_580, 'cli': 1_985, 'training': 4_620, 'bench': 3_820,
}  # fmt: skip

_DOCUMENTED = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def code_lines(path: Path) -> int:
    """Lines of a file without blanks, comments, docstrings and imports."""
    text, left_out = path.read_text(), set[int]()
    for node in ast.walk(ast.parse(text)):
        is_import = isinstance(node, (ast.Import, ast.ImportFrom))
        body = getattr(node, 'body', None)
        has_docstring = isinstance(body, list) and isinstance(node, (ast.Module, *_DOCUMENTED))
        first = node if is_import else body[0] if has_docstring and body else None
        is_text = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
        if isinstance(first, ast.stmt) and (is_import or is_text):
            left_out.update(range(first.lineno, (first.end_lineno or 0) + 1))
    lines = enumerate(map(str.strip, text.splitlines()), 1)
    return sum(bool(line) and line[0] != '#' and at not in left_out for at, line in lines)


def test_rooms_stay_as_small_as_they_are() -> None:
    counts: dict[str, int] = defaultdict(int)
    beside = [path for folder in ('training', 'bench') for path in (ROOT / folder).rglob('*.py')]
    for path in [*SOURCES, *beside]:
        parts = path.relative_to(ROOT).parts
        counts[parts[1] if parts[0] == PACKAGE else parts[0]] += code_lines(path)
    assert {room: n for room, n in counts.items() if n > _MOST_LINES.get(room, n)} == {}


def test_lines_of_code_are_counted(tmp_path: Path) -> None:
    path = tmp_path / 'module.py'
    text = '"""Text."""\nimport ast\n\n\n# Why.\ndef f():\n    """Text\n    on."""\n    return 1\n'
    path.write_text(text)
    assert code_lines(path) == 2
