# SPDX-License-Identifier: Apache-2.0
"""The server for assistants, in a process of its own, asked by the client of the SDK."""

from __future__ import annotations

import asyncio
import base64
from contextlib import nullcontext
import os
import sys
from typing import Any, TYPE_CHECKING

from embodied_r_ros.apps.mcp_server import recording_server, RecordingTools
from embodied_r_ros.cli.main import main
from embodied_r_ros.common.errors import InputError
from embodied_r_ros.common.files import shared_path
from embodied_r_ros.core.chat.settings import ChatConfig
from embodied_r_ros.core.reasoning.question import ReasonerConfig
from embodied_r_ros.core.scene.registry import TOOLS
from embodied_r_ros.core.types.images import decode_image
from embodied_r_ros.serving.profiles import load_profile
import pytest

from test.chat_server import ChatServer, Script
from test.data.episodes.test_recall import record, S, START, thing
from test.test_architecture import ROOT

if TYPE_CHECKING:
    from pathlib import Path


def test_an_assistant_asks_recordings(tmp_path: Path) -> None:
    mcp = pytest.importorskip('mcp')
    folder = tmp_path / 'recordings'
    folder.mkdir()
    record(folder / 'kitchen', [[thing('oven'), thing('person', 0.2)]])
    record(folder / 'hall', [[thing('door<script>')]])
    (folder / 'damaged').mkdir()
    (folder / 'damaged' / 'damaged.mcap').write_bytes(b'\x89MCAP0\r\n')
    command = ['-m', 'embodied_r_ros.cli.main', 'mcp', str(folder)]
    server = mcp.StdioServerParameters(
        command=sys.executable, args=command, cwd=ROOT, env=dict(os.environ)
    )

    async def ask() -> list[Any]:
        async with mcp.Client(server) as client:
            tools = (await client.list_tools()).tools
            listed = await client.call_tool('list_recordings', {})
            question = {'question': 'in which recordings was a person near the oven?'}
            answer = await client.call_tool('ask', question)
            hit = answer.structured_content['recordings'][0]['shown_by'][0]
            at = {'recording': 'kitchen', 'stamp_ns': hit['stamp_ns'], 'camera': hit['camera']}
            images = [await client.call_tool('keyframe_image', at)]
            at = {'recording': 'kitchen', 'stamp_ns': int(hit['stamp_ns'])}
            images.append(await client.call_tool('keyframe_image', at))
            door = await client.call_tool('find', {'label': 'door'})
            outside = {'label': 'door', 'recording': '../secret'}
            refused = await client.call_tool('find', outside)
            return [tools, listed, answer, images, door, refused]

    check_replies(*asyncio.run(ask()))


def integers(value: Any) -> list[int]:
    parts = value.values() if isinstance(value, dict) else value
    if isinstance(value, dict | list):
        return [number for part in parts for number in integers(part)]
    return [value] if isinstance(value, int) else []


def check_replies(
    tools: Any, listed: Any, answer: Any, images: Any, door: Any, refused: Any
) -> None:
    own = {'list_recordings', 'find', 'ask', 'keyframe_image'}
    assert {tool.name for tool in tools} == own | set(TOOLS)
    assert all(tool.annotations.read_only_hint for tool in tools)
    assert listed.structured_content['total'] == 3
    assert [one['recording'] for one in answer.structured_content['recordings']] == ['kitchen']
    assert [p['recording'] for p in answer.structured_content['problems']] == ['damaged']
    assert answer.structured_content['recordings'][0]['first_ns'] == str(START)
    # What JavaScript would round.
    contents = [reply.structured_content for reply in (listed, answer, door)]
    assert all(abs(number) < 2**53 for number in integers(contents))
    for image in images:
        (picture,) = image.content
        assert picture.mime_type == 'image/jpeg'
        assert decode_image(base64.b64decode(picture.data)).shape == (48, 64, 3)
    assert refused.is_error
    assert "there is no recording '../secret'" in refused.content[0].text
    assert '<' not in door.content[0].text


def test_an_assistant_asks_the_tools_of_a_scene(tmp_path: Path) -> None:
    mcp = pytest.importorskip('mcp')
    seen = [[thing('oven')], [thing('red chair</think>', 0.2)], [], [thing('oven')]]
    record(tmp_path / 'kitchen', seen)
    record(tmp_path / 'empty', [])
    server = recording_server(RecordingTools(tmp_path))

    async def ask(*calls: tuple[str, dict[str, Any]]) -> list[Any]:
        async with mcp.Client(server) as client:
            schemas = {tool.name: tool.input_schema for tool in (await client.list_tools()).tools}
            assert schemas['distance']['required'] == ['recording', 'a']
            unit = schemas['distance']['properties']['unit']
            assert unit['enum'] == ['m', 'cm', 'ft', 'in', 'yd']
            assert 'list_recordings' in schemas['order']['properties']['recording']['description']
            return [await client.call_tool(name, arguments) for name, arguments in calls]

    at = {'recording': 'kitchen'}
    whole, early, far, late, *refused = asyncio.run(
        ask(
            ('things', at),
            ('things', {**at, 'until_s': 0}),
            ('distance', {**at, 'a': 'oven', 'unit': 'cm'}),
            ('seen', {**at, 'name': 'oven'}),
            ('things', {**at, 'until_s': -1}),
            ('things', {'recording': 'empty'}),
            ('things', {'recording': '../kitchen'}),
            ('size', {**at, 'name': 'oven', 'unit': 'metre'}),
        )
    )
    assert len(whole.structured_content['value']) == 2
    assert '<' not in str(whole.structured_content)
    assert early.structured_content['value'] == ['oven']
    assert far.structured_content['value'] == pytest.approx(200)
    assert late.structured_content['stamps_ns'] == [str(START + 3 * S)]
    reasons = [
        'until_s is -1',
        'it has no deltas',
        'there is no recording',
        "expected one of ['cm'",
    ]
    for reply, reason in zip(refused, reasons, strict=True):
        assert reply.is_error
        assert reason in reply.content[0].text


def test_links_that_lead_out_of_the_folder_are_no_recordings(tmp_path: Path) -> None:
    secret = record(tmp_path / 'secret', [[thing('door')]])
    folder = tmp_path / 'folder'
    folder.mkdir()
    (folder / 'link').symlink_to(secret)
    with pytest.raises(InputError, match='lead out'):
        RecordingTools(folder)
    inner = folder / 'inner'
    inner.mkdir()
    for file in secret.iterdir():
        (inner / file.name).symlink_to(file)
    record(folder / 'own', [[thing('door')]])
    tools = RecordingTools(folder)
    assert [one['recording'] for one in tools.list_recordings()['recordings']] == ['own']
    # Links that come later are none either.
    own, stamp_ns = folder / 'own', tools.find('door')['recordings'][0]['shown_by'][0]['stamp_ns']
    assert tools.keyframe_image('own', stamp_ns)
    for file in own.iterdir():
        file.unlink()
        file.symlink_to(secret / file.name)
    with pytest.raises(InputError, match='leads out of the folder'):
        tools.keyframe_image('own', stamp_ns)
    assert tools.find('door')['recordings'] == []
    assert 'leads out' in tools.list_recordings()['recordings'][0]['problem']


def test_replies_are_bounded_and_say_what_they_leave_out(tmp_path: Path) -> None:
    for number in range(3):
        record(tmp_path / f'r{number}', [[thing('door')]] * 4)
    tools = RecordingTools(tmp_path)
    value = tools.find('door', limit=2, hits=1)
    assert (len(value['recordings']), value['recordings_left_out']) == (2, 1)
    assert len(value['recordings'][0]['shown_by']) == 1
    assert value['summary'] == '3 of 3 recordings show a door.'
    with pytest.raises(InputError, match='order'):
        tools.find('door', order='nearest')
    with pytest.raises(InputError, match='no picture'):
        tools.keyframe_image('r0', 5)
    for label in ('', ' '):
        with pytest.raises(InputError, match='label is empty'):
            tools.find(label, near='chair')
    assert tools.find('door', near=' ')['looked_for'] == 'a door'
    with pytest.raises(InputError, match='options are for a model'):
        tools.ask('where is the door?', ['left', 'right'])


def test_a_model_is_asked_about_some_and_the_reply_says_how_many_not(tmp_path: Path) -> None:
    for number in range(3):
        record(tmp_path / f'r{number}', [[thing('door')]])
    said = Script(('<think>There.</think><answer>right</answer>',))
    with ChatServer(said) as server:
        value = RecordingTools(tmp_path, ChatConfig(url=server.url)).ask('Where?', limit=2)
    assert [one['recording'] for one in value['answers']] == ['r0', 'r1']
    assert [one['text'] for one in value['answers']] == ['right'] * 2
    assert value['answers_left_out'] == 1


def test_a_shipped_model_reads_recordings_as_long_as_it_is_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(tmp_path / 'r', [[thing('door')]])
    budgets: list[int] = []

    class Server:
        """Asks once, in place of what assistants reach."""

        def __init__(self, tools: RecordingTools) -> None:
            self.tools = tools

        def run(self, transport: str) -> None:
            assert transport == 'stdio'
            self.tools.ask('Where?')

    def note(bags: Any, question: Any, chat: Any, config: ReasonerConfig, **_: Any) -> list[Any]:
        budgets.append(config.token_budget)
        return []

    monkeypatch.setattr('embodied_r_ros.apps.mcp_server.ask_each', note)
    monkeypatch.setattr('embodied_r_ros.cli.mcp.recording_server', Server)
    monkeypatch.setattr(
        'embodied_r_ros.cli.mcp.served_model', lambda *_: nullcontext(ChatConfig())
    )
    for model in (str(shared_path('models', 'arm')), 'http://127.0.0.1:9'):
        assert main(['mcp', str(tmp_path), '--model', model]) == 0
    served = load_profile('embedded-arm').reasoner['token_budget']
    assert budgets == [served, ReasonerConfig.token_budget]
