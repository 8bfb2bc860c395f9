#pragma once

#include <chrono>
#include <cstddef>
#include <string>

#include <shared_tensor/client.hpp>

#include "cli/command_line.hpp"
#include "protocol/codec/value.hpp"

namespace shared_tensor::cli {

/// Runs the command and returns the exit code. Throws UsageError and the exceptions of the client.
int run(const CommandLine& line);

/// A client with the options of the command line.
Client connect(const CommandLine& line);

/// For commands that wait: the timeout of the command line limits the whole wait, not each request.
Client connect_patiently(const CommandLine& line);
inline constexpr std::chrono::milliseconds kForEver{std::chrono::hours(24 * 365)};

/// Throws UsageError unless `least` to `most` words follow the command; `what` is the correct usage.
void require_words(const CommandLine& line, std::size_t least, std::size_t most, const char* what);

/// The JSON of the server. Throws TransportFailure if `text` is not JSON.
codec::Json parse_answer(const std::string& text);

/// The completion script for bash. Completes commands, options, files after '@', and names of functions, tasks and
/// tensors, which it gets from the server.
extern const char* const kBashCompletion;

// Each function runs the command of its name (remove_tensor: delete).
int call_as_task(const CommandLine& line);
int submit(const CommandLine& line);
int status(const CommandLine& line);
int wait(const CommandLine& line);
int result(const CommandLine& line);
int cancel(const CommandLine& line);
int tasks(const CommandLine& line);
int functions(const CommandLine& line);
int leases(const CommandLine& line);
int put(const CommandLine& line);
int get(const CommandLine& line);
int tensors(const CommandLine& line);
int remove_tensor(const CommandLine& line);
int watch(const CommandLine& line);
int objects(const CommandLine& line);
int stream(const CommandLine& line);

}  // namespace shared_tensor::cli
