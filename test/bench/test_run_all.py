# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import TYPE_CHECKING

from bench import __main__ as benches

if TYPE_CHECKING:
    import pytest


def test_a_bench_that_breaks_takes_no_other_with_it(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(benches.BENCHES, 'none', 'there is no such module')
    assert benches.run_all(['none', 'none']) == 1
    text = capfd.readouterr().out
    assert text.count('none: there is no such module') == 2
    assert '\nnone' in text.partition('exit code')[2]
    assert benches.run_all([]) == 0
