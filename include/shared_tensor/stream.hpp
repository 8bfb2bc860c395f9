#pragma once

// Streams of values between a shared function and its caller, in either direction or both at once.
//
//     void detect(Reader<at::Tensor> windows, Writer<float> probabilities) {
//         while (auto window = windows.next()) probabilities.write(probability_of(*window));
//     }
//     SHARE(detect, arg("windows"), arg("probabilities"));
//
// A function may take any number of Readers and Writers beside its other parameters. An item may have any type that a
// shared function may take or return. Callers use Client::stream() (<shared_tensor/client/stream_call.hpp>), a
// WebSocket of their own, or, if the function only writes, Server-Sent Events (docs/streams.md).
//
// Items arrive whole, in order, and once. The window limits the items that are sent and not yet read: the writer waits
// for the reader.

#include <cstddef>
#include <exception>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <stdexcept>
#include <utility>

#include <shared_tensor/codecs.hpp>
#include <shared_tensor/value.hpp>

namespace shared_tensor {

namespace detail {

/// Supplies the items of a Reader. Implemented by the library. One thread at a time.
class ItemSource {
public:
    virtual ~ItemSource() = default;
    using Read = std::function<void(const ValueReader&)>;
    /// Blocks until an item is there and reads it. Returns false at the end of the stream.
    virtual bool next(const Read& read) = 0;
    /// Tells the writer that no more items are wanted. Does not block.
    virtual void stop() noexcept = 0;
};

/// Takes the items of a Writer. Implemented by the library. One thread at a time.
class ItemSink {
public:
    virtual ~ItemSink() = default;
    using Write = std::function<void(ValueWriter)>;
    /// Blocks while the window is full. Returns false if the reader wants no more items.
    virtual bool put(const Write& write) = 0;
    virtual void end() = 0;
    /// The Writer is destroyed; `thrown`: because of an exception. Does not block.
    virtual void leave(bool thrown) noexcept = 0;
};

/// The streams of a running call, by the index of their parameters. Implemented by the server.
class CallStreams {
public:
    virtual std::shared_ptr<ItemSource> source(std::size_t parameter) = 0;
    virtual std::shared_ptr<ItemSink> sink(std::size_t parameter) = 0;

protected:
    ~CallStreams() = default;
};

}  // namespace detail

/// An item of a stream does not fit the Reader's type. If a shared function does not catch it, the call fails with
/// -32602, because the caller sent the item.
class [[gnu::visibility("default")]] BadItem : public InvalidValue {
public:
    using InvalidValue::InvalidValue;
};

/// The reading end of a stream.
///
/// Ownership: it can be moved, not copied. Its destructor tells the writer that no more items are wanted.
/// Thread safety: one thread at a time; another thread may use a Writer of the same call.
/// Errors: the error that ended the call in the middle of the stream. In a shared function: CancelledError if the
/// caller is gone or cancelled the call, or the deadline is over; BadItem if an item is not a T (the next item can be
/// read after that). In a client: children of RpcError; ResultMismatch if an item is not a T.
template <class T>
class Reader {
    static_assert(Shareable<T>, "Reader<T>: no Codec for T: " SHARED_TENSOR_DETAIL_CODEC_HINT);

public:
    using Item = T;
    Reader() = default;  ///< without a stream: next() throws std::logic_error
    explicit Reader(std::shared_ptr<detail::ItemSource> source) : source_(std::move(source)) {}
    Reader(Reader&& other) noexcept : source_(std::move(other.source_)) {}
    Reader& operator=(Reader&& other) noexcept {
        Reader before(std::move(other));
        std::swap(source_, before.source_);
        return *this;
    }
    ~Reader() {
        if (source_ != nullptr) source_->stop();
    }

    /// Returns the next item. At the end of the stream, returns nullopt from then on. Blocks until an item or the end
    /// arrives.
    std::optional<T> next() {
        if (source_ == nullptr) throw std::logic_error("this Reader belongs to no stream");
        std::optional<T> item;
        source_->next([&](const ValueReader& reader) { item.emplace(Codec<T>::read(reader)); });
        return item;
    }

    /// For `for (at::Tensor& window : windows)`. It calls next(), so each item is visited once.
    class Iterator {
    public:
        using iterator_category = std::input_iterator_tag;
        using value_type = T;
        using difference_type = std::ptrdiff_t;
        explicit Iterator(Reader* reader) : reader_(reader) { ++*this; }
        T& operator*() const { return *item_; }
        Iterator& operator++() {
            item_ = reader_->next();
            return *this;
        }
        void operator++(int) { ++*this; }
        friend bool operator==(const Iterator& at, std::default_sentinel_t) { return !at.item_; }

    private:
        Reader* reader_;
        mutable std::optional<T> item_;
    };
    Iterator begin() { return Iterator(this); }
    std::default_sentinel_t end() const { return {}; }

private:
    std::shared_ptr<detail::ItemSource> source_;
};

/// The writing end of a stream.
///
/// Ownership: it can be moved, not copied. In a client, its destructor ends the stream. If an exception destroys it,
/// the call is cancelled, so that the function does not take a part of the stream for the whole. In a shared function,
/// all streams end with the call, with the call's error if it failed.
/// Thread safety: one thread at a time.
/// Errors: see Reader; InvalidValue, std::invalid_argument or TransportNotPossible for an item that cannot be sent.
template <class T>
class Writer {
    static_assert(Shareable<T>, "Writer<T>: no Codec for T: " SHARED_TENSOR_DETAIL_CODEC_HINT);

public:
    using Item = T;
    Writer() = default;  ///< without a stream: write() throws std::logic_error
    explicit Writer(std::shared_ptr<detail::ItemSink> sink)
        : sink_(std::move(sink)), exceptions_(std::uncaught_exceptions()) {}
    Writer(Writer&& other) noexcept : sink_(std::move(other.sink_)), exceptions_(other.exceptions_) {}
    Writer& operator=(Writer&& other) noexcept {
        Writer before(std::move(other));
        std::swap(sink_, before.sink_);
        std::swap(exceptions_, before.exceptions_);
        return *this;
    }
    ~Writer() {
        if (sink_ != nullptr) sink_->leave(std::uncaught_exceptions() > exceptions_);
    }

    /// Sends an item. Blocks while the stream's window (ServerOptions, ClientOptions) is full. Returns false, and sends
    /// nothing, if the reader wants no more items. After it returns, the item's tensors may be written to, except
    /// tensors in shared memory and on devices: the reader uses their memory until the call is over.
    bool write(const T& item) {
        if (sink_ == nullptr) throw std::logic_error("this Writer belongs to no stream");
        return sink_->put([&](ValueWriter writer) { Codec<T>::write(writer, item); });
    }

    /// Ends the stream. The reader sees the end after it has read all items. write() must not be called after it.
    void end() {
        if (sink_ != nullptr) sink_->end();
    }

private:
    std::shared_ptr<detail::ItemSink> sink_;
    int exceptions_ = 0;
};

namespace detail {

template <class T>
inline constexpr bool kIsReader = false;
template <class T>
inline constexpr bool kIsReader<Reader<T>> = true;
template <class T>
inline constexpr bool kIsStream = kIsReader<T>;
template <class T>
inline constexpr bool kIsStream<Writer<T>> = true;

}  // namespace detail

}  // namespace shared_tensor
