# SPDX-License-Identifier: Apache-2.0
"""The server of llama.cpp in the package xllamacpp, where there is no program `llama-server`.

Usage as a program, with some of the options of that one:

    python -m embodied_r_ros.serving.llama_server --hf-repo NAME[:QUANTISATION] | --model FILE.gguf
        [--alias NAME] [--host ADDRESS] [--port PORT] [--ctx-size TOKENS] [--parallel SLOTS]
        [--threads N] [--lora ADAPTER.gguf] [--chat-template TEMPLATE]

LLAMA_API_KEY holds the token that it checks, LLAMA_ARG_THREADS the number of threads.
"""

from __future__ import annotations

import argparse
from contextlib import suppress
import importlib
import os
from pathlib import Path
import signal
import sys
from typing import Any

_QUANTISATION = 'Q4_K_M'  # where the name says none, as llama.cpp has it
_PROJECTOR = 'mmproj'  # what a model that reads images has beside its weights


def gguf_of_hub(name: str) -> Path:
    """Download a model of the hub, unless it is here.

    Args:
        name: `OWNER/REPOSITORY`, and maybe `:QUANTISATION`.

    Raises:
        FileNotFoundError: The repository has no file of that quantisation.
        OSError: It cannot be downloaded.
    """
    from huggingface_hub import snapshot_download

    repository, _, quantisation = name.partition(':')
    kind = quantisation or _QUANTISATION
    patterns = [f'*{spelling}*.gguf' for spelling in (kind, kind.lower())]
    folder = Path(snapshot_download(repository, allow_patterns=patterns))
    paths = (path for pattern in patterns for path in folder.rglob(pattern))
    files = sorted(path for path in paths if not path.name.startswith(_PROJECTOR))
    if not files:
        msg = f'{repository} has no GGUF file of {kind}'
        raise FileNotFoundError(msg)
    return files[0]  # of a model in several files, the first names the others


def _adapter(xllamacpp: Any, path: Path) -> Any:
    adapter = xllamacpp.CommonAdapterLoraInfo()
    adapter.path, adapter.scale = str(path), 1.0
    return adapter


def _parsed(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog='llama-server', description=__doc__)
    add = parser.add_argument
    model = parser.add_mutually_exclusive_group(required=True)
    model.add_argument('-m', '--model', type=Path)
    model.add_argument('-hf', '--hf-repo')
    add('-a', '--alias', help='name of the model for clients; default: its path')
    add('--host', default='127.0.0.1')
    add('--port', type=int, default=8080)
    add('-c', '--ctx-size', type=int, default=0, help='tokens of all slots; 0: of the model')
    add('-np', '--parallel', type=int, default=1, help='slots')
    add('-t', '--threads', type=int, default=int(os.environ.get('LLAMA_ARG_THREADS', '-1')))
    add('--jinja', action='store_true', help='what --chat-template says anyway')
    add('--chat-template', default='', help='of Jinja; default: that of the model')
    add('--lora', type=Path, action='append', default=[], help='a LoRA adapter (GGUF)')
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Serve until a signal ends it."""
    args = _parsed(arguments)
    xllamacpp = importlib.import_module('xllamacpp')
    params = xllamacpp.CommonParams()
    path = args.model or gguf_of_hub(args.hf_repo)
    params.model.path = str(path)
    params.model_alias = {args.alias or str(path)}
    params.hostnames, params.port, params.ui = [args.host], args.port, False
    params.cors_origins = 'http://localhost'  # pages of other sites are not to ask it
    params.n_ctx, params.n_parallel = args.ctx_size, args.parallel
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = args.threads
    if args.chat_template:
        params.use_jinja, params.chat_template = True, args.chat_template
    if args.lora:
        params.lora_adapters = [_adapter(xllamacpp, path) for path in args.lora]
    if token := os.environ.get('LLAMA_API_KEY'):
        params.api_keys = [token]
    server = xllamacpp.Server(params)
    with suppress(KeyboardInterrupt):
        signal.pause()
    del server
    return 0


if __name__ == '__main__':
    sys.exit(main())
