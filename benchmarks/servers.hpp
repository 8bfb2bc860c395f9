#pragma once

namespace bench {

/// The roles that this program plays in a child process: each prints where it listens and serves until it is killed.
/// raw-tcp ping-pong of 64 bytes; raw-unix PATH the same; raw-sink reads sizes and bytes into a warm buffer; httplib a
/// bare cpp-httplib JSON echo; ours COUNT [PATH] this library with COUNT functions, on a Unix socket too.
int serve_role(int argc, char** argv);

/// Peers that are built where their libraries are found.
int serve_grpc();
int serve_jsonrpccpp();

/// A TCP port that was free a moment ago.
int free_port();

}  // namespace bench
