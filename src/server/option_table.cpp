#include "server/option_table.hpp"

#include <algorithm>
#include <charconv>
#include <stdexcept>
#include <thread>

#include "base/concurrency/clock.hpp"
#include "base/log/log.hpp"
#include "base/system/host.hpp"
#include "net/message/text.hpp"
#include "net/server/listener.hpp"

namespace shared_tensor::server {

namespace {

using json_rpc::Json;

static_assert(std::is_same_v<std::size_t, std::uint64_t>);

template <class T>
T parse_number(const std::string& text, T least, T most) {
    T value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value < least || value > most) {
        throw std::invalid_argument("must be an integer from " + std::to_string(least) + " to " + std::to_string(most) +
                                    ", not \"" + text + '"');
    }
    return value;
}

/// "1048576", "64K", "64M", "2G" (powers of 1024); "2GiB" is the same as "2G"
std::size_t parse_size(const std::string& text) {
    const auto unit = text.find_first_not_of("0123456789");
    std::string suffix = unit == std::string::npos ? "" : text.substr(unit);
    if (suffix.size() == 3 && suffix.ends_with("iB")) suffix.resize(1);
    const int shift = suffix.empty() ? 0 : suffix == "K" ? 10 : suffix == "M" ? 20 : suffix == "G" ? 30 : -1;
    if (shift < 0)
        throw std::invalid_argument("must be a size in bytes such as 65536, 64K, 64M or 2G, not \"" + text + '"');
    return parse_number<std::size_t>(text.substr(0, unit), 0, (std::size_t{1} << 62) >> shift) << shift;
}

bool parse_bool(const std::string& text) {
    if (text == "1" || text == "true" || text == "yes" || text == "on") return true;
    if (text == "0" || text == "false" || text == "no" || text == "off") return false;
    throw std::invalid_argument("must be true or false, not \"" + text + '"');
}

struct Setter {
    const std::string& text;
    void operator()(Option::Text value) const { *value = text; }
    void operator()(Option::List value) const { value->push_back(text); }
    void operator()(Option::Flag value) const { *value = parse_bool(text); }
    void operator()(Option::Count count) const { *count.value = parse_number(text, count.least, count.most); }
    void operator()(Option::Integer number) const { *number.value = parse_number(text, number.least, number.most); }
    void operator()(Option::Bytes bytes) const { *bytes.value = parse_size(text); }
    void operator()(Option::Time value) const { *value = parse_duration(text); }
};

struct Shower {
    Json operator()(Option::Count count) const { return *count.value; }
    Json operator()(Option::Integer number) const { return *number.value; }
    Json operator()(Option::Bytes bytes) const { return *bytes.value; }
    Json operator()(Option::Time value) const { return std::to_string(value->count()) + "ms"; }
    template <class T>
    Json operator()(const T* value) const {
        return *value;
    }
};

// What an option sets: the member's name and where it lies.
// NOLINTBEGIN(bugprone-macro-parentheses): a member cannot stand in parentheses
#define MEMBER(path) #path, &options.path
#define COUNT(path, ...) \
#path, Option::Count { &options.path __VA_OPT__(, ) __VA_ARGS__ }
#define INTEGER(path, least, most) \
#path, Option::Integer { &options.path, least, most }
#define BYTES(path) \
#path, Option::Bytes { &options.path }
// NOLINTEND(bugprone-macro-parentheses)

constexpr bool kCommon = true, kRare = false;
constexpr std::size_t kMillions = 10'000'000, kBillion = 1'000'000'000;

std::vector<Option> listening(ServerOptions& options) {
    return {
        {"host", kCommon, "address; beyond loopback only with tokens; empty: no TCP", MEMBER(host)},
        {"port", kCommon, "TCP port; the default plus RANK or LOCAL_RANK; 0: any free port", INTEGER(port, 0, 65535)},
        {"unix-socket", kCommon, "path of a Unix socket to listen on as well; mode 0600", MEMBER(unix_socket)},
        {"local-socket", kCommon, "path of the channel by which memory is shared; auto; none", MEMBER(local_socket)},
        {"cuda", kCommon, "share tensors on GPUs without a copy: auto, on, off", MEMBER(cuda)},
    };
}

std::vector<Option> access(ServerOptions& options) {
    return {
        {"token-file", kCommon, "lines NAME:SECRET, then :admin or :allow=METHOD,PREFIX.*; mode 0600",
         MEMBER(token_file)},
        {"tls-certificate", kCommon, "PEM file of the server's certificate and chain: https", MEMBER(tls.certificate)},
        {"tls-key", kCommon, "PEM file of the certificate's key; not readable by others", MEMBER(tls.key)},
        {"tls-client-ca", kCommon, "PEM file of authorities: clients need a certificate", MEMBER(tls.authorities)},
        {"insecure", kCommon, "listen beyond loopback without tokens", MEMBER(insecure)},
        {"allowed-host", kCommon, "additional value of the Host header to accept (repeatable)", MEMBER(allowed_hosts)},
        {"allowed-origin", kCommon, "origin of web pages that may call (repeatable)", MEMBER(allowed_origins)},
    };
}

std::vector<Option> operations(ServerOptions& options) {
    return {
        {"dashboard", kRare, "serve the dashboard, a web page, at /", MEMBER(dashboard)},
        {"operations-listen", kCommon, "ADDRESS:PORT that serves only /metrics, /healthz, /readyz",
         MEMBER(operations.listen)},
        {"operations-allowed-host", kRare,
         "name that the Host header may have there (repeatable); addresses always may", MEMBER(operations.hosts)},
        {"operations-token-file", kRare, "lines NAME:SECRET; then /metrics there needs a token; mode 0600",
         MEMBER(operations.token_file)},
        {"operations-connections", kRare, "connections of that port that are open at the same time",
         COUNT(operations.max_connections, 1, 10'000)},
        {"max-metric-values", kRare, "functions and clients that have a label of their own in /metrics",
         COUNT(metrics.max_values)},
        {"trace-endpoint", kRare, "URL of an OpenTelemetry collector that gets spans: http://127.0.0.1:4318",
         MEMBER(traces.endpoint)},
        {"trace-every", kRare, "one of so many traces that begin here is recorded", COUNT(traces.every, 1, kBillion)},
        {"max-trace-spans", kRare, "spans that wait for the collector; later ones are dropped",
         COUNT(traces.max_spans, 1, kMillions)},
    };
}

std::vector<Option> functions(ServerOptions& options) {
    return {
        {"model", kCommon, "NAME=PATH of a TorchScript or .pt2 file (repeatable)", MEMBER(models)},
        {"model-folder", kCommon, "folder of files for model.load (repeatable)", MEMBER(model_folders)},
        {"libtorch", kCommon, "folder of the libtorch for models; empty: the server searches for it", MEMBER(libtorch)},
        {"service-name", kRare, "name of the service, for server.info and spans", MEMBER(service_name)},
        {"service-version", kRare, "version of the service, for server.info", MEMBER(service_version)},
    };
}

std::vector<Option> running(ServerOptions& options) {
    return {
        {"workers", kCommon, "threads that run functions; 0: max(4, cores)", COUNT(calls.pool.workers, 0, 4096)},
        {"queue", kCommon, "calls and tasks that may wait for a worker", COUNT(calls.pool.queue_limit)},
        {"timeout", kCommon, "deadline of a call without a deadline of its own", MEMBER(calls.call_timeout)},
        {"drain-time", kCommon, "how long calls in flight may take after SIGTERM", MEMBER(drain_time)},
        {"compression", kCommon, "codings for clients that ask, best first: zstd, gzip; none",
         MEMBER(compression.codings)},
        {"compression-level", kRare, "1 (fast) to 9 (small)", INTEGER(compression.level, 1, 9)},
        {"torch-threads", kRare, "threads of libtorch for each thread that calls it; 0: max(1, cores / workers)",
         COUNT(torch_threads, 0, 4096)},
        {"cache", kCommon, "keep results of functions marked cached", MEMBER(calls.cache)},
        {"cache-bytes", kRare, "size of all kept results", BYTES(calls.cache_bytes)},
        {"max-wait", kRare, "longest wait of one task.wait, task.result or tensor.watch request", MEMBER(max_wait)},
        {"max-tasks", kRare, "tasks that are kept", COUNT(calls.tasks.max_tasks)},
        {"task-ttl", kRare, "how long a finished task is kept", MEMBER(calls.tasks.default_ttl)},
        {"max-task-bytes", kRare, "size of the results of finished tasks, host and device separately",
         BYTES(calls.tasks.max_bytes)},
        {"idempotency-window", kRare, "how long a key is known after its call ended", MEMBER(calls.idempotency.window)},
        {"idempotency-bytes", kRare, "arguments and results held for idempotency keys",
         BYTES(calls.idempotency.max_bytes)},
        {"slow-call", kRare, "a call that takes longer is logged as a warning; 0: none is", MEMBER(log.slow_call)},
        {"access-log", kRare, "file that gets one line for each request; -: standard output", MEMBER(log.access_log)},
        {"max-streams", kRare, "calls that stream at the same time; each has its own thread, which is not a worker",
         COUNT(calls.max_streams, 1, 100'000)},
    };
}

std::vector<Option> requests(ServerOptions& options) {
    return {
        {"max-json-bytes", kCommon, "JSON of a request", BYTES(requests.json.max_bytes)},
        {"max-json-depth", kRare, "levels of arrays and objects", COUNT(requests.json.max_depth, 1, 1000)},
        {"max-batch-items", kRare, "requests in a batch", COUNT(requests.max_batch_items)},
        {"max-body-bytes", kCommon, "binary body of a request", BYTES(http.max_body_bytes)},
        {"max-bytes-in-flight", kCommon, "bodies and copies held at once; 0: a quarter of the memory",
         BYTES(http.max_bytes_in_flight)},
        {"max-reply-json-bytes", kRare, "JSON of a response", BYTES(replies.max_json_bytes)},
        {"max-reply-data-elements", kRare, "elements of a tensor that a response writes as nested lists",
         COUNT(replies.max_data_elements, 1, kBillion)},
        {"max-connections", kCommon, "connections that are open at the same time", COUNT(http.max_connections)},
        {"max-client-connections", kRare,
         "connections of one address, user or principal; 0: any number from loopback, else half of max-connections",
         COUNT(http.max_client_connections, 0)},
        {"max-client-requests", kCommon, "requests of one client per second, on average; 0: any number",
         COUNT(http.max_client_requests, 0, kBillion)},
        {"header-timeout", kRare, "time until the headers of a request are complete", MEMBER(http.header_timeout)},
        {"body-timeout", kRare,
         "time until a JSON request is complete; for a binary request the time between two reads",
         MEMBER(http.body_timeout)},
        {"idle-timeout", kRare, "time that a connection without a request stays open", MEMBER(http.idle_timeout)},
        {"write-timeout", kRare, "time after which a client that reads nothing is disconnected",
         MEMBER(http.write_timeout)},
        {"min-bytes-per-second", kRare, "minimum rate of a binary request or a response, on average; 0: no limit",
         COUNT(http.min_bytes_per_second, 0, kBillion)},
        {"max-web-sockets", kRare, "WebSockets that are open at the same time", COUNT(sockets.max_sockets, 1, 100'000)},
        {"max-socket-calls", kRare, "calls of one WebSocket at the same time", COUNT(sockets.max_calls, 1, 10'000)},
    };
}

std::vector<Option> memory(ServerOptions& options) {
    return {
        {"max-shared-bytes", kCommon, "shared memory for results; 0: half of the memory",
         BYTES(shared_memory.max_bytes)},
        {"max-segments", kRare, "segments of shared memory, each with a descriptor; 0: by the limit of open files",
         COUNT(shared_memory.max_segments, 0, kMillions)},
        {"max-local-channels", kRare, "processes that share memory with the server", COUNT(shared_memory.max_channels)},
        {"max-named-bytes", kCommon, "tensors kept by name; 0: a quarter of the memory", BYTES(names.max_bytes)},
        {"older-versions", kRare,
         "older versions of each named tensor that are kept, for smaller transfers to other hosts",
         COUNT(names.older_versions, 0, 100)},
        {"max-state-bytes", kRare, "records of what outlives the process; see shared-tensor-keeper",
         BYTES(state.max_bytes)},
        {"swarm-receivers", kRare, "processes that pull named tensors together; see pull --swarm",
         COUNT(swarms.max_receivers)},
        {"swarm-silence", kRare, "a receiver of a swarm that asks for nothing for so long is forgotten",
         MEMBER(swarms.silence)},
        {"max-named-tensors", kRare, "tensors and sets kept by name", COUNT(names.max_names, 1, kMillions)},
        {"max-upload-bytes", kRare, "size of all incomplete uploads of files; 0: a quarter of the memory",
         BYTES(uploads.max_bytes)},
        {"max-uploads", kRare, "incomplete uploads of files; one client has at most half of them",
         COUNT(uploads.max_uploads, 1, kMillions)},
        {"upload-ttl", kRare, "time after which an incomplete upload without another part is dropped",
         MEMBER(uploads.ttl)},
        {"max-leases", kRare, "tensors lent to clients; one client has at most half of them",
         COUNT(leases.max_leases, 1, kMillions)},
        {"max-kept-bytes", kRare,
         "size of all tensors lent to clients without a local channel; 0: a quarter of the memory",
         BYTES(leases.max_kept_bytes)},
        {"lease-confirm-within", kRare,
         "time after which a lease ends if its client does not confirm it (our clients confirm within 2 s)",
         MEMBER(leases.confirm_within)},
        {"max-sessions", kRare, "sessions over HTTP, and sessions of each local channel", COUNT(sessions.max_sessions)},
        {"session-idle", kRare,
         "time after which an unused session ends, or an unused handle of an object without a session",
         MEMBER(sessions.idle)},
        {"max-objects", kRare, "handles of objects; one principal has at most half of them",
         COUNT(objects.max_handles, 1, kMillions)},
    };
}

#undef MEMBER
#undef COUNT
#undef INTEGER
#undef BYTES

/// "max-wait" is max_wait_ms. A call's deadline has kept the name that it had before it was an option.
std::string info_name(const Option& option) {
    std::string name(option.name == "timeout" ? "call-timeout" : option.name);
    std::replace(name.begin(), name.end(), '-', '_');
    return std::holds_alternative<Option::Time>(option.value) ? name + "_ms" : name;
}

/// Nothing of what is no number, or a number that stands for "no bound".
struct Limit {
    static Json number(std::size_t value) { return value > 0 ? Json(value) : Json(); }
    Json operator()(Option::Count count) const { return number(*count.value); }
    Json operator()(Option::Bytes bytes) const { return number(*bytes.value); }
    Json operator()(Option::Time value) const { return number(static_cast<std::size_t>(value->count())); }
    template <class T>
    Json operator()(const T& value) const {
        static_cast<void>(value);
        return {};
    }
};

}  // namespace

void Option::set(const std::string& text) const { std::visit(Setter{text}, value); }

void Option::clear_list() const {
    if (const List* list = std::get_if<List>(&value)) (*list)->clear();
}

Json Option::show() const { return std::visit(Shower(), value); }

std::vector<Option> option_table(ServerOptions& options) {
    std::vector<Option> all;
    const auto add = [&](std::string_view section, std::vector<Option> rows) {
        for (Option& row : rows) {
            row.section = section;
            all.push_back(std::move(row));
        }
    };
    add("Where it listens", listening(options));
    add("Who may call", access(options));
    add("What operators read", operations(options));
    add("What it shares", functions(options));
    add("How it runs", running(options));
    add("Limits of requests and connections", requests(options));
    add("Limits of memory and of what clients hold", memory(options));
    return all;
}

Json limits_json(const ServerOptions& options) {
    ServerOptions shown = options;
    Json limits = Json::object();
    for (const Option& option : option_table(shown)) {
        Json limit = std::visit(Limit(), option.value);
        if (!limit.is_null()) limits[info_name(option)] = std::move(limit);
    }
    return limits;
}

DescriptorShares share_descriptors(DescriptorShares wanted, std::size_t segments, std::size_t free) {
    const std::size_t reserve = std::clamp<std::size_t>(free / 8, 16, 512);
    const std::size_t rest = free - std::min(free, reserve);
    const auto at_most = [](std::size_t count, std::size_t most) {
        return std::min(count, std::max<std::size_t>(1, most));
    };
    DescriptorShares shares;
    shares.connections = at_most(wanted.connections, rest * 5 / 16);
    shares.web_sockets = at_most(wanted.web_sockets, rest / 16);        // one descriptor each, beside the connection's
    shares.local_channels = at_most(wanted.local_channels, rest / 16);  // two descriptors each: socket and pidfd
    const std::size_t others = shares.connections + shares.web_sockets + 2 * shares.local_channels;
    const std::size_t left = segments > 0 ? segments : rest - std::min(rest, others);
    shares.own_segments = segments > 0 ? std::max<std::size_t>(1, left / 2) : at_most(wanted.own_segments, left / 2);
    shares.clients_segments =
        segments > 0 ? std::max<std::size_t>(1, left / 2) : at_most(wanted.clients_segments, left / 2);
    return shares;
}

namespace {

void lower(std::size_t& limit, std::size_t to, const char* name, std::size_t descriptors) {
    if (to < limit)
        log::info(name, " is ", to, " instead of ", limit, ": the limit of open files (ulimit -n) is ", descriptors);
    limit = to;
}

/// Lowers the limits on what takes descriptors, so that some descriptors are left for answers.
void use_descriptors(ServerOptions& options) {
    constexpr std::size_t kMostSegments = 16'384;  // own segments, and segments of clients: this many each
    const std::size_t limit = options.raise_descriptor_limit ? raise_descriptor_limit() : descriptor_limit();
    const std::size_t of_operations = options.operations.listen.empty() ? 0 : options.operations.max_connections;
    const std::size_t open = open_descriptors() + of_operations;
    SharedMemoryLimits& memory = options.shared_memory;
    const DescriptorShares shares = share_descriptors(
        {options.http.max_connections, options.sockets.max_sockets, memory.max_channels, kMostSegments, kMostSegments},
        memory.max_segments, limit - std::min(limit, open));
    lower(options.http.max_connections, shares.connections, "--max-connections", limit);
    lower(options.sockets.max_sockets, shares.web_sockets, "--max-web-sockets", limit);
    lower(memory.max_channels, shares.local_channels, "--max-local-channels", limit);
    memory.max_segments = shares.own_segments + shares.clients_segments;
}

void if_zero(std::size_t& value, std::size_t otherwise) {
    if (value == 0) value = otherwise;
}

/// Makes the addresses of inherited sockets the options' addresses: access rules and URLs depend on these.
void use_addresses_of_sockets(ServerOptions& options) {
    if (const int fd = options.operations.socket; fd >= 0) {
        const auto address = net::ListeningAddress::of(fd);
        if (address.port == 0) throw std::invalid_argument("the port for operators is a TCP port, not a Unix socket");
        options.operations.listen = net::host_and_port(address.host, address.port);
    }
    if (options.inherited_sockets.empty()) return;
    options.host.clear();
    options.unix_socket.clear();
    for (const int fd : options.inherited_sockets) {
        const auto address = net::ListeningAddress::of(fd);
        if (!(address.host.empty() ? options.unix_socket : options.host).empty())
            throw std::invalid_argument(
                "the server inherited two sockets of one kind: give it one TCP socket, one Unix socket, or one of "
                "each");
        if (address.host.empty()) {
            options.unix_socket = address.unix_socket;
        } else {
            options.host = address.host;
            options.port = address.port;
        }
    }
}

/// Options that a program set without a name: members of ServerOptions.
void name_origins(ServerOptions& options) {
    ServerOptions defaults;
    const std::vector<Option> table = option_table(options), usual = option_table(defaults);
    for (std::size_t i = 0; i < table.size(); ++i) {
        if (table[i].show() != usual[i].show()) options.origins.try_emplace(std::string(table[i].name), "program");
    }
}

}  // namespace

Json describe_options(const ServerOptions& options) {
    ServerOptions shown = options, defaults;
    const std::vector<Option> table = option_table(shown), usual = option_table(defaults);
    Json list = Json::array();
    for (std::size_t i = 0; i < table.size(); ++i) {
        const auto origin = options.origins.find(std::string(table[i].name));
        list.push_back({{"name", table[i].name},
                        {"section", table[i].section},
                        {"help", table[i].help},
                        {"value", table[i].show()},
                        {"default", usual[i].show()},
                        {"origin", origin != options.origins.end() ? origin->second : "default"}});
    }
    for (const auto& [name, value] : options.program_options) {
        const auto origin = options.origins.find(name);
        list.push_back({{"name", name},
                        {"section", "Options of the program"},
                        {"value", value},
                        {"origin", origin != options.origins.end() ? origin->second : "default"}});
    }
    return list;
}

namespace {

/// Limits that let no client do anything if they are 0.
void reject_zeros(const ServerOptions& options) {
    const std::pair<const char*, bool> zeros[] = {
        {"timeout", options.calls.call_timeout.count() == 0},
        {"task-ttl", options.calls.tasks.default_ttl.count() == 0},
        {"max-json-bytes", options.requests.json.max_bytes == 0},
        {"max-reply-json-bytes", options.replies.max_json_bytes == 0},
        {"idle-timeout", options.http.idle_timeout.count() == 0},
    };
    for (const auto& [name, is_zero] : zeros)
        if (is_zero) throw std::invalid_argument(std::string(name) + " must be more than 0");
}

}  // namespace

ServerOptions in_force(ServerOptions options) {
    name_origins(options);
    use_addresses_of_sockets(options);
    if (options.host.empty() && options.unix_socket.empty())
        throw std::invalid_argument("the server has nowhere to listen: give a host or a Unix socket");
    if (options.cuda != "auto" && options.cuda != "on" && options.cuda != "off")
        throw std::invalid_argument("cuda is \"" + options.cuda + "\": use auto, on or off");
    WorkerLimits& pool = options.calls.pool;
    if (pool.queue_limit == 0) throw std::invalid_argument("queue must be at least 1");
    reject_zeros(options);
    use_descriptors(options);
    const std::size_t cores = std::max(1U, std::thread::hardware_concurrency()), memory = memory_size();
    if_zero(pool.workers, std::max<std::size_t>(4, cores));
    if_zero(options.torch_threads, std::max<std::size_t>(1, cores / pool.workers));
    if_zero(options.http.max_bytes_in_flight, memory / 4);
    if_zero(options.shared_memory.max_bytes, memory / 2);
    if_zero(options.leases.max_kept_bytes, memory / 4);
    if_zero(options.names.max_bytes, memory / 4);
    if_zero(options.uploads.max_bytes, memory / 4);
    return options;
}

}  // namespace shared_tensor::server
