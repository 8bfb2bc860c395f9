#pragma once

// Streams of values between a shared function and its caller, in either direction or both at once.
//
//     void detect(Reader<at::Tensor> windows, Writer<float> probabilities) {
//         while (auto window = windows.next()) probabilities.write(probability_of(*window));
//     }
//     SHARE(detect, arg("windows"), arg("probabilities"));
//
// A function takes any number of each beside its other parameters; an item is anything that a shared function may take
// or return. Its caller uses Client::stream() (<shared_tensor/stream_call.hpp>), a WebSocket of its own, or, where it
// only writes, Server-Sent Events (docs/streams.md).
//
// Items arrive whole, in order, each once. What is on its way is bounded: who writes waits for who reads.

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

/// Where the items of a Reader come from. Implemented by the library. One thread at a time.
class ItemSource {
public:
    virtual ~ItemSource() = default;
    using Read = std::function<void(const ValueReader&)>;
    /// Blocks until an item is there and reads it; false at the end.
    virtual bool next(const Read& read) = 0;
    /// No more is wanted. Does not block.
    virtual void stop() noexcept = 0;
};

/// Where the items of a Writer go. Implemented by the library. One thread at a time.
class ItemSink {
public:
    virtual ~ItemSink() = default;
    using Write = std::function<void(ValueWriter)>;
    /// Blocks while too much is on its way; false when the reader wants no more.
    virtual bool put(const Write& write) = 0;
    virtual void end() = 0;
    /// The Writer goes, in order or because something was thrown. Does not block.
    virtual void leave(bool thrown) noexcept = 0;
};

/// The streams of a running call, by the place of their parameters. Implemented by the server.
class CallStreams {
public:
    virtual std::shared_ptr<ItemSource> source(std::size_t parameter) = 0;
    virtual std::shared_ptr<ItemSink> sink(std::size_t parameter) = 0;

protected:
    ~CallStreams() = default;
};

}  // namespace detail

/// An item of a stream that is no T. A shared function that lets it out ends with -32602: it was its caller's.
class [[gnu::visibility("default")]] BadItem : public InvalidValue {
public:
    using InvalidValue::InvalidValue;
};

/// The reading end of a stream.
///
/// Ownership: the stream's own end, moved and not copied; without it the other side is told that no more is wanted.
/// Thread safety: one thread at a time; a Writer of the same call may be used by another.
/// Errors: what ended the call in the middle of the stream. In a shared function: CancelledError when the caller is
/// gone, cancelled, or the deadline is past; BadItem for an item that is no T, after which the next one can be read. In
/// a client: RpcError's children, ResultMismatch for an item that is no T.
template <class T>
class Reader {
    static_assert(Shareable<T>,
                  "Reader<T>: no Codec for T: use SHARED_TENSOR_FIELDS / SHARED_TENSOR_ENUM "
                  "(<shared_tensor/struct.hpp>) or <shared_tensor/json.hpp>; for at::Tensor include "
                  "<shared_tensor/torch.hpp>");

public:
    using Item = T;
    Reader() = default;  ///< of no stream: next() throws std::logic_error
    explicit Reader(std::shared_ptr<detail::ItemSource> source) : source_(std::move(source)) {}
    Reader(Reader&& other) noexcept : source_(std::move(other.source_)) {}
    Reader& operator=(Reader&& other) noexcept {
        if (this != &other) {
            leave();
            source_ = std::move(other.source_);
        }
        return *this;
    }
    ~Reader() { leave(); }

    /// The next item; nothing at the end of the stream, now and from then on. Blocks until one of them is there.
    std::optional<T> next() {
        if (source_ == nullptr) throw std::logic_error("this Reader belongs to no stream");
        std::optional<T> item;
        source_->next([&](const ValueReader& reader) { item.emplace(Codec<T>::read(reader)); });
        return item;
    }

    /// for (at::Tensor& window : windows): as next() does. Once.
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
    void leave() noexcept {
        if (source_ != nullptr) source_->stop();
        source_ = nullptr;
    }
    std::shared_ptr<detail::ItemSource> source_;
};

/// The writing end of a stream.
///
/// Ownership: as Reader. In a client the stream ends with it; when it goes because an exception is thrown, the call is
/// cancelled, so that nobody takes half a stream for a whole one. In a shared function all streams end with the call,
/// with its error if it has one.
/// Thread safety: one thread at a time.
/// Errors: as Reader; InvalidValue, std::invalid_argument or TransportNotPossible for an item that cannot be sent.
template <class T>
class Writer {
    static_assert(Shareable<T>,
                  "Writer<T>: no Codec for T: use SHARED_TENSOR_FIELDS / SHARED_TENSOR_ENUM "
                  "(<shared_tensor/struct.hpp>) or <shared_tensor/json.hpp>; for at::Tensor include "
                  "<shared_tensor/torch.hpp>");

public:
    using Item = T;
    Writer() = default;  ///< of no stream: write() throws std::logic_error
    explicit Writer(std::shared_ptr<detail::ItemSink> sink)
        : sink_(std::move(sink)), exceptions_(std::uncaught_exceptions()) {}
    Writer(Writer&& other) noexcept : sink_(std::move(other.sink_)), exceptions_(other.exceptions_) {}
    Writer& operator=(Writer&& other) noexcept {
        if (this != &other) {
            leave();
            sink_ = std::move(other.sink_);
            exceptions_ = other.exceptions_;
        }
        return *this;
    }
    ~Writer() { leave(); }

    /// Sends an item. Blocks while the reader is behind by the stream's window (ServerOptions, ClientOptions). False
    /// when the reader wants no more: the item goes nowhere. A tensor must not be written to until the call is over: it
    /// may be sent from where it lies.
    bool write(const T& item) {
        if (sink_ == nullptr) throw std::logic_error("this Writer belongs to no stream");
        return sink_->put([&](ValueWriter writer) { Codec<T>::write(writer, item); });
    }

    /// No more comes: the reader gets to know when it has read what came before. Nothing may be written after it.
    void end() {
        if (sink_ != nullptr) sink_->end();
    }

private:
    void leave() noexcept {
        if (sink_ != nullptr) sink_->leave(std::uncaught_exceptions() > exceptions_);
        sink_ = nullptr;
    }
    std::shared_ptr<detail::ItemSink> sink_;
    int exceptions_ = 0;
};

namespace detail {

template <class T>
struct StreamKind {
    static constexpr bool kReader = false, kWriter = false;
};
template <class T>
struct StreamKind<Reader<T>> {
    static constexpr bool kReader = true, kWriter = false;
};
template <class T>
struct StreamKind<Writer<T>> {
    static constexpr bool kReader = false, kWriter = true;
};
template <class T>
inline constexpr bool kIsStream = StreamKind<T>::kReader || StreamKind<T>::kWriter;

}  // namespace detail

}  // namespace shared_tensor
