import numpy
from shared_tensor import Client

client = Client()  # 127.0.0.1:2537, or what SHARED_TENSOR_URL says
x = numpy.array([3.0, 4.0], numpy.float32)
print(client.normalise(x))
print(client.normalise(x, length=10))

task = client.submit("train", rounds=3)  # work that outlives the call
print(task.result())
