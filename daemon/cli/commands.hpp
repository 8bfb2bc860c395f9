#pragma once

#include <shared_tensor/client.hpp>

#include "cli/command_line.hpp"

namespace shared_tensor::cli {

/// Runs the command and returns the exit code. Throws UsageError and the exceptions of the client.
int run(const CommandLine& line);

/// A client with the options of the command line.
Client connect(const CommandLine& line);

/// Throws UsageError unless `least` to `most` words follow the command; `what` is the correct usage.
void require_words(const CommandLine& line, std::size_t least, std::size_t most, const char* what);

// Each function runs the command of its name (remove_tensor: delete).
int call_as_task(const CommandLine& line);
int submit(const CommandLine& line);
int status(const CommandLine& line);
int wait(const CommandLine& line);
int result(const CommandLine& line);
int cancel(const CommandLine& line);
int tasks(const CommandLine& line);
int leases(const CommandLine& line);
int doctor(const CommandLine& line);
int put(const CommandLine& line);
int get(const CommandLine& line);
int tensors(const CommandLine& line);
int remove_tensor(const CommandLine& line);
int watch(const CommandLine& line);
int objects(const CommandLine& line);
int stream(const CommandLine& line);

}  // namespace shared_tensor::cli
