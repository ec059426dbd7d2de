# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

pytest.importorskip('torch')
pytest.importorskip('trl')

from bench.__main__ import main


@pytest.mark.parametrize(
    ('name', 'option'),
    [('training', '--steps'), ('training', '--prompts')],
)
@pytest.mark.parametrize('count', ['0', '-1', 'some'])
def test_count_of_nothing_is_refused(
    name: str, option: str, count: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as refused:
        main([name, f'{option}={count}'])
    assert refused.value.code == 2
    assert f'{count!r} is not a count: give a whole number from 1 on' in capsys.readouterr().err
