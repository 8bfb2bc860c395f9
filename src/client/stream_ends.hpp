#pragma once

#include <deque>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <shared_tensor/stream_call.hpp>

#include "client/core.hpp"
#include "http/web_socket.hpp"
#include "streams/inflow.hpp"
#include "streams/outflow.hpp"
#include "streams/word.hpp"
#include "util/process_mark.hpp"

namespace shared_tensor::client {

/// What came of a call: its result as it came, or why there is none.
struct StreamOutcome {
    streams::Item result{};
    std::exception_ptr error{};
};

/// How far a call is.
struct StreamState {
    bool ready = false;  ///< the server is about to run it
    std::optional<StreamOutcome> outcome{};
};

/// What the ends of a call's streams share. Thread-safe.
struct StreamLine {
    std::shared_ptr<Core> core;
    CallOptions options;
    json_rpc::Json id;
    std::string method;
    std::string memory;  ///< the session whose memory its messages may name; empty: none
    std::shared_ptr<http::WebSocket> socket;
    Guarded<StreamState> state{};
    const ProcessMark process{};
    bool is_here() const { return process.is_here(); }
    /// Throws TransportFailure in a forked child.
    void check_process() const;

    void say(std::string json) const;
    /// Throws the call's error; returns when it ended well, or goes on.
    void check() const;
};

/// One stream of a call, and what is on its way.
struct CallerFlow {
    streams::StreamInfo info;
    std::shared_ptr<streams::Inflow> in{};    ///< of what the client reads
    std::shared_ptr<streams::Outflow> out{};  ///< of what it writes
    /// Tensors in shared memory that the server has not taken, by the number of their item.
    using Lent = std::deque<std::pair<std::uint64_t, std::unique_ptr<OutgoingTensors>>>;
    std::shared_ptr<Guarded<Lent>> lent = std::make_shared<Guarded<Lent>>();
    bool given = false;  ///< to a Reader or Writer

    /// The server has taken so many items. False for what cannot be.
    bool taken(std::uint64_t items) const;
    /// The function has returned: it reads none of them any more.
    void all_read() const;
};

/// Of the tensors that an item brought.
std::vector<std::string> leases_in(const streams::Item& item);
/// Nobody will read them.
void give_up(const std::deque<streams::Item>& items, Core& core) noexcept;
void give_up(const streams::Item& item, Core& core) noexcept;

std::shared_ptr<detail::ItemSource> make_source(std::shared_ptr<StreamLine> line, const CallerFlow& flow,
                                                std::shared_ptr<void> call);
std::shared_ptr<detail::ItemSink> make_sink(std::shared_ptr<StreamLine> line, const CallerFlow& flow,
                                            std::shared_ptr<detail::CallerStreams> call);

/// A value that came, read; throws ResultMismatch for what is not what `slot` wants.
void read_value(streams::Item item, StreamLine& line, detail::ResultSlot& slot);

}  // namespace shared_tensor::client
