"""Finds speech in recordings with a real model, the Silero voice-activity model, that stays in the server.

    VOICE_ACTIVITY_MODEL=silero_vad.jit python -m shared_tensor.server voice_activity:provider
    python voice_activity.py Front_Center.wav Noise.wav

The model keeps state from window to window, so each recording has a model of its own.
"""

import os
import sys
import wave

import torch

from shared_tensor.provider import SharedTensorProvider

RATE = 16000  # samples a second that the model takes, in windows of 512
WINDOW = 512

provider = SharedTensorProvider()


@provider.share()
def load_model():
    return torch.jit.load(os.environ["VOICE_ACTIVITY_MODEL"])


@provider.share()
def speech_probabilities(model, samples: torch.Tensor) -> list[float]:
    """The probability of speech in each window."""
    with torch.no_grad():
        return [model(window, RATE).item() for window in samples.split(WINDOW) if len(window) == WINDOW]


def read(file):
    """The samples of a recording with 16 bits and one channel, at the model's rate."""
    with wave.open(file) as recording:
        data = torch.frombuffer(bytearray(recording.readframes(recording.getnframes())), dtype=torch.int16)
        step = recording.getframerate() // RATE
    usable = len(data) - len(data) % step
    return data[:usable].view(-1, step).float().mean(dim=1) / 32768


def stretches(probabilities):
    """How often speech begins."""
    speech = [probability >= 0.5 for probability in probabilities]
    return sum(now and not before for before, now in zip([False, *speech], speech, strict=False))


def main(files):
    for file in files:
        probabilities = speech_probabilities(load_model(), read(file))
        count = stretches(probabilities)
        print(f"{os.path.basename(file)}: {len(probabilities)} windows, {count} stretches of speech")


if __name__ == "__main__":
    main(sys.argv[1:])
