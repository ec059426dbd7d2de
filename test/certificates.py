# SPDX-License-Identifier: Apache-2.0
"""A certificate authority of the tests' own, and servers that it vouches for."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

_KEY = ('-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes')


class Authority:
    """An authority whose certificate lies in `ca_file`; its keys end with the test."""

    def __init__(self, folder: Path) -> None:
        if shutil.which('openssl') is None:
            pytest.skip('openssl is not installed')
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self.ca_file = folder / 'ca.pem'
        subject = f'/CN=authority of {folder.name}'
        extension = 'keyUsage=critical,keyCertSign'
        files = ('-keyout', 'ca.key', '-out', 'ca.pem')
        self._openssl('req', '-x509', *_KEY, *files, '-subj', subject, '-addext', extension)

    def server(self, name: str = 'IP:127.0.0.1') -> ssl.SSLContext:
        """What a server of that name (`IP:...` or `DNS:...`) needs."""
        files = ('-keyout', 'server.key', '-out', 'server.csr')
        self._openssl('req', *_KEY, *files, '-subj', '/CN=model server')
        (self._folder / 'names').write_text(f'subjectAltName={name}\n')
        signing = ('-CA', 'ca.pem', '-CAkey', 'ca.key', '-CAcreateserial', '-extfile', 'names')
        self._openssl('x509', '-req', '-in', 'server.csr', '-out', 'server.pem', *signing)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self._folder / 'server.pem', self._folder / 'server.key')
        return context

    def _openssl(self, *arguments: str) -> None:
        command = ['openssl', *arguments]
        subprocess.run(command, cwd=self._folder, check=True, capture_output=True, timeout=60)
