# SPDX-License-Identifier: Apache-2.0
"""A key-value cache that is not copied for each token that `generate` says."""

from __future__ import annotations

from typing import Any, TYPE_CHECKING

from transformers.cache_utils import DynamicLayer

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import Cache

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
