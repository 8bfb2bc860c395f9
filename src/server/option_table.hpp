#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <shared_tensor/server.hpp>

#include "protocol/json_rpc/json_text.hpp"

namespace shared_tensor::server {

/// One option: a member of ServerOptions, or an option that a program adds. The flag, the environment variable, the key
/// in the configuration file, the lines of --help and --print-config, the row of docs/options.md and the limit in
/// server.info are made from it.
struct Option {
    struct Count {
        std::size_t* value;
        std::size_t least = 1, most = 1'000'000;
    };
    struct Integer {
        int* value;
        int least, most;
    };
    struct Bytes {
        std::size_t* value;
    };
    using Text = std::string*;
    using List = std::vector<std::string>*;
    using Flag = bool*;
    using Time = std::chrono::milliseconds*;

    std::string_view name;  ///< "max-tasks": --max-tasks, SHARED_TENSOR_MAX_TASKS, "max-tasks" in the file
    bool common;            ///< --help shows it; --help-all shows every option
    std::string_view help;
    std::string_view member;  ///< of ServerOptions, such as "calls.tasks.max_tasks"; empty: not a member
    std::variant<Text, List, Flag, Count, Integer, Bytes, Time> value;
    std::string_view section{};  ///< the heading above it in --help

    bool is_list() const { return std::holds_alternative<List>(value); }
    bool is_flag() const { return std::holds_alternative<Flag>(value); }
    /// Parses `text` and sets the value; a list gets one more item. Throws std::invalid_argument that says what the
    /// text must be.
    void set(const std::string& text) const;
    void clear_list() const;
    json_rpc::Json show() const;
};

/// Returns one option for each member of `options`, in the order in which people read them. `options` must outlive the
/// table.
std::vector<Option> option_table(ServerOptions& options);

/// Returns the numbers, sizes and times of `options`, as server.info shows them. A limit of 0 means "no limit" and is
/// left out.
json_rpc::Json limits_json(const ServerOptions& options);

/// Returns all options as server.options shows them: [{name, section, help, value, default, origin}].
json_rpc::Json describe_options(const ServerOptions& options);

/// Returns the options that a server with `options` uses. Values that depend on the machine are filled in (0: a quarter
/// of the memory, ...). Limits on what takes descriptors are lowered to what the limit of open files allows. Throws
/// std::invalid_argument.
ServerOptions in_force(ServerOptions options);

/// Limits for the parts of a server that take file descriptors. The limits count these parts, not descriptors.
struct DescriptorShares {
    std::size_t connections = 0, web_sockets = 0, local_channels = 0;
    std::size_t own_segments = 0;      ///< of shared memory, for results
    std::size_t clients_segments = 0;  ///< of shared memory, offered by clients
};

/// Lowers the limits in `wanted` so that all parts together fit into `free` descriptors, and no part takes what another
/// part needs. Leaves a reserve of descriptors for connections that are rejected, packets of the local channel, and
/// files of functions. `segments`: the operator's limit for both kinds of segments together; 0: use what is left.
DescriptorShares share_descriptors(DescriptorShares wanted, std::size_t segments, std::size_t free);

}  // namespace shared_tensor::server
