# SPDX-License-Identifier: Apache-2.0
"""`VlmPerceiver`: keyframes are shown to a vision-language model, once each pair.

Perception knows no question; a question is put by `focus`, on demand and without its options. A
reply is structured, checked, asked for again where it is not usable, and kept by its content.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
import json
import math
from pathlib import Path
import time
from typing import Any, TYPE_CHECKING, TypeVar

from embodied_r_ros.answers import FocusText, Sampling
from embodied_r_ros.config import check_settings, setting
from embodied_r_ros.deltas import ModelInfo, Rung
from embodied_r_ros.errors import (
    CancelledError,
    ConfigError,
    DeadlineError,
    ImageError,
    ModelError,
)
from embodied_r_ros.images import encode_image
from embodied_r_ros.models.chat import ChatRequest, left_s, see_that_it_speaks
from embodied_r_ros.perception.perceiver import failed_delta
from embodied_r_ros.perception.vlm import prompts
from embodied_r_ros.perception.vlm.cache import cache_key, ReplyCache
from embodied_r_ros.perception.vlm.reply import (
    focus_schema,
    read_focus,
    read_scene,
    ReplyError,
    scene_schema,
)
from embodied_r_ros.perception.vlm.scene_delta import scene_delta

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from embodied_r_ros.deltas import SemanticDelta
    from embodied_r_ros.images import EncodedImage
    from embodied_r_ros.keyframes import Keyframe
    from embodied_r_ros.models.chat import ChatClient, ChatMessage

Read = TypeVar('Read')

_JPEG_QUALITY = 90
_SHRUNK_IMAGES = 64  # keyframes whose smaller image is kept; each is shown twice


@dataclass(frozen=True)
class VlmConfig:
    """How keyframes are shown to a vision-language model."""

    pixels_per_image: int = setting(
        307_200,
        'larger images are shrunk to this many pixels; Qwen2.5-VL takes 1 token per 784',
        between=(1024, 16_000_000),
    )
    max_tokens: int = setting(700, 'tokens that a reply may have', between=(32, 8192))
    temperature: float = setting(0.0, 'sampling temperature; 0: greedy', between=(0, 2))
    seed: int = setting(0, 'seed given to the server; 0: none', between=(0, 2**31 - 1))
    deadline_s: float = setting(
        20.0, 'time for a pair of keyframes, all attempts together [s]', between=(0.1, 3600)
    )
    retries: int = setting(
        2, 'further attempts after a failure or an unusable reply', between=(0, 10)
    )
    backoff_s: float = setting(
        0.5, 'wait after a failure of the server, doubled each time [s]', between=(0, 60)
    )
    assumed_hfov_rad: float = setting(
        1.22, 'horizontal angle of view where the camera is not calibrated', between=(0.1, 3.0)
    )
    cache_entries: int = setting(256, 'replies kept in memory', between=(0, 1_000_000))
    cache_dir: str = setting(
        '', 'folder in which replies are kept for ever; empty: only in memory', read_only=True
    )

    def __post_init__(self) -> None:
        """Check the settings."""
        check_settings(self)


class VlmPerceiver:
    """A `Perceiver` that asks a vision-language model; at most `deadline_s` per call."""

    def __init__(
        self, client: ChatClient, config: VlmConfig | None = None, rung: Rung = Rung.PRIMARY
    ) -> None:
        """Prepare; nothing is asked yet.

        Raises:
            ConfigError: The cache's folder cannot be made.
        """
        self._client = client
        self._rung = rung
        self._config = config = config or VlmConfig()
        folder = Path(config.cache_dir).expanduser() if config.cache_dir else None
        try:
            self._cache = ReplyCache(config.cache_entries, folder)
        except OSError as error:
            msg = f'cache_dir is {config.cache_dir!r}, which cannot be made: {error}'
            raise ConfigError(msg) from None
        self._shown = lru_cache(_SHRUNK_IMAGES)(self._shrunk)

    def perceive(self, earlier: Keyframe | None, later: Keyframe) -> SemanticDelta:
        """Say what the later keyframe adds (see `Perceiver.perceive`)."""
        end = time.monotonic() + self._config.deadline_s
        model = ModelInfo()
        try:
            model = self._model(end)
            images = [self._shown(keyframe.image) for keyframe in (earlier, later) if keyframe]
            two_views = earlier is not None
            messages = (
                prompts.later_prompt(*images) if two_views else prompts.first_prompt(*images)
            )
            reply = self._asked(
                messages,
                scene_schema(two_views=two_views),
                lambda text: read_scene(text, two_views=two_views),
                model,
                end,
            )
        except (ModelError, ImageError) as error:
            return replace(failed_delta(earlier, later, str(error)), model=model)
        return scene_delta(reply, earlier, later, self._config.assumed_hfov_rad, model)

    def focus(
        self, question: str, options: Sequence[str], keyframe: Keyframe, deadline_s: float
    ) -> FocusText:
        """Say what a keyframe shows about a question; the options are not shown to the model.

        Raises:
            ModelError: The model failed, also in reading the image.
        """
        end = time.monotonic() + deadline_s
        try:
            messages = prompts.focus_prompt(question, self._shown(keyframe.image))
        except ImageError as error:
            msg = f'keyframe {keyframe.id} cannot be looked at: {error}'
            raise ModelError(msg) from error
        text = self._asked(messages, focus_schema(), read_focus, self._model(end), end)
        return FocusText(keyframe.id, keyframe.stamp_ns, text, keyframe.camera)

    def info(self) -> ModelInfo:
        """Which model perceives.

        Raises:
            ModelError: The model's server is not reachable or serves another model.
        """
        return self._model(time.monotonic() + self._config.deadline_s)

    def check(self, deadline_s: float) -> None:
        """See that the model generates a token.

        Raises:
            ModelError: It does not, or another model is served than the client is set to.
        """
        see_that_it_speaks(self._client, deadline_s)

    def _model(self, end: float) -> ModelInfo:
        info = self._client.info(left_s(end))
        return replace(info, rung=self._rung, prompt_version=prompts.PROMPT_VERSION)

    def _shrunk(self, image: EncodedImage) -> EncodedImage:
        """The image as it is, or encoded anew where it has more pixels than are wanted."""
        picture = image.decode()
        height, width = picture.shape[:2]
        scale = math.sqrt(self._config.pixels_per_image / (height * width))
        if scale >= 1:
            return image
        return encode_image(picture, _JPEG_QUALITY, max(1, int(max(height, width) * scale)))

    def _asked(
        self,
        messages: tuple[ChatMessage, ...],
        schema: dict[str, Any],
        read: Callable[[str], Read],
        model: ModelInfo,
        end: float,
    ) -> Read:
        """The reply to a prompt, from the cache or from the model.

        Raises:
            ModelError: There is no usable one.
        """
        config = self._config
        sampling = Sampling(config.temperature, 1.0, config.max_tokens, config.seed)
        request = ChatRequest(messages, sampling, schema)
        key = _key(request, model)
        kept = self._cache.get(key)
        if kept is not None:
            # What an older version kept may not be what is accepted now.
            with suppress(ReplyError):
                return read(kept)
        text, value = self._generated(request, read, end)
        self._cache.put(key, text)
        return value

    def _generated(
        self, request: ChatRequest, read: Callable[[str], Read], end: float
    ) -> tuple[str, Read]:
        """A usable reply and what was read from it, after as many attempts as it takes.

        Raises:
            ModelError: There is none.
        """
        messages = request.messages
        problem: ModelError | None = None
        for attempt in range(self._config.retries + 1):
            if problem is not None and not isinstance(problem, ReplyError):
                time.sleep(min(self._config.backoff_s * 2 ** (attempt - 1), left_s(end)))
            text = ''
            try:
                for chunk in self._client.stream(request, left_s(end)):
                    text += chunk.text
                return text, read(text)
            except (DeadlineError, CancelledError):
                raise
            except ReplyError as error:
                problem = error
                repair = prompts.repair_prompt(messages, text, str(error))
                request = replace(request, messages=repair)
            except ModelError as error:
                problem = error
        msg = f'no usable reply in {self._config.retries + 1} attempts: {problem}'
        raise ModelError(msg) from problem


def _key(request: ChatRequest, model: ModelInfo) -> str:
    parts: list[str | bytes] = [model.name, model.digest, model.adapter, repr(request.sampling)]
    parts.append(json.dumps(request.json_schema, sort_keys=True))
    for message in request.messages:
        parts += [message.role, message.text, *(image.data for image in message.images)]
    return cache_key(*parts)
