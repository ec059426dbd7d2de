# SPDX-License-Identifier: Apache-2.0
"""Rerun an experiment: `python -m training.experiment --config FILE`.

Writes report.json and report.html, a page without scripts, into the experiment's folder. What
models said is kept, so that an experiment that was cut off goes on.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
import sys
from typing import TYPE_CHECKING

from embodied_r_ros.common.files import write_whole

from training.experiments import models
from training.experiments.config import read_experiment
from training.run.command import run_command

if TYPE_CHECKING:
    from collections.abc import Sequence


def _run(args: argparse.Namespace) -> int:
    config = read_experiment(args.config)
    report = models.run(config)
    out = Path(config.out)
    write_whole(out / 'report.json', json.dumps(report, indent=2) + '\n', makes_folder=True)
    write_whole(out / 'report.html', models.page(report), makes_folder=True)
    sys.stdout.write(f'{models.text(report)}\n{out / "report.html"}\n')
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run an experiment, write its report, and print it in short."""
    parser = argparse.ArgumentParser(prog='training.experiment', description=__doc__)
    parser.add_argument('--config', required=True, type=Path, metavar='FILE')
    return run_command(parser, _run, arguments)


if __name__ == '__main__':
    sys.exit(main())
