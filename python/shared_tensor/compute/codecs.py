"""How tensors cross a network. On one host they cross through shared memory, and a codec changes nothing."""

from __future__ import annotations

from typing import Any


class TensorCodec:
    """Tensors are sent as they are."""

    @property
    def client_options(self) -> dict[str, Any]:
        """Options of shared_tensor.Client."""
        return {}

    @property
    def server_options(self) -> dict[str, Any]:
        """Options of SharedTensorProvider.start()."""
        return {}


class CompressedTensorCodec(TensorCodec):
    """Tensors are compressed with zstd, if that makes them smaller by a tenth. The client's codec decides whether they
    are compressed; each side's level is used for the tensors that this side sends."""

    def __init__(self, compression_level: int = 6) -> None:
        """compression_level: 1 (fast) to 9 (small); else ValueError."""
        if not 1 <= compression_level <= 9:
            raise ValueError(f"compression_level={compression_level}: use 1 (fast) to 9 (small)")
        self.compression_level = compression_level

    @property
    def client_options(self) -> dict[str, Any]:
        """Options of shared_tensor.Client."""
        return {"compression": "zstd", "compression_level": self.compression_level}

    @property
    def server_options(self) -> dict[str, Any]:
        """Options of SharedTensorProvider.start()."""
        return {"compression_level": self.compression_level}
