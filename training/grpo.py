# SPDX-License-Identifier: Apache-2.0
"""Reinforcement learning with three rewards: `python -m training.grpo --config FILE`.

Only answers are needed, no reasoning: rows of what a robot's perception really saw. A recipe to be
read from top to bottom; every setting of TRL's GRPOConfig may stand in the YAML file too.

Rewards are weighted by stage, in one run: Embodied-R's 7:3:0, 3:7:0, 1:7:2. The stage is
a function of the step alone, so that a resumed run goes on in the stage in which it was stopped.
The published code has one stage and leaves the others to restarts by hand.
"""

from __future__ import annotations

from dataclasses import dataclass
import math
from pathlib import Path
import re
import shutil
import sys
from typing import Any, TYPE_CHECKING

from accelerate.utils import is_peft_model
from embodied_r_ros.common.errors import InputError
from embodied_r_ros.core.chat.settings import ChatConfig, model_digest
from embodied_r_ros.serving.server_process import swap_adapters
from peft import LoraConfig
import torch
from transformers import TrainerCallback
from trl import GRPOConfig, GRPOTrainer
from trl.generation.vllm_client import VLLMClient
from trl.generation.vllm_generation import VLLMGeneration

from training.data.grpo import GrpoArguments, training_prompts, validation_prompts
from training.data.vision import load_processor
from training.eval.judging import judge_of
from training.run.command import run_recipe
from training.run.gradients import GradientGuard
from training.run.manifest import checkpoint_of, manifest_in, manifest_of
from training.run.models import evaluation_rows, load_tokenizer, model_folder, SAFELY
from training.run.rewards import require_finite, three_rewards

if TYPE_CHECKING:
    from collections.abc import Sequence

    from training.run.rewards import Reward

_NUMBER = r'(\d+(?:\.\d+)?|\.\d+)'
_STAGE = re.compile(f'{_NUMBER} x {_NUMBER}:{_NUMBER}:{_NUMBER}')


@dataclass(frozen=True)
class Stage:
    """A part of a run, and how much each reward counts in it."""

    epochs: float
    weights: tuple[float, float, float]  # of format, accuracy and consistency; their sum is 1


def parse_stages(texts: Sequence[str]) -> tuple[Stage, ...]:
    """Stages of texts such as '2 x 7:3:0': epochs, then format : accuracy : consistency.

    Raises:
        InputError: A text is not of that form, or its numbers make no stage.
    """
    stages = []
    for text in texts:
        match = _STAGE.fullmatch(text.strip())
        numbers = [float(part) for part in match.groups()] if match else []
        if not numbers or numbers[0] <= 0 or sum(numbers[1:]) <= 0:
            msg = f"stage {text!r} is not 'epochs x format:accuracy:consistency', as '2 x 7:3:0'"
            raise InputError(msg)
        total = sum(numbers[1:])
        form, accuracy, consistency = (number / total for number in numbers[1:])
        stages.append(Stage(numbers[0], (form, accuracy, consistency)))
    if not stages:
        msg = "there are no stages: give at least one, as '2 x 7:3:0'"
        raise InputError(msg)
    return tuple(stages)


def stage_at(stages: Sequence[Stage], step: int, steps: int) -> int:
    """Index of the stage of a step (0 is the first) of a run of so many steps.

    A run that is shorter than its stages' epochs goes through all of them, in proportion.
    """
    epochs = sum(stage.epochs for stage in stages)
    end = 0.0
    for index, stage in enumerate(stages):
        end += stage.epochs
        if step < round(end / epochs * steps):
            return index
    return len(stages) - 1


class RewardSchedule(TrainerCallback):  # type: ignore[misc]
    """Sets the trainer's reward weights before each step's completions are generated."""

    def __init__(self, stages: Sequence[Stage]) -> None:
        """Give the stages; `trainer` is to be set before training."""
        self.trainer: Any = None
        self._stages = tuple(stages)
        self._stage = -1

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Enter the stage of the step that begins."""
        del args, control
        stage = stage_at(self._stages, state.global_step, state.max_steps)
        if stage != self._stage:
            self._stage = stage
            weights = self._stages[stage].weights
            own = weights[: len(self.trainer.reward_funcs)]  # without a judge, two
            self.trainer.reward_weights = torch.tensor(own, dtype=torch.float32)
            shown = ' : '.join(f'{weight:.2f}' for weight in weights)
            sys.stderr.write(
                f'\ngrpo: step {state.global_step}: stage {stage + 1} of {len(self._stages)},'
                f' format : accuracy : consistency = {shown}\n'
            )


class AdapterClient(VLLMClient):  # type: ignore[misc]
    """TRL's client of a vLLM server, which brings an access token along."""

    def __init__(self, url: str, token: str, **more: Any) -> None:
        """Connect; `token` is empty where the server wants none, and the rest is TRL's."""
        self._token = token
        super().__init__(url, **more)

    def check_server(self, *arguments: Any, **more: Any) -> None:
        """Wait for the server, as TRL does before it asks for anything else."""
        if self._token:
            self.session.auth = self._sign  # a header alone would give way to one of ~/.netrc
        super().check_server(*arguments, **more)

    def _sign(self, request: Any) -> Any:
        request.headers['Authorization'] = f'Bearer {self._token}'
        return request


class AdapterRollouts(VLLMGeneration):  # type: ignore[misc]
    """Rollouts of a `vllm serve --enable-lora`, which takes the adapter of each step.

    It is loaded as robots load theirs, under a name of its own: what the server keeps of the one
    before is not taken for its own. TRL's modes merge the adapter and send all weights instead.
    """

    def __init__(self, folder: Path, token: str, **more: Any) -> None:
        """Give the folder of adapters, which the server sees too, and its token; else as TRL."""
        self._folder = folder.absolute()
        self._token = token
        self._loaded = ''
        super().__init__(mode='server', **more)

    def _init_vllm(self) -> None:
        if self._dist.is_fsdp or self._dist.is_zero3:
            msg = 'adapter_server takes an adapter that each process has whole: not ZeRO-3 or FSDP'
            raise InputError(msg)
        if self.accelerator.is_main_process:
            timeout_s = self.server_timeout
            try:
                self.vllm_client = AdapterClient(
                    self.server_base_url, self._token, connection_timeout=timeout_s
                )
            except Exception as error:  # TRL raises plain ones; it wants vLLM here as well
                text = str(error).replace(self._token, '...') if self._token else str(error)
                msg = f'adapter_server {self.server_base_url} cannot be asked: {text}'
                msg += f'; its token belongs into {ChatConfig.token_variable}' * ('401' in text)
                raise InputError(msg) from None
        self.accelerator.wait_for_everyone()

    def sync_weights(self) -> None:
        """Have the server load the adapter as it is now, and sample with it from now on.

        Raises:
            ModelError: The server does not take it.
        """
        if self.accelerator.is_main_process:
            new = self._folder / 'new'
            self.model.save_pretrained(new, selected_adapters=['default'])
            name = f'policy-{model_digest(new).removeprefix("sha256:")[:12]}'
            if name != self._loaded:
                shutil.rmtree(self._folder / name, ignore_errors=True)
                new.rename(self._folder / name)
                headers = {'Authorization': f'Bearer {self._token}'} if self._token else None
                folder = self._folder / name
                swap_adapters(self.server_base_url, self._loaded, name, folder, headers)
                if self._loaded:
                    shutil.rmtree(self._folder / self._loaded)
                self.vllm_client.model = self._loaded = name
        self.accelerator.wait_for_everyone()


class GroupTrainer(GRPOTrainer):  # type: ignore[misc]
    """Counts the groups whose rewards are equal, and leaves them out of the loss where wanted.

    They teach nothing, but their tokens make the mean smaller that is taken over all (`loss_type`
    dapo and bnpo), and `beta` holds them where they are. TRL's own count compares weighted sums of
    floats, and misses some.
    """

    def __init__(self, *, drops_equal: bool, **more: Any) -> None:
        """Tell whether groups of equal rewards are left out; the rest is TRL's."""
        super().__init__(**more)
        self.groups = self.equal_groups = 0  # of this process's run, those of a resumed one anew
        self._drops = drops_equal
        self._equal = torch.zeros(0, dtype=torch.bool)  # for each completion of all processes

    def sample_at(self, url: str) -> None:
        """Have a vLLM server do the rollouts, with the adapter that is trained.

        Raises:
            InputError: There is none, or the server cannot be asked, or its URL is none; or a
                token is set that would travel unencrypted.
        """
        sees = hasattr(self.processing_class, 'tokenizer')
        if self.args.use_vllm or sees or not is_peft_model(self.model):
            msg = (
                f'adapter_server {url} takes a LoRA adapter of a language model: give lora_rank '
                'and use_vllm: false, and no images'
            )
            raise InputError(msg)
        chat = ChatConfig(url=url)
        self.use_vllm, self._last_loaded_step = True, -1
        self.vllm_generation = AdapterRollouts(
            Path(self.args.output_dir, 'adapters'),
            chat.token(),
            model=self.model,
            accelerator=self.accelerator,
            processing_class=self.processing_class,
            server_base_url=chat.base_url(),
            server_timeout=self.args.vllm_server_timeout,
            repetition_penalty=self.repetition_penalty,
            temperature=self.temperature,
            top_p=self.top_p,
            top_k=self.top_k,
            min_p=self.min_p,
            max_completion_length=self.max_completion_length,
            generation_kwargs=self.args.generation_kwargs,
        )

    def _calculate_rewards(self, inputs: Any, *rest: Any) -> torch.Tensor:
        rewards: torch.Tensor = super()._calculate_rewards(inputs, *rest)
        if self.model.training:
            equal = equal_groups(rewards, self.reward_weights, self.num_generations)
            self._equal = equal.repeat_interleave(self.num_generations)
            self.groups += len(equal)
            self.equal_groups += int(equal.sum())
            self._metrics['train']['zero_variance_share'].append(equal.float().mean().item())
        return rewards

    def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
        batch: dict[str, Any] = super()._generate_and_score_completions(inputs)
        if self._drops and self.model.training:
            start = self.accelerator.process_index * len(inputs)
            kept = ~self._equal[start : start + len(inputs)]
            mask = batch['completion_mask']
            # TRL takes no loss from what its tools wrote, and none from these.
            batch['tool_mask'] = batch.get('tool_mask', torch.ones_like(mask)) * kept[:, None]
            tokens = (mask * batch['tool_mask']).sum()
            batch['num_items_in_batch'] = self.accelerator.gather(tokens).sum()
        return batch


def equal_groups(rewards: torch.Tensor, weights: torch.Tensor, size: int) -> torch.Tensor:
    """Which groups have equal rewards, in all that count: a truth value for each.

    Args:
        rewards: (completions, kinds of rewards); those of a group follow each other.
        weights: (kinds,); a reward of weight 0 does not count.
        size: Completions of a group.
    """
    counted = rewards[:, weights.to(rewards.device) != 0]
    groups = counted.view(-1, size, counted.shape[1])
    return (groups == groups[:, :1]).flatten(1).all(dim=1)


def trainer_of(
    arguments: GrpoArguments, config: GRPOConfig, rewards: Sequence[Reward]
) -> GroupTrainer:
    """What trains as the arguments say, with rewards for format, accuracy and consistency.

    Raises:
        InputError: There are too few rows, or an argument is not usable.
    """
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    tokenizer = load_tokenizer(model_folder(arguments.model))
    at_once = config.generation_batch_size // config.num_generations
    epochs = math.ceil(config.num_train_epochs)
    prompts = training_prompts(arguments, tokenizer, at_once, config.seed, epochs)
    if prompts is None:
        msg = f'{", ".join(arguments.rows)}: no training rows that fit'
        raise InputError(msg)
    if len(prompts) < at_once:
        msg = (
            f'{", ".join(arguments.rows)}: {len(prompts)} prompts in all epochs, and {at_once} '
            'are sampled at a time: give more rows or epochs, or a smaller generation batch'
        )
        raise InputError(msg)
    folder = model_folder(arguments.model)
    processor = load_processor(folder, arguments.min_pixels) if arguments.images else tokenizer
    if arguments.images:
        # TRL pads prompts on the left, but has the processor say which tokens are of images:
        # padded on the right, as many processors are saved, positions would be those of others.
        processor.tokenizer.padding_side = 'left'
    schedule = RewardSchedule(parse_stages(arguments.stages))
    adapter = LoraConfig(
        r=arguments.lora_rank, lora_alpha=2 * arguments.lora_rank, target_modules='all-linear'
    )
    config.model_init_kwargs = {**(config.model_init_kwargs or {}), **SAFELY}
    config.shuffle_dataset = False  # the prompts come in the order in which they are asked,
    config.num_train_epochs /= epochs  # those of all epochs one after the other
    trainer = GroupTrainer(
        drops_equal=arguments.drop_zero_variance,
        model=arguments.model,
        reward_funcs=[require_finite(reward) for reward in rewards],
        args=config,
        train_dataset=prompts,
        eval_dataset=evaluation_rows(validation_prompts(arguments, tokenizer), config, 'grpo'),
        processing_class=processor,
        peft_config=adapter if arguments.lora_rank else None,
        callbacks=[schedule, GradientGuard()],
    )
    schedule.trainer = trainer
    return trainer


_STEP = 'completions_per_step'


def keep_step(config: GRPOConfig) -> None:
    """Keep the size of a step where a run continues with another number of processes.

    Else it would be in another stage, and at other prompts.

    Raises:
        InputError: The completions of a step cannot be shared out evenly.
    """
    at_once = config.per_device_train_batch_size * config.world_size
    before = int(manifest_in(Path(config.output_dir)).get(_STEP, 0))
    accumulated = config.gradient_accumulation_steps
    if before in {0, at_once * accumulated}:
        return
    generations = config.steps_per_generation * before / (at_once * accumulated)
    if before % at_once or generations % 1:
        msg = (
            f'{config.output_dir} has {before} completions in a step, which {config.world_size} '
            f'processes with {config.per_device_train_batch_size} each cannot share out: give '
            'another per_device_train_batch_size'
        )
        raise InputError(msg)
    config.gradient_accumulation_steps = before // at_once
    config.steps_per_generation = int(generations)
    config.generation_batch_size = at_once * config.steps_per_generation
    if config.should_save:
        sys.stderr.write(
            f'grpo: gradient_accumulation_steps is {before // at_once}, not {accumulated}: a step '
            f'has {before} completions, as when this run began\n'
        )


def train(arguments: GrpoArguments, config: GRPOConfig) -> None:
    """Train, and save model and tokenizer in the output folder.

    Raises:
        InputError: There are no rows, an argument is not usable, or the output folder has a run
            that began otherwise.
        ModelError: The judge fails, which stops the run.
    """
    judge = judge_of(arguments.judge)
    if judge is None and any(stage.weights[2] for stage in parse_stages(arguments.stages)):
        msg = 'consistency counts in a stage, and judge is none: name a judge, or give it weight 0'
        raise InputError(msg)
    keep_step(config)
    at_once = config.per_device_train_batch_size * config.world_size
    manifest = manifest_of(vars(arguments), config.seed)
    manifest[_STEP] = at_once * config.gradient_accumulation_steps
    checkpoint = checkpoint_of(config.output_dir, manifest, is_main=config.should_save)
    trainer = trainer_of(arguments, config, three_rewards(judge))
    if arguments.adapter_server:
        trainer.sample_at(arguments.adapter_server)
    trainer.train(resume_from_checkpoint=checkpoint)
    if trainer.is_world_process_zero():
        fate = 'dropped' if arguments.drop_zero_variance else 'kept'
        sys.stderr.write(
            f'grpo: {trainer.equal_groups} of {trainer.groups} groups had equal rewards: {fate}\n'
        )
    trainer.save_model(config.output_dir)
    trainer.processing_class.save_pretrained(config.output_dir)


def main() -> int:
    """Train as the command line and the YAML file say."""
    return run_recipe('training.grpo', train, GrpoArguments, GRPOConfig)


if __name__ == '__main__':
    sys.exit(main())
