# SPDX-License-Identifier: Apache-2.0
"""Cards of datasets, as hubs of datasets read them: a head in YAML, then a text."""

from __future__ import annotations

from typing import Any, TYPE_CHECKING

from embodied_r_ros.common.files import package_version
import yaml

if TYPE_CHECKING:
    from collections.abc import Mapping

_LICENSE = (  # which recordings do not say
    'Licence: that of the recordings, which the command does not know. Put it into the head '
    'before you publish this.'
)


def dataset_card(
    title: str,
    text: str,
    head: Mapping[str, Any],
    columns: Mapping[str, str],
    counts: Mapping[str, int],
) -> str:
    """Card of a dataset.

    Args:
        title: Its first line.
        text: What it is, and what it was made of.
        head: What the head says beside the licence, such as `tags` and `configs`.
        columns: Type of each column, by its name.
        counts: What there is, and how often.
    """
    entries = yaml.safe_dump({'license': 'unknown', **head}, sort_keys=False, width=99)
    made = f'Made with embodied_r_ros {package_version()}'.strip()
    lines = [f'---\n{entries}---\n', f'# {title}\n', f'{text} {made}.\n', _LICENSE]
    lines += ['\n| what | count |', '|---|---|']
    lines += [f'| {name} | {count} |' for name, count in sorted(counts.items())]
    lines += ['\n| column | type |', '|---|---|']
    # A stroke would end the cell.
    lines += [f'| {name} | {kind.replace("|", "or")} |' for name, kind in columns.items()]
    return '\n'.join(lines) + '\n'
