"""Finds speech in recordings, with a model that keeps state from window to window. The server:

cd examples/python
VOICE_ACTIVITY_MODEL=silero_vad.jit python -m shared_tensor.server voice_activity:provider &

The caller, which can run many times at once:

python voice_activity.py Front_Center.wav Noise.wav

The model and the recordings are in the folders silero_vad and recordings of `scripts/fetch_deps --print-dir`.
"""

import os
import sys
import wave

import torch
from shared_tensor import SharedTensorProvider

RATE = 16000  # samples per second that the model expects
WINDOW = 512  # samples per window of the model

provider = SharedTensorProvider()


class Listener:
    """A model for one recording: it remembers the windows before."""

    def __init__(self) -> None:
        self.model = torch.jit.load(os.environ["VOICE_ACTIVITY_MODEL"])


@provider.share()
def listen() -> Listener:
    """A listener for one recording. It stays in the server until its caller drops the handle."""
    return Listener()


@provider.share()
def speech(listener: Listener, window: torch.Tensor) -> float:
    """The probability that the next window of a recording is speech."""
    with torch.inference_mode():
        return listener.model(window[None], RATE).item()


def read(path: str) -> torch.Tensor:
    """The samples of a recording, from -1 to 1, at the model's rate and in whole windows."""
    with wave.open(path) as file:
        factor, rest = divmod(file.getframerate(), RATE)
        if file.getnchannels() != 1 or file.getsampwidth() != 2 or rest != 0:
            raise SystemExit(f"{path}: expected 16-bit samples, one channel, a rate that is a multiple of {RATE} Hz")
        frames = bytearray(file.readframes(file.getnframes()))
    samples = torch.frombuffer(frames, dtype=torch.int16) / 32768
    half = 16 * factor  # a low pass, then every factor-th sample
    taps = torch.sinc(torch.arange(-half, half + 1) / factor) * torch.hann_window(2 * half + 1, periodic=False)
    samples = torch.conv1d(samples[None, None], (taps / taps.sum())[None, None], stride=factor, padding=half)[0, 0]
    return torch.nn.functional.pad(samples, (0, -len(samples) % WINDOW))


def stretches(probabilities: list[float]) -> list[tuple[float, float]]:
    """Speech begins at a probability of 0.5 and ends before 0.1 s below 0.35. At least 0.25 s long."""
    found, start, quiet = [], None, None
    for index, probability in enumerate(probabilities):
        now = index * WINDOW / RATE
        if probability >= 0.5:
            start, quiet = (now if start is None else start), None
        elif start is not None and probability < 0.35:
            quiet = now if quiet is None else quiet
            if now - quiet >= 0.1:
                found.append((start, quiet))
                start = quiet = None
    if start is not None:
        found.append((start, len(probabilities) * WINDOW / RATE))
    return [(start, end) for start, end in found if end - start >= 0.25]


if __name__ == "__main__":
    for path in sys.argv[1:]:
        listener = listen()
        found = stretches([speech(listener, window) for window in read(path).split(WINDOW)])
        print(f"{os.path.basename(path)}: {len(found)} stretches of speech")
        for start, end in found:
            print(f"  {start:6.2f} s to {end:6.2f} s")
