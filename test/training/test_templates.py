# SPDX-License-Identifier: Apache-2.0
"""Chat templates as models of today bring them, on a tokenizer of our own."""

from __future__ import annotations

from typing import Any, TYPE_CHECKING

import pytest

pytest.importorskip('torch')
pytest.importorskip('trl')

from datasets import Dataset
from embodied_r_ros.common.errors import InputError
from embodied_r_ros.core.scene.memory import MemoryConfig
from embodied_r_ros.core.types.answers import Sampling
from embodied_r_ros.data.questions.row import Row, write_rows
from trl import GRPOConfig, SFTConfig

from test.tiny_models import save_language_model
from test.training.test_sft import turning_row
from training import evaluate, grpo, sft
from training.data.grpo import GrpoArguments
from training.data.sft import SftArguments
from training.eval.generation import chat_text, generate
from training.run.models import load_tokenizer
from training.run.templates import fit_examples, fit_messages, keeps_thoughts, render

if TYPE_CHECKING:
    from pathlib import Path

TURNS = (
    "{%- for m in messages %}<|im_start|>{{ m['role'] }}\n"
    "{{ m['content'] }}<|im_end|>\n{% endfor %}"
    '{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}'
)
RAISES = (
    "{% if messages[0]['role'] == 'system' %}{{ raise_exception('No system role') }}{% endif %}"
)
IGNORES = TURNS.replace('messages %}', "messages if m['role'] != 'system' %}")
# Ends the prompt inside the thought, and takes thoughts out of replies.
THINKS = TURNS.replace(
    "{{ m['content'] }}",
    "{{ m['content'].split('</think>')[-1] if m['role'] == 'assistant' else m['content'] }}",
).replace('assistant\n{% endif', 'assistant\n<think>\n{% endif')
FAILS = "{{ raise_exception('Never') }}"
ASKED = [{'role': 'system', 'content': 'You are a robot.'}, {'role': 'user', 'content': 'Where?'}]
MERGED = [{'role': 'user', 'content': 'You are a robot.\n\nWhere?'}]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / 'model'
    save_language_model(folder)
    return folder


def reader_of(folder: Path, template: str) -> Any:
    set_template(folder, template)
    return load_tokenizer(folder)


def set_template(folder: Path, template: str) -> None:
    file = folder / 'chat_template.jinja'
    assert file.exists()
    file.write_text(template) if template else file.unlink()


def rows_file(folder: Path, *splits: str) -> str:
    path = folder.parent / 'rows.jsonl'
    rows: list[Row] = [turning_row(seed, split) for split in splits for seed in range(8)]
    write_rows(path, [row for row in rows if row.id])
    return str(path)


def test_system_text_stays_where_the_template_has_it(folder: Path) -> None:
    assert fit_messages(reader_of(folder, TURNS), ASKED) == ASKED


@pytest.mark.parametrize('template', [RAISES + TURNS, IGNORES])
def test_system_text_goes_before_the_users_where_it_has_no_place(
    folder: Path, template: str
) -> None:
    reader = reader_of(folder, template)
    assert fit_messages(reader, ASKED) == MERGED
    assert 'You are a robot.\n\nWhere?' in render(reader, ASKED)


def test_parts_of_content_are_kept(folder: Path) -> None:
    parts = "{% for p in m['content'] %}{{ p['text'] }}{% endfor %}"
    reader = reader_of(folder, RAISES + '{%- for m in messages %}' + parts + '{% endfor %}')
    asked = [{**m, 'content': [{'type': 'text', 'text': m['content']}]} for m in ASKED]
    (message,) = fit_messages(reader, asked)
    assert [part['text'] for part in message['content']] == ['You are a robot.\n\n', 'Where?']


@pytest.mark.parametrize(('template', 'message'), [('', 'no chat template'), (FAILS, 'Never')])
def test_template_that_is_of_no_use_is_one_line(
    folder: Path, template: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    rows, out = rows_file(folder, 'train'), str(folder.parent / 'out')
    set_template(folder, template)
    with pytest.raises(InputError, match=message):
        sft.train(
            SftArguments([rows], str(folder)),
            SFTConfig(out, use_cpu=True, bf16=False),
        )
    arguments = GrpoArguments([rows], str(folder), ['none'], ['1 x 7:3:0'])
    config = GRPOConfig(out, use_cpu=True, bf16=False, per_device_train_batch_size=8)
    with pytest.raises(InputError, match=message):
        grpo.trainer_of(arguments, config, ())
    command = ['--model', str(folder), '--rows', rows, '--judge', 'none', '--cache', 'none']
    assert evaluate.main(command) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith('training.evaluate: error: ')
    assert message in error


def test_completion_of_a_template_that_opens_the_thought_is_learned_whole(folder: Path) -> None:
    reader = reader_of(folder, RAISES + THINKS)
    assert not keeps_thoughts(reader)
    reply = {'role': 'assistant', 'content': '<think>Left.</think><answer>B</answer>'}
    (example,) = fit_examples(
        Dataset.from_list([{'prompt': ASKED, 'completion': [reply]}]), reader
    )
    assert example['prompt'].endswith('Where?<|im_end|>\n<|im_start|>assistant\n<think>\n')
    assert example['completion'] == 'Left.</think><answer>B</answer>'


def test_examples_stay_messages_where_the_template_keeps_them(folder: Path) -> None:
    reader = reader_of(folder, TURNS)
    reply = {'role': 'assistant', 'content': '<think>Left.</think><answer>B</answer>'}
    examples = Dataset.from_list([{'prompt': ASKED, 'completion': [reply]}])
    assert fit_examples(examples, reader) is examples


@pytest.mark.parametrize('template', [RAISES + TURNS, RAISES + THINKS])
def test_recipes_run_without_a_system_role(folder: Path, template: str) -> None:
    """One step of each: training on traces, on rewards, and asking the model."""
    rows, out = rows_file(folder, 'train'), folder.parent / 'out'
    set_template(folder, template)
    common = {'use_cpu': True, 'bf16': False, 'max_steps': 1, 'report_to': 'none'}
    common |= {'gradient_checkpointing': False, 'dataloader_pin_memory': False}
    sft.train(
        SftArguments([rows], str(folder), lora_rank=2),
        SFTConfig(str(out / 'sft'), per_device_train_batch_size=2, **common),
    )
    assert (out / 'sft' / 'adapter_model.safetensors').exists()
    grpo.train(
        GrpoArguments([rows], str(folder), ['none'], ['1 x 7:3:0']),
        GRPOConfig(
            str(out / 'grpo'),
            per_device_train_batch_size=4,
            num_generations=2,
            max_completion_length=8,
            **common,
        ),
    )
    assert (out / 'grpo' / 'model.safetensors').exists()
    prompt = turning_row(0, 'test').prompt(MemoryConfig())
    assert prompt.system in chat_text(load_tokenizer(folder), prompt)
    assert len(generate(str(folder), [prompt], Sampling(max_tokens=4))) == 1
