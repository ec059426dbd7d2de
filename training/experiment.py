# SPDX-License-Identifier: Apache-2.0
"""Rerun an experiment: `python -m training.experiment --config FILE`.

Writes report.json and report.html, a page without scripts, into the experiment's folder. What
models said and perceivers saw is kept, so that an experiment that was cut off goes on.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
import sys
from typing import Any, TYPE_CHECKING

from embodied_r_ros.common.errors import EmbodiedRError, InputError

from training.experiments import keyframes, models, perception
from training.experiments.config import (
    ExperimentConfig,
    KeyframesConfig,
    ModelsConfig,
    PerceptionConfig,
    read_experiment,
)
from training.run.command import write_text

if TYPE_CHECKING:
    from collections.abc import Sequence

_MODULES: dict[type[ExperimentConfig], Any] = {
    KeyframesConfig: keyframes,
    ModelsConfig: models,
    PerceptionConfig: perception,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run an experiment, write its report, and print it in short."""
    parser = argparse.ArgumentParser(prog='training.experiment', description=__doc__)
    parser.add_argument('--config', required=True, type=Path, metavar='FILE')
    args = parser.parse_args(arguments)
    try:
        config = read_experiment(args.config)
        kind = _MODULES[type(config)]
        report = kind.run(config)
        out = Path(config.out)
        write_text(out / 'report.json', json.dumps(report, indent=2) + '\n')
        write_text(out / 'report.html', kind.page(report))
    except EmbodiedRError as error:
        sys.stderr.write(f'training.experiment: error: {error}\n')
        return 2 if isinstance(error, InputError) else 1
    sys.stdout.write(f'{kind.text(report)}\n{out / "report.html"}\n')
    return 0


if __name__ == '__main__':
    sys.exit(main())
