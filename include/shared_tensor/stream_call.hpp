#pragma once

// Calls of functions that stream (<shared_tensor/stream.hpp>).
//
//     StreamCall<> call = client.stream("detect");
//     Writer<at::Tensor> windows = call.writer<at::Tensor>();
//     Reader<float> probabilities = call.reader<float>();
//     windows.write(window);
//     windows.end();
//     for (float probability : probabilities) ...
//     call.result();

#include <memory>
#include <string_view>
#include <utility>

#include <shared_tensor/detail/call.hpp>
#include <shared_tensor/stream.hpp>

namespace shared_tensor {

class Client;

namespace detail {

/// A call that streams, as its caller has it. Implemented by the library. Thread safety: all methods from any thread.
class CallerStreams {
public:
    virtual ~CallerStreams() = default;
    /// Each stream once. Throws std::invalid_argument when there is none of that name, or it was given already.
    virtual std::shared_ptr<ItemSource> source(std::string_view name) = 0;
    virtual std::shared_ptr<ItemSink> sink(std::string_view name) = 0;
    virtual void result(ResultSlot& slot) = 0;
    virtual void cancel() noexcept = 0;
};

}  // namespace detail

/// One call of a function that streams. It runs from Client::stream() on, over a connection of its own.
///
/// Ownership: moved and not copied. Without it the call is cancelled, unless it is over; its Readers and Writers may
/// live longer, and throw Cancelled then.
/// Thread safety: all methods from any thread.
template <class R = void>
class StreamCall {
public:
    StreamCall(StreamCall&& other) noexcept = default;
    StreamCall& operator=(StreamCall&& other) noexcept {
        std::swap(streams_, other.streams_);
        return *this;
    }
    ~StreamCall() {
        if (streams_ != nullptr) streams_->cancel();
    }

    /// What the function writes, by its parameter's name, which may be left out where there is one only. Once for each
    /// stream. Throws std::invalid_argument when the function has no such stream.
    template <class T>
    Reader<T> reader(std::string_view name = {}) {
        return Reader<T>(streams_->source(name));
    }
    /// What the function reads; likewise.
    template <class T>
    Writer<T> writer(std::string_view name = {}) {
        return Writer<T>(streams_->sink(name));
    }

    /// Blocks until the function has returned, and throws its error. Writers end before: the function may wait for
    /// them. Streams that no Reader was asked for are told that no more is wanted; those of a Reader have to be read by
    /// another thread, or be short enough for their window. Once.
    R result() {
        detail::ResultOf<R> slot;
        streams_->result(slot);
        return slot.take();
    }

    /// The function is told, and everything that waits for it throws Cancelled. Does not block.
    void cancel() noexcept { streams_->cancel(); }

private:
    friend class Client;
    explicit StreamCall(std::shared_ptr<detail::CallerStreams> streams) : streams_(std::move(streams)) {}

    std::shared_ptr<detail::CallerStreams> streams_;
};

}  // namespace shared_tensor
