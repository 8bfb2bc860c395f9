// The command shared-tensor stream: calls a streaming function from the terminal. Sends the lines of standard input, a
// JSON value each, to the function's input stream; prints the items of its output streams as they come.

#include <poll.h>
#include <unistd.h>

#include <array>
#include <iostream>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <shared_tensor/client/stream_call.hpp>

#include "cli/commands.hpp"

namespace shared_tensor::cli {

namespace {

struct StreamNames {
    std::vector<std::string> read, written;  ///< streams that the function reads, and streams that it writes
};

StreamNames streams_of(const Client& client, const std::string& name) {
    StreamNames names;
    const codec::Json document = parse_answer(client.discover());
    for (const auto& method : document.value("methods", codec::Json::array())) {
        if (method.value("name", "") != name || !method.contains("x-streams")) continue;
        for (const auto& stream : method.at("x-streams")) {
            auto& list = stream.value("flow", "") == "in" ? names.read : names.written;
            list.push_back(stream.value("name", ""));
        }
    }
    return names;
}

/// The lines of standard input, until its end or until `stop` is requested.
class InputLines {
public:
    /// False at the end of the input.
    bool next(std::string& line, const std::stop_token& stop) {
        while (true) {
            if (const auto end = buffer_.find('\n'); end != std::string::npos) {
                line = buffer_.substr(0, end);
                buffer_.erase(0, end + 1);
                return true;
            }
            if (ended_ || !fill(stop)) {
                line = std::exchange(buffer_, {});
                return !line.empty();
            }
        }
    }

private:
    bool fill(const std::stop_token& stop) {
        constexpr int kLookAgain = 100;  // ms
        pollfd input{STDIN_FILENO, POLLIN, 0};
        while (::poll(&input, 1, kLookAgain) == 0) {
            if (stop.stop_requested()) return false;
        }
        std::array<char, 4096> bytes;
        const ssize_t got = ::read(STDIN_FILENO, bytes.data(), bytes.size());
        ended_ = got <= 0;
        if (got > 0) buffer_.append(bytes.data(), static_cast<std::size_t>(got));
        return !ended_;
    }

    std::string buffer_;
    bool ended_ = false;
};

/// Keeps a failure in `failed`; the command rethrows it at its end.
void write_lines(Writer<Dynamic>& items, const std::stop_token& stop, std::exception_ptr& failed) {
    try {
        InputLines lines;
        for (std::string line; lines.next(line, stop);) {
            if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
            if (!items.write(read_value(line))) return;
        }
        items.end();
    } catch (const RpcError&) {  // the call failed: result() throws
    } catch (...) {
        failed = std::current_exception();
    }
}

class StreamPrinter {
public:
    StreamPrinter(bool json, bool named) : json_(json), named_(named) {}
    void item(const std::string& stream, const Dynamic& value) {
        const std::string text = json_    ? compact({{"stream", stream}, {"item", to_json(value)}})
                                 : named_ ? stream + ": " + show(value)
                                          : show(value);
        const std::lock_guard lock(mutex_);  // so that lines of several streams do not mix
        print_line(text);
    }
    void result(const Dynamic& value) const {
        if (json_) return print_line(compact({{"result", to_json(value)}}));
        if (!value.value.json.is_null()) print_line("result: " + show(value));
    }

private:
    const bool json_, named_;
    std::mutex mutex_;
};

}  // namespace

int stream(const CommandLine& line) {
    const std::string& name = line.words.front();
    const Client client = connect(line);
    const StreamNames names = streams_of(client, name);
    if (names.read.size() > 1)
        throw UsageError(name + " reads several streams: call it from a program (docs/streams.md)");
    const TypedArguments arguments({line.words.begin() + 1, line.words.end()});
    auto call = client.stream<Dynamic>(name, arguments);

    std::exception_ptr input_failed, output_failed;
    std::jthread writing;
    if (!names.read.empty()) {
        writing = std::jthread([items = call.writer<Dynamic>(names.read.front()), &call,
                                &input_failed](const std::stop_token& stop) mutable {
            write_lines(items, stop, input_failed);
            if (input_failed) call.cancel();
        });
    }
    StreamPrinter printer(line.json, names.written.size() > 1);
    std::vector<std::jthread> printing;
    for (const std::string& written : names.written) {
        printing.emplace_back(
            [items = call.reader<Dynamic>(written), written, &printer, &call, &output_failed]() mutable {
                try {
                    for (const Dynamic& item : items)
                        printer.item(written, item);
                } catch (const RpcError&) {  // the call failed: result() throws
                } catch (...) {
                    output_failed = std::current_exception();
                    call.cancel();
                }
            });
    }
    printing.clear();
    std::exception_ptr call_failed;
    std::optional<Dynamic> result;
    try {
        result = call.result();
    } catch (...) {
        call_failed = std::current_exception();
    }
    writing = {};
    if (output_failed) std::rethrow_exception(output_failed);
    if (input_failed) std::rethrow_exception(input_failed);
    if (call_failed) std::rethrow_exception(call_failed);
    printer.result(*result);
    return kOk;
}

}  // namespace shared_tensor::cli
