# SPDX-License-Identifier: Apache-2.0
"""Interfaces of packages that are not installed here, compiled from their text for a test."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).resolve().parents[2]


def compiled_interfaces(folder: Path, packages: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Environment in which packages are there.

    Args:
        folder: For those that are not installed.
        packages: Text of each interface by its file, such as 'action/Go.action', by package. A
            package may use those before it.
    """
    spec = importlib.util.spec_from_file_location(
        'bootstrap', ROOT / 'requirements' / 'bootstrap.py'
    )
    assert spec
    assert spec.loader
    bootstrap = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(bootstrap)
    prefix = folder / 'installed'
    before: list[str] = []
    for name, files in packages.items():
        if importlib.util.find_spec(name):
            continue
        source = folder / name
        for file, text in files.items():
            (source / file).parent.mkdir(parents=True, exist_ok=True)
            (source / file).write_text(text)
        _write_build_files(source, before)
        bootstrap.build_interfaces(source, folder / 'build' / name, prefix)
        before.append(name)
    site_packages = prefix / bootstrap.site_packages().relative_to(bootstrap.VENV)
    paths = {
        'PYTHONPATH': [str(site_packages), str(ROOT)],
        'LD_LIBRARY_PATH': [str(prefix / 'lib')],
    }
    return os.environ | {
        name: ':'.join([*values, os.environ.get(name, '')]).strip(':')
        for name, values in paths.items()
    }


def _write_build_files(source: Path, others: list[str]) -> None:
    """Write the files that build a package, as ours has them."""
    found = (ROOT / 'embodied_r_msgs' / 'CMakeLists.txt').read_text()
    found = re.sub(r'^install\(FILES .*\n', '', found, flags=re.MULTILINE)
    wanted = ['std_msgs', *others]
    packages = ''.join(f'find_package({name} REQUIRED)\n' for name in wanted)
    found = found.replace('find_package(std_msgs REQUIRED)\n', packages)
    found = found.replace('sensor_msgs std_msgs\n', f'sensor_msgs {" ".join(wanted)}\n')
    manifest = (ROOT / 'embodied_r_msgs' / 'package.xml').read_text()
    depends = ''.join(f'  <depend>{name}</depend>\n' for name in wanted)
    manifest = manifest.replace('  <depend>std_msgs</depend>\n', depends)
    for name, text in (('CMakeLists.txt', found), ('package.xml', manifest)):
        (source / name).write_text(text.replace('embodied_r_msgs', source.name))
