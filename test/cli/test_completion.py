# SPDX-License-Identifier: Apache-2.0
"""Completion of the command line in bash, as a person's shell asks for it."""

from __future__ import annotations

from pathlib import Path
import shutil
import subprocess
import sys

from embodied_r_ros.cli.main import VERBS
import pytest

SCRIPTS = Path(sys.executable).parent
# What readline does on TAB, with the function that is registered for the command.
TAB = """
eval "$(register-python-argcomplete embodied-r)"
COMP_LINE="$1" COMP_POINT=${#1} COMP_TYPE=9 COMP_WORDS=($1)
[[ "$1" == *' ' ]] && COMP_WORDS+=('')
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_python_argcomplete embodied-r
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.mark.parametrize(
    ('line', 'offered'),
    [
        ('embodied-r ', set(VERBS)),
        ('embodied-r serve --only ', {'perceiver', 'reasoner'}),
    ],
)
def test_tab_offers_verbs_and_choices(line: str, offered: set[str]) -> None:
    bash = shutil.which('bash')
    if not bash or not (SCRIPTS / 'embodied-r').exists():
        pytest.skip('no bash, or no command embodied-r beside this Python')
    done = subprocess.run(
        [bash, '--norc', '-c', TAB, 'bash', line],
        env={'PATH': f'{SCRIPTS}:/usr/bin:/bin', 'HOME': '/nowhere'},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    words = {word.strip() for word in done.stdout.splitlines() if not word.startswith('-h')}
    assert words - {'--help'} == offered, done.stderr
