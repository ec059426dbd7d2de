# SPDX-License-Identifier: Apache-2.0
"""How a model is given: a URL, a folder, or an adapter, which can be merged."""

from __future__ import annotations

import json
from pathlib import Path
import sys
from typing import Any, TYPE_CHECKING

from embodied_r_ros.common.errors import InputError
from embodied_r_ros.core.chat.settings import refuse_pickles
from peft import PeftModel
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.quantizers.auto import AutoHfQuantizer
from transformers.trainer_utils import IntervalStrategy

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import TrainingArguments

_ADAPTER = 'adapter_config.json'
_GGUF = 'gguf'  # llama.cpp's, whose weights transformers reads from such a file alone
# How transformers is to read a model: from this machine, no pickles, no code that comes with it.
SAFELY = {'local_files_only': True, 'use_safetensors': True, 'trust_remote_code': False}


def is_url(model: str) -> bool:
    """Tell whether a model is given as the URL of its server."""
    return model.startswith(('http://', 'https://'))


def model_folder(model: str) -> Path:
    """The folder of a model that is given as one.

    Raises:
        InputError: It holds neither a model nor an adapter, or its weights are pickles.
    """
    folder = Path(model).expanduser()
    if not (folder / 'config.json').exists() and not is_adapter(folder):
        msg = f'{model} is neither a URL nor a folder with a model (no config.json)'
        raise InputError(msg)
    refuse_pickles(folder)
    if not is_adapter(folder):
        _refuse_unreadable(folder)
    return folder


def _read_config(folder: Path) -> dict[str, Any]:
    """The settings of a whole model.

    Raises:
        InputError: They are no JSON object.
    """
    file = folder / 'config.json'
    try:
        config = json.loads(file.read_text())
    except (OSError, ValueError, RecursionError) as error:
        msg = f'{file} cannot be read: {error}'
        raise InputError(msg) from None
    if not isinstance(config, dict):
        msg = f'{file} holds {type(config).__name__}: expected the settings of a model'
        raise InputError(msg)
    return config


def _refuse_unreadable(folder: Path) -> None:
    """Refuse weights whose quantisation nothing here can read.

    Raises:
        InputError: So it is.
    """
    quantisation = _read_config(folder).get('quantization_config')
    if quantisation is None:
        return
    method = quantisation.get('quant_method') if isinstance(quantisation, dict) else quantisation
    why = 'safetensors hold no such weights: if they were converted, delete that entry'
    if method != _GGUF:
        try:
            quantizer = AutoHfQuantizer.from_config(quantisation, pre_quantized=True)
            quantizer.validate_environment(device_map=None)
        except (ImportError, ValueError, TypeError, AttributeError, RuntimeError) as error:
            why = str(error)
        else:
            return
    msg = f'{folder / "config.json"} states weights quantised by {method!r}: {why}'
    raise InputError(msg)


def is_vision_model(folder: Path) -> bool:
    """Tell whether a folder holds a model that is shown images, or an adapter for one."""
    return 'vision_config' in _read_config(base_folder(folder))


def is_adapter(folder: Path) -> bool:
    """Tell whether a folder holds a LoRA adapter instead of a whole model."""
    return (folder / _ADAPTER).exists() and not (folder / 'config.json').exists()


def is_gguf(model: str) -> bool:
    """Tell whether a model is given as a file of llama.cpp."""
    return model.endswith(f'.{_GGUF}')


def load_gguf(file: Path) -> tuple[Any, Any]:
    """Tokenizer and model of a file of llama.cpp, whose weights are dequantised.

    Raises:
        InputError: It cannot be read.
    """
    how = {'gguf_file': file.name, 'local_files_only': True}
    try:
        model = AutoModelForCausalLM.from_pretrained(file.parent, dtype=torch.float32, **how)
        tokenizer = AutoTokenizer.from_pretrained(file.parent, **how)
    except (ImportError, OSError, ValueError) as error:
        msg = f'{file} cannot be read as a model: {" ".join(str(error).split())}'
        raise InputError(msg) from None
    model.hf_quantizer, model.is_quantized = None, False  # it is no more
    return tokenizer, model


def base_folder(folder: Path) -> Path:
    """The folder of the model below an adapter; a whole model's own.

    Raises:
        InputError: The adapter names none that is on this machine, or one of pickles.
    """
    if not is_adapter(folder):
        return folder
    base = str(json.loads((folder / _ADAPTER).read_text()).get('base_model_name_or_path') or '')
    if not (Path(base) / 'config.json').exists():
        msg = f'adapter {folder} is for {base or "no"} model, which is no folder on this machine'
        raise InputError(msg)
    refuse_pickles(Path(base))
    _refuse_unreadable(Path(base))
    return Path(base)


def merge_adapter(adapter: Path, target: Path) -> Path:
    """Merge an adapter into the weights below it, and save the whole model in a folder.

    It is as precise as the model below it, and no larger.

    Raises:
        InputError: The model below it is not on this machine.
    """
    base = base_folder(adapter)
    model = AutoModelForCausalLM.from_pretrained(base, dtype='auto', **SAFELY)
    dtype = model.dtype
    # What an adapter adds is small: it is added in float32, and rounded once.
    whole = PeftModel.from_pretrained(model.float(), str(adapter)).merge_and_unload()
    whole.to(dtype).save_pretrained(target)
    load_tokenizer(base).save_pretrained(target)
    return target


def load_tokenizer(folder: Path) -> Any:
    """Load a tokenizer and prove that it reads what it writes.

    Raises:
        ValueError: Text does not survive encoding and decoding, so another class was saved there.
    """
    tokenizer = AutoTokenizer.from_pretrained(
        folder, local_files_only=True, trust_remote_code=False
    )
    probe = '<think>[2] turned left 30°: ahead 1.2 m.</think><answer>red tall object</answer>'
    ids = tokenizer(probe, add_special_tokens=False)['input_ids']
    if tokenizer.decode(ids, skip_special_tokens=True) != probe:
        msg = f'the tokenizer in {folder} does not give text back: save a byte-level BPE there'
        raise ValueError(msg)
    return tokenizer


def evaluation_rows(rows: Dataset | None, config: TrainingArguments, name: str) -> Dataset | None:
    """What a run is evaluated on meanwhile; without rows it is not, and says so."""
    if rows is not None and len(rows):
        return rows
    if config.eval_strategy != IntervalStrategy.NO:
        config.eval_strategy = IntervalStrategy.NO
        sys.stderr.write(f'{name}: no validation rows: nothing is evaluated meanwhile\n')
    return None
