"""A long computation, called and waited for, beside the same computation as tasks.

python -m shared_tensor.server async_vs_sync:async_provider
python async_vs_sync.py            # with a port and the seconds of the computation: 2537 2.0
"""

import sys
import time

from shared_tensor.async_client import AsyncSharedTensorClient
from shared_tensor.async_provider import AsyncSharedTensorProvider
from shared_tensor.client import SharedTensorClient

async_provider = AsyncSharedTensorProvider()


@async_provider.share(name="async_computation", wait=False)
def heavy_computation(data, seconds=2.0):
    time.sleep(seconds)
    return data * 2


def one_after_the_other(client, seconds):
    return [client.call_function("async_computation", [data, seconds]) for data in (100, 200, 300)]


def all_at_once(client, seconds):
    task_ids = [client.submit_task("async_computation", [data, seconds]) for data in (100, 200, 300)]
    print("status:", client.get_task_status(task_ids[0]).status.value)
    return [client.wait_for_task(task_id, timeout=60) for task_id in task_ids]


def timed(text, function, *arguments):
    start = time.monotonic()
    result = function(*arguments)
    print(f"{text}: {result} in {time.monotonic() - start:.1f} s")


def main(port=2537, seconds=2.0):
    with SharedTensorClient(server_port=port) as client:
        timed("sync", one_after_the_other, client, seconds)
    with AsyncSharedTensorClient(server_port=port, poll_interval=0.1) as client:
        timed("async", all_at_once, client, seconds)
        at_once = [
            info for info in client.list_tasks("completed").values() if info.function_path == "async_computation"
        ]
        latest_start, first_end = max(i.created_at for i in at_once), min(i.completed_at for i in at_once)
        print("at the same time:", latest_start < first_end)

    task_id = heavy_computation(21, seconds=0.0)  # wait=False: a call returns the id of its task
    print("async:", async_provider.get_task_result(task_id))


if __name__ == "__main__":
    port, seconds = sys.argv[1:] or (2537, 2.0)
    main(int(port), float(seconds))
