# SPDX-License-Identifier: Apache-2.0
"""Nothing of a batch is computed twice, or for nobody; a cache that is not copied per token."""

from __future__ import annotations

import functools
from typing import Any, TYPE_CHECKING

from peft import PeftModel
import torch
from torch.nn import functional
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor
    from transformers import Cache, PreTrainedModel
    from transformers.utils import ModelOutput

_ROOM = 64  # tokens that find room before the cache is copied


class RoomyLayer(DynamicLayer):  # type: ignore[misc]
    """Keys and values of one layer, with room behind them.

    What `DynamicLayer` does for each token, a copy of everything into fresh memory, is most of the
    time of a small model with a long prompt. Writes in place: without gradients only.
    """

    keys: Tensor
    values: Tensor

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Begin empty, as the first keys and values are shaped."""
        super().lazy_initialization(key_states, value_states)
        self._rooms = (self.keys, self.values)

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Append keys and values, each (B, heads, T, dim), and return all of them."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        key_room, self.keys = _appended(self._rooms[0], self.keys, key_states)
        value_room, self.values = _appended(self._rooms[1], self.values, value_states)
        self._rooms = (key_room, value_room)
        return self.keys, self.values


def give_room(cache: Cache) -> None:
    """Let the layers of an empty cache keep room, where they are plain ones."""
    cache.layers = [
        RoomyLayer() if type(layer) is DynamicLayer and not layer.is_initialized else layer
        for layer in cache.layers
    ]


def _appended(room: Tensor, held: Tensor, new: Tensor) -> tuple[Tensor, Tensor]:
    """The memory that holds both, and the part of it that is filled."""
    length = held.shape[-2] if held.numel() else 0
    end = length + new.shape[-2]
    # Somebody may have put other keys into the layer, of other rows or shorter.
    is_own = held.data_ptr() == room.data_ptr() and held.shape[0] == room.shape[0]
    if not is_own or room.dim() < new.dim() or end > room.shape[-2]:
        room = new.new_empty(*new.shape[:-2], end + _ROOM, new.shape[-1])
        if length:
            room[..., :length, :] = held
    room[..., length:end, :] = new
    return room, room[..., :end, :]


# Rows of one part, and the step of its length [tokens]: a CPU compiles kernels for each shape.
_PART_ROWS = 8
_PART_STEP = 32
# Ended rows are taken out of the cache when so many of its rows have: each time it is copied.
_ENDED_SHARE = 0.25


def share_prefixes(model: PreTrainedModel | PeftModel) -> None:
    """Let a causal language model compute what the rows of a batch begin with once.

    Rows that begin alike have to stand next to each other, their prompts padded on the left. Works
    with and without gradients, in `generate`, and with the fused head of TRL, which then reports
    the positions after the shared ones only. Not for models that keep activations by gradient
    checkpointing: these take no keys and values from before.
    """
    model = model.get_base_model() if isinstance(model, PeftModel) else model
    forward = model.forward

    @functools.wraps(forward)
    def sharing(input_ids: Tensor | None = None, **kwargs: Any) -> Any:
        mask, cache = kwargs.get('attention_mask'), kwargs.get('past_key_values')
        if input_ids is None or mask is None or mask.dim() != 2:
            return forward(input_ids=input_ids, **kwargs)
        if cache is not None and cache.get_seq_length() > 0:
            return _running_rows(model, forward, input_ids, kwargs)
        if cache is not None and not torch.is_grad_enabled():
            give_room(cache)
        split = shared_columns(input_ids, mask, _last_shareable(input_ids, kwargs))
        if split is None:
            return forward(input_ids=input_ids, **kwargs)
        return _after_prefix(model, forward, input_ids, kwargs, *split)

    model.forward = sharing


def _after_prefix(
    model: PreTrainedModel,
    forward: Callable[..., Any],
    input_ids: Tensor,
    kwargs: dict[str, Any],
    columns: int,
    owner: Tensor,
) -> Any:
    """Compute the first columns of each run once, and what follows them of all rows."""
    mask, positions = kwargs['attention_mask'], kwargs.get('position_ids')
    if positions is None:
        positions = (mask.cumsum(1) - 1).clamp(min=0)
    cache = kwargs.get('past_key_values') or DynamicCache(config=model.config)
    first = first_rows(owner)
    model.base_model(
        input_ids=input_ids[first, :columns],
        attention_mask=mask[first, :columns],
        position_ids=positions[first, :columns],
        past_key_values=cache,
        use_cache=True,
    )
    labels = kwargs.get('labels')

    def rest(rows: Tensor, end: int, own: DynamicCache) -> Any:
        """The output of some rows, up to a column."""
        more = dict(kwargs, past_key_values=own, attention_mask=mask[rows, :end])
        more['position_ids'] = positions[rows, columns:end]
        if labels is not None:
            more['labels'] = labels[rows, columns:end]
        return forward(input_ids=input_ids[rows, columns:end], **more)

    everyone = torch.arange(len(input_ids), device=input_ids.device)
    if labels is None or not kwargs.get('fused_lm_head'):
        cache.batch_select_indices(owner)
        return rest(everyone, input_ids.shape[1], cache)
    lengths = mask.cumsum(1).argmax(1) + 1  # up to its last token, (B,)
    parts = lengths.argsort(stable=True).split(_PART_ROWS)
    ends = [_rounded(int(lengths[rows].max()) - columns) + columns for rows in parts]
    outputs = [
        rest(rows, min(end, input_ids.shape[1]), _of_rows(cache, owner[rows]))
        for rows, end in zip(parts, ends, strict=True)
    ]
    return _joined(outputs, torch.cat(parts), input_ids.shape[1] - columns - 1)


def _rounded(length: int) -> int:
    return max(-(-length // _PART_STEP), 1) * _PART_STEP


def _of_rows(cache: DynamicCache, rows: Tensor) -> DynamicCache:
    """Keys and values of some rows, in a cache of their own."""
    return DynamicCache([(layer.keys[rows], layer.values[rows]) for layer in cache.layers])


def _joined(outputs: list[ModelOutput], order: Tensor, length: int) -> ModelOutput:
    """One output of parts whose rows are in `order`: per-token fields, (B, length)."""
    back = order.argsort()

    def whole(name: str) -> Any:
        parts = [getattr(output, name) for output in outputs]
        if any(part is None or part.dim() != 2 for part in parts):
            return None
        return torch.cat([functional.pad(part, (0, length - part.shape[1])) for part in parts])[
            back
        ]

    return type(outputs[0])(**{name: whole(name) for name in outputs[0]})


def _running_rows(
    model: PreTrainedModel, forward: Callable[..., Any], input_ids: Tensor, kwargs: dict[str, Any]
) -> Any:
    """The next step of `generate`, without the rows that have ended: these are fed padding.

    A row that says the padding token of its own accord is ended, too.
    """
    cache, mask = kwargs['past_key_values'], kwargs['attention_mask']
    pad = _pad_token(model)
    if pad is None:  # nobody can tell which rows have ended
        return forward(input_ids=input_ids, **kwargs)
    rows = getattr(cache, 'rows_in_it', None)
    if rows is None:
        rows = torch.arange(len(input_ids), device=input_ids.device)
    runs = input_ids[rows, -1] != pad
    if input_ids.shape[1] == 1 and runs.any() and (~runs).float().mean() >= _ENDED_SHARE:
        cache.batch_select_indices(runs.nonzero()[:, 0])
        rows = cache.rows_in_it = rows[runs]
    if len(rows) == len(input_ids):
        return forward(input_ids=input_ids, **kwargs)
    more = dict(kwargs, attention_mask=mask[rows])
    if kwargs.get('position_ids') is not None:
        more['position_ids'] = kwargs['position_ids'].expand(len(input_ids), -1)[rows]
    output = forward(input_ids=input_ids[rows], **more)
    logits = output.logits
    output.logits = logits.new_full(
        (len(input_ids), *logits.shape[1:]), torch.finfo(logits.dtype).min
    )
    output.logits[..., model.config.eos_token_id] = 0.0
    output.logits[rows] = logits
    return output


def _pad_token(model: PreTrainedModel) -> int | None:
    """What `generate` feeds to rows that have ended; many models name it for that alone."""
    of_generation: int | None = model.generation_config.pad_token_id
    return model.config.pad_token_id if of_generation is None else of_generation


def _last_shareable(input_ids: Tensor, kwargs: dict[str, Any]) -> int:
    """Columns whose own outputs nobody asks for."""
    labels = kwargs.get('labels')
    if labels is not None:
        labelled = (labels != -100).any(0).nonzero()
        # The first label is predicted by the column before it.
        return int(labelled[0]) - 1 if len(labelled) else 0
    kept = kwargs.get('logits_to_keep')
    return input_ids.shape[1] - kept if isinstance(kept, int) and kept > 0 else 0


def shared_columns(input_ids: Tensor, mask: Tensor, limit: int) -> tuple[int, Tensor] | None:
    """How many columns to share so that the fewest positions are computed.

    Args:
        input_ids: Token ids, (B, T).
        mask: 1 where there is a token, (B, T).
        limit: At most so many columns.

    Returns:
        The number of columns, and for each row the number of the run it belongs to, (B,); None:
        nothing is gained.
    """
    if limit < 1 or len(input_ids) < 2:
        return None
    keys = torch.where(mask.bool(), input_ids, -1)[:, :limit]
    alike = (keys[1:] == keys[:-1]).long().cumprod(1).sum(1)  # (B - 1,) leading equal columns
    best, least = None, input_ids.numel()
    for columns in sorted(set(alike.tolist())):
        runs = 1 + int((alike < columns).sum())
        computed = runs * columns + len(input_ids) * (input_ids.shape[1] - columns)
        if columns and computed < least:
            best, least = columns, computed
    if best is None:
        return None
    return best, torch.cat([alike.new_zeros(1), (alike < best).long().cumsum(0)])


def first_rows(owner: Tensor) -> Tensor:
    """The first row of each run: `[0, 0, 1, 1, 1]` gives `[0, 2]`."""
    new = torch.ones_like(owner, dtype=torch.bool)
    new[1:] = owner[1:] != owner[:-1]
    return new.nonzero()[:, 0]
