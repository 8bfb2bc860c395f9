// shared-tensor: the command-line client. See --help.

#include <unistd.h>

#include <exception>
#include <iostream>
#include <string>
#include <string_view>

#include <shared_tensor/error.hpp>

#include "base/system/unique_fd.hpp"
#include "cli/commands.hpp"
#include "cli/terminal.hpp"
#include "protocol/json_rpc/json_text.hpp"

namespace {

using namespace shared_tensor;  // NOLINT(google-build-using-namespace): the program of this library

/// Prints the error as one line of JSON to standard output, for programs (--json).
void print_error(const RpcError& error) {
    codec::Json json{{"code", error.code()}, {"message", error.message()}};
    auto data = json_rpc::parse_json(error.data());
    if (const auto* found = std::get_if<codec::Json>(&data)) json["data"] = *found;
    cli::print_line(cli::compact({{"error", std::move(json)}}));
}

/// Begins a line with an error.
std::ostream& errors() {
    return std::cerr << (cli::has_colours(STDERR_FILENO) ? "\x1b[31mshared-tensor:\x1b[0m " : "shared-tensor: ");
}

/// The text of an error, whose lines may come from the server, without what could control the terminal.
std::string shown(std::string_view text) {
    std::string lines = cli::printable(text.substr(0, text.find('\n')));
    while (text.find('\n') != std::string_view::npos) {
        text.remove_prefix(text.find('\n') + 1);
        lines += '\n' + cli::printable(text.substr(0, text.find('\n')));
    }
    return lines;
}

int exit_of(const RpcError& error) {
    if (dynamic_cast<const TransportFailure*>(&error) != nullptr) return cli::kUnreachable;
    if (dynamic_cast<const DeadlineExceeded*>(&error) != nullptr) return cli::kLate;
    if (dynamic_cast<const Cancelled*>(&error) != nullptr) return cli::kCancelled;
    return cli::kFailed;
}

int run_reporting(const cli::CommandLine& line) {
    try {
        return cli::run(line);
    } catch (const RpcError& error) {
        errors() << shown(error.what()) << '\n';
        if (line.json) print_error(error);
        return exit_of(error);
    }
}

int guarded_main(int argc, char** argv) {
    const cli::CommandLine line = cli::parse_command_line(argc, argv);
    if (line.print) {
        cli::print_line(*line.print);
        return cli::kOk;
    }
    return run_reporting(line);
}

}  // namespace

int main(int argc, char** argv) {
    shared_tensor::fill_standard_descriptors();
    try {
        return guarded_main(argc, argv);
    } catch (const cli::UsageError& error) {
        errors() << error.what() << " (--help shows what there is)\n";
        return cli::kUsage;
    } catch (const std::exception& error) {
        errors() << error.what() << '\n';
        return cli::kFailed;
    }
}
