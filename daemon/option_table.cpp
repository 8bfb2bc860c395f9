#include "option_table.hpp"

#include <charconv>
#include <limits>
#include <stdexcept>

#include "util/log.hpp"
#include "util/time_text.hpp"

namespace shared_tensor::daemon {

namespace {

using nlohmann::json;

template <class T>
T parse_number(const std::string& text, T least, T most, std::string_view unit = "") {
    T value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value < least || value > most) {
        throw std::invalid_argument("must be an integer from " + std::to_string(least) + " to " + std::to_string(most) +
                                    std::string(unit) + ", not \"" + text + '"');
    }
    return value;
}

/// "1048576", "64K", "64M", "2G" (powers of 1024)
std::uint64_t parse_size(const std::string& text) {
    const auto unit = text.find_first_not_of("0123456789");
    const std::string suffix = unit == std::string::npos ? "" : text.substr(unit);
    const int shift = suffix.empty() ? 0 : suffix == "K" ? 10 : suffix == "M" ? 20 : suffix == "G" ? 30 : -1;
    if (shift < 0)
        throw std::invalid_argument("must be a size in bytes such as 65536, 64K, 64M or 2G, not \"" + text + '"');
    return parse_number<std::uint64_t>(text.substr(0, unit), 0, std::uint64_t{1} << 33) << shift;
}

bool parse_bool(const std::string& text) {
    if (text == "1" || text == "true" || text == "yes" || text == "on") return true;
    if (text == "0" || text == "false" || text == "no" || text == "off") return false;
    throw std::invalid_argument("must be true or false, not \"" + text + '"');
}

/// Builds entries for the members of DaemonOptions.
class Table {
public:
    std::vector<OptionEntry> entries;
    std::string group;

    template <class Get>
    void text(const char* name, const char* help, Get get) {
        add(
            name, OptionKind::value, help, [get](DaemonOptions& o, const std::string& v) { get(o) = v; }, shown(get));
    }
    template <class Get>
    void list(const char* name, const char* help, Get get) {
        add(
            name, OptionKind::list, help, [get](DaemonOptions& o, const std::string& v) { get(o).push_back(v); },
            shown(get));
        entries.back().clear = [get](DaemonOptions& o) { get(o).clear(); };
    }
    template <class Get>
    void flag(const char* name, const char* help, Get get) {
        add(
            name, OptionKind::flag, help, [get](DaemonOptions& o, const std::string& v) { get(o) = parse_bool(v); },
            shown(get));
    }
    template <class Get>
    void count(const char* name, const char* help, std::size_t least, Get get, std::size_t most = 1'000'000) {
        add(
            name, OptionKind::value, help,
            [=](DaemonOptions& o, const std::string& v) { get(o) = parse_number<std::size_t>(v, least, most); },
            shown(get));
    }
    template <class Get>
    void size(const char* name, const char* help, Get get) {
        add(
            name, OptionKind::value, help, [get](DaemonOptions& o, const std::string& v) { get(o) = parse_size(v); },
            shown(get));
    }
    template <class Get>
    void time(const char* name, const char* help, Get get) {
        add(
            name, OptionKind::value, help,
            [get](DaemonOptions& o, const std::string& v) { get(o) = parse_duration(v); },
            [get](const DaemonOptions& o) { return json(std::to_string(get(o).count()) + "ms"); });
    }
    void add(const char* name, OptionKind kind, const char* help,
             std::function<void(DaemonOptions&, const std::string&)> set,
             std::function<json(const DaemonOptions&)> show) {
        entries.push_back({name, kind, group, help, std::move(set), std::move(show), nullptr});
    }

private:
    template <class Get>
    static std::function<json(const DaemonOptions&)> shown(Get get) {
        return [get](const DaemonOptions& o) { return json(get(o)); };
    }
};

// NOLINTBEGIN(bugprone-macro-parentheses): a lambda needs none
#define MEMBER(path) \
    [](auto& o) -> auto& { return o.path; }
// NOLINTEND(bugprone-macro-parentheses)

void add_listening(Table& table) {
    table.group = "Where it listens";
    table.text("host", "address; anything but loopback needs a token or --insecure; empty: no TCP",
               MEMBER(server.host));
    table.add(
        "port", OptionKind::value, "TCP port; default 2537 + RANK (else LOCAL_RANK); 0: the kernel chooses",
        [](DaemonOptions& o, const std::string& v) { o.server.port = parse_number<int>(v, 0, 65535); },
        [](const DaemonOptions& o) { return json(o.server.port); });
    table.text("unix-socket", "path of a Unix socket to listen on as well (mode 0600)", MEMBER(server.unix_socket));
    table.text(
        "local-socket",
        "path of the local channel, by which processes of this host share memory; auto: named after the port, in "
        "the user's runtime directory; none",
        MEMBER(server.local_socket));
    table.text("cuda",
               "tensors on GPUs go to processes of this host without a copy: auto (where there is a GPU), on, off",
               MEMBER(server.cuda));
    table.text("token-file",
               "who may call: lines NAME:SECRET, then :admin or :allow=METHOD,PREFIX.*; mode 0600; read again when it "
               "changes",
               MEMBER(server.token_file));
    table.text("tls-certificate", "PEM file of the server's certificate and its chain: https (TLS 1.3) instead of http",
               MEMBER(server.tls_certificate));
    table.text("tls-key", "PEM file of its key; not readable by others", MEMBER(server.tls_key));
    table.text("tls-client-ca", "PEM file of authorities: clients need a certificate of theirs",
               MEMBER(server.tls_client_ca));
    table.flag("insecure", "listen beyond loopback without tokens", MEMBER(server.insecure));
    table.list("allowed-host", "further value that Host may have (repeatable)", MEMBER(server.allowed_hosts));
    table.list("allowed-origin", "web page origin that may call (repeatable)", MEMBER(server.allowed_origins));
    table.text("ready-file", "file that gets the URL once the server is ready", MEMBER(ready_file));
}

void add_functions(Table& table) {
    table.group = "What it shares";
    table.list("load", "plugin with shared functions, a .so (repeatable)", MEMBER(plugins));
    table.list("model",
               "model as name=path, of TorchScript or AOTInductor (.pt2): its methods become name.method (repeatable)",
               MEMBER(server.models));
    table.text("libtorch",
               "folder of the libtorch that models run on (python3 -c \"import torch; print(torch.__path__[0])\"); "
               "default: looked for",
               MEMBER(server.libtorch));
    table.list("model-folder", "folder whose TorchScript files an admin may load by model.load (repeatable)",
               MEMBER(server.model_folders));
}

void add_running(Table& table) {
    table.group = "How it runs";
    table.count("workers", "threads that run functions; 0: max(4, cores)", 0, MEMBER(server.workers), 4096);
    table.count("torch-threads", "threads of each thread that calls libtorch; 0: max(1, cores / workers)", 0,
                MEMBER(server.torch_threads), 4096);
    table.count("queue",
                "calls and tasks that wait for a worker; tasks leave an eighth free; more are refused with -32001", 1,
                MEMBER(server.queue));
    table.time("timeout", "deadline of a call that names none", MEMBER(server.call_timeout));
    table.time("drain-time", "how long calls in flight may take after SIGTERM", MEMBER(server.drain_time));
    table.flag("cache", "keep results of functions marked cached (--no-cache: never)", MEMBER(server.cache));
    table.size("cache-bytes", "of all kept results", MEMBER(server.cache_bytes));
    table.text("service-name", "what server.info calls the service that runs here", MEMBER(server.service_name));
    table.text("service-version", "likewise its version", MEMBER(server.service_version));
    table.text("compression", "content codings for clients that ask, in order of choice: zstd, gzip; none",
               MEMBER(server.compression));
    table.add(
        "compression-level", OptionKind::value, "1 (fast) to 9 (small)",
        [](DaemonOptions& o, const std::string& v) { o.server.compression_level = parse_number<int>(v, 1, 9); },
        [](const DaemonOptions& o) { return json(o.server.compression_level); });
    table.add(
        "log-level", OptionKind::value, "trace, debug, info, warn, error or off",
        [](DaemonOptions& o, const std::string& v) {
            log::parse_level(v);
            o.log_level = v;
        },
        [](const DaemonOptions& o) { return json(o.log_level); });
}

void add_limits(Table& table) {
    table.group = "Limits";
    table.size("max-json-bytes", "JSON of a request", MEMBER(server.max_json_bytes));
    table.count("max-json-depth", "levels of arrays and objects", 1, MEMBER(server.max_json_depth), 1000);
    table.size("max-body-bytes", "of a binary request", MEMBER(server.max_body_bytes));
    table.size("max-bytes-in-flight", "request bodies and copies of arguments held at once; 0: a quarter of the memory",
               MEMBER(server.max_bytes_in_flight));
    table.count("max-chunks", "of one chunked request", 1, MEMBER(server.max_chunks), 1'000'000'000);
    table.count("min-bytes-per-second", "what a binary request or an answer must move on average; 0: no bound", 0,
                MEMBER(server.min_bytes_per_second), 1'000'000'000);
    table.count("max-batch-items", "requests in a batch", 1, MEMBER(server.max_batch_items));
    table.size("max-batch-reply-bytes", "answers of a batch", MEMBER(server.max_batch_reply_bytes));
    table.size("max-reply-json-bytes", "JSON of an answer", MEMBER(server.max_reply_json_bytes));
    table.count("max-reply-data-elements", "of a tensor that an answer writes as nested lists", 1,
                MEMBER(server.max_reply_data_elements), 1'000'000'000);
    table.count("max-connections", "open at once", 1, MEMBER(server.max_connections));
    table.count("max-untrusted-connections",
                "of clients that have not shown a token yet, and of other users of this host; 0: a quarter of "
                "max-connections",
                0, MEMBER(server.max_untrusted_connections));
    table.count("max-client-connections",
                "of one address, user or principal; 0: any number from loopback, else half of max-connections", 0,
                MEMBER(server.max_client_connections));
    table.count("max-client-requests", "of one client, a second on average; 0: any number", 0,
                MEMBER(server.max_client_requests), 1'000'000'000);
    table.size(
        "max-client-bytes-in-flight",
        "request bodies of one client held at once; 0: half of max-bytes-in-flight, all for the server's own user",
        MEMBER(server.max_client_bytes_in_flight));
    table.size("max-header-bytes", "one header line", MEMBER(server.max_header_bytes));
    table.count("max-headers", "header lines of a request", 1, MEMBER(server.max_headers));
    table.time("header-timeout", "until a request's headers are whole", MEMBER(server.header_timeout));
    table.time("body-timeout", "until a JSON request is whole", MEMBER(server.body_timeout));
    table.time("body-stall-timeout", "between two reads of a binary request", MEMBER(server.body_stall_timeout));
    table.time("idle-timeout", "of a connection without a request", MEMBER(server.idle_timeout));
    table.time("write-timeout", "of a client that reads nothing", MEMBER(server.write_timeout));
    table.time("max-wait", "task.wait, task.result and tensor.watch, a request", MEMBER(server.max_wait));
    table.count("max-tasks", "tasks kept", 1, MEMBER(server.max_tasks));
    table.time("task-ttl", "how long a finished task is kept", MEMBER(server.task_ttl));
    table.size("max-task-bytes", "results of finished tasks, host and device apart", MEMBER(server.max_task_bytes));
    table.count("idempotency-keys", "kept of calls that ended", 1, MEMBER(server.idempotency_keys));
    table.time("idempotency-window", "how long a key is known after its call ended", MEMBER(server.idempotency_window));
    table.size("idempotency-bytes", "results held for idempotency keys", MEMBER(server.idempotency_bytes));
    table.count("max-sessions", "sessions over HTTP, and for each local channel", 1, MEMBER(server.max_sessions));
    table.time("session-idle", "end of a session that is not used", MEMBER(server.session_idle));
    table.size("max-shared-bytes", "shared memory for results, kept warm or in use; 0: half of the memory",
               MEMBER(server.max_shared_bytes));
    table.count("max-segments", "of shared memory, each with a descriptor; 0: by the limit of open files (ulimit -n)",
                0, MEMBER(server.max_segments), 10'000'000);
    table.count("max-local-channels", "processes that share memory with the server", 1,
                MEMBER(server.max_local_channels));
    table.count("max-leases", "tensors lent to all clients", 1, MEMBER(server.max_leases), 10'000'000);
    table.count("max-client-leases", "tensors lent to one client", 1, MEMBER(server.max_client_leases), 10'000'000);
    table.count("max-models", "models that are loaded on request", 0, MEMBER(server.max_models), 10'000);
    table.count("max-web-sockets", "WebSockets open at once", 1, MEMBER(server.max_web_sockets), 100'000);
    table.count("max-streams", "calls that stream, at once; each has a thread that is none of the workers", 1,
                MEMBER(server.max_streams), 100'000);
    table.count("max-socket-calls", "calls at once of one WebSocket", 1, MEMBER(server.max_socket_calls), 10'000);
    table.count("max-socket-watches", "tasks that one WebSocket watches", 1, MEMBER(server.max_socket_watches),
                10'000'000);
    table.count("stream-window-items", "items of a stream on their way to a function", 1,
                MEMBER(server.stream_window_items), 10'000'000);
    table.size("stream-window-bytes", "likewise, in bytes; the last item may go beyond",
               MEMBER(server.stream_window_bytes));
    table.time("socket-idle", "end of a WebSocket whose other side answers no ping", MEMBER(server.socket_idle));
    table.count("max-objects", "handles of objects that all clients hold", 1, MEMBER(server.max_objects), 10'000'000);
    table.count("max-client-objects", "handles of objects that one principal holds", 1,
                MEMBER(server.max_client_objects), 10'000'000);
    table.time("object-idle", "end of a handle without a session that is not used", MEMBER(server.object_idle));
    table.time("lease-ttl", "of clients without a local channel, from their last renewal", MEMBER(server.lease_ttl));
    table.size("max-kept-bytes",
               "tensors leased to clients without a local channel, to be fetched; 0: a quarter of the memory",
               MEMBER(server.max_kept_bytes));
    table.time("lease-confirm-within",
               "end of a lease whose client did not say that it has the tensor (ours do within 2 s)",
               MEMBER(server.lease_confirm_within));
    table.count("max-named-tensors", "tensors and sets kept by name", 1, MEMBER(server.max_named_tensors), 10'000'000);
    table.count("max-set-members", "tensors in one named set", 1, MEMBER(server.max_set_members), 10'000'000);
    table.size("max-upload-bytes", "files that are being put and not complete; 0: a quarter of the memory",
               MEMBER(server.max_upload_bytes));
    table.size("max-client-upload-bytes", "such files of one principal that is no admin; 0: half of those",
               MEMBER(server.max_client_upload_bytes));
    table.count("max-uploads", "such files", 1, MEMBER(server.max_uploads), 10'000'000);
    table.count("max-client-uploads", "such files of one principal", 1, MEMBER(server.max_client_uploads), 10'000'000);
    table.time("upload-ttl", "end of such a file without another part", MEMBER(server.upload_ttl));
    table.size("max-named-bytes", "tensors kept by name, the versions of now; 0: a quarter of the memory",
               MEMBER(server.max_named_bytes));
}

#undef MEMBER

std::vector<OptionEntry> make_table() {
    Table table;
    add_listening(table);
    add_functions(table);
    add_running(table);
    add_limits(table);
    return std::move(table.entries);
}

}  // namespace

const std::vector<OptionEntry>& option_table() {
    static const auto* const kTable = new std::vector<OptionEntry>(make_table());
    return *kTable;
}

}  // namespace shared_tensor::daemon
