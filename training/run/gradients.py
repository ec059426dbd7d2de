# SPDX-License-Identifier: Apache-2.0
"""Ends a run before it learns from a gradient that is no number."""

from __future__ import annotations

import math
from typing import Any

from embodied_r_ros.common.errors import ModelError
import torch
from transformers import TrainerCallback


class GradientGuard(TrainerCallback):  # type: ignore[misc]
    """Ends a run before a gradient that is no number takes all weights with it.

    A known cause is avoided: attention by cuDNN, which torch prefers on an H100 since 2.11, gives
    NaN where a batch with padding has a length of 64 modulo 128 (pytorch issue 196678).
    """

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        """Have another kernel compute attention."""
        torch.backends.cuda.enable_cudnn_sdp(False)

    def on_pre_optimizer_step(
        self, args: Any, state: Any, control: Any, model: Any = None, **_: Any
    ) -> None:
        """See that the gradient is finite; in fp16 a scaler of the loss leaves out such a step.

        Raises:
            ModelError: It is not.
        """
        del control
        if args.fp16:
            return
        gradients = [weight.grad for weight in model.parameters() if weight.grad is not None]
        if gradients and not math.isfinite(float(torch.nn.utils.get_total_norm(gradients))):
            msg = (
                f'step {state.global_step}: the gradient is NaN or infinite, and no weight was '
                'changed. Go on from the last checkpoint with a lower learning_rate, or in '
                'float32: bf16: false, and for training.grpo model_init_kwargs: {dtype: float32}'
            )
            raise ModelError(msg)
