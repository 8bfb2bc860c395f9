"""A model that is made in the server, stays there, and is used by its handle.

python -m shared_tensor.server model_sharing:provider
python model_sharing.py
"""

import sys

import torch
import torch.nn as nn
from shared_tensor.client import SharedTensorClient
from shared_tensor.provider import SharedTensorProvider

provider = SharedTensorProvider()


class SimpleNet(nn.Module):
    def __init__(self, input_size, hidden_size, output_size):
        super().__init__()
        self.fc1 = nn.Linear(input_size, hidden_size)
        self.relu = nn.ReLU()
        self.fc2 = nn.Linear(hidden_size, output_size)

    def forward(self, x):
        return self.fc2(self.relu(self.fc1(x)))


def seeded_net(*sizes):
    torch.manual_seed(0)
    return SimpleNet(*sizes)


@provider.share(name="create_model", singleton=True)
def create_model(input_size=784, hidden_size=128, output_size=10):
    """Callers that ask for the same sizes get the same model."""
    return seeded_net(input_size, hidden_size, output_size)


@provider.share(name="model_inference")
def model_inference(model, input_data):
    with torch.no_grad():
        return model(input_data)


@provider.share(name="set_bias")
def set_bias(model, value):
    nn.init.constant_(model.fc2.bias, value)


def main(port=2537):
    model = create_model()
    print("handle of a", model.type)
    input_data = torch.randn(4, 784)
    output = model_inference(model, input_data)
    print("shape:", tuple(output.shape))
    with torch.no_grad():
        print("as the same model here:", torch.equal(output, seeded_net(784, 128, 10)(input_data)))

    with SharedTensorClient(server_port=port) as client:  # another caller
        same = client.call_function("create_model", [784], {"hidden_size": 128})
        other = client.call_function("create_model", [784], {"hidden_size": 16})
        set_bias(model, 100.0)
        print("the same model:", client.call_function("model_inference", [same, input_data]).min().item() > 50)
        print("another model:", client.call_function("model_inference", [other, input_data]).max().item() < 50)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
