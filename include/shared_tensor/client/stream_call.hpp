#pragma once

// Calls of functions with streams (<shared_tensor/stream.hpp>).
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

/// The caller's side of a call with streams. Implemented by the library. Thread safety: any thread may call any method.
class CallerStreams {
public:
    virtual ~CallerStreams() = default;
    /// Call it once for each stream. Throws std::invalid_argument if no stream has that name, or for a second call.
    virtual std::shared_ptr<ItemSource> source(std::string_view name) = 0;
    virtual std::shared_ptr<ItemSink> sink(std::string_view name) = 0;
    virtual void result(ResultSlot& slot) = 0;
    virtual void cancel() noexcept = 0;
};

}  // namespace detail

/// A call of a function with streams, started by Client::stream() on a connection of its own.
///
/// Ownership: it can be moved, not copied. Its destructor cancels the call if it is not over. Readers and Writers may
/// outlive it; then they throw Cancelled.
/// Thread safety: any thread may call any method.
template <class R = void>
class StreamCall {
public:
    StreamCall(StreamCall&& other) noexcept = default;
    /// Cancels the call that it held before, if that is not over.
    StreamCall& operator=(StreamCall&& other) noexcept {
        StreamCall taken(std::move(other));
        std::swap(streams_, taken.streams_);
        return *this;
    }
    ~StreamCall() { cancel(); }

    /// Returns the Reader of a stream that the function writes. `name` is the parameter's name; it may be omitted if
    /// there is only one such stream. Call it once for each stream. Throws std::invalid_argument if the function has no
    /// such stream.
    template <class T>
    Reader<T> reader(std::string_view name = {}) {
        return Reader<T>(streams_->source(name));
    }
    /// Returns the Writer of a stream that the function reads. See reader().
    template <class T>
    Writer<T> writer(std::string_view name = {}) {
        return Writer<T>(streams_->sink(name));
    }

    /// Blocks until the function has returned; returns its result or throws its error. Call it once. End all Writers
    /// before, because the function may wait for the end of its input. A stream without a Reader is stopped. A stream
    /// with a Reader must be read by another thread, or fit into its window.
    R result() {
        detail::ResultOf<R> slot;
        streams_->result(slot);
        return slot.take();
    }

    /// Cancels the call: notifies the function, and all waiting methods throw Cancelled. Does not block.
    void cancel() noexcept {
        if (streams_ != nullptr) streams_->cancel();
    }

private:
    friend class Client;
    explicit StreamCall(std::shared_ptr<detail::CallerStreams> streams) : streams_(std::move(streams)) {}

    std::shared_ptr<detail::CallerStreams> streams_;
};

}  // namespace shared_tensor
