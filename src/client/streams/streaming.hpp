#pragma once

#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_set>
#include <utility>
#include <vector>

#include <shared_tensor/client/options.hpp>
#include <shared_tensor/client/stream_call.hpp>

#include "base/system/fork.hpp"
#include "client/call/core.hpp"
#include "client/call/failure.hpp"
#include "net/web_socket/web_socket.hpp"
#include "protocol/json_rpc/message.hpp"
#include "streams/ends.hpp"

namespace shared_tensor::client {

/// The outcome of a call: its result, not read yet, or its error.
struct StreamOutcome {
    streams::Item result{};
    std::exception_ptr error{};
};

/// A call that streams, and the thread that reads its socket. A thread that waits for an item may read instead (inline
/// read). The ends of the call's streams keep it alive.
class Streaming final : public detail::CallerStreams,
                        public streams::Call,
                        public std::enable_shared_from_this<Streaming> {
public:
    struct Setup {
        std::shared_ptr<Core> core;
        std::shared_ptr<const void> session;  ///< kept for the time of the call
        CallOptions options;
        json_rpc::Json id;
        std::string method;
        std::string memory;  ///< the session whose memory its messages may name; empty: none
        std::shared_ptr<net::WebSocket> socket;
        std::optional<SteadyTime> deadline;  ///< of the whole call, if its caller set one
    };
    explicit Streaming(Setup setup) : setup_(std::move(setup)) {}
    Streaming(const Streaming&) = delete;
    Streaming& operator=(const Streaming&) = delete;
    ~Streaming() override;

    /// Sends the request and blocks until the server is ready. Throws the error that the server answered instead, and
    /// DeadlineExceeded.
    void open(const Outgoing& request, SteadyTime deadline);

    std::shared_ptr<detail::ItemSource> source(std::string_view name) override {
        check_process();
        return shared_in_its_process(new streams::Source(shared_from_this(), give(name, false)));
    }
    std::shared_ptr<detail::ItemSink> sink(std::string_view name) override {
        check_process();
        return shared_in_its_process(new streams::Sink(shared_from_this(), give(name, true)));
    }
    void result(detail::ResultSlot& slot) override;
    void cancel() noexcept override;

private:
    struct State {
        bool ready = false;                       ///< the server is about to run the function
        bool answered = false;                    ///< the server has read the request to its end
        std::vector<streams::Flow> flows{};       ///< known once `ready`
        std::unordered_set<std::string> given{};  ///< names of the streams that have a Reader or Writer
        std::optional<StreamOutcome> outcome{};
    };

    // streams::Call
    const json_rpc::Json& id() const override { return setup_.id; }
    std::shared_ptr<net::WebSocket> socket() const override { return setup_.socket; }
    void check_process() const override {
        if (!process_.is_here()) throw_of_parent("the call " + setup_.method, "call it again here");
    }
    void check() const override;
    void say(std::string json) override { setup_.socket->send(false, {net::text_part(std::move(json))}); }
    void abandon() noexcept override { setup_.socket->abort(); }
    void read(const streams::Flow& flow, streams::Item item, const Read& read) override;
    void send(const streams::Flow& flow, std::string text_before, const Write& write) override;
    void abandon(const std::deque<streams::Item>& items) noexcept override;
    void leave(const streams::Flow& flow, bool thrown) noexcept override;

    streams::Flow give(std::string_view name, bool written);
    void run();
    void receive(const net::WebSocketMessage& message);
    void hear(const streams::StreamMessage& stream_message, streams::Item item);
    void become_ready(const streams::StreamMessage& stream_message);
    void take_answer(json_rpc::Response answer, streams::Item item);
    void finish(StreamOutcome outcome, bool then_read);
    template <class Error>
    void fail(Error error, bool then_read = true) {
        finish({{}, std::make_exception_ptr(std::move(error))}, then_read);
    }
    Cancelled cancelled() const;
    void break_off(std::string_view why);
    std::string required() const;
    void read_value(streams::Item item, detail::ResultSlot& slot) const;
    std::vector<streams::Flow> flows() const;
    streams::Item take_result();

    const Setup setup_;
    const ProcessMark process_{};
    Guarded<State> state_;
    std::optional<std::stop_callback<std::function<void()>>> on_stop_;
    streams::LastItem last_item_;  ///< used only by the thread that reads
    std::jthread thread_;          // last: it uses the other members
};

/// Starts a call that streams, on its own WebSocket. Blocks until the server is about to run the function. The call
/// keeps `session`. Throws as calls do.
std::shared_ptr<detail::CallerStreams> open_stream(const std::shared_ptr<Core>& core,
                                                   std::shared_ptr<const void> session, std::string_view method,
                                                   const CallArguments& arguments, const CallOptions& options);

}  // namespace shared_tensor::client
