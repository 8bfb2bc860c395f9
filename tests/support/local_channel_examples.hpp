#pragma once

#include <string_view>

// Packets that a process may send over the local channel. Each line is one packet. A prefix adds a file descriptor to
// the packet: "+" for a page of sealed memory, "-" for memory that is not sealed, "*" for memory with a hole, "%" for
// huge pages. A line with the prefix "=" is no packet: it is the tensor descriptor of a message from the same client.

namespace shared_tensor::test {

inline constexpr std::string_view kLocalChannelExamples[] = {
    R"({"jsonrpc":"2.0","method":"session.open","params":{"protocol":"0.2","boot_id":"b","devices":["SIM-1"],"accept":["shm"]},"id":1}
+{"jsonrpc":"2.0","method":"segment.offer","params":{"segment":"a","size":4096},"id":2}
={"dtype":"float32","shape":[2,2],"strides":[1,2],"lease":"l-1","shm":{"segment":"a","offset":8,"size":16}}
{"jsonrpc":"2.0","method":"segment.recycle","params":{"segments":["a","b"]},"id":3})",

    R"({"jsonrpc":"2.0","method":"session.open","id":"x"}
+{"jsonrpc":"2.0","method":"segment.offer","params":["a",4096],"id":2}
={"dtype":"bool","shape":[4],"shm":{"segment":"a","offset":0,"size":4}}
{"jsonrpc":"2.0","method":"segment.gone","params":{"segments":["a"]}}
+{"jsonrpc":"2.0","method":"segment.offer","params":{"segment":"a","size":4096},"id":3}
={"dtype":"uint8","shape":[4096],"shm":{"segment":"a","offset":0,"size":4096}}
{"jsonrpc":"2.0","method":"segment.recycle","params":{"segments":["a"]},"id":4})",

    R"({"jsonrpc":"2.0","method":"session.open","params":{"keeps_state":true,"pid_namespace":"4"},"id":null}
-{"jsonrpc":"2.0","method":"segment.offer","params":{"segment":"a","size":4096},"id":2}
={"dtype":"float32","shape":[2],"shm":{"segment":"a","offset":0,"size":8}}
+{"jsonrpc":"2.0","method":"segment.offer","params":{"segment":"b","size":8192},"id":3}
={"dtype":"float32","shape":[2],"shm":{"segment":"b","offset":0,"size":8}})",

    R"({"jsonrpc":"2.0","method":"session.open","id":1}
*{"jsonrpc":"2.0","method":"segment.offer","params":{"segment":"a","size":4096},"id":2}
={"dtype":"uint8","shape":[8],"shm":{"segment":"a","offset":0,"size":8}}
%{"jsonrpc":"2.0","method":"segment.offer","params":{"segment":"b","size":2097152},"id":3}
={"dtype":"uint8","shape":[8],"shm":{"segment":"b","offset":0,"size":8}})",

    R"({"jsonrpc":"2.0","method":"session.open","params":{},"id":1}
{"jsonrpc":"2.0","method":"lease.confirm","params":{"leases":["l-1"]}}
{"jsonrpc":"2.0","method":"lease.release","params":{"leases":["l-1"]},"id":2}
{"jsonrpc":"2.0","method":"lease.recall","params":{"leases":["l-1"],"lost":true},"id":3}
={"dtype":"float32","shape":[2],"device":"cuda:SIM-1","lease":"l-1","cuda_ipc":{"handle":"","offset":0,"size":8,"event":"","generation":1}}
{"jsonrpc":"2.0","method":"segment.get","params":{"segment":"g-1"},"id":4})",

    R"({"jsonrpc":"2.0","method":"segment.get","params":{"segment":"g-1"},"id":1}
[{"jsonrpc":"2.0","method":"session.open","id":1}])",
};

}  // namespace shared_tensor::test
