# SPDX-License-Identifier: Apache-2.0
"""A vision policy is shown the image at the very stamp that a row is about."""

from __future__ import annotations

from dataclasses import replace
import json
from pathlib import Path
from typing import Any, TYPE_CHECKING

import cv2
from embodied_r_ros.bags.sources import open_source
from embodied_r_ros.cli.main import main as cli
from embodied_r_ros.common.errors import InputError
from embodied_r_ros.core.keyframes.selector import encode_keyframe, KeyframeConfig
from embodied_r_ros.core.reasoning.prompts import shown_image
from embodied_r_ros.core.reasoning.question import Question, ReasonerConfig, ShownImage
from embodied_r_ros.core.reasoning.reasoner import Reasoner
from embodied_r_ros.core.scene.memory import MemoryConfig
from embodied_r_ros.data.questions.row import read_rows, write_rows
import numpy as np
import pytest

pytest.importorskip('torch')
pytest.importorskip('trl')

from safetensors.torch import load_file
import torch
from transformers import AutoProcessor, Qwen2VLForConditionalGeneration
from trl import GRPOConfig, GRPOTrainer, SFTConfig, TrlParser

from test.arm.arms import camera, write_arm_bag
from test.core.reasoning.test_reasoner import ScriptedClient
from test.tiny_models import save_language_model, save_vision_language_model
from training import evaluate, grpo, sft
from training.data.grpo import GrpoArguments, training_prompts
from training.data.sft import SftArguments
from training.data.vision import image_file, image_prompt, load_processor, main, rows_with_images
from training.eval import comparison, generation
from training.run.models import is_vision_model, load_tokenizer
from training.run.rewards import format_reward

if TYPE_CHECKING:
    from embodied_r_ros.data.questions.row import Row

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope='module')
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A demonstration as a bag, its rows, and their images."""
    made = tmp_path_factory.mktemp('vision')
    bag = write_arm_bag(made / 'bag', 'table', at=camera())
    assert cli(['questions', str(bag), '--out', str(made / 'rows.jsonl')]) == 0
    given = [str(made / 'rows.jsonl'), str(bag), '--out', str(made / 'images')]
    assert main(given) == 0
    write_rows(made / 'shown.jsonl', rows_of(made))
    return made


def rows_of(folder: Path) -> list[Row]:
    return [row for row in read_rows(folder / 'rows.jsonl') if row.frame_id]


def arguments_of(folder: Path, *more: str) -> tuple[GrpoArguments, GRPOConfig]:
    given = ['--config', str(ROOT / 'training/configs/qwen2.5-vl-7b-lora.yaml')]
    given += ['--rows', str(folder / 'rows.jsonl'), '--images', str(folder / 'images')]
    given += ['--output_dir', str(folder / 'out'), '--use_cpu', 'true', '--bf16', 'false', *more]
    arguments, config = TrlParser((GrpoArguments, GRPOConfig)).parse_args_and_config(given)
    return arguments, config


def test_every_row_about_a_stamp_has_its_image(folder: Path) -> None:
    rows = rows_of(folder)
    files = [image_file(row, folder / 'images') for row in rows]
    assert len(rows) > 10
    for file in files:
        assert file is not None
        image = cv2.imread(str(file))
        assert image is not None
        assert image.shape == (240, 320, 3)
    saved = list((folder / 'images').rglob('*.jpg'))
    assert {file.stem for file in saved} == {str(row.meta['stamp_ns']) for row in rows}


def test_the_prompt_of_an_image_tells_nothing_of_what_was_seen(folder: Path) -> None:
    row = next(row for row in rows_of(folder) if row.question_type == 'waypoint')
    told, shown = row.prompt(MemoryConfig()).user, image_prompt(row, folder / 'images').user
    assert 'red blocky object' in told
    assert 'red blocky object' not in shown
    assert shown.startswith('Seen:\n(the image shows it)\nQuestion: ')
    assert told.partition('Question: ')[2] == shown.partition('Question: ')[2]


def test_the_prompt_of_a_row_is_the_one_that_is_asked_live(folder: Path) -> None:
    row = next(row for row in rows_of(folder) if row.question_type == 'waypoint')
    stamp_ns = row.meta['stamp_ns']
    with open_source(folder / 'bag') as source:
        image = next(each for each in source if each.stamp_ns == stamp_ns)
    keyframe, _ = encode_keyframe(image, KeyframeConfig())
    shown = ShownImage(shown_image(keyframe), stamp_ns)
    client = ScriptedClient('<think>So.</think><answer>A</answer>')
    question = Question(row.question, row.options, shown=shown)
    Reasoner(client, ReasonerConfig()).answer(
        question, (), answer_id='run-1', now_ns=lambda: stamp_ns
    )
    assert client.requests[0].messages == image_prompt(row, folder / 'images').messages()


def test_only_rows_with_an_image_are_asked_with_images(folder: Path, tmp_path: Path) -> None:
    save_language_model(tmp_path)
    tokenizer = load_tokenizer(tmp_path)
    arguments, _ = arguments_of(folder)
    prompts = training_prompts(arguments, tokenizer, at_once=1, seed=0)
    assert prompts is not None
    assert len(prompts) == sum(row.split == 'train' for row in rows_of(folder))
    assert prompts[0]['image'].size == (320, 240)
    arguments, _ = arguments_of(folder, '--images', str(tmp_path))
    assert training_prompts(arguments, tokenizer, at_once=1, seed=0) is None


def test_bags_of_other_episodes_have_no_image(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = write_arm_bag(tmp_path / 'other', 'table', at=camera())
    assert main([str(folder / 'rows.jsonl'), str(other), '--out', str(tmp_path / 'out')]) == 2
    assert 'no image at the stamp of any row' in capsys.readouterr().err


def test_rows_of_an_episode_with_keyframes_alone_show_those(tmp_path: Path) -> None:
    sample, rows, images = ROOT / 'samples/indoor/episode_00000', tmp_path / 'rows.jsonl', 'images'
    assert cli(['collect', str(sample), '--out', str(tmp_path / 'bags')]) == 0
    derived = tmp_path / 'derived.jsonl'
    assert cli(['questions', str(tmp_path / 'bags'), '--out', str(derived)]) == 0
    asked = [
        replace(row, meta={'stamp_ns': row.deltas[-1]['stamp_ns']}) for row in read_rows(derived)
    ]
    assert asked
    write_rows(rows, asked)
    assert main([str(rows), str(tmp_path / 'bags'), '--out', str(tmp_path / images)]) == 0
    for row in asked:
        file = image_file(row, tmp_path / images)
        assert file is not None
        shown = cv2.imread(str(file))
        assert shown is not None
        assert shown.shape == (360, 480, 3)


def test_without_a_judge_consistency_cannot_count(folder: Path) -> None:
    arguments, config = arguments_of(folder, '--stages', '1 x 1:1:1')
    with pytest.raises(InputError, match='name a judge, or give it weight 0'):
        grpo.train(arguments, config)


def test_the_image_is_part_of_the_prompt_and_of_its_digest(folder: Path) -> None:
    row = next(row for row in rows_of(folder) if row.question_type == 'waypoint')
    (seen,) = rows_with_images([row], folder / 'images')
    prompt = seen.prompt(MemoryConfig())
    (image,) = prompt.messages()[1].images
    assert image.decode().shape == (240, 320, 3)
    assert prompt.sha256() != replace(prompt, images=()).sha256()
    blind = row.without_scene().prompt(MemoryConfig())
    assert seen.without_scene().prompt(MemoryConfig()) == blind
    with pytest.raises(InputError, match=f'row {row.id!r} has no image in elsewhere'):
        rows_with_images([row], Path('elsewhere'))
    with pytest.raises(InputError, match='is about no single image'):
        rows_with_images([replace(row, meta={})], folder / 'images')


@pytest.fixture
def eyes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A vision-language model of random weights; its processor is code of the test's own."""
    made = tmp_path / 'eyes'
    save_vision_language_model(made)

    def stills(path: Path, min_pixels: int) -> Any:
        del min_pixels
        if not is_vision_model(path):
            return load_processor(path, 0)  # refuses it
        return AutoProcessor.from_pretrained(made, trust_remote_code=True)

    for module in (sft, grpo, generation):
        monkeypatch.setattr(module, 'load_processor', stills)
    return made


def test_supervised_training_with_images_moves_the_eyes_and_evaluation_shows_them(
    folder: Path, eyes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = ['--config', str(ROOT / 'training/configs/smoke-sft.yaml')]
    given += ['--rows', str(folder / 'rows.jsonl'), '--images', str(folder / 'images')]
    given += ['--model', str(eyes), '--output_dir', str(tmp_path / 'out'), '--max_steps', '2']
    given += ['--per_device_train_batch_size', '2', '--warmup_steps', '0', '--threads', '1']
    given += ['--report_to', 'none', '--bf16', 'false']
    sft.train(*TrlParser((SftArguments, SFTConfig)).parse_args_and_config(given))
    before, after = (load_file(path / 'model.safetensors') for path in (eyes, tmp_path / 'out'))
    moved = [name for name in before if 'visual' in name and not before[name].equal(after[name])]
    assert len(moved) > 20

    asked = [str(tmp_path / 'out'), '--rows', str(folder / 'shown.jsonl'), '--limit', '4']
    asked += ['--judge', 'none', '--cache', 'none', '--max-tokens', '16']
    asked += ['--json', str(tmp_path / 'report.json')]
    pictures: list[Any] = []
    processor = type(AutoProcessor.from_pretrained(eyes, trust_remote_code=True))
    read = processor.__call__

    def watch_call(self: Any, **given: Any) -> Any:
        pictures.append(given.get('images'))
        return read(self, **given)

    monkeypatch.setattr(processor, '__call__', watch_call)
    assert evaluate.main(['--model', *asked, '--images', str(folder / 'images')]) == 0
    (images, unseen) = pictures  # the blind baseline is shown none
    assert [image.size for image in images] == 4 * [(320, 240)]
    assert unseen is None
    assert json.loads((tmp_path / 'report.json').read_text())['n'] == 4


@pytest.fixture
def language(tmp_path: Path) -> Path:
    """A language model of random weights."""
    save_language_model(tmp_path / 'language')
    return tmp_path / 'language'


def test_a_language_model_is_shown_no_images(
    folder: Path, language: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ['--model', str(language), '--rows', str(folder / 'shown.jsonl')]
    asked += ['--images', str(folder / 'images'), '--judge', 'none', '--cache', 'none']
    assert evaluate.main(asked) == 2
    assert 'reads text alone: name a vision-language model' in capsys.readouterr().err


def test_a_vision_model_is_compared_with_one_that_is_told(
    folder: Path, eyes: Path, language: Path, tmp_path: Path
) -> None:
    files = [tmp_path / 'told.json', tmp_path / 'shown.json']
    shown = ['--images', str(folder / 'images')]
    for model, more, file in ((language, [], files[0]), (eyes, shown, files[1])):
        asked = ['--model', str(model), '--rows', str(folder / 'shown.jsonl'), '--limit', '3']
        asked += ['--max-tokens', '16', '--cache', 'none', '--json', str(file), *more]
        assert evaluate.main(asked) == 0
    found = comparison.compare(*map(comparison.read_report, files))
    assert (found['n'], found['rows_in_one_only']) == (3, 0)
    assert found['difference'] == 0  # of random weights, both


SIZES_PX = ((84, 84), (56, 112), (140, 56))  # heights and widths


class Probabilities:
    """Log probabilities of tokens, when they are drawn and when they are trained on."""

    def __init__(self, pad: int, end: int) -> None:
        self.sampled: dict[tuple[int, ...], list[float]] = {}  # by the tokens of both
        self.trained: dict[tuple[int, ...], list[float]] = {}
        self.sizes: list[set[tuple[int, ...]]] = []  # of the images of a generation
        self._pad, self._end = pad, end

    def watch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        generate = Qwen2VLForConditionalGeneration.generate
        score = GRPOTrainer._get_per_token_logps_and_entropies

        def generate_and_keep(model: Any, **given: Any) -> Any:
            done = generate(model, **given, return_dict_in_generate=True, output_logits=True)
            self._sample(given, done)
            return done.sequences

        def keep_scores(
            trainer: Any, model: Any, ids: Any, mask: Any, keep: int, **more: Any
        ) -> Any:
            found = score(trainer, model, ids, mask, keep, **more)
            for tokens, used, values in zip(ids, mask.bool(), found[0].detach(), strict=True):
                prompt, completion = tokens[:-keep][used[:-keep]], tokens[-keep:][used[-keep:]]
                key = (*prompt.tolist(), -1, *completion.tolist())
                self.trained[key] = values[used[-keep:]].tolist()
            return found

        monkeypatch.setattr(Qwen2VLForConditionalGeneration, 'generate', generate_and_keep)
        monkeypatch.setattr(GRPOTrainer, '_get_per_token_logps_and_entropies', keep_scores)

    def _sample(self, given: Any, done: Any) -> None:
        drawn = done.sequences[:, given['input_ids'].shape[1] :]
        likely = torch.stack(done.logits, 1).log_softmax(-1).gather(-1, drawn[..., None])[..., 0]
        self.sizes.append({tuple(grid) for grid in given['image_grid_thw'].tolist()})
        for prompt, tokens, values in zip(given['input_ids'], drawn, likely, strict=True):
            count = next((i + 1 for i, t in enumerate(tokens) if t == self._end), len(tokens))
            key = (*prompt[prompt != self._pad].tolist(), -1, *tokens[:count].tolist())
            self.sampled[key] = values[:count].tolist()


def test_what_is_sampled_with_images_of_many_sizes_is_what_is_trained_on(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each token is as likely in the loss as when it was drawn: no prompt has another image.

    The trainer reads prompts, images and completions again, in other batches and another order.
    """
    noise = np.random.default_rng(0)
    for number, file in enumerate(sorted((folder / 'images').rglob('*.jpg'))):
        copy = tmp_path / file.relative_to(folder)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shape = (*SIZES_PX[number % len(SIZES_PX)], 3)
        cv2.imwrite(str(copy), noise.integers(0, 255, shape, dtype=np.uint8))
    save_vision_language_model(tmp_path / 'model')
    processor = AutoProcessor.from_pretrained(tmp_path / 'model', trust_remote_code=True)
    monkeypatch.setattr(grpo, 'load_processor', lambda *_: processor)
    arguments, config = arguments_of(
        folder, '--model', str(tmp_path / 'model'), '--output_dir', str(tmp_path / 'out'),
        '--images', str(tmp_path / 'images'), '--use_vllm', 'false', '--max_steps', '2',
        '--model_init_kwargs', '{}', '--gradient_checkpointing', 'false', '--save_strategy', 'no',
        '--per_device_train_batch_size', '6', '--gradient_accumulation_steps', '2',
        '--steps_per_generation', '2', '--num_generations', '2', '--max_completion_length', '12',
        '--eval_strategy', 'no', '--report_to', 'none', '--log_completions', 'false',
        '--lora_rank', '0', '--threads', '1', '--learning_rate', '1e-2', '--top_p', '1.0',
        '--mask_truncated_completions', 'false', '--beta', '0', '--delta', '10',
    )  # fmt: skip
    seen = Probabilities(processor.tokenizer.pad_token_id, processor.tokenizer.eos_token_id)
    seen.watch(monkeypatch)

    def likes_e(completions: Any, **_: Any) -> list[float]:
        return [said[0]['content'].count('e') for said in completions]

    trainer = grpo.trainer_of(arguments, config, [format_reward, likes_e])
    before = [weight.clone() for weight in trainer.model.parameters()]
    trainer.train()
    assert any(not a.equal(b) for a, b in zip(before, trainer.model.parameters(), strict=True))
    assert [len(grids) for grids in seen.sizes] == [3, 3]  # both steps had all sizes in one batch
    assert len(seen.sampled) > 12  # of 24, some of which may be equal
    assert seen.sampled.keys() == seen.trained.keys()
    for key, values in seen.sampled.items():
        assert seen.trained[key] == pytest.approx(values, abs=5e-6)
