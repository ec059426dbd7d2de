# SPDX-License-Identifier: Apache-2.0
"""What can go wrong, as one family of exceptions.

Each subclass also inherits the standard error that it refines. A message names the value, what was
expected, and what to do.
"""


class EmbodiedRError(Exception):
    """Base of every error that this package raises on purpose."""


class InputError(EmbodiedRError, ValueError):
    """The user gave something that cannot be used; command lines end with exit code 2."""


class SourceError(InputError):
    """A video, folder or bag cannot be read as a stream of images."""


class BagError(InputError):
    """A bag or a message in it cannot be read or written."""


class ConfigError(InputError):
    """A setting has a value that is not allowed."""


class ImageError(EmbodiedRError, ValueError):
    """Bytes are not an image that may be decoded."""


class UnsupportedImageError(ImageError):
    """An image is whole, and of a kind that is no picture or cannot be decoded here."""


class ModelError(EmbodiedRError, RuntimeError):
    """A model server failed, refused, or answered with something unusable."""


class DeadlineError(ModelError, TimeoutError):
    """A model did not answer in time."""


class CancelledError(ModelError):
    """The caller ended the generation."""
