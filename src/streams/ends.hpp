#pragma once

#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <shared_tensor/stream.hpp>

#include "codec/json_sink.hpp"
#include "http/web_socket.hpp"
#include "json_rpc/long_text.hpp"
#include "streams/inflow.hpp"
#include "streams/outflow.hpp"
#include "streams/word.hpp"

// The two ends that a call has of each of its streams: the function's in the server, the caller's in the client.

namespace shared_tensor::streams {

/// One stream of a call, at one side. Copies share what is on its way.
struct Flow {
    StreamInfo info;
    std::shared_ptr<Inflow> in{};    ///< where this side reads
    std::shared_ptr<Outflow> out{};  ///< where this side writes

    /// `in` or `out`, whichever this side needs, with its window.
    static Flow make(StreamInfo info, bool reads_here, const Window& in, const Window& out);
    /// The call is over: see Inflow::close() and Outflow::close(). Returns the items that will not be read.
    std::deque<Item> close(bool then_read) const;
};

/// The flow of that name; null for none.
const Flow* find(const std::vector<Flow>& flows, std::string_view name);

/// What became of a message of the other side.
struct Heard {
    std::string_view fault{};  ///< how it breaks the rules; empty where it does not
    bool item_kept = true;     ///< false: the item will not be read
};
/// Gives a message to its stream. `item` counts where the message is one. Does not block.
Heard hear(const Flow& flow, const Word& word, Item item);

/// A call that streams, as the ends of its streams use it: each side has its own. Thread-safe.
class Call {
public:
    /// Of the request.
    virtual const Json& id() const = 0;
    /// What brings the items that are read; null where none are, or nobody may read in its thread's place.
    virtual std::shared_ptr<http::WebSocket> socket() const = 0;
    /// Throws in a process where the call cannot be used.
    virtual void check_process() const {}
    /// The call is over. Throws its error; returns where it ended well.
    virtual void check() const = 0;
    /// Sends a message without tensors. Does not block.
    virtual void say(std::string json) = 0;
    /// A message could not be sent, so the other side would wait for ever: ends the connection. Does not block.
    virtual void abandon() noexcept = 0;

    using Read = detail::ItemSource::Read;
    using Write = detail::ItemSink::Write;
    /// Reads an item with its tensors. Throws for a value that `read` does not take, with its place.
    virtual void read(const Flow& flow, Item item, const Read& read) = 0;
    /// Sends an item whose text begins with `text_before`, and tells the flow's `out` of it.
    virtual void send(const Flow& flow, std::string text_before, const Write& write) = 0;
    /// These will not be read.
    virtual void give_up(const std::deque<Item>& items) noexcept = 0;
    /// The Writer of a stream goes, and has not ended it. Does not block.
    virtual void leave(const Flow& flow, bool thrown) noexcept = 0;

protected:
    ~Call() = default;
};

/// Appends the value of an item to `out`. Returns it with its tensors, which `port` describes.
codec::Value print_item(const detail::ItemSink::Write& write, codec::TensorPort& port,
                        codec::JsonSink::References references, const codec::DescribeObject& describe,
                        json_rpc::LongText& out);
/// Bytes of its tensors that are not in its message. `in_message`: those that are.
std::uint64_t bytes_elsewhere(const codec::Value& value, std::uint64_t in_message);

/// "windows[17].label"
std::string place_of(const Flow& flow, std::uint64_t item, const std::string& inside);

/// The end that reads. One thread at a time.
class Source final : public detail::ItemSource {
public:
    Source(std::shared_ptr<Call> call, Flow flow)
        : call_(std::move(call)), flow_(std::move(flow)), turns_(call_->socket()) {}
    bool next(const Read& read) override;
    void stop() noexcept override;

private:
    void tell(std::uint64_t taken) const noexcept;

    const std::shared_ptr<Call> call_;
    const Flow flow_;
    http::WebSocketTurns turns_;
    bool ended_ = false;
};

/// The end that writes. One thread at a time.
class Sink final : public detail::ItemSink {
public:
    Sink(std::shared_ptr<Call> call, Flow flow)
        : call_(std::move(call)), flow_(std::move(flow)), start_(item_start(call_->id(), flow_.info.name)) {}
    bool put(const Write& write) override;
    void end() override;
    void leave(bool thrown) noexcept override;

private:
    const std::shared_ptr<Call> call_;
    const Flow flow_;
    const std::string start_;
    bool ended_ = false;
};

}  // namespace shared_tensor::streams
